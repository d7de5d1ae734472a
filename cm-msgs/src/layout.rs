// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where fields lie in big-endian, bit-packed attributes, and how they get in and out.

use crate::fields::{FieldValue, PrivateData};
use crate::{Gid, Guid, Lid, PKey, Qpn};

/// A run of bits: bit 0 of `byte` is the most significant, and the run may cross bytes.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    byte: usize,
    bit: usize,
    width: usize,
}

impl Span {
    /// A span that fits into `len` bytes; the layouts make theirs in constants, so a wrong table
    /// does not compile.
    pub(crate) const fn within(len: usize, byte: usize, bit: usize, width: usize) -> Self {
        assert!(
            bit < 8 && byte * 8 + bit + width <= len * 8,
            "field outside its attribute"
        );
        Self { byte, bit, width }
    }

    fn bytes(self) -> core::ops::Range<usize> {
        self.byte..self.byte + (self.bit + self.width).div_ceil(8)
    }

    /// Its first bit, and the one after its last, in bits from the beginning.
    fn bits(self) -> (usize, usize) {
        let first = self.byte * 8 + self.bit;
        (first, first + self.width)
    }
}

/// IBA's tables have words of 32 bits, in which fields lie side by side: so an attribute is put together
/// and taken apart by words, each with one access to memory.
const WORD: usize = 32;

/// The word with this number; what is beyond the last byte is zero.
#[inline(always)]
fn word(bytes: &[u8], number: usize) -> u32 {
    let rest = &bytes[number * 4..];
    match rest.first_chunk() {
        Some(word) => u32::from_be_bytes(*word),
        None => {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(word)
        }
    }
}

/// Writes all words of an attribute.
#[inline(always)]
pub(crate) fn write_words(bytes: &mut [u8], words: &[u32]) {
    let (whole, rest) = bytes.as_chunks_mut::<4>();
    for (bytes, word) in whole.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    if let Some(last) = words.last().filter(|_| !rest.is_empty()) {
        rest.copy_from_slice(&last.to_be_bytes()[..rest.len()]);
    }
}

/// Reads a span of at most 64 bits. Where the span is a constant, as in all layouts, little is left
/// of this: hence inlined always, here and in [`Wire`].
#[inline(always)]
fn read_bits(bytes: &[u8], at: Span) -> u64 {
    let (first, end) = at.bits();
    let (one, last) = (first / WORD, (end - 1) / WORD);
    let whole = (one..=last).fold(0_u128, |sum, number| {
        sum << WORD | u128::from(word(bytes, number))
    });
    let mask = (1_u128 << at.width) - 1;
    (whole >> ((last + 1) * WORD - end) & mask) as u64
}

/// Puts the low bits of `value` into a span of at most 64 bits. Its bits are zero before.
#[inline(always)]
fn put_bits(words: &mut [u32], at: Span, value: u64) {
    let (first, end) = at.bits();
    let (one, last) = (first / WORD, (end - 1) / WORD);
    let mask = (1_u128 << at.width) - 1;
    let whole = (u128::from(value) & mask) << ((last + 1) * WORD - end);
    for (place, word) in words[one..=last].iter_mut().rev().enumerate() {
        *word |= (whole >> (place * WORD)) as u32;
    }
}

/// The longest copy that x86-64 makes without calling `memcpy`.
const LONGEST_COPY: usize = 128;

/// Copies an array. A long one goes by pieces of two halves, and is put in its place with no call and
/// no copy between; with whole pieces, the loop would become the call again.
#[inline(always)]
fn copy<const N: usize>(into: &mut [u8; N], from: &[u8]) {
    if N <= LONGEST_COPY {
        into.copy_from_slice(from);
        return;
    }
    let (places, last) = into.as_chunks_mut::<16>();
    let (pieces, rest) = from.as_chunks::<16>();
    for (place, piece) in places.iter_mut().zip(pieces) {
        place[..8].copy_from_slice(&piece[..8]);
        place[8..].copy_from_slice(&piece[8..]);
    }
    last.copy_from_slice(rest);
}

/// A type that fields of an attribute can have.
pub(crate) trait Wire {
    /// The field if it is an array; otherwise zero, until it is read.
    fn copied(bytes: &[u8], at: Span) -> Self;
    /// Reads the field; nothing if it is an array, which was copied.
    fn read(&mut self, bytes: &[u8], at: Span);
    /// Puts the field into its words, cut to its low bits if it is too wide; nothing if it is an array.
    fn put(&self, words: &mut [u32], at: Span);
    /// Writes the field if it is an array, after the words.
    fn copy(&self, bytes: &mut [u8], at: Span);
    /// The field for people and JSON.
    fn value(&self) -> FieldValue<'_>;
}

