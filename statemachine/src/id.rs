// SPDX-License-Identifier: MIT OR Apache-2.0
//! What names connections, ports, and who pays.

use core::ops::RangeInclusive;

use cm_msgs::Guid;

/// A connection, as the caller names it: which library, and the library's number for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId {
    /// The client; never used twice by one daemon.
    pub client: u32,
    /// The client's number for the connection. It names its connections by 64 bits, and counts: no more
    /// than these are ever used.
    pub conn: u32,
}

impl ConnId {
    /// All that a client can have.
    pub fn of_client(client: u32) -> RangeInclusive<Self> {
        let id = |conn| Self { client, conn };
        id(0)..=id(u32::MAX)
    }
}

/// Who pays for what a connection costs others: its owner. The number says nothing to the engine; connections
/// with the same one share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Payer(pub u64);

/// A local port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId {
    /// Node GUID of its device.
    pub node_guid: Guid,
    /// Counted from 1.
    pub port: u8,
}

impl PortId {
    /// A port of a device.
    pub const fn new(node_guid: Guid, port: u8) -> Self {
        Self { node_guid, port }
    }

    /// All that a device can have.
    pub fn of_device(node_guid: Guid) -> RangeInclusive<Self> {
        Self::new(node_guid, 0)..=Self::new(node_guid, u8::MAX)
    }
}
