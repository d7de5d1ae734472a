// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the communication manager (IBA 12.6), with SAP and SPR as Oracle's kernel lays them
//! out. One message is the 232 bytes after a MAD's header; offsets in the layouts count from there.

mod codes;
mod disconnect;
mod establish;
mod migrate;
mod path;
mod refuse;
mod request;
mod sidr;
mod suggest;

pub use codes::{ApStatus, FailoverAccepted, RejReason, Rejected, SpStatus};
pub use disconnect::{Drep, Dreq};
pub use establish::{Rep, Rtu};
pub use migrate::{Apr, Lap};
pub use path::PathFields;
pub use refuse::{Mra, Rej};
pub use request::Req;
pub use sidr::{SidrRep, SidrReq};
pub use suggest::{Sap, Spr};

use crate::fields::Fields;
use crate::mad::{self, Header, MAD_LEN};
use crate::{DecodeError, PrivateData};

/// The class version of CM messages.
pub const CLASS_VERSION: u8 = 2;

macro_rules! messages {
    ($($(#[$doc:meta])* $variant:ident = $id:literal $name:literal,)+) => {
        /// A CM message.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Message {
            $($(#[$doc])* $variant($variant),)+
        }

        impl Message {
            /// Reads a MAD as a CM message. The management class is the caller's to check: apmd's
            /// peers speak in a class that is a setting.
            ///
            /// # Errors
            /// Bytes that are no MAD with class version 2, method Send and an attribute ID of this
            /// table.
            pub fn decode(mad: &[u8]) -> Result<(Header, Self), DecodeError> {
                let (header, body) = Header::split(mad)?;
                header.expect_version(CLASS_VERSION)?;
                if header.method != mad::METHOD_SEND {
                    return Err(DecodeError::Method {
                        found: header.method,
                        want: mad::METHOD_SEND,
                    });
                }
                match header.attribute_id {
                    $($id => Ok((header, Self::$variant($variant::decode(body)))),)+
                    other => Err(DecodeError::Attribute(other)),
                }
            }

            /// The MAD of this message in management class `class`.
            pub fn encode(&self, class: u8, transaction_id: u64) -> [u8; MAD_LEN] {
                let header = Header {
                    base_version: mad::BASE_VERSION,
                    mgmt_class: class,
                    class_version: CLASS_VERSION,
                    method: mad::METHOD_SEND,
                    transaction_id,
                    attribute_id: self.attribute_id(),
                    ..Header::default()
                };
                match self {
                    $(Self::$variant(message) => header.join(&message.encode()),)+
                }
            }

            /// The attribute ID.
            pub const fn attribute_id(&self) -> u16 {
                match self {
                    $(Self::$variant(_) => $id,)+
                }
            }

            /// The name: `REQ`, `SIDR_REQ`, ...
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            /// Names and values of the fields, in the order of the wire.
            pub fn fields(&self) -> Fields<'_> {
                match self {
                    $(Self::$variant(message) => message.fields(),)+
                }
            }
        }

        $(impl From<$variant> for Message {
            fn from(message: $variant) -> Self {
                Self::$variant(message)
            }
        })+
    };
}

messages! {
    /// Asks for a connection.
    Req = 0x0010 "REQ",
    /// Received, the answer takes longer.
    Mra = 0x0011 "MRA",
    /// Refuses or gives up.
    Rej = 0x0012 "REJ",
    /// Accepts a REQ.
    Rep = 0x0013 "REP",
    /// Answers a REP: ready.
    Rtu = 0x0014 "RTU",
    /// Ends a connection.
    Dreq = 0x0015 "DREQ",
    /// Answers a DREQ.
    Drep = 0x0016 "DREP",
    /// Asks for the datagram queue pair behind a service.
    SidrReq = 0x0017 "SIDR_REQ",
    /// Answers a SIDR_REQ.
    SidrRep = 0x0018 "SIDR_REP",
    /// Active side: load this alternate path.
    Lap = 0x0019 "LAP",
    /// Answers a LAP.
    Apr = 0x001a "APR",
    /// Passive side: suggests an alternate port of its own.
    Sap = 0x001b "SAP",
    /// Answers a SAP.
    Spr = 0x001c "SPR",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_cm_message() {
        let good = Message::from(Rtu::default()).encode(mad::CLASS_APM, 1);
        let changed = |at: usize, byte: u8| {
            let mut mad = good;
            mad[at] = byte;
            Message::decode(&mad).map(|_| ()).unwrap_err()
        };
        assert_eq!(
            changed(0, 2).to_string(),
            "base version at byte 0 is 2, want 1"
        );
        assert_eq!(
            changed(2, 1).to_string(),
            "class version at byte 2 is 1, want 2"
        );
        assert_eq!(
            changed(3, 0x81).to_string(),
            "method at byte 3 is 0x81, want 0x03"
        );
        assert_eq!(
            changed(17, 0x1d).to_string(),
            "attribute id at byte 16 is 0x001d, which names no attribute known here"
        );
        let short = Message::decode(&good[..255]).unwrap_err();
        assert_eq!(short.to_string(), "mad is 255 bytes long, want 256");
    }

    #[test]
    fn better_gid_travels_in_an_apr() {
        let gid = crate::Gid([7; 16]);
        let mut apr = Apr::default();
        assert_eq!(apr.better_gid(), None);
        apr.set_better_gid(gid);
        assert_eq!(Apr::decode(&apr.encode()).better_gid(), Some(gid));
        apr.additional_information_length = 15;
        assert_eq!(apr.better_gid(), None, "no whole gid");
        apr.additional_information_length = 16;
        apr.ar_status = ApStatus::InvalidLid.into();
        assert_eq!(
            apr.better_gid(),
            None,
            "the information is about something else"
        );
    }
}
