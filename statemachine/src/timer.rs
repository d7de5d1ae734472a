// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines, each under a key: setting a key again moves its deadline.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Timers<K> {
    queue: BTreeSet<(Time, K)>,
    deadlines: BTreeMap<K, Time>,
}

impl<K: Copy + Ord> Timers<K> {
    pub(crate) fn new() -> Self {
        Self {
            queue: BTreeSet::new(),
            deadlines: BTreeMap::new(),
        }
    }

    pub(crate) fn set(&mut self, key: K, deadline: Time) {
        self.stop(key);
        self.queue.insert((deadline, key));
        self.deadlines.insert(key, deadline);
    }

    pub(crate) fn stop(&mut self, key: K) {
        if let Some(deadline) = self.deadlines.remove(&key) {
            self.queue.remove(&(deadline, key));
        }
    }

    pub(crate) fn is_set(&self, key: K) -> bool {
        self.deadlines.contains_key(&key)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.queue.first().map(|&(deadline, _)| deadline)
    }

    /// Takes out the key with the earliest deadline, if that has come.
    pub(crate) fn expire(&mut self, now: Time) -> Option<K> {
        let &(deadline, key) = self.queue.first()?;
        if deadline > now {
            return None;
        }
        self.stop(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_once() {
        let mut timers = Timers::new();
        timers.set('b', Time(20));
        timers.set('a', Time(10));
        timers.set('c', Time(30));
        timers.set('a', Time(25));
        timers.stop('c');
        assert_eq!(timers.next(), Some(Time(20)));
        assert_eq!(timers.expire(Time(19)), None);
        assert_eq!(timers.expire(Time(40)), Some('b'));
        assert_eq!(timers.expire(Time(40)), Some('a'));
        assert_eq!(timers.expire(Time(40)), None);
        assert_eq!(timers.next(), None);
    }
}
