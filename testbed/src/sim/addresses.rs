// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which LIDs and GIDs ports have: in one subnet, or in two with a subnet manager each, and after a subnet manager
//! has given out others.
//!
//! The fabric and the judge know ports by their *places*: the LIDs of [`base_lid`], which no two ports share and which
//! stay. What engines and queue pairs see are addresses, and those are translated here.

use std::fmt;

use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid};

use super::fabric::{PortOf, base_lid, guid};

const PREFIX: u64 = 0xfe80_0000_0000_0000;
/// Beyond all LIDs that ports have at first; so many for each renumbering.
const RENUMBERED: u16 = 0x1000;
const STEP: u16 = 0x100;

/// How LIDs of two subnets are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lids {
    /// No two ports have the same.
    Distinct,
    /// Both ports of a host have the same.
    Equal,
    /// A host's second port has the LID of the next host's first port.
    Crossed,
}

/// Which subnets there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subnets {
    /// All ports are in one.
    One,
    /// First ports are in one, second ports in another, and nothing leads from one to the other.
    Two {
        /// How their LIDs are alike.
        lids: Lids,
        /// Both have the same prefix.
        same_prefix: bool,
        /// Both subnet managers have the same LID.
        same_sm: bool,
    },
}

/// What a subnet manager changes while links stay up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// A port gets a LID that no port had before.
    Renumber(PortOf),
    /// Two ports get each other's LIDs.
    Swap(PortOf, PortOf),
    /// A subnet gets another prefix.
    Prefix(usize),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Renumber((host, port)) => write!(f, "host {host} port {port}: another LID"),
            Self::Swap(one, other) => write!(
                f,
                "host {} port {} and host {} port {}: each other's LIDs",
                one.0, one.1, other.0, other.1
            ),
            Self::Prefix(subnet) => write!(f, "subnet {subnet}: another prefix"),
        }
    }
}

/// The addresses of all ports.
#[derive(Debug)]
pub struct Addresses {
    subnets: Subnets,
    hosts: usize,
    lmc: u8,
    /// What holds now, each with a number of its own.
    changes: Vec<(usize, Change)>,
}

impl Addresses {
    /// Those that the subnet managers give out at first.
    pub fn new(subnets: Subnets, hosts: usize, lmc: u8) -> Self {
        Self {
            subnets,
            hosts,
            lmc,
            changes: Vec::new(),
        }
    }

    /// A change begins to hold, or is taken back.
    pub fn change(&mut self, number: usize, change: Change, begins: bool) {
        match begins {
            true => self.changes.push((number, change)),
            false => self.changes.retain(|&(held, _)| held != number),
        }
    }

    /// The ports whose addresses a change concerns.
    pub fn concerned(&self, change: Change) -> Vec<PortOf> {
        match change {
            Change::Renumber(port) => vec![port],
            Change::Swap(one, other) => vec![one, other],
            Change::Prefix(subnet) => {
                let ports = self.ports().filter(|&port| self.subnet(port) == subnet);
                ports.collect()
            }
        }
    }

    fn ports(&self) -> impl Iterator<Item = PortOf> + use<> {
        (0..self.hosts).flat_map(|host| [(host, 1), (host, 2)])
    }

    /// The number of a port's subnet.
    pub fn subnet(&self, (_, port): PortOf) -> usize {
        match self.subnets {
            Subnets::One => 0,
            Subnets::Two { .. } => usize::from(port) - 1,
        }
    }

    /// The LID of the subnet manager that a port knows.
    pub fn sm_lid(&self, port: PortOf) -> Lid {
        match self.subnets {
            Subnets::Two { same_sm: false, .. } => Lid(1 + self.subnet(port) as u16),
            _ => Lid(1),
        }
    }

    /// The port GUID of the subnet manager that a port knows: no two have the same.
    pub fn sm_guid(&self, port: PortOf) -> Guid {
        Guid(1 + self.subnet(port) as u64)
    }

    fn first_lid(&self, (host, port): PortOf) -> Lid {
        let Subnets::Two { lids, .. } = self.subnets else {
            return base_lid((host, port));
        };
        match lids {
            Lids::Distinct => base_lid((host, port)),
            Lids::Equal => base_lid((host, 1)),
            Lids::Crossed if port == 1 => base_lid((host, 1)),
            Lids::Crossed => base_lid(((host + 1) % self.hosts, 1)),
        }
    }

