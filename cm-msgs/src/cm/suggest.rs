// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAP and SPR (annex of SWG7322, laid out as Oracle's kernel does).

use super::{PrivateData, SpStatus};
use crate::layout::layout;
use crate::{Gid, Lid, Qpn};

/// Passive side: suggests an alternate port of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sap {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// The recipient's queue pair (or end-to-end context).
    pub remote_qpn_eecn: Qpn,
    /// LID of the suggested port of the sender.
    pub alternate_local_port_lid: Lid,
    /// GID of the suggested port of the sender.
    pub alternate_local_port_gid: Gid,
    /// The users' part.
    pub private_data: PrivateData<168>,
}

layout!(pub Sap, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    remote_qpn_eecn: [12, 0, 24],
    alternate_local_port_lid: [20, 0, 16],
    alternate_local_port_gid: [24, 0, 128],
    private_data: [64, 0, 1344],
});

/// Answers a SAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spr {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// Bytes of `additional_information` that count.
    pub additional_information_length: u8,
    /// The answer: see [`SpStatus`].
    pub sp_status: u8,
    /// By status.
    pub additional_information: [u8; 72],
    /// The users' part.
    pub private_data: PrivateData<148>,
}

layout!(pub Spr, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    additional_information_length: [8, 0, 8],
    sp_status: [9, 0, 8],
    additional_information: [12, 0, 576],
    private_data: [84, 0, 1184],
});

impl Spr {
    /// The answer.
    pub fn status(&self) -> SpStatus {
        self.sp_status.into()
    }
}

impl Default for Spr {
    fn default() -> Self {
        Self {
            local_comm_id: 0,
            remote_comm_id: 0,
            additional_information_length: 0,
            sp_status: 0,
            additional_information: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}
