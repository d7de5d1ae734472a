// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a decoded attribute, by name.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// A field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldValue<'a> {
    /// A field of up to 64 bits.
    Int(u64),
    /// A wider field (a GID, private data), all of it, in wire order.
    Bytes(&'a [u8]),
}

/// Integers in decimal, bytes as lower-case hex digits of full width.
impl fmt::Display for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// Something that can name its fields.
pub(crate) trait FieldSource {
    /// Field number `index` in the order of the wire.
    fn field(&self, index: usize) -> Option<(&'static str, FieldValue<'_>)>;
}

/// Iterator over names and values of fields.
#[derive(Clone)]
pub struct Fields<'a> {
    source: &'a dyn FieldSource,
    next: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(source: &'a dyn FieldSource) -> Self {
        Self { source, next: 0 }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'static str, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.source.field(self.next)?;
        self.next += 1;
        Some(field)
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone()).finish()
    }
}

/// The part of a CM message that belongs to its users, `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
// Some processors take longer to store 16 bytes at a place that is no multiple of 4.
#[repr(align(4))]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// `bytes`, followed by zeros; nothing if there are more than `N`.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut data = Self::default();
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(data)
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Deref for PrivateData<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> DerefMut for PrivateData<N> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<const N: usize> From<[u8; N]> for PrivateData<N> {
    fn from(bytes: [u8; N]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_padded_but_never_cut() {
        let data = PrivateData::<4>::from_slice(&[1, 2]).unwrap();
        assert_eq!(data[..], [1, 2, 0, 0]);
        assert_eq!(PrivateData::<4>::from_slice(&[0; 5]), None);
    }

    #[test]
    fn bytes_are_shown_in_full() {
        assert_eq!(FieldValue::Bytes(&[0, 0xab, 0]).to_string(), "00ab00");
        assert_eq!(
            FieldValue::Int(u64::MAX).to_string(),
            "18446744073709551615"
        );
    }
}
