// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path, as REQ and LAP describe it.

use crate::{Gid, Lid};

/// A path as the sender of a REQ or LAP sees it: "local" is the sender's end. All zero is no path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
// As the attributes that it is part of.
#[repr(C)]
pub struct PathFields {
    /// LID of the sender's port.
    pub local_port_lid: Lid,
    /// LID of the recipient's port.
    pub remote_port_lid: Lid,
    /// GID of the sender's port.
    pub local_port_gid: Gid,
    /// GID of the recipient's port.
    pub remote_port_gid: Gid,
    /// GRH flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, 6 bits (`enum ibv_rate`).
    pub packet_rate: u8,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Both ends are in one subnet: no GRH needed.
    pub subnet_local: bool,
    /// ACK timeout for this path, 5 bits: 4.096 us * 2^n.
    pub local_ack_timeout: u8,
}
