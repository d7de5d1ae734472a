// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ACM resolves: names, IP addresses, GIDs and LIDs, in 64 bytes each.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::codes::closed_codes;
use crate::{Gid, Lid};

/// Bytes that an address takes, whatever its kind: it lies at their start, zeros follow.
pub const ADDRESS_LEN: usize = 64;

closed_codes! {
    /// The kind of an [`Address`]. Clients know the first three; the others occur between the
    /// services of two hosts.
    AddressKind {
        /// [`Address::Name`].
        Name = 1, "name";
        /// [`Address::Ip`].
        Ip = 2, "ipv4 address";
        /// [`Address::Ip6`].
        Ip6 = 3, "ipv6 address";
        /// [`Address::Gid`].
        Gid = 4, "gid";
        /// [`Address::Lid`].
        Lid = 5, "lid";
    }
}

/// A host's name, as ACM compares it: without regard to ASCII case.
#[derive(Clone, Copy)]
pub struct Name([u8; ADDRESS_LEN]);

/// The name is longer than 63 bytes, or has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a name has 1 to 63 bytes, none of them zero, not {0} bytes")]
pub struct NameTooLong(pub usize);

impl Name {
    /// A name of 1 to 63 bytes, none of them zero.
    ///
    /// # Errors
    /// Other text.
    pub fn new(text: &str) -> Result<Self, NameTooLong> {
        let wrong = NameTooLong(text.len());
        if text.is_empty() || text.len() >= ADDRESS_LEN || text.contains('\0') {
            return Err(wrong);
        }
        let mut name = [0; ADDRESS_LEN];
        name.get_mut(..text.len())
            .ok_or(wrong)?
            .copy_from_slice(text.as_bytes());
        Ok(Self(name))
    }

    /// What stands before the first zero.
    fn read(bytes: &[u8; ADDRESS_LEN]) -> Self {
        let mut ended = false;
        Self(bytes.map(|byte| {
            ended |= byte == 0;
            if ended { 0 } else { byte }
        }))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        self.0.get(..end.unwrap_or(ADDRESS_LEN)).unwrap_or(&self.0)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let lower = |name: &Self| name.0.map(|byte| byte.to_ascii_lowercase());
        lower(self).cmp(&lower(other))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.map(|byte| byte.to_ascii_lowercase()).hash(state);
    }
}

/// Bytes that are no UTF-8 are shown as U+FFFD.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            if chunk.invalid().is_empty() {
                return Ok(());
            }
            f.write_str("\u{fffd}")
        })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// The kind of an address is none that ACM knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("address of kind {0:#06x}, want 1 name, 2 ipv4, 3 ipv6, 4 gid or 5 lid")]
pub struct AddressError(pub u16);

/// Something that ACM resolves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// A host's name.
    Name(Name),
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// An IPv6 address.
    Ip6(Ipv6Addr),
    /// A port's GID.
    Gid(Gid),
    /// A port's LID.
    Lid(Lid),
}

impl Address {
    /// Its kind.
    pub const fn kind(&self) -> AddressKind {
        match self {
            Self::Name(_) => AddressKind::Name,
            Self::Ip(_) => AddressKind::Ip,
            Self::Ip6(_) => AddressKind::Ip6,
            Self::Gid(_) => AddressKind::Gid,
            Self::Lid(_) => AddressKind::Lid,
        }
    }

    /// Reads an address of the kind; what lies behind it is ignored.
    ///
    /// # Errors
    /// A kind that is none of [`AddressKind`].
    pub fn decode(kind: u16, bytes: &[u8; ADDRESS_LEN]) -> Result<Self, AddressError> {
        let wrong = AddressError(kind);
        let kind = u8::try_from(kind).map_err(|_| wrong)?;
        Ok(match AddressKind::from_code(kind).ok_or(wrong)? {
            AddressKind::Name => Self::Name(Name::read(bytes)),
            AddressKind::Ip => Self::Ip(Ipv4Addr::from(first(bytes))),
            AddressKind::Ip6 => Self::Ip6(Ipv6Addr::from(first::<16>(bytes))),
            AddressKind::Gid => Self::Gid(Gid(first(bytes))),
            AddressKind::Lid => Self::Lid(Lid(u16::from_be_bytes(first(bytes)))),
        })
    }

