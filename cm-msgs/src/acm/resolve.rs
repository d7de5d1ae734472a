// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ACM services of two hosts say to each other: a question to a multicast group, and the
//! answer of the one it concerns (`struct acm_mad` and `struct acm_resolve_rec` in `acm_mad.h`).
//!
//! Datagrams of 256 bytes between queue pairs of the services' own, all of it big-endian. It is a
//! MAD in its first 16 bytes only: attribute and modifier give way to the record.

use super::address::{ADDRESS_LEN, Address};
use crate::layout::attribute;
use crate::mad::{BASE_VERSION, Header, MAD_LEN, METHOD_GET, METHOD_GET_RESP};
use crate::{DecodeError, Gid};

/// The management class, of those for applications.
pub const CLASS_ACM: u8 = 0x2c;
/// The version of the class.
pub const CLASS_VERSION: u8 = 1;
/// The Q_Key of the services' queue pairs and groups.
pub const QKEY: u32 = 0x8001_0000;
/// Groups that a message has room for. The record has ten, but the datagram ends after the sixth.
pub const MAX_GROUPS: usize = 6;

/// The one kind of message there is.
const CONTROL_RESOLVE: u16 = 1;

/// A datagram is no message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// No MAD of this class.
    #[error(transparent)]
    Mad(#[from] DecodeError),
    /// Neither question nor answer.
    #[error("method at byte 3 is {0:#04x}, want {METHOD_GET:#04x} or {METHOD_GET_RESP:#04x}")]
    Method(u8),
    /// Another kind of message.
    #[error("control at byte 6 is {0:#06x}, want {CONTROL_RESOLVE:#06x}")]
    Control(u16),
    /// An end of a question is of a kind that ACM does not know.
    #[error("address kind at byte {byte} is {kind}, want 1 name, 2 ipv4, 3 ipv6, 4 gid or 5 lid")]
    Address {
        /// Where it stands.
        byte: u8,
        /// What stands there.
        kind: u8,
    },
}

/// GIDs of multicast groups, the least demanding first.
#[derive(Clone, Copy, Default)]
pub struct Groups {
    gids: [Gid; MAX_GROUPS],
    count: u8,
}

impl Groups {
    /// The first six of `gids`.
    pub fn new(gids: impl IntoIterator<Item = Gid>) -> Self {
        let mut groups = Self::default();
        for (place, gid) in groups.gids.iter_mut().zip(gids) {
            *place = gid;
            groups.count += 1;
        }
        groups
    }

    /// The GIDs.
    pub fn as_slice(&self) -> &[Gid] {
        let count = usize::from(self.count);
        self.gids.get(..count).unwrap_or(&self.gids)
    }
}

impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Groups {}

impl core::fmt::Debug for Groups {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Who has this address?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The asker's number for it.
    pub tid: u64,
    /// The asker's address.
    pub source: Address,
    /// The address in question.
    pub destination: Address,
    /// Groups that the asker is in.
    pub groups: Groups,
    /// RDMA reads and atomics that the asker's side can have outstanding as a target; 0 not said.
    pub responder_resources: u8,
    /// RDMA reads and atomics that the asker's side can have outstanding; 0 not said.
    pub initiator_depth: u8,
}

/// I have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The question's number.
    pub tid: u64,
    /// 0, or why not: the upper byte of the MAD's status.
    pub status: u8,
    /// The group of the asker's that both are in and that demands most.
    pub groups: Groups,
}

/// A message between two services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// By multicast.
    Question(Question),
    /// Sent back to the asker's queue pair.
    Answer(Answer),
}

attribute! {
    /// The datagram as it lies.
    struct Datagram: 256 {
        base_version: u8 = [0, 0, 8],
        class: u8 = [1, 0, 8],
        class_version: u8 = [2, 0, 8],
        method: u8 = [3, 0, 8],
        status: u16 = [4, 0, 16],
        control: u16 = [6, 0, 16],
        tid: u64 = [8, 0, 64],
        destination_kind: u8 = [16, 0, 8],
        destination_len: u8 = [17, 0, 8],
        source_kind: u8 = [18, 0, 8],
        source_len: u8 = [19, 0, 8],
        group_count: u8 = [20, 0, 8],
        responder_resources: u8 = [21, 0, 8],
        initiator_depth: u8 = [22, 0, 8],
        destination: [u8; ADDRESS_LEN] = [24, 0, 512],
        source: [u8; ADDRESS_LEN] = [88, 0, 512],
        groups: [u8; MAX_GROUPS * 16] = [152, 0, 768],
    }
}

impl Datagram {
    fn new(method: u8, tid: u64, groups: &Groups) -> Self {
        let mut datagram = Self {
            base_version: BASE_VERSION,
            class: CLASS_ACM,
            class_version: CLASS_VERSION,
            method,
            control: CONTROL_RESOLVE,
            tid,
            group_count: groups.count,
            ..Self::default()
        };
        let (places, _) = datagram.groups.as_chunks_mut();
        for (place, gid) in places.iter_mut().zip(groups.as_slice()) {
            *place = gid.0;
        }
        datagram
    }

