// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams on an endpoint's queue pair: where they go, and what came in.

use cm_msgs::{Gid, Lid, Qpn};

/// Where a datagram goes. It carries a GRH, and its source GID is the port's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// The port or the group.
    pub gid: Gid,
    /// Its LID.
    pub lid: Lid,
    /// Service level.
    pub sl: u8,
    /// Which of the own LIDs the datagram comes from.
    pub path_bits: u8,
    /// Static rate, `enum ibv_rate`; 0: the port's.
    pub rate: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// What came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Who sent it, where it carried a GRH.
    pub gid: Option<Gid>,
    /// The LID that it came from.
    pub lid: Lid,
    /// The queue pair that it came from.
    pub qpn: Qpn,
    /// Service level.
    pub sl: u8,
    /// Which of the own LIDs it came to.
    pub path_bits: u8,
    /// What it says.
    pub payload: Vec<u8>,
}