    /// A port's base LID now.
    pub fn lid(&self, port: PortOf) -> Lid {
        // From the last change to the first: whose LID it is that the port has now, or which new one.
        let mut of = port;
        for &(number, change) in self.changes.iter().rev() {
            match change {
                Change::Swap(one, other) if of == one => of = other,
                Change::Swap(one, other) if of == other => of = one,
                Change::Renumber(port) if of == port => {
                    let offset = base_lid(port).0 - base_lid((0, 1)).0;
                    return Lid(RENUMBERED + STEP * number as u16 + offset);
                }
                _ => {}
            }
        }
        self.first_lid(of)
    }

    /// A port's GID now.
    pub fn gid(&self, port: PortOf) -> Gid {
        let subnet = self.subnet(port);
        let is_its = |change: Change| change == Change::Prefix(subnet);
        let last = self.changes.iter().rfind(|(_, change)| is_its(*change));
        let first = match self.subnets {
            Subnets::Two {
                same_prefix: false, ..
            } => PREFIX + subnet as u64,
            _ => PREFIX,
        };
        let prefix = last.map_or(first, |(number, _)| PREFIX + 0x100 + *number as u64);
        Gid::new(prefix, Guid(guid(port.0).0 + u64::from(port.1)))
    }

    /// The port that a GID names now, if it names one.
    pub fn port_of(&self, gid: Gid) -> Option<PortOf> {
        self.ports().find(|&port| self.gid(port) == gid)
    }

    /// The place that a LID leads to, from a port.
    pub fn place(&self, from: PortOf, lid: Lid) -> Option<Lid> {
        let subnet = self.subnet(from);
        let mut ports = self.ports().filter(|&port| self.subnet(port) == subnet);
        ports.find_map(|port| self.place_at(port, lid))
    }

    /// The place of a port's own LID.
    fn place_at(&self, port: PortOf, lid: Lid) -> Option<Lid> {
        let bits = lid.0.checked_sub(self.lid(port).0)?;
        (bits < 1 << self.lmc).then(|| Lid(base_lid(port).0 + bits))
    }

    /// The places of a path's ends; `None`: one of its LIDs is no port's, or not the local port's.
    pub fn ends(&self, host: usize, path: &Path) -> Option<(Lid, Lid)> {
        self.ends_of((host, path.port), path.slid, path.dlid)
    }

    /// Likewise, of a path from this port.
    pub fn ends_of(&self, from: PortOf, slid: Lid, dlid: Lid) -> Option<(Lid, Lid)> {
        Some((self.place_at(from, slid)?, self.place(from, dlid)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(lids: Lids) -> Addresses {
        let subnets = Subnets::Two {
            lids,
            same_prefix: true,
            same_sm: true,
        };
        Addresses::new(subnets, 3, 1)
    }

    #[test]
    fn a_lid_leads_to_one_port_in_each_subnet() {
        for lids in [Lids::Distinct, Lids::Equal, Lids::Crossed] {
            let addresses = two(lids);
            for port in addresses.ports() {
                let lid = Lid(addresses.lid(port).0 + 1);
                let here = addresses.place((0, port.1), lid);
                assert_eq!(here, Some(Lid(base_lid(port).0 + 1)), "{lids:?} {port:?}");
            }
        }
        let (first, second) = ((1, 1), (1, 2));
        let lids = [first, second].map(|port| two(Lids::Equal).lid(port));
        assert_eq!(lids[0], lids[1]);
        assert_eq!(
            two(Lids::Crossed).lid((0, 2)),
            two(Lids::Crossed).lid((1, 1))
        );
    }

    #[test]
    fn changes_hold_until_they_are_taken_back() {
        let mut addresses = Addresses::new(Subnets::One, 2, 0);
        let (one, other) = ((0, 1), (1, 2));
        let before = [one, other].map(|port| (addresses.lid(port), addresses.gid(port)));
        addresses.change(0, Change::Swap(one, other), true);
        assert_eq!(addresses.lid(one), before[1].0);
        addresses.change(1, Change::Renumber(one), true);
        assert_eq!(addresses.lid(other), before[0].0);
        assert_eq!(
            addresses.place(one, addresses.lid(one)),
            Some(base_lid(one))
        );
        addresses.change(2, Change::Prefix(0), true);
        assert_ne!(addresses.gid(one), before[0].1);
        assert_eq!(addresses.port_of(before[0].1), None);
        (0..3).for_each(|number| addresses.change(number, Change::Swap(one, other), false));
        let after = [one, other].map(|port| (addresses.lid(port), addresses.gid(port)));
        assert_eq!(after, before);
    }
}
