// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link-layer address of IPoIB (RFC 4391, 9.1.1).

use std::fmt;

use cm_msgs::{Gid, Qpn};

/// The link-layer address of an IPoIB interface: flags, queue pair number, GID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LinkAddress {
    /// Connected modes that the interface supports: 0x80 reliable, 0x40 unreliable (RFC 4755).
    pub(crate) flags: u8,
    /// Its queue pair, 24 bits.
    pub(crate) qpn: Qpn,
    /// GID of its port.
    pub(crate) gid: Gid,
}

impl LinkAddress {
    /// Bytes on the wire.
    pub(crate) const LEN: usize = 20;

    /// Reads it; `None` if it has another length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let [flags, high, middle, low, gid @ ..] = bytes;
        Some(Self {
            flags: *flags,
            qpn: Qpn(u32::from_be_bytes([0, *high, *middle, *low])),
            gid: Gid(*gid),
        })
    }

    /// The bytes.
    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let [_, high, middle, low] = self.qpn.0.to_be_bytes();
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&[self.flags, high, middle, low]);
        bytes[4..].copy_from_slice(&self.gid.0);
        bytes
    }
}

/// As `ip neigh` writes it.
impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.encode().iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_the_rfc() {
        let address = LinkAddress {
            flags: 0x80,
            qpn: Qpn(0x0001_0203),
            gid: "fe80::5:ad00:10:1".parse().unwrap(),
        };
        let text = "80:01:02:03:fe:80:00:00:00:00:00:00:00:05:ad:00:00:10:00:01";
        assert_eq!(address.to_string(), text);
        assert_eq!(LinkAddress::decode(&address.encode()), Some(address));
        assert_eq!(LinkAddress::decode(&[0; 6]), None);
        assert_eq!(LinkAddress::decode(&[0; 21]), None);
    }
}
