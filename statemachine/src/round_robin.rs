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

#[cfg(test)]
mod tests {
    use super::*;

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
}