/// One field alone.
pub(crate) fn field<T: Wire>(bytes: &[u8], at: Span) -> T {
    let mut value = T::copied(bytes, at);
    value.read(bytes, at);
    value
}

macro_rules! wire_integer {
    ($($type:ty => $from:expr, $to:expr;)+) => {$(
        impl Wire for $type {
            #[inline(always)]
            fn copied(_: &[u8], _: Span) -> Self {
                $from(0)
            }

            #[inline(always)]
            fn read(&mut self, bytes: &[u8], at: Span) {
                *self = $from(read_bits(bytes, at));
            }

            #[inline(always)]
            fn put(&self, words: &mut [u32], at: Span) {
                put_bits(words, at, $to(*self));
            }

            #[inline(always)]
            fn copy(&self, _: &mut [u8], _: Span) {}

            fn value(&self) -> FieldValue<'_> {
                FieldValue::Int($to(*self))
            }
        }
    )+};
}

wire_integer! {
    bool => |bits| bits != 0, u64::from;
    u8 => |bits| bits as u8, u64::from;
    u16 => |bits| bits as u16, u64::from;
    u32 => |bits| bits as u32, u64::from;
    u64 => |bits| bits, |value| value;
    Guid => Guid, |guid: Guid| guid.0;
    Lid => |bits| Lid(bits as u16), |lid: Lid| u64::from(lid.0);
    Qpn => |bits| Qpn(bits as u32), |qpn: Qpn| u64::from(qpn.0);
    PKey => |bits| PKey(bits as u16), |key: PKey| u64::from(key.0);
}

impl<const N: usize> Wire for [u8; N] {
    #[inline(always)]
    fn copied(bytes: &[u8], at: Span) -> Self {
        let mut value = [0; N];
        copy(&mut value, &bytes[at.bytes()]);
        value
    }

    #[inline(always)]
    fn read(&mut self, _: &[u8], _: Span) {}

    #[inline(always)]
    fn put(&self, _: &mut [u32], _: Span) {}

    #[inline(always)]
    fn copy(&self, bytes: &mut [u8], at: Span) {
        bytes[at.bytes()].copy_from_slice(self);
    }

    fn value(&self) -> FieldValue<'_> {
        FieldValue::Bytes(self)
    }
}

/// What is an array of bytes by another name lies as those do.
macro_rules! wire_bytes {
    ($([$($generics:tt)*] $type:ty;)+) => {$(
        impl<$($generics)*> $crate::layout::Wire for $type {
            #[inline(always)]
            fn copied(bytes: &[u8], at: $crate::layout::Span) -> Self {
                Self($crate::layout::Wire::copied(bytes, at))
            }

            #[inline(always)]
            fn read(&mut self, bytes: &[u8], at: $crate::layout::Span) {
                $crate::layout::Wire::read(&mut self.0, bytes, at);
            }

            #[inline(always)]
            fn put(&self, words: &mut [u32], at: $crate::layout::Span) {
                $crate::layout::Wire::put(&self.0, words, at);
            }

            #[inline(always)]
            fn copy(&self, bytes: &mut [u8], at: $crate::layout::Span) {
                $crate::layout::Wire::copy(&self.0, bytes, at);
            }

            fn value(&self) -> $crate::fields::FieldValue<'_> {
                self.0.value()
            }
        }
    )+};
}

wire_bytes! {
    [] Gid;
    [const N: usize] PrivateData<N>;
}

/// `bytes`, cut or followed by zeros.
pub(crate) fn resized<const N: usize, const M: usize>(bytes: &[u8; N]) -> [u8; M] {
    let mut resized = [0; M];
    let len = N.min(M);
    resized[..len].copy_from_slice(&bytes[..len]);
    resized
}

