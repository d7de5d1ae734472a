// SPDX-License-Identifier: MIT OR Apache-2.0
//! IP addresses and host names of ports: `ibacm_hosts.data` and `ibssa_hosts.data`, which have one
//! format, of which ibacm reads the first two fields only.

mod file;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

pub use file::{Problem, ReadError};

use cm_msgs::{Gid, PKey, Qpn};

/// The name of a host: 1 to 31 printable ASCII characters without white space, neither an IP
/// address nor the torso of one, and not what the file has another meaning for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostName(Box<str>);

impl HostName {
    /// The most characters of a name.
    pub const MAX: usize = 31;
}

/// What a port is known by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// Its host's name.
    Name(HostName),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AddressError {
    #[error("a host name has 1 to {max} characters, '{0}' has {len}", max = HostName::MAX, len = .0.chars().count())]
    Length(String),
    #[error(
        "'{0}' is neither an ip address nor a host name: want printable ascii, no '#', '[' first"
    )]
    Characters(String),
    #[error("'{0}' looks like an ip address but is none")]
    BrokenIp(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let numeric = |c: char| c.is_ascii_digit() || c == '.';
        if text.contains(':') || (!text.is_empty() && text.chars().all(numeric)) {
            return Err(AddressError::BrokenIp(text.to_owned()));
        }
        if text.is_empty() || text.chars().count() > HostName::MAX {
            return Err(AddressError::Length(text.to_owned()));
        }
        if text.starts_with(['#', '[']) || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(AddressError::Characters(text.to_owned()));
        }
        Ok(Self::Name(HostName(text.into())))
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&name.0),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

/// The queue pair of an IPoIB interface and the connected modes that it supports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    qpn: Qpn,
    flags: u8,
}

impl Remote {
    /// Flag of reliable connected mode; what a file says nothing of.
    pub const RC: u8 = 0x80;
    /// Flag of unreliable connected mode.
    pub const UC: u8 = 0x40;

    /// `None` if the number has more than 24 bits, or another flag than [`Remote::RC`] and
    /// [`Remote::UC`] is set.
    pub const fn new(qpn: Qpn, flags: u8) -> Option<Self> {
        match qpn.0 >> 24 == 0 && flags & !(Self::RC | Self::UC) == 0 {
            true => Some(Self { qpn, flags }),
            false => None,
        }
    }

    /// The queue pair number, 24 bits.
    pub const fn qpn(self) -> Qpn {
        self.qpn
    }

    /// [`Remote::RC`] and [`Remote::UC`].
    pub const fn flags(self) -> u8 {
        self.flags
    }
}

/// One line of the file: an address, the port that has it, and in which partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The address.
    pub address: Address,
    /// A GID of the port.
    pub gid: Gid,
    /// The partition; [`PKey::DEFAULT_FULL`] where the file names none.
    pub pkey: PKey,
    /// The interface's queue pair, where the file has it.
    pub remote: Option<Remote>,
}

/// One address, GID and P_Key with two queue pairs or two sets of flags.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address} has two lines for gid {gid} and p_key {pkey}, which differ")]
pub struct Conflict {
    /// The address.
    pub address: Address,
    /// The GID.
    pub gid: Gid,
    /// The partition.
    pub pkey: PKey,
}

/// Addresses and their ports. A port may have many addresses, and an address many ports: that of a
/// host with two, or one in each partition.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    entries: Vec<Entry>,
    by_address: HashMap<Address, Vec<usize>>,
}

impl PartialEq for Addresses {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Addresses {}

impl Addresses {
    /// Adds an entry. Saying the same again is no error and adds nothing.
    pub fn insert(&mut self, entry: Entry) -> Result<(), Conflict> {
        let same = |known: &&Entry| known.gid == entry.gid && known.pkey == entry.pkey;
        if let Some(known) = self.find(&entry.address).find(same) {
            return match known.remote == entry.remote {
                true => Ok(()),
                false => Err(Conflict {
                    address: entry.address,
                    gid: entry.gid,
                    pkey: entry.pkey,
                }),
            };
        }
        let at = self.entries.len();
        let by_address = self.by_address.entry(entry.address.clone());
        by_address.or_default().push(at);
        self.entries.push(entry);
        Ok(())
    }

    /// The ports of an address, in the order of the file.
    pub fn find(&self, address: &Address) -> impl Iterator<Item = &Entry> + use<'_> {
        let at = self.by_address.get(address).into_iter().flatten();
        at.map(|&at| &self.entries[at])
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }
}
