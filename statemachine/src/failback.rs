// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections may fail back to the port where their policy wants them: a few at a time, by turns over payers.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::{ConnId, Payer};
use crate::round_robin::entries_after;

/// Connections that fail back at a time: no more of a host's are without their alternate for it.
const LIMIT: usize = 8;

/// While connections of other payers wait, no payer starts another one if this many of its own are failing back. A
/// connection whose peer answers and never arms keeps its place for ten seconds.
const SHARE: usize = LIMIT / 2;

/// Connections that are not on the port where their policy wants them, and could go there.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Failbacks {
    /// Those that wait, in the order of arrival.
    waiting: BTreeMap<Payer, BTreeSet<(u64, ConnId)>>,
    places: BTreeMap<ConnId, (Payer, u64)>,
    last_place: u64,
    /// The payer that was served last.
    last: Option<Payer>,
    moving: BTreeMap<ConnId, Payer>,
    /// How many of each payer are moving.
    held: BTreeMap<Payer, usize>,
}

impl Failbacks {
    /// Adds a connection to those that wait, unless it waits or moves already.
    pub(crate) fn enqueue(&mut self, id: ConnId, payer: Payer) {
        if !self.places.contains_key(&id) && !self.moving.contains_key(&id) {
            self.last_place += 1;
            let line = self.waiting.entry(payer).or_default();
            line.insert((self.last_place, id));
            self.places.insert(id, (payer, self.last_place));
        }
    }

    /// Returns the next connection that may fail back, or None while there is no place for any.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        if self.moving.len() >= LIMIT {
            return None;
        }
        let payer = self.next_payer()?;
        let &(_, id) = self.waiting.get(&payer)?.first()?;
        self.leave(id);
        self.last = Some(payer);
        self.moving.insert(id, payer);
        *self.held.entry(payer).or_default() += 1;
        Some(id)
    }

    /// Returns the next payer that is within its share.
    fn next_payer(&self) -> Option<Payer> {
        let mut payers = entries_after(&self.waiting, self.last).map(|(&payer, _)| payer);
        let is_alone = self.waiting.len() == 1;
        let held = |payer: &Payer| self.held.get(payer).copied().unwrap_or(0);
        payers.find(|payer| is_alone || held(payer) < SHARE)
    }

    /// Removes a connection that does not fail back any more, has arrived, or is closed.
    pub(crate) fn remove(&mut self, id: ConnId) {
        self.leave(id);
        let Some(payer) = self.moving.remove(&id) else {
            return;
        };
        if let Some(held) = self.held.get_mut(&payer) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&payer);
            }
        }
    }

    /// It does not wait any more.
    fn leave(&mut self, id: ConnId) {
        let Some((payer, place)) = self.places.remove(&id) else {
            return;
        };
        if let Some(line) = self.waiting.get_mut(&payer) {
            line.remove(&(place, id));
            if line.is_empty() {
                self.waiting.remove(&payer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn id(conn: u32) -> ConnId {
        ConnId { client: 1, conn }
    }

    fn go(failbacks: &mut Failbacks) -> Vec<ConnId> {
        core::iter::from_fn(|| failbacks.next()).collect()
    }

    fn numbers(ids: &[ConnId]) -> Vec<u32> {
        ids.iter().map(|id| id.conn).collect()
    }

    #[test]
    fn a_few_of_one_payer_go_at_a_time_in_their_order() {
        let mut failbacks = Failbacks::default();
        for conn in (1..=20).chain(1..=20) {
            failbacks.enqueue(id(conn), Payer(1));
        }
        failbacks.remove(id(2));
        assert_eq!(numbers(&go(&mut failbacks)), [1, 3, 4, 5, 6, 7, 8, 9]);
        failbacks.enqueue(id(1), Payer(1));
        failbacks.remove(id(5));
        failbacks.remove(id(5));
        let next = numbers(&go(&mut failbacks));
        assert_eq!(next, [10], "the first is on its way");
    }

    #[test]
    fn of_one_payers_connections_the_one_that_has_waited_longest_goes_first() {
        let mut failbacks = Failbacks::default();
        for conn in [3, 1, 2] {
            failbacks.enqueue(id(conn), Payer(1));
        }
        assert_eq!(numbers(&go(&mut failbacks)), [3, 1, 2]);
    }

    #[test]
    fn payers_take_turns_and_none_has_more_than_half_while_others_wait() {
        let mut failbacks = Failbacks::default();
        for conn in 1..=20 {
            failbacks.enqueue(id(conn), Payer(1));
        }
        assert_eq!(go(&mut failbacks).len(), LIMIT, "alone");
        for conn in 101..=120 {
            failbacks.enqueue(id(conn), Payer(2));
        }
        for conn in 201..=202 {
            failbacks.enqueue(id(conn), Payer(3));
        }
        failbacks.remove(id(1));
        failbacks.remove(id(2));
        failbacks.remove(id(3));
        assert_eq!(numbers(&go(&mut failbacks)), [101, 201, 102]);
        failbacks.remove(id(4));
        assert_eq!(numbers(&go(&mut failbacks)), [202]);
        // Of the first, four are left.
        failbacks.remove(id(201));
        assert_eq!(numbers(&go(&mut failbacks)), [103]);
        failbacks.remove(id(5));
        assert_eq!(numbers(&go(&mut failbacks)), [9], "the first's turn again");
        failbacks.remove(id(202));
        assert_eq!(numbers(&go(&mut failbacks)), [104]);
        failbacks.remove(id(6));
        let next = numbers(&go(&mut failbacks));
        assert_eq!(next, [10], "the second has half of the places");
        for conn in 101..=120 {
            failbacks.remove(id(conn));
        }
        assert_eq!(numbers(&go(&mut failbacks)), [11, 12, 13, 14]);
        for conn in 1..=20 {
            failbacks.remove(id(conn));
        }
        assert!(failbacks.waiting.is_empty() && failbacks.places.is_empty());
        assert!(failbacks.moving.is_empty() && failbacks.held.is_empty());
    }

    /// A user may set the policy of its own connections, and a peer that answers and never arms keeps a place for
    /// 10 s. With 3,000 of these, a connection of another payer fails back within one such round.
    #[test]
    fn one_users_connections_do_not_keep_anothers_from_failing_back() {
        for begun in [false, true] {
            let mut failbacks = Failbacks::default();
            for conn in 0..3_000 {
                failbacks.enqueue(id(conn), Payer(1));
            }
            let mut on_the_way = match begun {
                true => go(&mut failbacks),
                false => Vec::new(),
            };
            let other = ConnId { client: 2, conn: 1 };
            failbacks.enqueue(other, Payer(2));
            let mut rounds = 0;
            loop {
                on_the_way.extend(go(&mut failbacks));
                if on_the_way.contains(&other) {
                    break;
                }
                // None of them arrives, and each gives up its place after 10 s (`PATIENCE`).
                rounds += 1;
                on_the_way.drain(..).for_each(|id| failbacks.remove(id));
            }
            assert_eq!(rounds, usize::from(begun), "rounds of 10 s");
        }
    }
}
