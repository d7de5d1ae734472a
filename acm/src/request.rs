// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of the socket protocol: where one ends, and what it wants.

use cm_msgs::acm::{Address, Entry, Flags, Header, Info, MAX_LEN, Status, VERSION};
use cm_msgs::sa::PathRecord;

/// Why a client is thrown out: from here on its bytes make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// Another protocol.
    #[error("version {0}, want {VERSION}")]
    Version(u8),
    /// A message too short for its header or too long for the protocol.
    #[error("message of {0} bytes, want 16 to {MAX_LEN}")]
    Length(u16),
}

/// The first whole message in `bytes`: its length, or `None` while there is not all of it.
///
/// # Errors
/// The bytes are no message.
pub fn frame(bytes: &[u8]) -> Result<Option<(Header, usize)>, Breach> {
    let Some(head) = bytes.first_chunk() else {
        return Ok(None);
    };
    let header = Header::decode(head);
    if header.version != VERSION {
        return Err(Breach::Version(header.version));
    }
    let len = usize::from(header.length);
    if !(Header::LEN..=MAX_LEN).contains(&len) {
        return Err(Breach::Length(header.length));
    }
    Ok((bytes.len() >= len).then_some((header, len)))
}

/// A RESOLVE request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResolveRequest {
    /// The path to an address.
    Address {
        /// From here, or from wherever it is best.
        source: Option<Address>,
        /// To here.
        destination: Address,
        /// Only what is known already.
        no_delay: bool,
    },
    /// The rest of a path.
    Path {
        /// What is known of it.
        path: PathRecord,
        /// Only what is known already.
        no_delay: bool,
    },
    /// Whether the SA knows such a path.
    Verify {
        /// The path.
        path: PathRecord,
    },
}

impl ResolveRequest {
    /// Reads the entries of a request: a path, or up to one source and one destination in any
    /// order. What follows the last whole entry is ignored, as ibacm does.
    pub(super) fn read(body: &[u8]) -> Result<Self, Status> {
        let (entries, _) = body.as_chunks::<{ Entry::LEN }>();
        let mut entries = entries.iter().map(Entry::decode);
        let first = entries.next().ok_or(Status::DestinationType)?;
        if let Info::Path(path) = first.info {
            return Self::of_path(path, first.flags);
        }
        let (mut source, mut destination) = (None, None);
        for entry in std::iter::once(first).chain(entries) {
            if entry.flags.contains(Flags::SOURCE)
                && source.replace(end(&entry, Status::SourceType)?).is_some()
            {
                return Err(Status::SourceAddress);
            }
            if entry.flags.contains(Flags::DESTINATION) {
                let to = (end(&entry, Status::DestinationType)?, entry.flags);
                if destination.replace(to).is_some() {
                    return Err(Status::DestinationAddress);
                }
            }
        }
        let (destination, flags) = destination.ok_or(Status::DestinationType)?;
        Ok(Self::Address {
            source,
            destination,
            no_delay: flags.contains(Flags::NO_DELAY),
        })
    }

    fn of_path(path: PathRecord, flags: Flags) -> Result<Self, Status> {
        if flags.contains(Flags::QUERY_SA) {
            return Ok(Self::Verify { path });
        }
        if path.dlid.0 == 0 && path.dgid.is_unspecified() {
            return Err(Status::DestinationAddress);
        }
        let no_delay = flags.contains(Flags::NO_DELAY);
        Ok(Self::Path { path, no_delay })
    }
}

fn end(entry: &Entry, wrong: Status) -> Result<Address, Status> {
    match entry.info {
        Info::Address(address) => Ok(address),
        Info::Path(_) | Info::Other(_) => Err(wrong),
    }
}
