// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a request to the SA.

use std::slice::ChunksExact;

use cm_msgs::DecodeError;
use cm_msgs::mad::{self, Header};
use cm_msgs::sa::{GenericStatus, Record, ResponseError, SaMessage, SaStatus, TableError};

/// The whole answer to a request: one MAD, or a transfer that the kernel put together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The attribute that it holds.
    pub attribute: u16,
    /// Bytes from one record to the next; a single attribute is one record.
    pub record_len: usize,
    /// The records.
    pub data: Vec<u8>,
}

/// An answer that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// No SA message.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// The answer to another question.
    #[error(transparent)]
    Answer(ResponseError),
    /// No table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The records are too short for their attribute.
    #[error("records of {found} bytes, attribute {attribute:#06x} has {want}")]
    Record {
        /// The attribute looked for.
        attribute: u16,
        /// Bytes of a record.
        found: usize,
        /// Bytes of the attribute.
        want: usize,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// No copy was answered.
    #[error("subnet administration does not answer")]
    Timeout,
    /// It was busy all the time.
    #[error("subnet administration is busy")]
    Busy,
    /// Nobody was there all the time: the kernel of the subnet manager's host answered in its place.
    #[error("no subnet administration runs where the subnet manager was")]
    Absent,
    /// The port has gone, is down or knows no subnet manager.
    #[error("the port cannot reach subnet administration")]
    Unreachable,
    /// It refuses.
    #[error("subnet administration answers: {0}")]
    Status(SaStatus),
    /// It answers nonsense.
    #[error("malformed answer: {0}")]
    Malformed(#[from] Malformed),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error.into())
    }
}

impl Failure {
    /// What it means that the answer to `request` is no good one.
    pub(super) fn of(request: &Header, error: ResponseError) -> Self {
        match error {
            ResponseError::Status(SaStatus::Busy | SaStatus::NoResources) => Self::Busy,
            ResponseError::Status(SaStatus::Generic(GenericStatus::UnsupportedAttribute))
                if is_answered_by_kernels(request) =>
            {
                Self::Absent
            }
            ResponseError::Status(status) => Self::Status(status),
            other => Self::Malformed(Malformed::Answer(other)),
        }
    }
}

/// Linux answers Get and Set of a class that nobody on the host listens to with status 0x000c
/// (`generate_unmatched_resp` in `drivers/infiniband/core/mad.c`): so it is while the subnet manager
/// is restarted, or dead. Gets and Sets here are of attributes that SAs know; one that does not is asked
/// rarely for all that.
fn is_answered_by_kernels(request: &Header) -> bool {
    matches!(request.method, mad::METHOD_GET | mad::METHOD_SET)
}

impl Response {
    /// The answer that `message` is.
    ///
    /// # Errors
    /// Its data are no table although its method says so.
    pub(super) fn new(message: &SaMessage<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            attribute: message.header.attribute_id,
            record_len: message.record_len()?,
            data: message.data.to_vec(),
        })
    }

    /// The records, each `record_len` bytes long.
    pub fn records(&self) -> ChunksExact<'_, u8> {
        self.data.chunks_exact(self.record_len.max(1))
    }

    /// The records decoded.
    ///
    /// # Errors
    /// They are of another attribute, or too short for it.
    pub fn decode<R: Record>(&self) -> Result<impl Iterator<Item = R>, Malformed> {
        if self.attribute != R::ATTRIBUTE {
            return Err(Malformed::Answer(ResponseError::Attribute {
                found: self.attribute,
                want: R::ATTRIBUTE,
            }));
        }
        if self.record_len < R::RECORD_LEN && !self.data.is_empty() {
            return Err(Malformed::Record {
                attribute: R::ATTRIBUTE,
                found: self.record_len,
                want: R::RECORD_LEN,
            });
        }
        Ok(self.records().filter_map(R::from_record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Lid;
    use cm_msgs::sa::{LinkRecord, NodeRecord};

    fn links() -> Response {
        let link = |from, to| LinkRecord {
            from_lid: Lid(from),
            to_lid: Lid(to),
            ..LinkRecord::default()
        };
        let record = |link: LinkRecord| [&link.encode()[..], &[0; 2]].concat();
        Response {
            attribute: LinkRecord::ATTRIBUTE,
            record_len: 8,
            data: [record(link(1, 2)), record(link(2, 1))].concat(),
        }
    }

    #[test]
    fn records_become_values() {
        let lids: Vec<_> = links()
            .decode()
            .unwrap()
            .map(|link: LinkRecord| (link.from_lid.0, link.to_lid.0))
            .collect();
        assert_eq!(lids, [(1, 2), (2, 1)]);
        assert_eq!(links().records().len(), 2);
    }

    #[test]
    fn an_empty_table_has_no_records() {
        let none = Response {
            record_len: 0,
            data: Vec::new(),
            ..links()
        };
        assert_eq!(none.decode::<LinkRecord>().unwrap().count(), 0);
    }

    #[test]
    fn records_of_another_kind_or_too_short_are_refused() {
        let error = links().decode::<NodeRecord>().err().unwrap();
        assert_eq!(
            error.to_string(),
            "attribute 0x0020 where 0x0011 was awaited"
        );
        let short = Response {
            attribute: NodeRecord::ATTRIBUTE,
            ..links()
        };
        let error = short.decode::<NodeRecord>().err().unwrap();
        assert_eq!(
            error.to_string(),
            "records of 8 bytes, attribute 0x0011 has 108"
        );
    }

    #[test]
    fn busy_and_absent_are_no_refusals() {
        let failure = |method, error| {
            let request = Header {
                method,
                ..Header::default()
            };
            Failure::of(&request, error)
        };
        let (get, table) = (mad::METHOD_GET, mad::METHOD_GET_TABLE);
        let busy = ResponseError::Status(SaStatus::NoResources);
        assert_eq!(failure(get, busy), Failure::Busy);
        let unsupported = SaStatus::Generic(GenericStatus::UnsupportedAttribute);
        let nobody = ResponseError::Status(unsupported);
        assert_eq!(failure(get, nobody), Failure::Absent);
        assert_eq!(failure(mad::METHOD_SET, nobody), Failure::Absent);
        assert_eq!(failure(table, nobody), Failure::Status(unsupported));
        let other = ResponseError::Method {
            found: mad::METHOD_GET,
            want: mad::METHOD_GET_RESP,
        };
        assert_eq!(
            failure(get, other).to_string(),
            "malformed answer: method 0x01 where 0x81 was awaited"
        );
    }
}
