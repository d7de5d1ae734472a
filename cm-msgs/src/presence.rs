// SPDX-License-Identifier: MIT OR Apache-2.0
//! Get(ClassPortInfo) of the class that daemons speak (IBA 13.4.8.1): whether a daemon is there.
//!
//! Where none is, the peer's kernel answers by itself, with a status: nobody on that port takes the
//! method.

use crate::DecodeError;
use crate::cm::CLASS_VERSION;
use crate::layout::resized;
use crate::mad::{self, BASE_VERSION, Header, MAD_LEN};
use crate::sa::{ATTR_CLASS_PORT_INFO, ClassPortInfo};

/// Answers come within a second: 4.096 us * 2^18.
const RESP_TIME: u8 = 18;

/// Whether a daemon is there: the question and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Get(ClassPortInfo).
    Get,
    /// GetResp(ClassPortInfo).
    Answer {
        /// 0, or why there is no answer.
        status: u16,
        /// What the class can do.
        info: ClassPortInfo,
    },
}

impl Presence {
    /// What a daemon answers.
    pub fn here() -> Self {
        Self::Answer {
            status: 0,
            info: ClassPortInfo {
                base_version: BASE_VERSION,
                class_version: CLASS_VERSION,
                resp_time_value: RESP_TIME,
                ..ClassPortInfo::default()
            },
        }
    }

    /// Whether it is the answer of a daemon.
    pub fn is_here(&self) -> bool {
        matches!(self, Self::Answer { status: 0, info } if info.class_version == CLASS_VERSION)
    }

    /// Reads a MAD of any class.
    ///
    /// # Errors
    /// Bytes that are no Get or GetResp of ClassPortInfo, or of another class version.
    pub fn decode(mad: &[u8]) -> Result<(Header, Self), DecodeError> {
        let (header, rest) = Header::split(mad)?;
        header.expect_version(CLASS_VERSION)?;
        if header.attribute_id != ATTR_CLASS_PORT_INFO {
            return Err(DecodeError::Attribute(header.attribute_id));
        }
        let message = match header.method {
            mad::METHOD_GET => Self::Get,
            mad::METHOD_GET_RESP => Self::Answer {
                status: header.status,
                info: ClassPortInfo::decode(&resized(rest)),
            },
            found => {
                return Err(DecodeError::Method {
                    found,
                    want: mad::METHOD_GET,
                });
            }
        };
        Ok((header, message))
    }

    /// The bytes. An answer has its question's whole transaction ID, by whose upper half the asking
    /// kernel finds the program that asked.
    pub fn encode(&self, class: u8, transaction_id: u64) -> [u8; MAD_LEN] {
        let (method, status, rest) = match self {
            Self::Get => (mad::METHOD_GET, 0, [0; MAD_LEN - Header::LEN]),
            Self::Answer { status, info } => {
                (mad::METHOD_GET_RESP, *status, resized(&info.encode()))
            }
        };
        let header = Header {
            base_version: BASE_VERSION,
            mgmt_class: class,
            class_version: CLASS_VERSION,
            method,
            status,
            transaction_id,
            attribute_id: ATTR_CLASS_PORT_INFO,
            ..Header::default()
        };
        header.join(&rest)
    }
}
