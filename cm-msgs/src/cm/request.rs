// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQ (IBA 12.6.5).

use super::{PathFields, PrivateData};
use crate::layout::layout;
use crate::{Guid, PKey, Qpn};

/// Asks for a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Req {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// Vendor of the CM, 24 bits.
    pub vendor_id: u32,
    /// The service asked for.
    pub service_id: u64,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: Guid,
    /// Q_Key, for reliable datagrams.
    pub local_q_key: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// RDMA reads and atomics that the sender can serve at a time.
    pub responder_resources: u8,
    /// End-to-end context, for reliable datagrams; 24 bits.
    pub local_eecn: u32,
    /// RDMA reads and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// End-to-end context of the recipient, 24 bits.
    pub remote_eecn: u32,
    /// Within this the recipient must answer, 5 bits: 4.096 us * 2^n.
    pub remote_cm_response_timeout: u8,
    /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport_type`.
    pub transport_service_type: u8,
    /// The sender's channel adapter does end-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// First packet number that the recipient is to expect, 24 bits.
    pub starting_psn: u32,
    /// Within this the sender answers, 5 bits: 4.096 us * 2^n.
    pub local_cm_response_timeout: u8,
    /// Retries before the connection breaks or migrates, 3 bits.
    pub retry_count: u8,
    /// The partition.
    pub partition_key: PKey,
    /// Path MTU, 4 bits (1 = 256 bytes .. 5 = 4096).
    pub path_packet_payload_mtu: u8,
    /// The reliable datagram channel exists already.
    pub rdc_exists: bool,
    /// Retries on receiver-not-ready, 3 bits; 7 is without end.
    pub rnr_retry_count: u8,
    /// How often CM messages are repeated, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair takes from a shared receive queue.
    pub srq: bool,
    /// With transport service type 3: 1 XRC. 3 bits.
    pub extended_transport_type: u8,
    /// The path asked for.
    pub primary: PathFields,
    /// The alternate path to load; all zero is none.
    pub alternate: PathFields,
    /// The sender understands SAP.
    pub sap_supported: bool,
    /// The users' part.
    pub private_data: PrivateData<92>,
}

layout!(pub Req, 232, {
    local_comm_id: [0, 0, 32],
    vendor_id: [5, 0, 24],
    service_id: [8, 0, 64],
    local_ca_guid: [16, 0, 64],
    local_q_key: [28, 0, 32],
    local_qpn: [32, 0, 24],
    responder_resources: [35, 0, 8],
    local_eecn: [36, 0, 24],
    initiator_depth: [39, 0, 8],
    remote_eecn: [40, 0, 24],
    remote_cm_response_timeout: [43, 0, 5],
    transport_service_type: [43, 5, 2],
    end_to_end_flow_control: [43, 7, 1],
    starting_psn: [44, 0, 24],
    local_cm_response_timeout: [47, 0, 5],
    retry_count: [47, 5, 3],
    partition_key: [48, 0, 16],
    path_packet_payload_mtu: [50, 0, 4],
    rdc_exists: [50, 4, 1],
    rnr_retry_count: [50, 5, 3],
    max_cm_retries: [51, 0, 4],
    srq: [51, 4, 1],
    extended_transport_type: [51, 5, 3],
    primary.local_port_lid: [52, 0, 16],
    primary.remote_port_lid: [54, 0, 16],
    primary.local_port_gid: [56, 0, 128],
    primary.remote_port_gid: [72, 0, 128],
    primary.flow_label: [88, 0, 20],
    primary.packet_rate: [91, 2, 6],
    primary.traffic_class: [92, 0, 8],
    primary.hop_limit: [93, 0, 8],
    primary.sl: [94, 0, 4],
    primary.subnet_local: [94, 4, 1],
    primary.local_ack_timeout: [95, 0, 5],
    alternate.local_port_lid: [96, 0, 16],
    alternate.remote_port_lid: [98, 0, 16],
    alternate.local_port_gid: [100, 0, 128],
    alternate.remote_port_gid: [116, 0, 128],
    alternate.flow_label: [132, 0, 20],
    alternate.packet_rate: [135, 2, 6],
    alternate.traffic_class: [136, 0, 8],
    alternate.hop_limit: [137, 0, 8],
    alternate.sl: [138, 0, 4],
    alternate.subnet_local: [138, 4, 1],
    alternate.local_ack_timeout: [139, 0, 5],
    sap_supported: [139, 5, 1],
    private_data: [140, 0, 736],
});
