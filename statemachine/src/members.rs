// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of connections, and tours over them. A tour takes turns over payers, and over the far ports of each payer: a
//! thousand connections of one user, or to one port, delay others by one turn only.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use cm_msgs::Lid;

use crate::id::{ConnId, Payer};
use crate::round_robin::Laps;

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
#[derive(Clone, Copy, Default, Debug)]
struct Group {
    tour: u32,
    last: Option<ConnId>,
    /// Behind whom it began; it ends there. New members join at their place, and take nobody's turn.
    began: Option<ConnId>,
    /// It has begun again with the lowest ID.
    has_wrapped: bool,
}

/// How far a tour is among those of one payer.
#[derive(Clone, Debug, Default)]
struct Turns {
    tour: u32,
    groups: BTreeMap<Lid, Group>,
    laps: Laps<Lid>,
}

impl Turns {
    fn next(&mut self, line: &Line, tour: u32) -> Option<ConnId> {
        if self.tour != tour {
            self.tour = tour;
            self.laps.again();
        }
        while let Some(far) = self.laps.next(line) {
            let next = line.get(&far).and_then(|ids| self.next_of(far, ids, tour));
            if next.is_some() {
                return next;
            }
            self.laps.leave_out(far);
        }
        None
    }

    fn next_of(&mut self, far: Lid, ids: &BTreeSet<ConnId>, tour: u32) -> Option<ConnId> {
        let group = self.groups.entry(far).or_default();
        if group.tour != tour {
            *group = Group {
                tour,
                last: group.last,
                began: group.last,
                has_wrapped: false,
            };
        }
        group.next(ids)
    }
}

impl Group {
    /// The next in the order of IDs, around to where the tour began.
    fn next(&mut self, ids: &BTreeSet<ConnId>) -> Option<ConnId> {
        let behind = |last: Option<ConnId>| last.map_or(Bound::Unbounded, Bound::Excluded);
        if !self.has_wrapped {
            let next = ids.range((behind(self.last), Bound::Unbounded)).next();
            if let Some(&next) = next {
                self.last = Some(next);
                return self.last;
            }
            (self.has_wrapped, self.last) = (true, None);
        }
        let until = Bound::Included(self.began?);
        let next = ids.range((behind(self.last), until)).next().copied()?;
        self.last = Some(next);
        self.last
    }
}

/// One tour over members, which may come and go meanwhile. The first comes without a look at the others: its order may not
/// wait until very many are listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tour {
    /// How often it has begun.
    number: u32,
    /// Kept until the tour ends.
    payers: BTreeMap<Payer, Turns>,
    laps: Laps<Payer>,
}

impl Tour {
    /// Begins another tour over all of them, behind those that came last: none is skipped however often it begins again.
    pub(crate) fn again(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.laps.again();
    }

    /// Returns the next one, or None at the end of the tour.
    pub(crate) fn next(&mut self, members: &Members) -> Option<ConnId> {
        while let Some(payer) = self.laps.next(&members.payers) {
            let next = members.payers.get(&payer).and_then(|line| {
                let turns = self.payers.entry(payer).or_default();
                turns.next(line, self.number)
            });
            if next.is_some() {
                return next;
            }
            self.laps.leave_out(payer);
        }
        self.payers.clear();
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
    fn the_first_of_very_many_comes_without_a_look_at_the_others() {
        let all = (0..1_000).map(|number| member(u64::from(number), number, number.into()));
        let members = members(&all.collect::<Vec<_>>());
        let mut tour = Tour::default();
        for visited in 1..=3 {
            assert!(tour.next(&members).is_some());
            assert_eq!(tour.payers.len(), visited);
            tour.again();
        }
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
    fn a_far_port_that_is_through_has_its_turn_in_the_next_tour() {
        let all = [(7, 1), (8, 2), (8, 3), (8, 4), (8, 5)];
        let members = members(&all.map(|(far, conn)| member(1, far, conn)));
        let mut tour = Tour::default();
        assert_eq!(conns(&mut tour, &members, 3), [1, 2, 3]);
        tour.again();
        let mut again = conns(&mut tour, &members, 10);
        again.sort_unstable();
        assert_eq!(again, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn members_may_come_and_go_meanwhile() {
        let mut members = members(&[member(1, 7, 1), member(1, 7, 2), member(2, 8, 3)]);
        let mut tour = Tour::default();
        assert_eq!(conns(&mut tour, &members, 1), [1]);
        members.remove(member(2, 8, 3));
        members.remove(member(2, 8, 3));
        members.insert(member(3, 9, 4));
        members.insert(member(1, 7, 5));
        assert_eq!(members.len(), 4);
        // Who joins ahead comes in this tour still.
        assert_eq!(conns(&mut tour, &members, 10), [4, 2, 5]);
        for (payer, far, conn) in [(1, 7, 1), (1, 7, 2), (1, 7, 5), (3, 9, 4)] {
            members.remove(member(payer, far, conn));
        }
        assert!(members.is_empty() && members.payers.is_empty());
        tour.again();
        assert_eq!(tour.next(&members), None);
        assert!(
            tour.payers.is_empty(),
            "nothing is kept of those that are gone"
        );
    }

    /// A program with a lower name connects in mid-tour: whoever was there all the time comes all the same.
    #[test]
    fn new_members_take_nobodys_turn() {
        let mut members = members(&[10, 20, 30, 1_000].map(|conn| member(1, 7, conn)));
        let mut tour = Tour::default();
        let mut order = conns(&mut tour, &members, 1);
        members.insert(member(1, 7, 11));
        order.extend(conns(&mut tour, &members, 10));
        assert!(order.contains(&1_000), "{order:?}");
    }
}
