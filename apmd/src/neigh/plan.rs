// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which entries there should be.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use cm_msgs::{Gid, PKey, Qpn};

use super::{Census, Entry, Interface, Key, LinkAddress, Subnet};

/// An address and where it is, as a file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The address.
    pub(crate) ip: IpAddr,
    /// GID of the port.
    pub(crate) gid: Gid,
    /// The partition.
    pub(crate) pkey: PKey,
    /// Queue pair and flags of its interface.
    pub(crate) remote: Option<(Qpn, u8)>,
}

/// What should be.
pub(super) struct Plan {
    /// The entries, as far as their link-layer addresses are known.
    pub(super) entries: BTreeMap<Key, LinkAddress>,
    /// All entries that may stay.
    pub(super) all: HashSet<Key>,
    pub(super) census: Census,
}

/// Compares records with interfaces; a queue pair that a record lacks may be known from an entry
/// that the kernel has for another address of the same port.
pub(super) fn plan(
    records: &[Record],
    interfaces: &BTreeMap<u32, Interface>,
    subnets: &[Subnet],
    entries: &HashMap<Key, Entry>,
) -> Plan {
    let learnt = learnt(entries);
    // A host is no neighbour of itself, though the file, which is the same everywhere, has it.
    let own: HashSet<IpAddr> = subnets.iter().map(|subnet| subnet.ip).collect();
    let mut plan = Plan {
        entries: BTreeMap::new(),
        all: HashSet::new(),
        census: Census::default(),
    };
    for record in records.iter().filter(|record| !own.contains(&record.ip)) {
        let places: Vec<_> = places(record, interfaces, subnets).collect();
        if places.is_empty() {
            plan.census.off_link += 1;
        }
        for interface in places {
            let key = Key {
                interface,
                ip: record.ip,
            };
            if !plan.all.insert(key) {
                continue; // The first line of an address counts.
            }
            plan.census.wanted += 1;
            plan.census.wanted_v4 += usize::from(record.ip.is_ipv4());
            let known = record
                .remote
                .or(learnt.get(&(interface, record.gid)).copied());
            match known {
                Some((qpn, flags)) => {
                    let gid = record.gid;
                    let address = LinkAddress { flags, qpn, gid };
                    plan.entries.insert(key, address);
                }
                None => plan.census.without_qpn += 1,
            }
            let kernels = |entry: &Entry| entry.address.is_some() && !entry.ours;
            plan.census.kernels += usize::from(entries.get(&key).is_some_and(kernels));
        }
    }
    plan
}

/// Interfaces on which the record's address is a neighbour.
fn places(
    record: &Record,
    interfaces: &BTreeMap<u32, Interface>,
    subnets: &[Subnet],
) -> impl Iterator<Item = u32> {
    let on_link = subnets.iter().filter(|subnet| contains(subnet, record.ip));
    let mut indices: Vec<_> = on_link
        .map(|subnet| subnet.interface)
        .filter(|index| {
            interfaces.get(index).is_some_and(|interface| {
                interface.up
                    && interface.gid != record.gid
                    && interface.gid.subnet_prefix() == record.gid.subnet_prefix()
                    && interface.pkey.partition() == record.pkey.partition()
            })
        })
        .collect();
    indices.sort_unstable();
    indices.dedup();
    indices.into_iter()
}

fn contains(subnet: &Subnet, ip: IpAddr) -> bool {
    let (own, other, bits) = match (subnet.ip, ip) {
        (IpAddr::V4(own), IpAddr::V4(ip)) => (own.to_bits().into(), ip.to_bits().into(), 32),
        (IpAddr::V6(own), IpAddr::V6(ip)) => (own.to_bits(), ip.to_bits(), 128),
        _ => return false,
    };
    let host_bits = bits - u32::from(subnet.prefix_len).min(bits);
    let differing: u128 = own ^ other;
    differing.checked_shr(host_bits).unwrap_or(0) == 0
}

/// Queue pairs by interface and GID, from the entries that the kernel found by itself.
fn learnt(entries: &HashMap<Key, Entry>) -> HashMap<(u32, Gid), (Qpn, u8)> {
    let found = entries.iter().filter(|(_, entry)| !entry.ours);
    found
        .filter_map(|(key, entry)| {
            let address = entry.address?;
            Some(((key.interface, address.gid), (address.qpn, address.flags)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_contain_what_shares_their_prefix() {
        let contains = |own: &str, prefix_len, ip: &str| {
            let subnet = Subnet {
                interface: 1,
                ip: own.parse().unwrap(),
                prefix_len,
            };
            contains(&subnet, ip.parse().unwrap())
        };
        assert!(contains("10.0.1.1", 24, "10.0.1.255"));
        assert!(!contains("10.0.1.1", 24, "10.0.2.1"));
        assert!(contains("10.0.1.1", 0, "192.0.2.1"));
        assert!(!contains("10.0.1.1", 32, "10.0.1.2"));
        assert!(!contains("10.0.1.1", 0, "fd00::1"));
        assert!(contains("fd00::1", 64, "fd00::ffff:1"));
        assert!(!contains("fd00::1", 128, "fd00::2"));
        assert!(contains("fd00::1", 0, "2001:db8::2"));
    }
}
