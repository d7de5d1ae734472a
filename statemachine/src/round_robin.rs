// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns over the keys of ordered maps and sets, which may change between two turns.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

/// Returns all entries, beginning behind `last`, the key that was served last.
pub(crate) fn entries_after<K: Ord + Copy, V>(
    all: &BTreeMap<K, V>,
    last: Option<K>,
) -> impl Iterator<Item = (&K, &V)> {
    let later = last.map_or(Bound::Unbounded, Bound::Excluded);
    let earlier = last.into_iter().flat_map(|last| all.range(..=last));
    all.range((later, Bound::Unbounded)).chain(earlier)
}

/// Returns the key of the entry behind `last`, the key that was served last, or the first one if there is none.
pub fn key_after<K: Ord + Copy, V>(all: &BTreeMap<K, V>, last: Option<K>) -> Option<K> {
    entries_after(all, last).next().map(|(key, _)| *key)
}

/// Returns the key behind `last`, or the first one if there is none.
pub(crate) fn next_after<K: Ord + Copy>(all: &BTreeSet<K>, last: Option<K>) -> Option<K> {
    let later = last.map_or(Bound::Unbounded, Bound::Excluded);
    let next = all.range((later, Bound::Unbounded)).next();
    next.or_else(|| all.first()).copied()
}

/// Laps over the keys of a map: the first over all of them, the later ones over those that are not left out. The first key
/// takes one search in the map, however many there are.
#[derive(Clone, Debug)]
pub(crate) struct Laps<K> {
    /// The key that came last.
    last: Option<K>,
    lap: Lap<K>,
    /// The keys of the laps after the first.
    open: BTreeSet<K>,
}

#[derive(Clone, Copy, Debug)]
enum Lap<K> {
    /// From behind the key that came last to the end of the map. `began`: that key; the lap ends there.
    First {
        began: Option<K>,
    },
    /// The rest of the first lap: from the first key of the map to where the lap began.
    Wrapped {
        began: K,
    },
    Later,
}

impl<K> Default for Laps<K> {
    fn default() -> Self {
        Self {
            last: None,
            lap: Lap::First { began: None },
            open: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Copy> Laps<K> {
    /// Begins another first lap, behind the key that came last.
    pub(crate) fn again(&mut self) {
        self.lap = Lap::First { began: self.last };
        self.open.clear();
    }

    /// Returns the next key. None: all are left out.
    pub(crate) fn next<V>(&mut self, all: &BTreeMap<K, V>) -> Option<K> {
        let next = self.next_of_first(all);
        if let Some(key) = next {
            self.open.insert(key);
        }
        self.last = next.or_else(|| next_after(&self.open, self.last));
        self.last
    }

    /// The key does not come in later laps, until a first lap begins again.
    pub(crate) fn leave_out(&mut self, key: K) {
        self.open.remove(&key);
    }

    fn next_of_first<V>(&mut self, all: &BTreeMap<K, V>) -> Option<K> {
        let first = |range: (Bound<K>, Bound<K>)| all.range(range).next().map(|(key, _)| *key);
        let later = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        match self.lap {
            Lap::First { began } => {
                let next = first((later, Bound::Unbounded));
                if next.is_some() {
                    return next;
                }
                let Some(began) = began else {
                    self.lap = Lap::Later;
                    return None;
                };
                self.lap = Lap::Wrapped { began };
                self.next_wrapped(first((Bound::Unbounded, Bound::Included(began))))
            }
            Lap::Wrapped { began } => self.next_wrapped(first((later, Bound::Included(began)))),
            Lap::Later => None,
        }
    }

    fn next_wrapped(&mut self, next: Option<K>) -> Option<K> {
        if next.is_none() {
            self.lap = Lap::Later;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn turns_begin_behind_the_last_one_even_if_that_is_gone() {
        let all: BTreeMap<u8, ()> = [1, 3, 5].map(|key| (key, ())).into();
        for (last, keys) in [
            (None, [1, 3, 5]),
            (Some(1), [3, 5, 1]),
            (Some(2), [3, 5, 1]),
            (Some(5), [1, 3, 5]),
            (Some(9), [1, 3, 5]),
        ] {
            assert!(entries_after(&all, last).map(|(&key, ())| key).eq(keys));
            assert_eq!(key_after(&all, last), Some(keys[0]));
            let set = all.keys().copied().collect();
            assert_eq!(next_after(&set, last), Some(keys[0]));
        }
        assert_eq!(next_after(&BTreeSet::<u8>::new(), Some(1)), None);
    }

    fn keys(laps: &mut Laps<u8>, all: &BTreeMap<u8, ()>, most: usize) -> Vec<u8> {
        core::iter::from_fn(|| laps.next(all)).take(most).collect()
    }

    #[test]
    fn each_key_comes_once_in_a_lap_wherever_it_begins() {
        let all: BTreeMap<u8, ()> = [1, 3, 5, 7].map(|key| (key, ())).into();
        let mut laps = Laps::default();
        assert_eq!(keys(&mut laps, &all, 6), [1, 3, 5, 7, 1, 3]);
        laps.again();
        assert_eq!(keys(&mut laps, &all, 6), [5, 7, 1, 3, 5, 7]);
        laps.again();
        assert_eq!(keys(&mut laps, &all, 3), [1, 3, 5], "behind the last key");
        laps.again();
        assert_eq!(keys(&mut laps, &all, 8), [7, 1, 3, 5, 7, 1, 3, 5]);
    }

    #[test]
    fn keys_that_are_left_out_come_again_with_the_next_first_lap() {
        let all: BTreeMap<u8, ()> = [1, 3, 5].map(|key| (key, ())).into();
        let mut laps = Laps::default();
        assert_eq!(keys(&mut laps, &all, 3), [1, 3, 5]);
        laps.leave_out(3);
        assert_eq!(keys(&mut laps, &all, 3), [1, 5, 1]);
        laps.leave_out(1);
        laps.leave_out(5);
        assert_eq!(laps.next(&all), None);
        laps.again();
        assert_eq!(keys(&mut laps, &all, 4).len(), 4);
    }

    #[test]
    fn keys_may_come_and_go_during_a_lap() {
        let mut all: BTreeMap<u8, ()> = [1, 3, 5].map(|key| (key, ())).into();
        let mut laps = Laps::default();
        assert_eq!(keys(&mut laps, &all, 2), [1, 3]);
        laps.again();
        assert_eq!(laps.next(&all), Some(5));
        all.remove(&3);
        all.insert(2, ());
        all.insert(9, ());
        assert_eq!(keys(&mut laps, &all, 3), [9, 1, 2], "3 was the last key");
        assert_eq!(Laps::<u8>::default().next(&BTreeMap::<u8, ()>::new()), None);
    }
}
