// SPDX-License-Identifier: MIT OR Apache-2.0
//! REP (IBA 12.6.8) and RTU (12.6.9).

use super::{FailoverAccepted, PrivateData};
use crate::layout::layout;
use crate::{Guid, Qpn};

/// Accepts a REQ.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rep {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// Q_Key, for reliable datagrams.
    pub local_q_key: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// Vendor of the CM, upper 8 bits.
    pub vendor_id_h: u8,
    /// End-to-end context, for reliable datagrams; 24 bits.
    pub local_ee_context_number: u32,
    /// Vendor of the CM, middle 8 bits.
    pub vendor_id_m: u8,
    /// First packet number that the recipient is to expect, 24 bits.
    pub starting_psn: u32,
    /// Vendor of the CM, lower 8 bits.
    pub vendor_id_l: u8,
    /// RDMA reads and atomics that the sender can serve at a time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// How long the sender's channel adapter may take to acknowledge, 5 bits: 4.096 us * 2^n.
    pub target_ack_delay: u8,
    /// What became of the REQ's alternate path, 2 bits: see [`FailoverAccepted`].
    pub failover_accepted: u8,
    /// The sender's channel adapter does end-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// Retries on receiver-not-ready, 3 bits; 7 is without end.
    pub rnr_retry_count: u8,
    /// The sender's queue pair takes from a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: Guid,
    /// The users' part.
    pub private_data: PrivateData<196>,
}

layout!(pub Rep, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    local_q_key: [8, 0, 32],
    local_qpn: [12, 0, 24],
    vendor_id_h: [15, 0, 8],
    local_ee_context_number: [16, 0, 24],
    vendor_id_m: [19, 0, 8],
    starting_psn: [20, 0, 24],
    vendor_id_l: [23, 0, 8],
    responder_resources: [24, 0, 8],
    initiator_depth: [25, 0, 8],
    target_ack_delay: [26, 0, 5],
    failover_accepted: [26, 5, 2],
    end_to_end_flow_control: [26, 7, 1],
    rnr_retry_count: [27, 0, 3],
    srq: [27, 3, 1],
    local_ca_guid: [28, 0, 64],
    private_data: [36, 0, 1568],
});

impl Rep {
    /// What became of the REQ's alternate path.
    pub fn failover(&self) -> FailoverAccepted {
        self.failover_accepted.into()
    }
}

/// Answers a REP: ready.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rtu {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The recipient's name for it.
    pub remote_comm_id: u32,
    /// The users' part.
    pub private_data: PrivateData<224>,
}

layout!(pub Rtu, 232, {
    local_comm_id: [0, 0, 32],
    remote_comm_id: [4, 0, 32],
    private_data: [8, 0, 1792],
});
