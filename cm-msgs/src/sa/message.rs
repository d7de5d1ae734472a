// SPDX-License-Identifier: MIT OR Apache-2.0
//! SA messages of any length: one MAD, or a transfer of many that the kernel put together.

use super::{CLASS_VERSION, ResponseError, Rmpp, SaHeader};
use crate::DecodeError;
use crate::mad::{self, Header};

/// Bytes before the attribute data: the headers of the MAD, of RMPP and of the SA.
pub const HEADERS_LEN: usize = 56;

/// An SA message as umad delivers it: the headers of the first MAD, then the data of all of them,
/// without the last one's padding (`ib_umad_read`, `copy_recv_mad`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaMessage<'a> {
    /// The MAD's header.
    pub header: Header,
    /// The SA's, of the first MAD.
    pub sa: SaHeader,
    /// The attribute, or the table.
    pub data: &'a [u8],
}

/// The data of a GetTableResp is no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Without RMPP nobody knows where the table ends.
    #[error("table without a multi-packet header: where it ends is not known")]
    NoRmpp,
    /// Records must have a length.
    #[error("attribute offset is 0 before {0} bytes of records")]
    NoOffset(usize),
    /// The table ends inside a record.
    #[error("{len} bytes are no whole number of records of {record_len}")]
    Ragged {
        /// Bytes of the table.
        len: usize,
        /// Bytes from record to record.
        record_len: usize,
    },
}

const RMPP_VERSION: u8 = 1;
const RMPP_DATA: u8 = 1;
const RMPP_ACTIVE: u8 = 1;

impl<'a> SaMessage<'a> {
    /// Reads a message of the SA's class.
    ///
    /// # Errors
    /// Fewer bytes than the headers have, or no message of class 0x03, version 2.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let short = DecodeError::Short {
            len: message.len(),
            want: HEADERS_LEN,
        };
        let (header, rest) = message.split_first_chunk().ok_or(short)?;
        let (headers, data) = rest.split_first_chunk().ok_or(short)?;
        let header = Header::decode(header);
        header.expect_base_version()?;
        header.expect_class(mad::CLASS_SA, CLASS_VERSION)?;
        Ok(Self {
            header,
            sa: SaHeader::decode(headers),
            data,
        })
    }

    /// Whether the message is the good answer to a request with this header.
    ///
    /// # Errors
    /// The SA refuses, or the message answers something else.
    pub fn expect_answer_to(&self, request: &Header) -> Result<(), ResponseError> {
        super::expect_answer(
            &self.header,
            request.response_method(),
            request.attribute_id,
        )
    }

    /// Bytes from one record to the next: those of a table's, all of a single attribute's.
    ///
    /// # Errors
    /// The data are no table although the method says so.
    pub fn record_len(&self) -> Result<usize, TableError> {
        let len = self.data.len();
        if self.header.method != mad::METHOD_GET_TABLE_RESP {
            return Ok(len);
        }
        let Rmpp {
            version,
            packet_type,
            flags,
            ..
        } = self.sa.rmpp;
        // A MAD that stands alone is filled up with zeros, which would pass for records.
        if version != RMPP_VERSION || packet_type != RMPP_DATA || flags & RMPP_ACTIVE == 0 {
            return Err(TableError::NoRmpp);
        }
        let record_len = usize::from(self.sa.attribute_offset) * 8;
        match len.checked_rem(record_len) {
            Some(0) => Ok(record_len),
            Some(_) => Err(TableError::Ragged { len, record_len }),
            None if len == 0 => Ok(record_len),
            None => Err(TableError::NoOffset(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NodeRecord, Record, SaMad};
    use super::*;

    fn table(attribute_offset: u16, data: usize) -> Vec<u8> {
        let mut mad = SaMad::get_table(7, &NodeRecord::any());
        mad.header.method = mad::METHOD_GET_TABLE_RESP;
        mad.sa.rmpp = Rmpp {
            version: 1,
            packet_type: 1,
            flags: 7,
            ..Rmpp::default()
        };
        mad.sa.attribute_offset = attribute_offset;
        let mut bytes = mad.encode()[..HEADERS_LEN].to_vec();
        bytes.resize(HEADERS_LEN + data, 0);
        bytes
    }

    fn record_len(attribute_offset: u16, data: usize) -> Result<usize, TableError> {
        let bytes = table(attribute_offset, data);
        SaMessage::decode(&bytes).unwrap().record_len()
    }

    #[test]
    fn tables_have_whole_records() {
        assert_eq!(record_len(14, 3 * 112), Ok(112));
        assert_eq!(record_len(14, 0), Ok(112), "nothing fits");
        assert_eq!(record_len(0, 0), Ok(0));
        let ragged = TableError::Ragged {
            len: 200,
            record_len: 112,
        };
        assert_eq!(record_len(14, 200), Err(ragged));
        assert_eq!(record_len(0, 8), Err(TableError::NoOffset(8)));
    }

    #[test]
    fn a_table_in_a_mad_without_rmpp_may_be_cut() {
        let mut bytes = table(14, 112);
        bytes[24] = 0;
        let message = SaMessage::decode(&bytes).unwrap();
        assert_eq!(message.record_len(), Err(TableError::NoRmpp));
    }

    #[test]
    fn headers_must_be_there() {
        let bytes = table(14, 0);
        assert!(SaMessage::decode(&bytes).is_ok());
        let short = DecodeError::Short { len: 55, want: 56 };
        assert_eq!(SaMessage::decode(&bytes[..55]), Err(short));
        assert_eq!(
            short.to_string(),
            "message is 55 bytes long, want at least 56"
        );
    }

    #[test]
    fn answers_are_told_from_others() {
        let bytes = table(14, 0);
        let message = SaMessage::decode(&bytes).unwrap();
        let mut request = SaMad::get_table(7, &NodeRecord::any()).header;
        assert_eq!(message.expect_answer_to(&request), Ok(()));
        request.method = mad::METHOD_DELETE;
        let other = ResponseError::Method {
            found: 0x92,
            want: 0x95,
        };
        assert_eq!(message.expect_answer_to(&request), Err(other));
    }
}
