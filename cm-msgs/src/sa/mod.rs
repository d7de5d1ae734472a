// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subnet administration (IBA ch. 15): the MAD, and the attributes that a host asks for or is sent.

mod class_port_info;
mod inform_info;
mod link_record;
mod mc_member_record;
mod message;
mod node_record;
mod notice;
mod path_record;
mod port_info_record;
mod port_tables;
mod record;
mod service_record;
mod status;
mod switch_records;

pub use crate::smp::PortInfo;
pub use class_port_info::ClassPortInfo;
pub use inform_info::InformInfo;
pub use link_record::LinkRecord;
pub use mc_member_record::McMemberRecord;
pub use message::{HEADERS_LEN, SaMessage, TableError};
pub use node_record::{NodeDescription, NodeRecord, NodeType};
pub use notice::{Notice, Trap};
pub use path_record::PathRecord;
pub use port_info_record::PortInfoRecord;
pub use port_tables::{PKeyTableRecord, SlToVlMappingTableRecord};
pub use record::{Record, Template};
pub use service_record::ServiceRecord;
pub use status::{GenericStatus, SaStatus};
pub use switch_records::{LinearForwardingTableRecord, SwitchInfoRecord};

use crate::DecodeError;
use crate::layout::{attribute, resized};
use crate::mad::{self, Header, MAD_LEN};

/// The class version of SA MADs.
pub const CLASS_VERSION: u8 = 2;

/// ClassPortInfo, in every class.
pub const ATTR_CLASS_PORT_INFO: u16 = 0x0001;
/// Notice.
pub const ATTR_NOTICE: u16 = 0x0002;
/// InformInfo.
pub const ATTR_INFORM_INFO: u16 = 0x0003;
/// PathRecord.
pub const ATTR_PATH_RECORD: u16 = PathRecord::ATTRIBUTE;

/// Bytes of attribute data in an SA MAD.
pub const DATA_LEN: usize = 200;

/// The header of the reliable multi-packet protocol (IBA 13.6.2.1). All zero where it is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rmpp {
    /// Version, 1; 0 where the MAD stands alone.
    pub version: u8,
    /// 1 data, 2 ack, 3 stop, 4 abort.
    pub packet_type: u8,
    /// Response time, 5 bits: 4.096 us * 2^n.
    pub resp_time: u8,
    /// 1 active, 2 first, 4 last; 3 bits.
    pub flags: u8,
    /// Why a transfer stops.
    pub status: u8,
    /// Segment number, by type.
    pub data1: u32,
    /// Payload length or window, by type.
    pub data2: u32,
}

attribute! {
    /// What lies between a MAD's header and its attribute.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SaHeader: 32 {
        /// The multi-packet header, of the first MAD.
        rmpp: Rmpp = {
            version: [0, 0, 8],
            packet_type: [1, 0, 8],
            resp_time: [2, 0, 5],
            flags: [2, 5, 3],
            status: [3, 0, 8],
            data1: [4, 0, 32],
            data2: [8, 0, 32],
        },
        /// Key that makes the SA trust the sender; 0 from ordinary hosts.
        sm_key: u64 = [12, 0, 64],
        /// Distance of records in a table, in 8-byte units.
        attribute_offset: u16 = [20, 0, 16],
        /// Which components of the attribute a query gives, bit 0 for the first.
        component_mask: u64 = [24, 0, 64],
    }
}

/// A subnet administration MAD (IBA 15.2.1.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaMad {
    /// The MAD's header.
    pub header: Header,
    /// The SA's.
    pub sa: SaHeader,
    /// The attribute.
    pub data: [u8; DATA_LEN],
}

/// An answer is not what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The SA refuses.
    #[error("subnet administration answers: {0}")]
    Status(SaStatus),
    /// Another method.
    #[error("method {found:#04x} where {want:#04x} was awaited")]
    Method {
        /// The method found.
        found: u8,
        /// The method awaited.
        want: u8,
    },
    /// Another attribute.
    #[error("attribute {found:#06x} where {want:#06x} was awaited")]
    Attribute {
        /// The attribute found.
        found: u16,
        /// The attribute awaited.
        want: u16,
    },
}

impl SaMad {
    /// Reads a MAD of the SA's class.
    ///
    /// # Errors
    /// Bytes that are no MAD of class 0x03, version 2.
    pub fn decode(mad: &[u8]) -> Result<Self, DecodeError> {
        let mad: &[u8; MAD_LEN] = mad.try_into().map_err(|_| DecodeError::Length(mad.len()))?;
        let SaMessage {
            header,
            sa,
            data: _,
        } = SaMessage::decode(mad)?;
        let mut data = [0; DATA_LEN];
        data.copy_from_slice(&mad[HEADERS_LEN..]);
        Ok(Self { header, sa, data })
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let mut rest = [0; MAD_LEN - Header::LEN];
        let (front, data) = rest.split_at_mut(SaHeader::LEN);
        front.copy_from_slice(&self.sa.encode());
        data.copy_from_slice(&self.data);
        self.header.join(&rest)
    }

    /// SubnAdmGet: the one record that fits.
    pub fn get<R: Record>(transaction_id: u64, of: &Template<R>) -> Self {
        Self::record(mad::METHOD_GET, transaction_id, of)
    }

    /// SubnAdmGetTable: all records that fit.
    pub fn get_table<R: Record>(transaction_id: u64, of: &Template<R>) -> Self {
        Self::record(mad::METHOD_GET_TABLE, transaction_id, of)
    }

    /// SubnAdmSet of the components given: for an MCMemberRecord, join.
    pub fn set<R: Record>(transaction_id: u64, of: &Template<R>) -> Self {
        Self::record(mad::METHOD_SET, transaction_id, of)
    }

