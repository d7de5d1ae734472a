// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQ (IBA 12.6.5).

use super::{PathFields, PrivateData};
use crate::layout::attribute;
use crate::{Guid, PKey, Qpn};

attribute! {
    /// Asks for a connection.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Req: 232 {
        /// The sender's name for the connection.
        local_comm_id: u32 = [0, 0, 32],
        /// Vendor of the CM, 24 bits.
        vendor_id: u32 = [5, 0, 24],
        /// The service asked for.
        service_id: u64 = [8, 0, 64],
        /// GUID of the sender's channel adapter.
        local_ca_guid: Guid = [16, 0, 64],
        /// Q_Key, for reliable datagrams.
        local_q_key: u32 = [28, 0, 32],
        /// The sender's queue pair.
        local_qpn: Qpn = [32, 0, 24],
        /// RDMA reads and atomics that the sender can serve at a time.
        responder_resources: u8 = [35, 0, 8],
        /// End-to-end context, for reliable datagrams; 24 bits.
        local_eecn: u32 = [36, 0, 24],
        /// RDMA reads and atomics that the sender wants to have outstanding.
        initiator_depth: u8 = [39, 0, 8],
        /// End-to-end context of the recipient, 24 bits.
        remote_eecn: u32 = [40, 0, 24],
        /// Within this the recipient must answer, 5 bits: 4.096 us * 2^n.
        remote_cm_response_timeout: u8 = [43, 0, 5],
        /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport_type`.
        transport_service_type: u8 = [43, 5, 2],
        /// The sender's channel adapter does end-to-end flow control.
        end_to_end_flow_control: bool = [43, 7, 1],
        /// First packet number that the recipient is to expect, 24 bits.
        starting_psn: u32 = [44, 0, 24],
        /// Within this the sender answers, 5 bits: 4.096 us * 2^n.
        local_cm_response_timeout: u8 = [47, 0, 5],
        /// Retries before the connection breaks or migrates, 3 bits.
        retry_count: u8 = [47, 5, 3],
        /// The partition.
        partition_key: PKey = [48, 0, 16],
        /// Path MTU, 4 bits (1 = 256 bytes .. 5 = 4096).
        path_packet_payload_mtu: u8 = [50, 0, 4],
        /// The reliable datagram channel exists already.
        rdc_exists: bool = [50, 4, 1],
        /// Retries on receiver-not-ready, 3 bits; 7 is without end.
        rnr_retry_count: u8 = [50, 5, 3],
        /// How often CM messages are repeated, 4 bits.
        max_cm_retries: u8 = [51, 0, 4],
        /// The sender's queue pair takes from a shared receive queue.
        srq: bool = [51, 4, 1],
        /// With transport service type 3: 1 XRC. 3 bits.
        extended_transport_type: u8 = [51, 5, 3],
        /// The path asked for.
        primary: PathFields = {
            local_port_lid: [52, 0, 16],
            remote_port_lid: [54, 0, 16],
            local_port_gid: [56, 0, 128],
            remote_port_gid: [72, 0, 128],
            flow_label: [88, 0, 20],
            packet_rate: [91, 2, 6],
            traffic_class: [92, 0, 8],
            hop_limit: [93, 0, 8],
            sl: [94, 0, 4],
            subnet_local: [94, 4, 1],
            local_ack_timeout: [95, 0, 5],
        },
        /// The alternate path to load; all zero is none.
        alternate: PathFields = {
            local_port_lid: [96, 0, 16],
            remote_port_lid: [98, 0, 16],
            local_port_gid: [100, 0, 128],
            remote_port_gid: [116, 0, 128],
            flow_label: [132, 0, 20],
            packet_rate: [135, 2, 6],
            traffic_class: [136, 0, 8],
            hop_limit: [137, 0, 8],
            sl: [138, 0, 4],
            subnet_local: [138, 4, 1],
            local_ack_timeout: [139, 0, 5],
        },
        /// The sender understands SAP.
        sap_supported: bool = [139, 5, 1],
        /// The users' part.
        private_data: PrivateData<92> = [140, 0, 736],
    }
}
