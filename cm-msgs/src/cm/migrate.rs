// SPDX-License-Identifier: MIT OR Apache-2.0
//! LAP (IBA 12.8.1) and APR (12.8.2).

use super::{ApStatus, PathFields, PrivateData};
use crate::layout::layout;
use crate::{Gid, Qpn};

/// Active side: load this alternate path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lap {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// The recipient's queue pair (or end-to-end context).
    pub remote_qpn_eecn: Qpn,
    /// Within this the recipient must answer, 5 bits: 4.096 us * 2^n.
    pub remote_cm_response_timeout: u8,
    /// The path.
    pub alternate: PathFields,
    /// The users' part.
    pub private_data: PrivateData<168>,
}

layout!(pub Lap, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    remote_qpn_eecn: [12, 0, 24],
    remote_cm_response_timeout: [15, 0, 5],
    alternate.local_port_lid: [20, 0, 16],
    alternate.remote_port_lid: [22, 0, 16],
    alternate.local_port_gid: [24, 0, 128],
    alternate.remote_port_gid: [40, 0, 128],
    alternate.flow_label: [56, 0, 20],
    alternate.traffic_class: [59, 0, 8],
    alternate.hop_limit: [60, 0, 8],
    alternate.packet_rate: [61, 2, 6],
    alternate.sl: [62, 0, 4],
    alternate.subnet_local: [62, 4, 1],
    alternate.local_ack_timeout: [63, 0, 5],
    private_data: [64, 0, 1344],
});

/// Answers a LAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Apr {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// Bytes of `additional_information` that count.
    pub additional_information_length: u8,
    /// The answer: see [`ApStatus`].
    pub ar_status: u8,
    /// By status; a better GID with [`ApStatus::InvalidGid`].
    pub additional_information: [u8; 72],
    /// The users' part.
    pub private_data: PrivateData<148>,
}

layout!(pub Apr, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    additional_information_length: [8, 0, 8],
    ar_status: [9, 0, 8],
    additional_information: [12, 0, 576],
    private_data: [84, 0, 1184],
});

impl Apr {
    /// The answer.
    pub fn status(&self) -> ApStatus {
        self.ar_status.into()
    }

    /// The GID that the passive side would rather have, if it names one.
    pub fn better_gid(&self) -> Option<Gid> {
        let gid = self.additional_information.first_chunk::<16>()?;
        let named = self.status() == ApStatus::InvalidGid
            && usize::from(self.additional_information_length) >= gid.len();
        named.then_some(Gid(*gid))
    }

    /// Refuses with [`ApStatus::InvalidGid`] and the GID that would be taken.
    pub fn set_better_gid(&mut self, gid: Gid) {
        self.ar_status = ApStatus::InvalidGid.into();
        self.additional_information_length = 16;
        self.additional_information = [0; 72];
        self.additional_information[..16].copy_from_slice(&gid.0);
    }
}

impl Default for Apr {
    fn default() -> Self {
        Self {
            local_comm_id: 0,
            remote_comm_id: 0,
            additional_information_length: 0,
            ar_status: 0,
            additional_information: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}
