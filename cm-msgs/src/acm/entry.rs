// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a RESOLVE message (`struct acm_ep_addr_data`).

use core::ops::BitOr;

use super::address::{ADDRESS_LEN, Address};
use crate::layout::resized;
use crate::sa::PathRecord;

/// What an [`Entry`] is for. The low bits of a path in an answer are those of rdma-core's
/// `struct ibv_path_data`; the same bits of an address say which end it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// An address: the source.
    pub const SOURCE: Self = Self(1);
    /// An address: the destination.
    pub const DESTINATION: Self = Self(1 << 1);
    /// In a request: answer from what is known already, or say that there is no data.
    pub const NO_DELAY: Self = Self(1 << 30);
    /// In a request with a path: ask the SA, whatever is known already.
    pub const QUERY_SA: Self = Self(1 << 31);
    /// A path: for CM messages.
    pub const GMP: Self = Self(1);
    /// A path: the primary one.
    pub const PRIMARY: Self = Self(1 << 1);
    /// A path: the alternate one.
    pub const ALTERNATE: Self = Self(1 << 2);
    /// A path: for data to the destination.
    pub const OUTBOUND: Self = Self(1 << 3);
    /// A path: for data from the destination.
    pub const INBOUND: Self = Self(1 << 4);
    /// A path: for data from the destination, written down from this end.
    pub const INBOUND_REVERSE: Self = Self(1 << 5);
    /// The flags of the one path that librdmacm and the kernel take for everything.
    pub const WHOLE_PATH: Self =
        Self(Self::GMP.0 | Self::PRIMARY.0 | Self::OUTBOUND.0 | Self::INBOUND_REVERSE.0);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an [`Entry`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Info {
    /// An address.
    Address(Address),
    /// A path; in a request the parts of it that are known, zeros elsewhere.
    Path(PathRecord),
    /// Something of a type without a meaning here.
    Other(u16),
}

/// One address or path of a RESOLVE message: flags (4 bytes) and type (2) in host order, 2
/// reserved, 64 bytes by type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is for.
    pub flags: Flags,
    /// What it holds.
    pub info: Info,
}

/// The type of a path; those of addresses are `AddressKind`s.
const PATH: u16 = 0x10;

impl Entry {
    /// Bytes on the stream.
    pub const LEN: usize = 72;

    /// An address.
    pub const fn address(flags: Flags, address: Address) -> Self {
        let info = Info::Address(address);
        Self { flags, info }
    }

    /// A path.
    pub const fn path(flags: Flags, path: PathRecord) -> Self {
        let info = Info::Path(path);
        Self { flags, info }
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let [f0, f1, f2, f3, t0, t1, _, _, info @ ..] = bytes;
        Self {
            flags: Flags(u32::from_ne_bytes([*f0, *f1, *f2, *f3])),
            info: read_info(u16::from_ne_bytes([*t0, *t1]), info),
        }
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (kind, info) = match &self.info {
            Info::Address(address) => (u16::from(address.kind().code()), address.encode()),
            Info::Path(path) => (PATH, path.encode()),
            Info::Other(kind) => (*kind, [0; ADDRESS_LEN]),
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.flags.0.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[8..].copy_from_slice(&info);
        bytes
    }
}

fn read_info(kind: u16, bytes: &[u8; ADDRESS_LEN]) -> Info {
    match kind {
        PATH => Info::Path(PathRecord::decode(&resized(bytes))),
        _ => Address::decode(kind, bytes).map_or(Info::Other(kind), Info::Address),
    }
}
