// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAP and SPR (annex of SWG7322, laid out as Oracle's kernel does).

use super::PrivateData;
use crate::layout::attribute;
use crate::{Gid, Lid, Qpn};

attribute! {
    /// Passive side: suggests an alternate port of its own.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Sap: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// The recipient's queue pair (or end-to-end context).
        remote_qpn_eecn: Qpn = [12, 0, 24],
        /// LID of the suggested port of the sender.
        alternate_local_port_lid: Lid = [20, 0, 16],
        /// GID of the suggested port of the sender.
        alternate_local_port_gid: Gid = [24, 0, 128],
        /// The users' part.
        private_data: PrivateData<168> = [64, 0, 1344],
    }
}

attribute! {
    /// Answers a SAP.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Spr: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// Bytes of `additional_information` that count.
        additional_information_length: u8 = [8, 0, 8],
        /// The answer: see [`super::SpStatus`].
        sp_status: u8 = [9, 0, 8],
        /// By status.
        additional_information: [u8; 72] = [12, 0, 576],
        /// The users' part.
        private_data: PrivateData<148> = [84, 0, 1184],
    }
}
