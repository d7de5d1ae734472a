// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which threads a round looks up if it finds more than it may. No I/O here.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

/// Threads looked up for one device in one round, each by one small read of `/proc`.
pub(super) const MAX_LOOKUPS: usize = 512;

/// A thread's place in the order of turns, and the thread.
pub(super) type Number = (u64, i32);

/// The turns of a device's threads. Of n threads each has its turn once in n / 512 rounds, whoever made the others, and
/// however soon these end and are followed by others.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// They have places in the round; others have what is left.
    next: BTreeSet<i32>,
    /// Threads have turns in a secret order. Otherwise a user could make threads that always come before another's.
    order: RandomState,
    /// Who had a place last.
    last: Number,
}

impl Turns {
    pub(super) fn has_place(&self, tid: i32) -> bool {
        self.next.contains(&tid)
    }

    /// How many others a round looks up.
    pub(super) fn left(&self) -> usize {
        MAX_LOOKUPS - self.next.len()
    }

    /// Its place in the order.
    pub(super) fn number(&self, tid: i32) -> Number {
        (self.order.hash_one(tid), tid)
    }

    /// A round has ended. `missed`: threads that it has not looked up and that matter.
    pub(super) fn end_round(&mut self, missed: &BTreeSet<Number>) {
        let behind = missed.range((Bound::Excluded(self.last), Bound::Unbounded));
        let round_again = behind.chain(missed.range(..=self.last));
        self.next.clear();
        for number in round_again.take(MAX_LOOKUPS) {
            self.last = *number;
            self.next.insert(number.1);
        }
    }

    /// Those that have a place.
    pub(super) fn places(&self) -> impl Iterator<Item = i32> {
        self.next.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_round(turns: &mut Turns, missed: impl Iterator<Item = i32>) {
        let missed = missed.map(|tid| turns.number(tid)).collect();
        turns.end_round(&missed);
    }

    #[test]
    fn each_has_its_turn_whoever_comes_and_goes() {
        const ONE: i32 = 7;
        const STRANGERS: i32 = 5_000;
        let mut turns = Turns::default();
        let mut waited = 0;
        for round in 1..=100 {
            // Never the same twice.
            let strangers = (0..STRANGERS).map(|n| round * STRANGERS + n);
            end_round(&mut turns, strangers.chain([ONE]));
            assert_eq!(turns.left(), 0);
            waited = if turns.has_place(ONE) { 0 } else { waited + 1 };
            // Ten, and some more: the order is random.
            assert!(waited < 15, "round {round}");
        }
    }

    #[test]
    fn those_that_stay_have_one_turn_each_before_any_has_its_second() {
        let mut turns = Turns::default();
        let mut had: BTreeSet<i32> = BTreeSet::new();
        for _ in 0..4 {
            end_round(&mut turns, 0..4 * MAX_LOOKUPS as i32);
            had.extend(turns.places());
        }
        assert_eq!(had.len(), 4 * MAX_LOOKUPS);
        end_round(&mut turns, [3, 4].into_iter());
        assert!(turns.has_place(3) && turns.has_place(4) && !turns.has_place(5));
        assert_eq!(turns.left(), MAX_LOOKUPS - 2);
        end_round(&mut turns, [].into_iter());
        assert_eq!(turns.left(), MAX_LOOKUPS);
    }
}