    /// SubnAdmDelete of the record that fits: for an MCMemberRecord, leave.
    pub fn delete<R: Record>(transaction_id: u64, of: &Template<R>) -> Self {
        Self::record(mad::METHOD_DELETE, transaction_id, of)
    }

    fn record<R: Record>(method: u8, transaction_id: u64, of: &Template<R>) -> Self {
        let mut mad = Self::request(method, transaction_id, R::ATTRIBUTE, of.record.to_data());
        mad.sa.component_mask = of.component_mask;
        mad
    }

    /// SubnAdmSet(InformInfo): subscribe or unsubscribe.
    pub fn set_inform_info(transaction_id: u64, info: &InformInfo) -> Self {
        Self::request(
            mad::METHOD_SET,
            transaction_id,
            ATTR_INFORM_INFO,
            resized(&info.encode()),
        )
    }

    /// ReportResp: the answer that a Report wants, or the SA sends it again.
    pub fn report_response(&self) -> Self {
        let mut response = self.clone();
        response.header.method = mad::METHOD_REPORT_RESP;
        response
    }

    /// The path that answers [`SaMad::get`].
    ///
    /// # Errors
    /// The SA refuses, or the MAD is no such answer.
    pub fn path_record(&self) -> Result<PathRecord, ResponseError> {
        self.expect(mad::METHOD_GET_RESP, ATTR_PATH_RECORD)?;
        Ok(PathRecord::decode(&resized(&self.data)))
    }

    /// The notice that a Report carries.
    ///
    /// # Errors
    /// The MAD is no Report of a notice.
    pub fn notice(&self) -> Result<Notice, ResponseError> {
        self.expect(mad::METHOD_REPORT, ATTR_NOTICE)?;
        Ok(Notice::decode(&resized(&self.data)))
    }

    fn request(method: u8, transaction_id: u64, attribute_id: u16, data: [u8; DATA_LEN]) -> Self {
        Self {
            header: Header {
                base_version: mad::BASE_VERSION,
                mgmt_class: mad::CLASS_SA,
                class_version: CLASS_VERSION,
                method,
                transaction_id,
                attribute_id,
                ..Header::default()
            },
            sa: SaHeader::default(),
            data,
        }
    }

    fn expect(&self, method: u8, attribute_id: u16) -> Result<(), ResponseError> {
        expect_answer(&self.header, method, attribute_id)
    }
}

/// Whether `header` begins a good answer of this method and attribute.
fn expect_answer(header: &Header, method: u8, attribute_id: u16) -> Result<(), ResponseError> {
    if header.method != method {
        return Err(ResponseError::Method {
            found: header.method,
            want: method,
        });
    }
    if header.attribute_id != attribute_id {
        return Err(ResponseError::Attribute {
            found: header.attribute_id,
            want: attribute_id,
        });
    }
    match SaStatus::from(header.status) {
        status if status.is_success() => Ok(()),
        status => Err(ResponseError::Status(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gid, Guid, Qpn};

    #[test]
    fn path_query_names_its_components() {
        let record = PathRecord {
            sgid: Gid::new(0xfe80 << 48, Guid(1)),
            dgid: Gid::new(0xfe80 << 48, Guid(2)),
            numb_path: 1,
            ..PathRecord::default()
        };
        let asked = PathRecord::any()
            .sgid(record.sgid)
            .dgid(record.dgid)
            .numb_path(record.numb_path);
        let mad = SaMad::get(0x1_0000_0002, &asked).encode();
        assert_eq!(mad[..8], [1, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(mad[8..16], 0x1_0000_0002u64.to_be_bytes());
        assert_eq!(mad[16..24], [0, 0x35, 0, 0, 0, 0, 0, 0]);
        assert_eq!(mad[48..56], 0x100cu64.to_be_bytes());
        assert_eq!(mad[56..120], record.encode());
    }

    #[test]
    fn subscription_goes_to_qp1() {
        let info = InformInfo::subscribe_to(65);
        let sa = SaMad::set_inform_info(7, &info);
        assert_eq!((sa.header.method, sa.header.attribute_id), (2, 3));
        let mad = sa.encode();
        assert_eq!(InformInfo::decode(mad[56..92].try_into().unwrap()), info);
        assert_eq!(
            (info.qpn, info.subscribe, info.trap_number),
            (Qpn(1), 1, 65)
        );
    }

    #[test]
    fn answers_to_other_questions_are_refused() {
        let mut answer = SaMad::get(1, &PathRecord::any());
        let asked = ResponseError::Method {
            found: 0x01,
            want: 0x81,
        };
        assert_eq!(answer.path_record(), Err(asked));

        answer.header.method = mad::METHOD_GET_RESP;
        assert_eq!(answer.path_record(), Ok(PathRecord::default()));
        answer.header.attribute_id = ATTR_CLASS_PORT_INFO;
        let other = ResponseError::Attribute {
            found: 0x01,
            want: 0x35,
        };
        assert_eq!(answer.path_record(), Err(other));

        answer.header.attribute_id = PathRecord::ATTRIBUTE;
        answer.header.status = 0x0300;
        let none = ResponseError::Status(SaStatus::NoRecords);
        assert_eq!(answer.path_record(), Err(none));
        assert_eq!(
            none.to_string(),
            "subnet administration answers: no records"
        );
    }

    #[test]
    fn other_classes_are_refused() {
        let mut mad = SaMad::get(1, &PathRecord::any()).encode();
        mad[2] = 1;
        assert_eq!(
            SaMad::decode(&mad),
            Err(DecodeError::ClassVersion { found: 1, want: 2 })
        );
        mad[1] = 7;
        assert_eq!(
            SaMad::decode(&mad),
            Err(DecodeError::MgmtClass { found: 7, want: 3 })
        );
    }
}
