// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the kernel's neighbour tables say that addresses are. They follow a host whose address moves to
//! another of its ports, by gratuitous ARP or when it is spoken to, also where it serves no ACM.

use std::collections::HashMap;
use std::net::IpAddr;

use cm_msgs::acm::Address;
use cm_msgs::{Gid, PKey};
use mio::Registry;

use super::token::Token;
use crate::io::neigh::NeighTable;
use crate::io::watched;
use crate::neigh::{Entry, Event, Key};

/// An address, where the kernel sends to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbour {
    /// The interface's partition.
    pub(super) pkey: PKey,
    pub(super) address: Address,
    /// The port.
    pub(super) gid: Gid,
}

/// The tables, and the interfaces that they belong to.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// `None`: its changes cannot be read.
    table: Option<NeighTable>,
    partitions: Partitions,
}

impl Neighbours {
    /// Subscribes to the tables' changes. If that fails, a warning is logged, and only other hosts' announcements
    /// show that an address has moved.
    pub(super) fn subscribed(registry: &Registry) -> Self {
        let table = NeighTable::open();
        let table = table.and_then(|table| watched(table, registry, Token::Neighbours));
        let table = table.inspect_err(|error| {
            tracing::warn!(%error, "acm: changes of the neighbour tables cannot be read");
        });
        Self {
            table: table.ok(),
            partitions: Partitions::default(),
        }
    }

    /// Reads all there is.
    pub(super) fn read(&mut self) -> Vec<Neighbour> {
        let Some(table) = &mut self.table else {
            return Vec::new();
        };
        match table.read() {
            Ok(events) => self.partitions.neighbours(events),
            Err(error) => {
                tracing::warn!(%error, "acm: changes of the neighbour tables can no longer be read");
                self.table = None;
                Vec::new()
            }
        }
    }
}

/// Partitions of IPoIB interfaces, by their index.
#[derive(Debug, Default)]
struct Partitions(HashMap<u32, PKey>);

impl Partitions {
    /// What events say of addresses. Entries that apmd has made itself from a file say nothing new.
    fn neighbours(&mut self, events: Vec<Event>) -> Vec<Neighbour> {
        let mut neighbours = Vec::new();
        for event in events {
            match event {
                Event::Interface(index, interface) => {
                    self.0.insert(index, interface.pkey);
                }
                Event::InterfaceGone(index) => {
                    self.0.remove(&index);
                }
                Event::Entry(key, entry) if !entry.ours => {
                    neighbours.extend(self.neighbour(key, entry));
                }
                _ => {}
            }
        }
        neighbours
    }

    fn neighbour(&self, key: Key, entry: Entry) -> Option<Neighbour> {
        Some(Neighbour {
            pkey: *self.0.get(&key.interface)?,
            address: match key.ip {
                IpAddr::V4(ip) => Address::Ip(ip),
                IpAddr::V6(ip) => Address::Ip6(ip),
            },
            gid: entry.address?.gid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neigh::{Interface, LinkAddress};
    use cm_msgs::Qpn;

    const KEY: Key = Key {
        interface: 3,
        ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)),
    };

    fn entry(ours: bool) -> Event {
        let address = LinkAddress {
            flags: 0x80,
            qpn: Qpn(0x11),
            gid: Gid([9; 16]),
        };
        Event::Entry(
            KEY,
            Entry {
                address: Some(address),
                ours,
            },
        )
    }

    fn interface() -> Event {
        let interface = Interface {
            name: "ib0".to_owned(),
            gid: Gid([1; 16]),
            pkey: PKey(0x8001),
            up: true,
        };
        Event::Interface(3, interface)
    }

    #[test]
    fn a_neighbour_is_in_the_partition_of_its_interface() {
        let mut partitions = Partitions::default();
        let expected = Neighbour {
            pkey: PKey(0x8001),
            address: Address::Ip([10, 0, 0, 9].into()),
            gid: Gid([9; 16]),
        };
        assert_eq!(partitions.neighbours(vec![entry(false)]), [], "not IPoIB's");
        let told = partitions.neighbours(vec![interface(), entry(false)]);
        assert_eq!(told, [expected]);
        let gone = Event::InterfaceGone(3);
        assert_eq!(partitions.neighbours(vec![gone, entry(false)]), []);
    }

    #[test]
    fn entries_that_lead_nowhere_or_are_our_own_say_nothing() {
        let mut partitions = Partitions::default();
        let nowhere = Entry {
            address: None,
            ours: false,
        };
        let events = vec![interface(), Event::Entry(KEY, nowhere), entry(true)];
        assert_eq!(partitions.neighbours(events), []);
    }
}
