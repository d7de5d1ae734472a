// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ACM tells of itself: counters and endpoints.

use crate::layout::attribute;
use crate::{Guid, PKey};

use super::ADDRESS_LEN;

attribute! {
    /// What a service, or one endpoint of it, has done (`ACM_CNTR_*` in `acm.h`), big-endian.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Counters: 56 {
        /// Requests that ended in an error.
        error: u64 = [0, 0, 64],
        /// RESOLVE requests.
        resolve: u64 = [8, 0, 64],
        /// Requests for which there was no data.
        no_data: u64 = [16, 0, 64],
        /// Addresses asked for in the fabric.
        addr_query: u64 = [24, 0, 64],
        /// Addresses that were known.
        addr_cache: u64 = [32, 0, 64],
        /// Paths asked for at the SA.
        route_query: u64 = [40, 0, 64],
        /// Paths that were known.
        route_cache: u64 = [48, 0, 64],
    }
}

impl Counters {
    /// How many there are.
    pub const COUNT: u8 = 7;
}

attribute! {
    /// A port and a partition that a service answers for (`struct acm_ep_config_data`), big-endian.
    /// `address_count` names or addresses follow it, each as [`text`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Endpoint: 80 {
        /// The node GUID of the device.
        device: Guid = [0, 0, 64],
        /// The port, counted from 1.
        port: u8 = [8, 0, 8],
        /// Ports that the device has.
        port_count: u8 = [9, 0, 8],
        /// The partition.
        pkey: PKey = [12, 0, 16],
        /// Addresses that follow.
        address_count: u16 = [14, 0, 16],
        /// The name of what resolves for it, as [`text`].
        provider: [u8; ADDRESS_LEN] = [16, 0, 512],
    }
}

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
