// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of netlink messages, read and made.

use std::collections::BTreeMap;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator,
};

/// The attributes of a message or a nest, by their kinds.
pub(super) struct Attributes<'a>(pub(super) BTreeMap<u16, &'a [u8]>);

impl<'a> Attributes<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut all = BTreeMap::new();
        for attribute in NlasIterator::new(bytes) {
            let attribute = attribute?;
            let (kind, len) = (attribute.kind(), usize::from(attribute.length()));
            // `value` would borrow from `attribute`.
            let whole: &'a [u8] = attribute.into_inner();
            all.insert(kind, whole.get(NLA_HEADER_SIZE..len).unwrap_or_default());
        }
        Ok(Self(all))
    }

    pub(super) fn chunk<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        (*self.0.get(&kind)?).try_into().ok()
    }

    pub(super) fn u8(&self, kind: u16) -> Option<u8> {
        self.chunk::<1>(kind).map(|[byte]| byte)
    }

    pub(super) fn u16(&self, kind: u16) -> Option<u16> {
        self.chunk(kind).map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&self, kind: u16) -> Option<u32> {
        self.chunk(kind).map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&self, kind: u16) -> Option<u64> {
        self.chunk(kind).map(u64::from_ne_bytes)
    }
}

pub(super) fn u32_of(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

pub(super) fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}
