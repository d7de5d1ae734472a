// SPDX-License-Identifier: MIT OR Apache-2.0
//! MRA (IBA 12.6.6) and REJ (12.6.7).

use super::{PrivateData, RejReason, Rejected};
use crate::layout::layout;

/// Received, the answer takes longer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// What was received, 2 bits: 0 REQ, 1 REP, 2 LAP.
    pub message_mraed: u8,
    /// Further time to wait, 5 bits: 4.096 us * 2^n.
    pub service_timeout: u8,
    /// The users' part.
    pub private_data: PrivateData<222>,
}

layout!(pub Mra, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    message_mraed: [8, 0, 2],
    service_timeout: [9, 0, 5],
    private_data: [10, 0, 1776],
});

/// Refuses or gives up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's name for the connection; 0 if it has none.
    pub local_comm_id: u32,
    /// The recipient's name for it; 0 if the sender does not know it.
    pub remote_comm_id: u32,
    /// What is rejected, 2 bits: see [`Rejected`].
    pub message_rejected: u8,
    /// Bytes of `ari` that count, 7 bits.
    pub rejected_info_length: u8,
    /// Why: see [`RejReason`].
    pub reason: u16,
    /// Additional information, by reason.
    pub ari: [u8; 72],
    /// The users' part.
    pub private_data: PrivateData<148>,
}

layout!(pub Rej, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    message_rejected: [8, 0, 2],
    rejected_info_length: [9, 0, 7],
    reason: [10, 0, 16],
    ari: [12, 0, 576],
    private_data: [84, 0, 1184],
});

impl Rej {
    /// Why.
    pub fn rej_reason(&self) -> RejReason {
        self.reason.into()
    }

    /// What is rejected.
    pub fn rejected(&self) -> Rejected {
        self.message_rejected.into()
    }
}

impl Default for Rej {
    fn default() -> Self {
        Self {
            local_comm_id: 0,
            remote_comm_id: 0,
            message_rejected: 0,
            rejected_info_length: 0,
            reason: 0,
            ari: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}
