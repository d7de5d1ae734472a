// SPDX-License-Identifier: MIT OR Apache-2.0
//! libibmad's field functions. It has a table of fields, whose numbers are its ABI, and a base offset
//! for each call: so a field of the table stands for all that have its width and its place in a
//! word of 32 bits. (Within a word libibmad counts from the low end, so bases are whole words.)

// The functions of a C library.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[link(name = "ibmad")]
unsafe extern "C" {
    fn mad_get_field(buf: *mut c_void, base: c_int, field: c_uint) -> u32;
    fn mad_set_field(buf: *mut c_void, base: c_int, field: c_uint, value: u32);
    fn mad_get_field64(buf: *mut c_void, base: c_int, field: c_uint) -> u64;
    fn mad_set_field64(buf: *mut c_void, base: c_int, field: c_uint, value: u64);
    fn mad_get_array(buf: *mut c_void, base: c_int, field: c_uint, value: *mut c_void);
    fn mad_set_array(buf: *mut c_void, base: c_int, field: c_uint, value: *mut c_void);
    fn mad_field_name(field: c_uint) -> *const c_char;
}

/// A field of libibmad's table.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// In `enum MAD_FIELDS`.
    number: c_uint,
    /// As the library has it.
    name: &'static CStr,
    /// Where libibmad has it: bits from the beginning, on the wire.
    first: usize,
    width: usize,
}

macro_rules! fields {
    ($($short:ident = $number:literal $name:literal [$first:literal, $width:literal];)+) => {
        $(pub(crate) const $short: Field = Field {
            number: $number,
            name: $name,
            first: $first,
            width: $width,
        };)+

        const ALL: &[Field] = &[$($short),+];
    };
}

// Named by first bit in a word and width.
fields! {
    AT_0_WIDE_1 = 110 c"NoticeIsGeneric" [0, 1];
    AT_0_WIDE_8 = 147 c"RmppVers" [192, 8];
    AT_0_WIDE_16 = 8 c"MadStatus" [32, 16];
    AT_0_WIDE_24 = 545 c"Local_QP_CN_Entry" [0, 24];
    AT_0_WIDE_32 = 15 c"MadModifier" [160, 32];
    AT_1_WIDE_7 = 111 c"NoticeType" [1, 7];
    AT_8_WIDE_1 = 178 c"McastMemProxyJoin" [392, 1];
    AT_8_WIDE_8 = 6 c"MadMgmtClass" [8, 8];
    AT_8_WIDE_24 = 112 c"NoticeProducerType" [8, 24];
    AT_9_WIDE_7 = 165 c"PathRecNumPath" [393, 7];
    AT_16_WIDE_2 = 42 c"ProtectBits" [272, 2];
    AT_16_WIDE_4 = 324 c"LinkSpeedExtActive" [496, 4];
    AT_16_WIDE_16 = 164 c"PathRecSLid" [336, 16];
    AT_18_WIDE_6 = 172 c"McastMemMTU" [306, 6];
    AT_20_WIDE_4 = 325 c"LinkSpeedExtSupported" [500, 4];
    AT_21_WIDE_3 = 43 c"LMC" [277, 3];
    AT_24_WIDE_4 = 44 c"LinkSpeedActive" [280, 4];
    AT_24_WIDE_5 = 95 c"LifeTime" [88, 5];
    AT_24_WIDE_8 = 9 c"DrSmpHopCnt" [56, 8];
    AT_28_WIDE_1 = 58 c"PartEnforceInb" [348, 1];
    AT_29_WIDE_1 = 96 c"StateChange" [93, 1];
    AT_29_WIDE_3 = 277 c"CounterWidth" [29, 3];
    LONG = 13 c"MadTRID" [64, 64];
    GID = 161 c"PathRecDGid" [64, 128];
    DETAILS = 117 c"NoticeDataDetails" [80, 432];
}

/// The first field that this libibmad numbers otherwise than Debian's, in words.
pub(crate) fn check_numbers() -> Result<(), String> {
    for field in ALL {
        // SAFETY: the numbers are below those of every libibmad 5; the name is a constant of it.
        let name = unsafe { CStr::from_ptr(mad_field_name(field.number)) };
        if name != field.name {
            return Err(format!(
                "libibmad's field {} is {name:?}, want {:?}: another version than libibmad 5.3.44",
                field.number, field.name
            ));
        }
    }
    Ok(())
}

/// How far the call's base lies from where libibmad's table has the field.
const fn base(byte: usize, table: usize) -> c_int {
    byte as c_int - table as c_int
}

/// At most 32 bits of an attribute of `N` bytes, in the word that begins at `byte`. Outside of the
/// attribute does not compile; so for the others.
#[derive(Clone, Copy)]
pub(crate) struct Word<const N: usize>(c_uint, c_int);

impl<const N: usize> Word<N> {
    pub(crate) const fn new(field: Field, byte: usize) -> Self {
        assert!(field.width <= 32 && byte.is_multiple_of(4) && byte + 4 <= N);
        Self(field.number, base(byte, field.first / 32 * 4))
    }

    pub(crate) fn get(self, bytes: &[u8; N]) -> u32 {
        // SAFETY: the word is read, not written, and `new` saw it within.
        unsafe { mad_get_field(bytes.as_ptr().cast_mut().cast(), self.1, self.0) }
    }

    pub(crate) fn set(self, bytes: &mut [u8; N], value: u32) {
        // SAFETY: no byte but the word's is touched, and `new` saw it within.
        unsafe { mad_set_field(bytes.as_mut_ptr().cast(), self.1, self.0, value) }
    }
}

/// 64 bits that begin at `byte`.
#[derive(Clone, Copy)]
pub(crate) struct Long<const N: usize>(c_int);

impl<const N: usize> Long<N> {
    pub(crate) const fn new(byte: usize) -> Self {
        assert!(byte + 8 <= N);
        Self(base(byte, LONG.first / 8))
    }

    pub(crate) fn get(self, bytes: &[u8; N]) -> u64 {
        // SAFETY: the 8 bytes are read, not written, and `new` saw them within.
        unsafe { mad_get_field64(bytes.as_ptr().cast_mut().cast(), self.0, LONG.number) }
    }

    pub(crate) fn set(self, bytes: &mut [u8; N], value: u64) {
        // SAFETY: the 8 bytes are written, and `new` saw them within.
        unsafe { mad_set_field64(bytes.as_mut_ptr().cast(), self.0, LONG.number, value) }
    }
}

/// `M` bytes that begin at `byte`.
#[derive(Clone, Copy)]
pub(crate) struct Array<const N: usize, const M: usize>(c_uint, c_int);

impl<const N: usize, const M: usize> Array<N, M> {
    pub(crate) const fn new(field: Field, byte: usize) -> Self {
        assert!(field.width == M * 8 && byte + M <= N);
        Self(field.number, base(byte, field.first / 8))
    }

    pub(crate) fn get(self, bytes: &[u8; N], value: &mut [u8; M]) {
        // SAFETY: the field's M bytes, which `new` saw within, are read and copied to as many.
        unsafe {
            let buf = bytes.as_ptr().cast_mut().cast();
            mad_get_array(buf, self.1, self.0, value.as_mut_ptr().cast());
        }
    }

    pub(crate) fn set(self, bytes: &mut [u8; N], value: &[u8; M]) {
        // SAFETY: M bytes are read and copied to the field, which `new` saw within.
        unsafe {
            let value = value.as_ptr().cast_mut().cast();
            mad_set_array(bytes.as_mut_ptr().cast(), self.1, self.0, value);
        }
    }
}
