// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ACM tells of itself: counters and endpoints.

use crate::layout::layout;
use crate::{Guid, PKey};

use super::ADDRESS_LEN;

/// What a service, or one endpoint of it, has done (`ACM_CNTR_*` in `acm.h`), big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests that ended in an error.
    pub error: u64,
    /// RESOLVE requests.
    pub resolve: u64,
    /// Requests for which there was no data.
    pub no_data: u64,
    /// Addresses asked for in the fabric.
    pub addr_query: u64,
    /// Addresses that were known.
    pub addr_cache: u64,
    /// Paths asked for at the SA.
    pub route_query: u64,
    /// Paths that were known.
    pub route_cache: u64,
}

layout!(pub Counters, 56, {
    error: [0, 0, 64],
    resolve: [8, 0, 64],
    no_data: [16, 0, 64],
    addr_query: [24, 0, 64],
    addr_cache: [32, 0, 64],
    route_query: [40, 0, 64],
    route_cache: [48, 0, 64],
});

impl Counters {
    /// How many there are.
    pub const COUNT: u8 = 7;
}

/// A port and a partition that a service answers for (`struct acm_ep_config_data`), big-endian.
/// `address_count` names or addresses follow it, each as [`text`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The node GUID of the device.
    pub device: Guid,
    /// The port, counted from 1.
    pub port: u8,
    /// Ports that the device has.
    pub port_count: u8,
    /// The partition.
    pub pkey: PKey,
    /// Addresses that follow.
    pub address_count: u16,
    /// The name of what resolves for it, as [`text`].
    pub provider: [u8; ADDRESS_LEN],
}

impl Default for Endpoint {
    fn default() -> Self {
        Self {
            device: Guid::default(),
            port: 0,
            port_count: 0,
            pkey: PKey::default(),
            address_count: 0,
            provider: [0; ADDRESS_LEN],
        }
    }
}

layout!(pub Endpoint, 80, {
    device: [0, 0, 64],
    port: [8, 0, 8],
    port_count: [9, 0, 8],
    pkey: [12, 0, 16],
    address_count: [14, 0, 16],
    provider: [16, 0, 512],
});

/// `text` and zeros behind it; what goes beyond 63 bytes is left out, at a character's border.
pub fn text(text: &str) -> [u8; ADDRESS_LEN] {
    let end = text.floor_char_boundary(ADDRESS_LEN - 1);
    let mut bytes = [0; ADDRESS_LEN];
    for (byte, from) in bytes.iter_mut().zip(text.bytes().take(end)) {
        *byte = from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(text("ibacmp")[..8], *b"ibacmp\0\0");
        let long = text(&"\u{e9}".repeat(40));
        assert_eq!(str::from_utf8(&long[..62]), Ok(&*"\u{e9}".repeat(31)));
        assert_eq!(long[62..], [0, 0]);
    }
}
