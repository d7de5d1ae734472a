// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual time: what happens next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Microseconds in a millisecond.
pub const MS: u64 = 1_000;
/// Microseconds in a second.
pub const SECOND: u64 = 1_000_000;

/// Events in the order of their times; of one time, in the order of their coming.
#[derive(Debug)]
pub struct Queue<E> {
    due: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, E>,
    next: u64,
    now: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            now: 0,
        }
    }
}

impl<E> Queue<E> {
    /// Microseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Something will happen then, or now if that is past.
    pub fn at(&mut self, due: u64, event: E) {
        self.due.push(Reverse((due.max(self.now), self.next)));
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// Something will happen after so long.
    pub fn after(&mut self, delay: u64, event: E) {
        self.at(self.now + delay, event);
    }

    /// The next event; it is its time now.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse((due, number)) = self.due.pop()?;
        self.now = due;
        self.events.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut queue = Queue::default();
        for (due, event) in [(5, 'b'), (3, 'a'), (5, 'c')] {
            queue.at(due, event);
        }
        let order: Vec<(char, u64)> =
            std::iter::from_fn(|| queue.pop().map(|event| (event, queue.now()))).collect();
        assert_eq!(order, [('a', 3), ('b', 5), ('c', 5)]);
    }
}
