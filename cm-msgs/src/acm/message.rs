// SPDX-License-Identifier: MIT OR Apache-2.0
//! RESOLVE messages as wholes.

use super::entry::{Entry, Flags, Info};
use super::header::{Header, Op, Status};
use super::{Address, VERSION};

/// Entries that a message has room for.
pub const MAX_ENTRIES: usize = 8;

/// Bytes of the longest RESOLVE message, and of the longest request of any kind.
pub const MAX_LEN: usize = Header::LEN + MAX_ENTRIES * Entry::LEN;

/// Bytes are no RESOLVE message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A header and whole entries, at most 8 of them, and as many as the header says.
    #[error(
        "resolve message of {len} bytes whose header says {said}, want 16 and at most 8 times 72"
    )]
    Length {
        /// Bytes at hand.
        len: usize,
        /// Bytes by the header.
        said: u16,
    },
    /// Bytes end within the header.
    #[error("resolve message of {0} bytes ends within its header, which has 16")]
    Header(usize),
    /// Another protocol version.
    #[error("resolve message of version {0} at byte 0, want {VERSION}")]
    Version(u8),
    /// Another operation.
    #[error("message at byte 1 is about {0}, want resolve")]
    Op(Op),
}

/// A RESOLVE request or answer.
#[derive(Clone, Copy, Debug)]
pub struct Resolve {
    /// It is an answer.
    pub ack: bool,
    /// How the request ended.
    pub status: Status,
    /// The client's number for the request.
    pub tid: u64,
    entries: [Entry; MAX_ENTRIES],
    count: u8,
}

impl Resolve {
    /// A request for the path to `destination`; without a source, the service chooses one.
    pub fn request(tid: u64, source: Option<Address>, destination: Address, flags: Flags) -> Self {
        let mut message = Self::empty(tid);
        if let Some(source) = source {
            message.push(Entry::address(Flags::SOURCE, source));
        }
        message.push(Entry::address(Flags::DESTINATION | flags, destination));
        message
    }

    /// A request without entries.
    pub fn empty(tid: u64) -> Self {
        const NOTHING: Entry = Entry {
            flags: Flags(0),
            info: Info::Other(0),
        };
        Self {
            ack: false,
            status: Status::Success,
            tid,
            entries: [NOTHING; MAX_ENTRIES],
            count: 0,
        }
    }

    /// Adds an entry; says whether there was room.
    pub fn push(&mut self, entry: Entry) -> bool {
        let Some(place) = self.entries.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = entry;
        self.count += 1;
        true
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        let count = usize::from(self.count);
        self.entries.get(..count).unwrap_or(&self.entries)
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (head, rest) = bytes
            .split_first_chunk()
            .ok_or(MessageError::Header(bytes.len()))?;
        let header = Header::decode(head);
        if header.version != VERSION {
            return Err(MessageError::Version(header.version));
        }
        if header.op != Op::Resolve {
            return Err(MessageError::Op(header.op));
        }
        let wrong = MessageError::Length {
            len: bytes.len(),
            said: header.length,
        };
        let (entries, left) = rest.as_chunks();
        if bytes.len() != usize::from(header.length)
            || !left.is_empty()
            || entries.len() > MAX_ENTRIES
        {
            return Err(wrong);
        }
        let mut message = Self::empty(header.tid);
        message.ack = header.ack;
        message.status = header.status;
        for entry in entries {
            message.push(Entry::decode(entry));
        }
        Ok(message)
    }

    /// Writes the message; the bytes written are what is to be sent.
    pub fn encode<'a>(&self, to: &'a mut [u8; MAX_LEN]) -> &'a [u8] {
        let len = Header::LEN + self.entries().len() * Entry::LEN;
        let header = Header {
            ack: self.ack,
            status: self.status,
            ..Header::request(Op::Resolve, self.tid, len as u16)
        };
        let (head, rest) = to.split_at_mut(Header::LEN);
        head.copy_from_slice(&header.encode());
        for (bytes, entry) in rest.chunks_exact_mut(Entry::LEN).zip(self.entries()) {
            bytes.copy_from_slice(&entry.encode());
        }
        to.get(..len).unwrap_or(&[])
    }
}

impl PartialEq for Resolve {
    fn eq(&self, other: &Self) -> bool {
        (self.ack, self.status, self.tid) == (other.ack, other.status, other.tid)
            && self.entries() == other.entries()
    }
}

impl Eq for Resolve {}