    fn read_groups(&self) -> Groups {
        let gids = self.groups.as_chunks().0.iter().map(|gid| Gid(*gid));
        Groups::new(gids.take(usize::from(self.group_count)))
    }

    fn question(&self) -> Result<Question, ResolveError> {
        let address = |byte, kind: u8, bytes| {
            Address::decode(kind.into(), bytes).map_err(|_| ResolveError::Address { byte, kind })
        };
        Ok(Question {
            tid: self.tid,
            source: address(18, self.source_kind, &self.source)?,
            destination: address(16, self.destination_kind, &self.destination)?,
            groups: self.read_groups(),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
        })
    }

    fn answer(&self) -> Answer {
        Answer {
            tid: self.tid,
            status: (self.status >> 8) as u8,
            groups: self.read_groups(),
        }
    }
}

impl Message {
    /// Reads a datagram.
    ///
    /// # Errors
    /// One that is no message of this protocol.
    pub fn decode(bytes: &[u8]) -> Result<Self, ResolveError> {
        let length = DecodeError::Length(bytes.len());
        let datagram = Datagram::decode(bytes.try_into().map_err(|_| length)?);
        // It begins as every MAD does.
        let (header, _) = Header::split(bytes)?;
        header.expect_class(CLASS_ACM, CLASS_VERSION)?;
        if datagram.control != CONTROL_RESOLVE {
            return Err(ResolveError::Control(datagram.control));
        }
        match datagram.method {
            METHOD_GET => datagram.question().map(Self::Question),
            METHOD_GET_RESP => Ok(Self::Answer(datagram.answer())),
            method => Err(ResolveError::Method(method)),
        }
    }

    /// The datagram.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        match self {
            Self::Question(question) => question.encode(),
            Self::Answer(answer) => answer.encode(),
        }
    }
}

impl Question {
    fn encode(&self) -> [u8; MAD_LEN] {
        Datagram {
            destination_kind: self.destination.kind().code(),
            destination_len: ADDRESS_LEN as u8,
            source_kind: self.source.kind().code(),
            source_len: ADDRESS_LEN as u8,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            destination: self.destination.encode(),
            source: self.source.encode(),
            ..Datagram::new(METHOD_GET, self.tid, &self.groups)
        }
        .encode()
    }
}

impl Answer {
    fn encode(&self) -> [u8; MAD_LEN] {
        Datagram {
            status: u16::from(self.status) << 8,
            ..Datagram::new(METHOD_GET_RESP, self.tid, &self.groups)
        }
        .encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acm::Name;

    fn question() -> Question {
        Question {
            tid: 0x0102_0304_0506_0708,
            source: Address::Ip([10, 0, 0, 1].into()),
            destination: Address::Name(Name::new("b").unwrap()),
            groups: Groups::new((1..=2).map(|last| {
                let mut gid = [0; 16];
                gid[0] = 0xff;
                gid[15] = last;
                Gid(gid)
            })),
            responder_resources: 3,
            initiator_depth: 4,
        }
    }

    /// Offsets of `struct acm_mad` and `struct acm_resolve_rec`, as a C compiler lays them.
    #[test]
    fn fields_lie_where_ibacm_looks_for_them() {
        let bytes = Message::Question(question()).encode();
        assert_eq!(bytes[..8], [1, 0x2c, 1, 1, 0, 0, 0, 1]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [1, 64, 2, 64, 2, 3, 4, 0]);
        assert_eq!(bytes[24..27], [b'b', 0, 0]);
        assert_eq!(bytes[88..93], [10, 0, 0, 1, 0]);
        assert_eq!((bytes[152], bytes[167], bytes[183]), (0xff, 1, 2));
    }

    #[test]
    fn there_and_back() {
        let answer = Answer {
            tid: 7,
            status: 3,
            groups: Groups::new([Gid([0xff; 16])]),
        };
        for message in [Message::Question(question()), Message::Answer(answer)] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn datagrams_that_are_none() {
        let good = Message::Question(question()).encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Message::decode(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 2), DecodeError::BaseVersion(2).into());
        assert_eq!(with(3, 2), ResolveError::Method(2));
        assert_eq!(with(7, 2), ResolveError::Control(2));
        assert_eq!(with(18, 6), ResolveError::Address { byte: 18, kind: 6 });
        assert_eq!(with(16, 0), ResolveError::Address { byte: 16, kind: 0 });
        let short = Message::decode(&good[..255]).unwrap_err();
        assert_eq!(short, DecodeError::Length(255).into());
    }

    #[test]
    fn more_groups_than_there_is_room_for() {
        let mut bytes = Message::Question(question()).encode();
        bytes[20] = 10;
        let Ok(Message::Question(read)) = Message::decode(&bytes) else {
            panic!("no question")
        };
        assert_eq!(read.groups.as_slice().len(), MAX_GROUPS);
    }
}
