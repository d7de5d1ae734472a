// SPDX-License-Identifier: MIT OR Apache-2.0
//! MRA (IBA 12.6.6) and REJ (12.6.7).

use super::{PrivateData, RejReason};
use crate::layout::attribute;

attribute! {
    /// Received, the answer takes longer.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Mra: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// What was received, 2 bits: 0 REQ, 1 REP, 2 LAP.
        message_mraed: u8 = [8, 0, 2],
        /// Further time to wait, 5 bits: 4.096 us * 2^n.
        service_timeout: u8 = [9, 0, 5],
        /// The users' part.
        private_data: PrivateData<222> = [10, 0, 1776],
    }
}

attribute! {
    /// Refuses or gives up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Rej: 232 {
        /// The sender's name for the connection; 0 if it has none.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it; 0 if the sender does not know it.
        remote_comm_id: u32 = [4, 0, 32],
        /// What is rejected, 2 bits: see [`super::Rejected`].
        message_rejected: u8 = [8, 0, 2],
        /// Bytes of `ari` that count, 7 bits.
        rejected_info_length: u8 = [9, 0, 7],
        /// Why: see [`RejReason`].
        reason: u16 = [10, 0, 16],
        /// Additional information, by reason.
        ari: [u8; 72] = [12, 0, 576],
        /// The users' part.
        private_data: PrivateData<148> = [84, 0, 1184],
    }
}

impl Rej {
    /// Why.
    pub fn rej_reason(&self) -> RejReason {
        self.reason.into()
    }
}