    /// The address and zeros behind it.
    pub fn encode(&self) -> [u8; ADDRESS_LEN] {
        match self {
            Self::Name(name) => name.0,
            Self::Ip(ip) => padded(&ip.octets()),
            Self::Ip6(ip) => padded(&ip.octets()),
            Self::Gid(gid) => padded(&gid.0),
            Self::Lid(lid) => padded(&lid.0.to_be_bytes()),
        }
    }
}

/// Without its kind: every write takes a hasher as long as some words of what is hashed, and that
/// addresses of two kinds may meet does no harm.
impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Name(name) => name.hash(state),
            Self::Ip(ip) => state.write_u32(ip.to_bits()),
            Self::Ip6(ip) => state.write(&ip.octets()),
            Self::Gid(gid) => state.write(&gid.0),
            Self::Lid(lid) => state.write_u16(lid.0),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(ip) => ip.fmt(f),
            Self::Ip6(ip) => ip.fmt(f),
            Self::Gid(gid) => gid.fmt(f),
            Self::Lid(lid) => lid.fmt(f),
        }
    }
}

fn first<const N: usize>(bytes: &[u8; ADDRESS_LEN]) -> [u8; N] {
    crate::layout::resized(bytes)
}

fn padded<const N: usize>(bytes: &[u8; N]) -> [u8; ADDRESS_LEN] {
    crate::layout::resized(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_each_kind() {
        let gid: Gid = "fe80::5:ad00:10:1".parse().unwrap();
        let cases = [
            (Address::Name(Name::new("node-7").unwrap()), "node-7"),
            (Address::Ip(Ipv4Addr::new(10, 0, 0, 7)), "10.0.0.7"),
            (
                Address::Ip6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7)),
                "fd00::7",
            ),
            (Address::Gid(gid), "fe80::5:ad00:10:1"),
            (Address::Lid(Lid(7)), "7"),
        ];
        for (address, text) in cases {
            let kind = u16::from(address.kind().code());
            assert_eq!(Address::decode(kind, &address.encode()), Ok(address));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_lies_behind_an_address_is_ignored() {
        let mut bytes = Address::Ip(Ipv4Addr::new(10, 0, 0, 7)).encode();
        bytes[4..].fill(0xff);
        let read = Address::decode(2, &bytes);
        assert_eq!(read, Ok(Address::Ip(Ipv4Addr::new(10, 0, 0, 7))));
        let mut bytes = Address::Name(Name::new("node").unwrap()).encode();
        bytes[5..].fill(b'x');
        let read = Address::decode(1, &bytes);
        assert_eq!(read, Ok(Address::Name(Name::new("node").unwrap())));
    }

    #[test]
    fn names_are_compared_without_case() {
        let [a, b] = ["Node-7.Fabric", "node-7.fabric"].map(|text| Name::new(text).unwrap());
        assert_eq!(a, b);
        let hash = |name: &Name| {
            let mut hasher = std::hash::DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&a), hash(&b));
        assert_eq!(a.to_string(), "Node-7.Fabric");
    }

    #[test]
    fn names_that_are_none() {
        for text in ["", "a\0b", &"x".repeat(64)] {
            assert_eq!(Name::new(text), Err(NameTooLong(text.len())));
        }
        assert_eq!(Name::new(&"x".repeat(63)).unwrap().as_bytes().len(), 63);
    }

    #[test]
    fn a_name_of_64_bytes_of_no_text_is_shown() {
        let bytes = [0xff; ADDRESS_LEN];
        let Ok(Address::Name(name)) = Address::decode(1, &bytes) else {
            panic!("no name")
        };
        assert_eq!(name.as_bytes(), bytes);
        assert_eq!(name.to_string(), "\u{fffd}".repeat(64));
    }

    #[test]
    fn kinds_that_are_none() {
        for kind in [0, 6, 0x10, 0x102] {
            let read = Address::decode(kind, &[0; ADDRESS_LEN]);
            assert_eq!(read, Err(AddressError(kind)));
        }
    }
}
