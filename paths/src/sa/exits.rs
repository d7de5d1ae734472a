// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which local port a path query leaves. The SA of a subnet answers for all of its ports, so a query
//! about a port through which nothing passes need not go through that port.

use std::collections::{BTreeMap, BTreeSet};

use cm_msgs::{Guid, Lid};
use statemachine::PortId;

/// What tells subnets apart. Two can have one prefix and their managers one LID, where they were left at what subnet
/// managers begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subnet {
    /// The upper half of its ports' GIDs.
    pub prefix: u64,
    /// Where its subnet manager is.
    pub sm_lid: Lid,
    /// The subnet manager's port GUID; 0 while it is not known.
    pub sm_guid: Guid,
}

/// The local ports that reach an SA.
#[derive(Debug, Default)]
pub(super) struct Exits {
    subnets: BTreeMap<PortId, Subnet>,
    /// Those by which the last request was lost.
    silent: BTreeSet<PortId>,
}

impl Exits {
    /// A port reaches the SA of this subnet, or none. What was lost before says nothing of it any more.
    pub(super) fn set(&mut self, port: PortId, subnet: Option<Subnet>) {
        let before = match subnet {
            Some(subnet) => self.subnets.insert(port, subnet),
            None => self.subnets.remove(&port),
        };
        if before != subnet {
            self.silent.remove(&port);
        }
    }

    /// A request that left by it was answered, or was not.
    pub(super) fn heard(&mut self, port: PortId, answered: bool) {
        match answered {
            true => self.silent.remove(&port),
            false => self.silent.insert(port),
        };
    }

    fn others(&self, own: PortId) -> impl Iterator<Item = PortId> {
        let subnet = self.subnets.get(&own);
        let others = self
            .subnets
            .iter()
            .filter(move |(port, other)| **port != own && subnet == Some(other));
        others.map(|(port, _)| *port)
    }

    /// By which port the next copy of a query about `own` leaves: by its own, unless that one is
    /// silent or `is_suspect` and another is not. Where all are, each in its turn; `tried` were the
    /// exits of the copies before.
    pub(super) fn choose(
        &self,
        own: PortId,
        tried: &[PortId],
        is_suspect: impl Fn(PortId) -> bool,
    ) -> PortId {
        let is_doubtful = |port: PortId| self.silent.contains(&port) || is_suspect(port);
        let rank = |port: &PortId| {
            let is_doubtful = is_doubtful(*port);
            let times = tried.iter().filter(|tried| *tried == port).count();
            (is_doubtful, times * usize::from(is_doubtful), *port != own)
        };
        let all = std::iter::once(own).chain(self.others(own));
        all.min_by_key(rank).unwrap_or(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBNET: Subnet = Subnet {
        prefix: 0xfe80 << 48,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
    };

    fn port(number: u8) -> PortId {
        PortId::new(Guid(9), number)
    }

    fn exits() -> Exits {
        let mut exits = Exits::default();
        for number in 1..=3 {
            exits.set(port(number), Some(SUBNET));
        }
        let elsewhere = Subnet {
            sm_lid: Lid(2),
            ..SUBNET
        };
        exits.set(port(4), Some(elsewhere));
        exits.set(
            port(5),
            Some(Subnet {
                prefix: 7,
                ..SUBNET
            }),
        );
        exits
    }

    fn choose(exits: &Exits, own: u8, tried: &[u8], suspect: &[u8]) -> u8 {
        let tried: Vec<_> = tried.iter().map(|number| port(*number)).collect();
        let is_suspect = |port: PortId| suspect.contains(&port.port);
        exits.choose(port(own), &tried, is_suspect).port
    }

    #[test]
    fn a_port_asks_for_itself_while_nothing_speaks_against_it() {
        let mut exits = exits();
        assert_eq!(choose(&exits, 2, &[], &[]), 2);
        exits.heard(port(1), false);
        assert_eq!(choose(&exits, 2, &[2], &[3]), 2);
    }

    #[test]
    fn another_stands_in_for_one_that_is_silent_or_suspect() {
        let mut exits = exits();
        assert_eq!(choose(&exits, 1, &[], &[1]), 2);
        assert_eq!(choose(&exits, 1, &[], &[1, 2]), 3);
        exits.heard(port(2), false);
        assert_eq!(choose(&exits, 2, &[2], &[]), 1);
        exits.heard(port(2), true);
        assert_eq!(choose(&exits, 2, &[2, 1], &[]), 2);
    }

    #[test]
    fn where_all_are_in_doubt_each_has_its_turn() {
        let mut tried = Vec::new();
        for want in [1, 2, 3, 1] {
            let next = choose(&exits(), 1, &tried, &[1, 2, 3]);
            assert_eq!(next, want);
            tried.push(next);
        }
    }

    #[test]
    fn nobody_stands_in_across_subnets() {
        let mut exits = exits();
        for own in [4, 5, 6] {
            assert_eq!(choose(&exits, own, &[own], &[own]), own);
        }
        exits.set(port(2), None);
        assert_eq!(choose(&exits, 1, &[], &[1]), 3);
        exits.set(port(1), None);
        assert_eq!(choose(&exits, 1, &[], &[1]), 1, "of an unknown subnet");
    }

    #[test]
    fn a_port_that_is_another_is_not_silent_any_more() {
        let mut exits = exits();
        exits.heard(port(1), false);
        exits.set(port(1), Some(SUBNET));
        assert_eq!(choose(&exits, 1, &[], &[]), 2, "nothing changed");
        exits.set(port(1), None);
        exits.set(port(1), Some(SUBNET));
        assert_eq!(choose(&exits, 1, &[], &[]), 1);
    }
}
