// SPDX-License-Identifier: MIT OR Apache-2.0
//! Management datagrams: what all classes share (IBA 13.4).

use crate::DecodeError;
use crate::layout::attribute;

/// Bytes in a MAD.
pub const MAD_LEN: usize = 256;

/// The one base version there is.
pub const BASE_VERSION: u8 = 1;

/// Subnet management, LID routed.
pub const CLASS_SM_LID_ROUTED: u8 = 0x01;
/// Subnet management, directed route.
pub const CLASS_SM_DIRECTED_ROUTE: u8 = 0x81;
/// Subnet administration.
pub const CLASS_SA: u8 = 0x03;
/// The application class in which two apmd speak CM messages unless configured otherwise.
pub const CLASS_APM: u8 = 0x2d;

/// Method Get (SA: SubnAdmGet).
pub const METHOD_GET: u8 = 0x01;
/// Method Set (SA: SubnAdmSet).
pub const METHOD_SET: u8 = 0x02;
/// Method Send: a message that expects nothing of the MAD layer.
pub const METHOD_SEND: u8 = 0x03;
/// Method Report: the SA forwards a notice to a subscriber.
pub const METHOD_REPORT: u8 = 0x06;
/// Method SubnAdmGetTable: all records that fit.
pub const METHOD_GET_TABLE: u8 = 0x12;
/// Method SubnAdmDelete: leave, unregister.
pub const METHOD_DELETE: u8 = 0x15;
/// Method GetResp: answer to Get and Set.
pub const METHOD_GET_RESP: u8 = 0x81;
/// Method ReportResp: answer to Report.
pub const METHOD_REPORT_RESP: u8 = 0x86;
/// Method SubnAdmGetTableResp.
pub const METHOD_GET_TABLE_RESP: u8 = 0x92;

/// The bit of the method that says response.
const RESPONSE: u8 = 0x80;

attribute! {
    /// The 24 bytes that begin every MAD (IBA 13.4.3).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Header: 24 {
        /// Version of the MAD format, 1.
        base_version: u8 = [0, 0, 8],
        /// Management class.
        mgmt_class: u8 = [1, 0, 8],
        /// Version of the class.
        class_version: u8 = [2, 0, 8],
        /// Method; the top bit says response.
        method: u8 = [3, 0, 8],
        /// Status of a response: generic bits low, the class's own in the upper byte. In directed
        /// route SMPs the top bit is the direction.
        status: u16 = [4, 0, 16],
        /// The class's own; hop pointer and hop count in directed route SMPs.
        class_specific: u16 = [6, 0, 16],
        /// Transaction ID. umad overwrites the upper 32 bits of a request's: match on the lower.
        transaction_id: u64 = [8, 0, 64],
        /// Attribute ID.
        attribute_id: u16 = [16, 0, 16],
        /// Attribute modifier.
        attribute_modifier: u32 = [20, 0, 32],
    }
}

impl Header {
    /// Splits a MAD into header and the rest.
    ///
    /// # Errors
    /// Another length than 256 bytes, another base version than 1.
    pub(crate) fn split(mad: &[u8]) -> Result<(Self, &[u8; MAD_LEN - Self::LEN]), DecodeError> {
        let (Some(head), Some(rest)) = (mad.first_chunk(), mad.get(Self::LEN..)) else {
            return Err(DecodeError::Length(mad.len()));
        };
        let rest = rest
            .try_into()
            .map_err(|_| DecodeError::Length(mad.len()))?;
        let header = Self::decode(head);
        header.expect_base_version()?;
        Ok((header, rest))
    }

    /// The method of the answer to this request: a Set is answered as a Get is.
    pub fn response_method(&self) -> u8 {
        match self.method {
            METHOD_SET => METHOD_GET_RESP,
            method => method | RESPONSE,
        }
    }

    /// Puts a MAD together.
    pub(crate) fn join(&self, rest: &[u8; MAD_LEN - Self::LEN]) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..Self::LEN].copy_from_slice(&self.encode());
        mad[Self::LEN..].copy_from_slice(rest);
        mad
    }

    pub(crate) fn expect_base_version(&self) -> Result<(), DecodeError> {
        match self.base_version {
            BASE_VERSION => Ok(()),
            other => Err(DecodeError::BaseVersion(other)),
        }
    }

    pub(crate) fn expect_class(&self, class: u8, version: u8) -> Result<(), DecodeError> {
        if self.mgmt_class != class {
            return Err(DecodeError::MgmtClass {
                found: self.mgmt_class,
                want: class,
            });
        }
        self.expect_version(version)
    }

    pub(crate) fn expect_version(&self, version: u8) -> Result<(), DecodeError> {
        if self.class_version != version {
            return Err(DecodeError::ClassVersion {
                found: self.class_version,
                want: version,
            });
        }
        Ok(())
    }
}
