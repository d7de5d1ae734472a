// SPDX-License-Identifier: MIT OR Apache-2.0
//! DREQ (IBA 12.6.10) and DREP (12.6.11).

use super::PrivateData;
use crate::Qpn;
use crate::layout::layout;

/// Ends a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dreq {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// The recipient's queue pair (or end-to-end context).
    pub remote_qpn_eecn: Qpn,
    /// The users' part.
    pub private_data: PrivateData<220>,
}

layout!(pub Dreq, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    remote_qpn_eecn: [8, 0, 24],
    private_data: [12, 0, 1760],
});

/// Answers a DREQ.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drep {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// The users' part.
    pub private_data: PrivateData<224>,
}

layout!(pub Drep, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    private_data: [8, 0, 1792],
});
