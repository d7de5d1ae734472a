// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIDR_REQ (IBA 12.11.1) and SIDR_REP (12.11.2).

use super::PrivateData;
use crate::layout::layout;
use crate::{PKey, Qpn};

/// Asks for the datagram queue pair behind a service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SidrReq {
    /// The sender's name for the request.
    pub requestid: u32,
    /// The partition.
    pub partition_key: PKey,
    /// The service asked for.
    pub serviceid: u64,
    /// The users' part.
    pub private_data: PrivateData<216>,
}

layout!(pub SidrReq, 232, {
    requestid: [0, 0, 32],
    partition_key: [4, 0, 16],
    serviceid: [8, 0, 64],
    private_data: [16, 0, 1728],
});

/// Answers a SIDR_REQ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The request's name.
    pub requestid: u32,
    /// 0 valid; 1 service ID not supported, 2 rejected, 3 no QP, 4 redirect, 5 class version.
    pub status: u8,
    /// Bytes of `additional_information` that count.
    pub additional_information_length: u8,
    /// Vendor of the CM, upper 16 bits.
    pub vendor_id_h: u16,
    /// The queue pair to send to.
    pub qpn: Qpn,
    /// Vendor of the CM, lower 8 bits.
    pub vendor_id_l: u8,
    /// The service.
    pub serviceid: u64,
    /// The Q_Key to send with.
    pub q_key: u32,
    /// By status.
    pub additional_information: [u8; 72],
    /// The users' part.
    pub private_data: PrivateData<136>,
}

layout!(pub SidrRep, 232, {
    requestid: [0, 0, 32],
    status: [4, 0, 8],
    additional_information_length: [5, 0, 8],
    vendor_id_h: [6, 0, 16],
    qpn: [8, 0, 24],
    vendor_id_l: [11, 0, 8],
    serviceid: [12, 0, 64],
    q_key: [20, 0, 32],
    additional_information: [24, 0, 576],
    private_data: [96, 0, 1088],
});

impl Default for SidrRep {
    fn default() -> Self {
        Self {
            requestid: 0,
            status: 0,
            additional_information_length: 0,
            vendor_id_h: 0,
            qpn: Qpn::default(),
            vendor_id_l: 0,
            serviceid: 0,
            q_key: 0,
            additional_information: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}
