// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of connections, and tours over them. A tour takes turns over payers, and over the far ports of each payer: a
//! thousand connections of one user, or to one port, delay others by one turn only.

use alloc::collections::{BTreeMap, BTreeSet};

use cm_msgs::Lid;

use crate::id::{ConnId, Payer};
use crate::round_robin::next_after;

/// A connection with the keys of its turn, which do not change while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) payer: Payer,
    /// LID that the primary led to when it was registered. It decides turns only, so equal LIDs of two subnets do no harm.
    pub(crate) far: Lid,
    pub(crate) id: ConnId,
}

/// Those of one payer.
type Line = BTreeMap<Lid, BTreeSet<ConnId>>;

/// A set of connections.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Members {
    payers: BTreeMap<Payer, Line>,
    len: usize,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, Member { payer, far, id }: Member) {
        let line = self.payers.entry(payer).or_default();
        self.len += usize::from(line.entry(far).or_default().insert(id));
    }

    pub(crate) fn remove(&mut self, Member { payer, far, id }: Member) {
        let Some(line) = self.payers.get_mut(&payer) else {
            return;
        };
        let Some(ids) = line.get_mut(&far) else {
            return;
        };
        self.len -= usize::from(ids.remove(&id));
        if ids.is_empty() {
            line.remove(&far);
        }
        if line.is_empty() {
            self.payers.remove(&payer);
        }
    }

    #[cfg(test)]
    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.payers
            .values()
            .flat_map(BTreeMap::values)
            .flatten()
            .copied()
    }
}

/// How far a tour is among those that lead to one port.
#[derive(Clone, Copy, Debug)]
struct Group {
    last: Option<ConnId>,
    /// How many are to come. New members join at their place.
    left: usize,
}

/// How far a tour is among those of one payer.
#[derive(Clone, Debug, Default)]
struct Turns {
    groups: BTreeMap<Lid, Group>,
    /// Those with members to come.
    open: BTreeSet<Lid>,
    last: Option<Lid>,
}

impl Turns {
    /// Begins a tour over all of them, behind those that came last.
    fn begin(&mut self, line: &Line) {
        self.groups.retain(|far, _| line.contains_key(far));
        for (&far, ids) in line {
            let group = self.groups.entry(far).or_insert(Group {
                last: None,
                left: 0,
            });
            group.left = ids.len();
        }
        self.open = line.keys().copied().collect();
    }

    fn next(&mut self, line: &Line) -> Option<ConnId> {
        while let Some(far) = next_after(&self.open, self.last) {
            self.last = Some(far);
            let ids = line.get(&far);
            let next = ids.zip(self.groups.get_mut(&far)).and_then(|(ids, group)| {
                group.left = group.left.checked_sub(1)?;
                group.last = next_after(ids, group.last);
                group.last
            });
            if next.is_some() {
                return next;
            }
            self.open.remove(&far);
        }
        None
    }
}

/// One tour over members, which may come and go meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tour {
    payers: BTreeMap<Payer, Turns>,
    /// Those with members to come; `None`: it has not begun.
    open: Option<BTreeSet<Payer>>,
    last: Option<Payer>,
}

impl Tour {
    /// Begins another tour over all of them, behind those that came last: none is skipped however often it begins again.
    pub(crate) fn again(&mut self) {
        self.open = None;
    }

    /// Returns the next one, or None at the end of the tour.
    pub(crate) fn next(&mut self, members: &Members) -> Option<ConnId> {
        let open = self.open.get_or_insert_with(|| {
            self.payers
                .retain(|payer, _| members.payers.contains_key(payer));
            for (payer, line) in &members.payers {
                self.payers.entry(*payer).or_default().begin(line);
            }
            members.payers.keys().copied().collect()
        });
        while let Some(payer) = next_after(open, self.last) {
            self.last = Some(payer);
            let line = members.payers.get(&payer);
            let turns = self.payers.get_mut(&payer);
            let next = line.zip(turns).and_then(|(line, turns)| turns.next(line));
            if next.is_some() {
                return next;
            }
            open.remove(&payer);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn member(payer: u64, far: u16, conn: u32) -> Member {
        Member {
            payer: Payer(payer),
            far: Lid(far),
            id: ConnId { client: 0, conn },
        }
    }

    fn members(all: &[Member]) -> Members {
        let mut members = Members::default();
        all.iter().for_each(|&member| members.insert(member));
        members
    }

    fn conns(tour: &mut Tour, members: &Members, most: usize) -> Vec<u32> {
        let next = core::iter::from_fn(|| tour.next(members));
        next.take(most).map(|id| id.conn).collect()
    }

    #[test]
    fn turns_go_over_payers_and_then_over_far_ports() {
        let crowd = (0..1_000).map(|conn| member(1, 7, conn));
        let others = [
            member(1, 8, 2_000),
            member(2, 7, 3_000),
            member(2, 7, 3_001),
        ];
        let all: Vec<Member> = crowd.chain(others).collect();
        let members = members(&all);
        let order = conns(&mut Tour::default(), &members, 2_000);
        assert_eq!(order[..6], [0, 3_000, 2_000, 3_001, 1, 2]);
        assert_eq!(order.len(), members.len(), "each comes once");
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len());
    }

    #[test]
    fn a_tour_that_begins_again_goes_on_behind_those_that_came_last() {
        let members = members(&[1, 2, 3, 4, 5].map(|conn| member(1, 7, conn)));
        let mut tour = Tour::default();
        assert_eq!(conns(&mut tour, &members, 2), [1, 2]);
        tour.again();
        assert_eq!(conns(&mut tour, &members, 3), [3, 4, 5]);
        tour.again();
        assert_eq!(conns(&mut tour, &members, 10), [1, 2, 3, 4, 5]);
        assert_eq!(tour.next(&members), None);
    }

    #[test]
    fn members_may_come_and_go_meanwhile() {
        let mut members = members(&[member(1, 7, 1), member(1, 7, 2), member(2, 8, 3)]);
        let mut tour = Tour::default();
        assert_eq!(conns(&mut tour, &members, 1), [1]);
        members.remove(member(2, 8, 3));
        members.remove(member(2, 8, 3));
        members.insert(member(3, 9, 4));
        assert_eq!(members.len(), 3);
        assert_eq!(
            conns(&mut tour, &members, 10),
            [2],
            "who comes later knows all"
        );
        for gone in [member(1, 7, 1), member(1, 7, 2), member(3, 9, 4)] {
            members.remove(gone);
        }
        assert!(members.is_empty() && members.payers.is_empty());
        tour.again();
        assert_eq!(tour.next(&members), None);
        assert!(
            tour.payers.is_empty(),
            "nothing is kept of those that are gone"
        );
    }
}
