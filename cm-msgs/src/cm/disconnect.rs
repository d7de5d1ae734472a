// SPDX-License-Identifier: MIT OR Apache-2.0
//! DREQ (IBA 12.6.10) and DREP (12.6.11).

use super::PrivateData;
use crate::Qpn;
use crate::layout::attribute;

attribute! {
    /// Ends a connection.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Dreq: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// The recipient's queue pair (or end-to-end context).
        remote_qpn_eecn: Qpn = [8, 0, 24],
        /// The users' part.
        private_data: PrivateData<220> = [12, 0, 1760],
    }
}

attribute! {
    /// Answers a DREQ.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Drep: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// The users' part.
        private_data: PrivateData<224> = [8, 0, 1792],
    }
}