/// An attribute: its fields, and where each lies, in one table. A row is `field: Type = [byte, bit,
/// width]`, with the columns of IBA's tables and of `tests/cm_fields.csv`, or `field: Type = { part:
/// [byte, bit, width], ... }` for the parts of a struct, which are shown as `field_part`. Without
/// `pub`, only what the module itself needs.
macro_rules! attribute {
    ($(#[$meta:meta])* pub struct $type:ident: $len:literal {
        $($(#[$doc:meta])* $field:ident: $kind:ty = $at:tt,)+
    }) => {
        $crate::layout::attribute!(@codec $(#[$meta])* pub struct $type: $len {
            $($(#[$doc])* $field: $kind = $at,)+
        });

        impl $type {
            /// Bytes on the wire.
            pub const LEN: usize = $len;

            /// Names and values of the fields, in the order of the wire.
            pub fn fields(&self) -> $crate::fields::Fields<'_> {
                $crate::fields::Fields::new(self)
            }
        }

        impl $crate::fields::FieldSource for $type {
            fn field(&self, index: usize) -> Option<(&'static str, $crate::fields::FieldValue<'_>)> {
                type Get = fn(&$type) -> $crate::fields::FieldValue<'_>;
                const ROWS: &[&[(&str, Get)]] =
                    &[$($crate::layout::attribute!(@shown $field, $at)),+];
                let (name, get) = ROWS.iter().copied().flatten().nth(index)?;
                Some((name, get(self)))
            }
        }
    };
    ($(#[$meta:meta])* struct $type:ident: $len:literal { $($rows:tt)+ }) => {
        $crate::layout::attribute!(@codec $(#[$meta])* struct $type: $len { $($rows)+ });
    };

    (@codec $(#[$meta:meta])* $vis:vis struct $type:ident: $len:literal {
        $($(#[$doc:meta])* $field:ident: $kind:ty = $at:tt,)+
    }) => {
        // In memory as on the wire, so that stores come one after the other in a cache line.
        $(#[$meta])*
        #[repr(C)]
        $vis struct $type {
            $($(#[$doc])* $vis $field: $kind,)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self::decode(&[0; $len])
            }
        }

        impl $type {
            /// Reads the fields; reserved bits are ignored.
            #[inline]
            $vis fn decode(bytes: &[u8; $len]) -> Self {
                // Arrays first: a long one is a call, across which what was read would be kept.
                let mut value = Self {
                    $($field: $crate::layout::attribute!(@copied bytes, $len, $kind, $at)),+
                };
                $($crate::layout::attribute!(@read bytes, $len, value.$field, $at);)+
                value
            }

            /// Writes the fields, each cut to its width; reserved bits are zero.
            #[inline]
            $vis fn encode(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                let mut words = [0; usize::div_ceil($len, 4)];
                $($crate::layout::attribute!(@write put words, $len, self.$field, $at);)+
                $crate::layout::write_words(&mut bytes, &words);
                $($crate::layout::attribute!(@write copy bytes, $len, self.$field, $at);)+
                bytes
            }
        }
    };

    (@copied $bytes:ident, $len:literal, $kind:ty, { $($part:ident: $at:tt),+ $(,)? }) => {{
        type Parts = $kind;
        Parts { $($part: $crate::layout::attribute!(@copied $bytes, $len, _, $at)),+ }
    }};
    (@copied $bytes:ident, $len:literal, $kind:ty, [$byte:literal, $bit:literal, $width:literal]) => {
        $crate::layout::Wire::copied(
            $bytes,
            const { $crate::layout::Span::within($len, $byte, $bit, $width) },
        )
    };

    (@read $bytes:ident, $len:literal, $value:expr, { $($part:ident: $at:tt),+ $(,)? }) => {
        $($crate::layout::attribute!(@read $bytes, $len, $value.$part, $at);)+
    };
    (@read $bytes:ident, $len:literal, $value:expr, [$byte:literal, $bit:literal, $width:literal]) => {
        $crate::layout::Wire::read(
            &mut $value,
            $bytes,
            const { $crate::layout::Span::within($len, $byte, $bit, $width) },
        )
    };

    (@write $how:ident $into:ident, $len:literal, $value:expr, { $($part:ident: $at:tt),+ $(,)? }) => {
        $($crate::layout::attribute!(@write $how $into, $len, $value.$part, $at);)+
    };
    (@write $how:ident $into:ident, $len:literal, $value:expr, [$byte:literal, $bit:literal, $width:literal]) => {
        $crate::layout::Wire::$how(
            &$value,
            $into.as_mut_slice(),
            const { $crate::layout::Span::within($len, $byte, $bit, $width) },
        )
    };

    (@shown $field:ident, { $($part:ident: $at:tt),+ $(,)? }) => {
        &[$((
            concat!(stringify!($field), "_", stringify!($part)),
            |value| $crate::layout::Wire::value(&value.$field.$part),
        )),+]
    };
    (@shown $field:ident, $at:tt) => {
        &[(stringify!($field), |value| $crate::layout::Wire::value(&value.$field))]
    };
}

pub(crate) use {attribute, wire_bytes};
