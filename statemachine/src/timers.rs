// SPDX-License-Identifier: MIT OR Apache-2.0
//! One queue for all deadlines of a part.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// Deadlines, one for each key. Setting a key again moves its deadline.
///
/// A part keeps one queue for everything that it waits for: its `poll_timeout` is [`next`], and
/// its `handle_timeout` takes keys out with [`expired`] until there is none left. Both are
/// O(log n) or better; nothing is ever scanned.
///
/// Two trees and not a heap with stale entries: most deadlines here are cancelled or moved long
/// before they come, and stale entries would pile up until then. Keys with the same deadline come
/// in their own order, so that a simulation runs the same every time.
///
/// [`next`]: Self::next
/// [`expired`]: Self::expired
#[derive(Clone, Debug)]
pub struct Timers<K> {
    queue: BTreeSet<(Time, K)>,
    deadlines: BTreeMap<K, Time>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            queue: BTreeSet::new(),
            deadlines: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> Timers<K> {
    /// Sets the deadline of `key`, and forgets the one that it had.
    pub fn set(&mut self, key: K, deadline: Time) {
        self.cancel(&key);
        self.queue.insert((deadline, key.clone()));
        self.deadlines.insert(key, deadline);
    }

    /// The same, unless `key` has an earlier deadline already.
    pub fn set_no_later(&mut self, key: K, deadline: Time) {
        if self.deadlines.get(&key).is_none_or(|&at| deadline < at) {
            self.set(key, deadline);
        }
    }

    /// Forgets the deadline of `key`, if it has one.
    pub fn cancel(&mut self, key: &K) {
        if let Some((key, deadline)) = self.deadlines.remove_entry(key) {
            self.queue.remove(&(deadline, key));
        }
    }

    /// Whether `key` has a deadline.
    pub fn is_set(&self, key: &K) -> bool {
        self.deadlines.contains_key(key)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        self.queue.first().map(|&(deadline, _)| deadline)
    }

    /// Takes out the key with the earliest deadline, if that is not after `now`.
    pub fn expired(&mut self, now: Time) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.queue.pop_first()?;
        self.deadlines.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_once() {
        let mut timers = Timers::default();
        timers.set('b', Time(20));
        timers.set('a', Time(10));
        timers.set('c', Time(30));
        timers.set('a', Time(25));
        timers.cancel(&'c');
        assert_eq!(timers.next(), Some(Time(20)));
        assert!(timers.is_set(&'a') && !timers.is_set(&'c'));
        assert_eq!(timers.expired(Time(19)), None);
        assert_eq!(timers.expired(Time(24)), Some('b'));
        assert_eq!(timers.next(), Some(Time(25)));
        assert_eq!(timers.expired(Time(40)), Some('a'));
        assert_eq!(timers.expired(Time(40)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn what_is_due_earlier_keeps_its_place() {
        let mut timers = Timers::default();
        timers.set_no_later('a', Time(20));
        timers.set_no_later('a', Time(30));
        assert_eq!(timers.next(), Some(Time(20)));
        timers.set_no_later('a', Time(10));
        assert_eq!(timers.expired(Time(10)), Some('a'));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn equal_deadlines_come_in_the_order_of_their_keys() {
        let mut timers = Timers::default();
        for key in [3, 1, 2] {
            timers.set(key, Time(5));
        }
        let order = core::iter::from_fn(|| timers.expired(Time(5)));
        assert!(order.eq([1, 2, 3]));
    }
}
