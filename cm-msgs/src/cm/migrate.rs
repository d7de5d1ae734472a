// SPDX-License-Identifier: MIT OR Apache-2.0
//! LAP (IBA 12.8.1) and APR (12.8.2).

use super::{ApStatus, PathFields, PrivateData};
use crate::layout::attribute;
use crate::{Gid, Qpn};

attribute! {
    /// Active side: load this alternate path.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Lap: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// The recipient's queue pair (or end-to-end context).
        remote_qpn_eecn: Qpn = [12, 0, 24],
        /// Within this the recipient must answer, 5 bits: 4.096 us * 2^n.
        remote_cm_response_timeout: u8 = [15, 0, 5],
        /// The path.
        alternate: PathFields = {
            local_port_lid: [20, 0, 16],
            remote_port_lid: [22, 0, 16],
            local_port_gid: [24, 0, 128],
            remote_port_gid: [40, 0, 128],
            flow_label: [56, 0, 20],
            traffic_class: [59, 0, 8],
            hop_limit: [60, 0, 8],
            packet_rate: [61, 2, 6],
            sl: [62, 0, 4],
            subnet_local: [62, 4, 1],
            local_ack_timeout: [63, 0, 5],
        },
        /// The users' part.
        private_data: PrivateData<168> = [64, 0, 1344],
    }
}

attribute! {
    /// Answers a LAP.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Apr: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// Bytes of `additional_information` that count.
        additional_information_length: u8 = [8, 0, 8],
        /// The answer: see [`ApStatus`].
        ar_status: u8 = [9, 0, 8],
        /// By status; a better GID with [`ApStatus::InvalidGid`].
        additional_information: [u8; 72] = [12, 0, 576],
        /// The users' part.
        private_data: PrivateData<148> = [84, 0, 1184],
    }
}

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
