// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIDR_REQ (IBA 12.11.1) and SIDR_REP (12.11.2).

use super::PrivateData;
use crate::layout::attribute;
use crate::{PKey, Qpn};

attribute! {
    /// Asks for the datagram queue pair behind a service.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct SidrReq: 232 {
        /// The sender's name for the request.
        requestid: u32 = [0, 0, 32],
        /// The partition.
        partition_key: PKey = [4, 0, 16],
        /// The service asked for.
        serviceid: u64 = [8, 0, 64],
        /// The users' part.
        private_data: PrivateData<216> = [16, 0, 1728],
    }
}

attribute! {
    /// Answers a SIDR_REQ.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct SidrRep: 232 {
        /// The request's name.
        requestid: u32 = [0, 0, 32],
        /// 0 valid; 1 service ID not supported, 2 rejected, 3 no QP, 4 redirect, 5 class version.
        status: u8 = [4, 0, 8],
        /// Bytes of `additional_information` that count.
        additional_information_length: u8 = [5, 0, 8],
        /// Vendor of the CM, upper 16 bits.
        vendor_id_h: u16 = [6, 0, 16],
        /// The queue pair to send to.
        qpn: Qpn = [8, 0, 24],
        /// Vendor of the CM, lower 8 bits.
        vendor_id_l: u8 = [11, 0, 8],
        /// The service.
        serviceid: u64 = [12, 0, 64],
        /// The Q_Key to send with.
        q_key: u32 = [20, 0, 32],
        /// By status.
        additional_information: [u8; 72] = [24, 0, 576],
        /// The users' part.
        private_data: PrivateData<136> = [96, 0, 1088],
    }
}
