// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that name things in a fabric.

use std::fmt;
use std::net::{AddrParseError, Ipv6Addr};
use std::num::NonZeroU16;
use std::str::FromStr;

/// A unicast local identifier, 1 to 0xbfff (IBA 4.1.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lid(NonZeroU16);

impl Lid {
    /// The highest unicast LID.
    pub const MAX: u16 = 0xbfff;

    /// `None` for 0, multicast LIDs and the permissive LID.
    pub const fn new(lid: u16) -> Option<Self> {
        match NonZeroU16::new(lid) {
            Some(lid) if lid.get() <= Self::MAX => Some(Self(lid)),
            _ => None,
        }
    }

    /// As a number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// As an index into tables by LID.
    pub(crate) const fn index(self) -> usize {
        self.0.get() as usize
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The LIDs of one port: 2 to the power of `lmc` from `base` on (IBA 3.5.10). Only
/// [`LidRange::new`] makes one, so the range is aligned and unicast to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LidRange {
    base: Lid,
    lmc: u8,
}

impl LidRange {
    /// `None` if `lmc` exceeds 7, if `base` is not a multiple of the number of LIDs, or if the last
    /// LID is not unicast.
    pub fn new(base: Lid, lmc: u8) -> Option<Self> {
        let count = 1u16.checked_shl(u32::from(lmc)).filter(|_| lmc <= 7)?;
        let aligned = base.get().is_multiple_of(count);
        (aligned && base.get() + (count - 1) <= Lid::MAX).then_some(Self { base, lmc })
    }

    /// The first LID.
    pub const fn base(self) -> Lid {
        self.base
    }

    /// The LID mask count.
    pub const fn lmc(self) -> u8 {
        self.lmc
    }

    /// How many LIDs.
    pub const fn count(self) -> u16 {
        1 << self.lmc
    }

    /// The last LID, as a number.
    pub(crate) const fn last(self) -> u16 {
        self.base.get() + (self.count() - 1)
    }

    /// Whether `lid` is among them.
    pub const fn contains(self, lid: Lid) -> bool {
        self.base.get() <= lid.get() && lid.get() <= self.last()
    }

    /// All of them, ascending.
    pub fn iter(self) -> impl Iterator<Item = Lid> + Clone {
        (self.base.get()..=self.last()).filter_map(Lid::new)
    }
}

impl fmt::Display for LidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lmc {
            0 => self.base.fmt(f),
            _ => write!(f, "{}-{}", self.base, self.last()),
        }
    }
}

/// Global unique identifier of a node, port or chassis, EUI-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// Global identifier of a port, big-endian: 8 bytes of subnet prefix, then a GUID (IBA 4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GUID in it.
    pub fn guid(self) -> Guid {
        // The cast takes the lower half.
        Guid(u128::from_be_bytes(self.0) as u64)
    }
}

/// In IPv6 form.
impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.parse().map(|ip: Ipv6Addr| Self(ip.octets()))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// A partition key: 15 bits of partition, one bit of membership (IBA 10.9.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PKey(pub u16);

impl PKey {
    const FULL: u16 = 0x8000;

    /// Full membership of the partition that every port is in unless an administrator says
    /// otherwise.
    pub const DEFAULT: Self = Self(0xffff);

    /// The partition without the membership bit.
    pub const fn partition(self) -> u16 {
        self.0 & !Self::FULL
    }

    /// Whether holders of the two may talk: the same partition, and one of them a full member
    /// (IBA 10.9.3).
    pub const fn admits(self, other: Self) -> bool {
        self.partition() != 0
            && self.partition() == other.partition()
            && (self.0 | other.0) & Self::FULL != 0
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lid(number: u16) -> Lid {
        Lid::new(number).expect("unicast")
    }

    #[test]
    fn only_unicast_lids() {
        assert!(Lid::new(0).is_none());
        assert!(Lid::new(0xc000).is_none());
        assert!(Lid::new(0xbfff).is_some());
    }

    #[test]
    fn ranges_are_aligned_and_unicast() {
        assert!(LidRange::new(lid(5), 1).is_none());
        assert!(LidRange::new(lid(8), 8).is_none());
        assert!(LidRange::new(lid(0xbf80), 7).is_some());
        let range = LidRange::new(lid(8), 2).expect("aligned");
        let lids: Vec<_> = range.iter().map(Lid::get).collect();
        assert_eq!(lids, [8, 9, 10, 11]);
        assert!(range.contains(lid(11)) && !range.contains(lid(12)));
        assert_eq!(range.to_string(), "8-11");
    }

    #[test]
    fn two_limited_members_do_not_talk() {
        assert!(PKey(0xffff).admits(PKey(0x7fff)));
        assert!(!PKey(0x7fff).admits(PKey(0x7fff)));
        assert!(!PKey(0xffff).admits(PKey(0x8001)));
        assert!(!PKey(0x8000).admits(PKey(0x8000)), "0 is no partition");
    }
}
