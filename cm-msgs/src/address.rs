// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that name things in a fabric.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

/// Global identifier of a port: a 64-bit subnet prefix and a 64-bit GUID (IBA 4.1.1). Shown and
/// read in the form of an IPv6 address, as `inet_ntop` writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The default GID of a port.
    pub const fn new(subnet_prefix: u64, interface_id: Guid) -> Self {
        Self((((subnet_prefix as u128) << 64) | interface_id.0 as u128).to_be_bytes())
    }

    /// The upper half.
    pub const fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The lower half: the port's GUID in a default GID.
    pub const fn interface_id(self) -> Guid {
        Guid(u128::from_be_bytes(self.0) as u64)
    }

    /// Whether all bits are zero, which names no port.
    pub const fn is_unspecified(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// The text is no GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a gid: want the form of an ipv6 address, such as fe80::5:ad00:10:1")]
pub struct ParseGidError;

impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address: Ipv6Addr = text.parse().map_err(|_| ParseGidError)?;
        Ok(Self(address.octets()))
    }
}

/// Global unique identifier of a node or port, EUI-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// Local identifier: a port's address in its subnet, path bits included. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lid(pub u16);

impl Lid {
    /// The LID that stands for all of the subnet's routers and SMs: the permissive LID.
    pub const PERMISSIVE: Self = Self(0xffff);

    /// Whether a packet can be sent to one port by it (0x0001 to 0xbfff, IBA 4.1.3).
    pub const fn is_unicast(self) -> bool {
        self.0 >= 1 && self.0 <= 0xbfff
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Queue pair number, 24 bits; the upper 8 are not written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Qpn(pub u32);

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// Partition key: the top bit says full member, the others name the partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PKey(pub u16);

impl PKey {
    /// Full membership in the default partition.
    pub const DEFAULT_FULL: Self = Self(0xffff);

    /// Whether a packet sent with this key is taken by a port that holds `other`: same partition,
    /// and at least one of the two a full member (IBA 10.9.1.1).
    pub const fn matches(self, other: Self) -> bool {
        let same = (self.0 ^ other.0) & 0x7fff == 0;
        same && self.0 & 0x7fff != 0 && (self.0 | other.0) & 0x8000 != 0
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}
