// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that name things in a fabric.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

/// Global identifier of a port: a 64-bit subnet prefix and a 64-bit GUID (IBA 4.1.1). Shown and
/// read in the form of an IPv6 address, as `inet_ntop` writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
// Some processors take longer to store 16 bytes at a place that is no multiple of 4.
#[repr(align(4))]
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

    /// The highest that a port can have; those above are multicast groups'.
    pub const MAX_UNICAST: Self = Self(0xbfff);

    /// Whether a packet can be sent to one port by it (0x0001 to 0xbfff, IBA 4.1.3).
    pub const fn is_unicast(self) -> bool {
        self.0 >= 1 && self.0 <= Self::MAX_UNICAST.0
    }

    /// The base LID of the port that has this one, where ports have 2^`lmc` LIDs (0 to 7). Base LIDs are multiples
    /// of that (IBA 4.1.3), and a subnet manager gives all end ports of its subnet the same LMC.
    pub const fn base(self, lmc: u8) -> Self {
        let lmc = if lmc < 7 { lmc } else { 7 };
        Self(self.0 >> lmc << lmc)
    }

    /// The last LID of the port that has this one, where ports have 2^`lmc` LIDs (0 to 7).
    pub const fn last(self, lmc: u8) -> Self {
        let lmc = if lmc < 7 { lmc } else { 7 };
        Self(self.0 | ((1 << lmc) - 1))
    }

    /// Whether both are LIDs of one port, where ports have 2^`lmc` LIDs. In one subnet only: another subnet has
    /// ports with the same LIDs.
    pub const fn is_one_port_with(self, other: Self, lmc: u8) -> bool {
        self.0 != 0 && self.base(lmc).0 == other.base(lmc).0
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

    /// The partition, without the membership bit; 0 is none.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Whether a packet sent with this key is taken by a port that holds `other`: same partition,
    /// and at least one of the two a full member (IBA 10.9.1.1).
    pub const fn matches(self, other: Self) -> bool {
        let same = self.partition() == other.partition();
        same && self.partition() != 0 && (self.0 | other.0) & 0x8000 != 0
    }
}

/// The text is no P_Key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a p_key: want hex digits after 0x, such as 0x8001")]
pub struct ParsePKeyError;

/// As the kernel writes it (`ib_port_pkey_attr_show` in `drivers/infiniband/core/sysfs.c`).
impl FromStr for PKey {
    type Err = ParsePKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").ok_or(ParsePKeyError)?;
        let key = u16::from_str_radix(digits, 16).map_err(|_| ParsePKeyError)?;
        Ok(Self(key))
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_the_tools_show_them() {
        let gid = Gid::new(0xfe80 << 48, Guid(0x0005_ad00_0010_0001));
        assert_eq!(gid.to_string(), "fe80::5:ad00:10:1");
        assert_eq!("fe80::5:ad00:10:1".parse(), Ok(gid));
        assert_eq!(gid.interface_id().to_string(), "0x0005ad0000100001");
        assert_eq!(Lid(49151).to_string(), "49151");
        assert_eq!(Qpn(0x12).to_string(), "0x000012");
        assert_eq!(PKey(0x8001).to_string(), "0x8001");
        assert_eq!("0x8001".parse(), Ok(PKey(0x8001)));
    }

    #[test]
    fn text_that_is_no_gid() {
        for text in [
            "",
            "fe80",
            "fe80::5:ad00:10:1/64",
            "10.0.0.1",
            "fe80:0:0:0:5:ad00:10:1:2",
        ] {
            assert_eq!(text.parse::<Gid>(), Err(ParseGidError), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_pkey() {
        for text in ["", "0x", "8001", "0x18001", "0xpkey", " 0x8001"] {
            assert_eq!(text.parse::<PKey>(), Err(ParsePKeyError), "{text}");
        }
    }

    #[test]
    fn parts_of_a_gid() {
        let gid = Gid::new(0xfe80 << 48, Guid(7));
        assert_eq!(
            (gid.subnet_prefix(), gid.interface_id()),
            (0xfe80 << 48, Guid(7))
        );
        assert!(!gid.is_unspecified());
        assert!(Gid::default().is_unspecified());
    }

    #[test]
    fn lids_of_one_port() {
        let unicast = [0, 1, 0xbfff, 0xc000, 0xffff].map(|lid| Lid(lid).is_unicast());
        assert_eq!(unicast, [false, true, true, false, false]);
        let same = |a, b, lmc| Lid(a).is_one_port_with(Lid(b), lmc);
        assert!(same(8, 11, 2) && same(8, 8, 0) && same(0x80, 0xff, 200));
        assert!(!same(8, 12, 2) && !same(8, 9, 0) && !same(0, 0, 2));
        assert_eq!(Lid(0x1237).base(2), Lid(0x1234));
    }

    #[test]
    fn limited_members_do_not_match_each_other() {
        let (full, limited) = (PKey(0x8001), PKey(0x0001));
        assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
        assert!(!limited.matches(limited));
        assert!(!full.matches(PKey(0x8002)));
        assert!(
            !PKey(0x8000).matches(PKey(0x8000)),
            "partition 0 is no partition"
        );
    }
}
