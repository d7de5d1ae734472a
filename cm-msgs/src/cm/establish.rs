// SPDX-License-Identifier: MIT OR Apache-2.0
//! REP (IBA 12.6.8) and RTU (12.6.9).

use super::{FailoverAccepted, PrivateData};
use crate::layout::attribute;
use crate::{Guid, Qpn};

attribute! {
    /// Accepts a REQ.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Rep: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// Q_Key, for reliable datagrams.
        local_q_key: u32 = [8, 0, 32],
        /// The sender's queue pair.
        local_qpn: Qpn = [12, 0, 24],
        /// Vendor of the CM, upper 8 bits.
        vendor_id_h: u8 = [15, 0, 8],
        /// End-to-end context, for reliable datagrams; 24 bits.
        local_ee_context_number: u32 = [16, 0, 24],
        /// Vendor of the CM, middle 8 bits.
        vendor_id_m: u8 = [19, 0, 8],
        /// First packet number that the recipient is to expect, 24 bits.
        starting_psn: u32 = [20, 0, 24],
        /// Vendor of the CM, lower 8 bits.
        vendor_id_l: u8 = [23, 0, 8],
        /// RDMA reads and atomics that the sender can serve at a time.
        responder_resources: u8 = [24, 0, 8],
        /// RDMA reads and atomics that the sender will have outstanding.
        initiator_depth: u8 = [25, 0, 8],
        /// How long the sender's channel adapter may take to acknowledge, 5 bits: 4.096 us * 2^n.
        target_ack_delay: u8 = [26, 0, 5],
        /// What became of the REQ's alternate path, 2 bits: see [`FailoverAccepted`].
        failover_accepted: u8 = [26, 5, 2],
        /// The sender's channel adapter does end-to-end flow control.
        end_to_end_flow_control: bool = [26, 7, 1],
        /// Retries on receiver-not-ready, 3 bits; 7 is without end.
        rnr_retry_count: u8 = [27, 0, 3],
        /// The sender's queue pair takes from a shared receive queue.
        srq: bool = [27, 3, 1],
        /// GUID of the sender's channel adapter.
        local_ca_guid: Guid = [28, 0, 64],
        /// The users' part.
        private_data: PrivateData<196> = [36, 0, 1568],
    }
}

impl Rep {
    /// What became of the REQ's alternate path.
    pub fn failover(&self) -> FailoverAccepted {
        self.failover_accepted.into()
    }
}

attribute! {
    /// Answers a REP: ready.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Rtu: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// The recipient's name for it.
        remote_comm_id: u32 = [4, 0, 32],
        /// The users' part.
        private_data: PrivateData<224> = [8, 0, 1792],
    }
}
