// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs for which there was no room, and when to look at them again: nobody tells of them anew when
//! there is some.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use statemachine::Time;

use crate::io::apm_module::Cookie;

/// Looked at before others have their turn, and how long until the next.
const TURN: usize = 64;
const PAUSE: Duration = Duration::from_millis(50);

/// All of them. Whenever there may have come to be more room each is looked at once, in the order of their
/// cookies.
#[derive(Debug, Default)]
pub(super) struct Roomless {
    all: BTreeSet<Cookie>,
    /// The changes of the room that are being, or were, looked at.
    changes: u64,
    /// To be looked at because of them.
    left: usize,
    last: Option<Cookie>,
    /// Not to be looked at before.
    rest: Time,
}

impl Roomless {
    pub(super) fn insert(&mut self, cookie: Cookie) {
        self.all.insert(cookie);
    }

    pub(super) fn remove(&mut self, cookie: Cookie) {
        self.all.remove(&cookie);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Cookie> + '_ {
        self.all.iter().copied()
    }

    /// Those to look at now. `changes` is another number whenever there may be more room.
    pub(super) fn due(&mut self, now: Time, changes: u64) -> Vec<Cookie> {
        if self.poll_timeout(changes).is_none_or(|at| at > now) {
            return Vec::new();
        }
        if self.changes != changes {
            self.changes = changes;
            self.left = self.all.len();
        }
        let count = self.left.min(TURN);
        let from = self.last.map_or(Unbounded, Excluded);
        let behind = self.all.range((from, Unbounded));
        let due: Vec<_> = behind.chain(&self.all).copied().take(count).collect();
        self.left -= count;
        self.last = due.last().copied();
        self.rest = now + PAUSE;
        due
    }

    pub(super) fn poll_timeout(&self, changes: u64) -> Option<Time> {
        let wanted = self.left > 0 || self.changes != changes;
        (wanted && !self.all.is_empty()).then_some(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    fn roomless(count: u64) -> Roomless {
        let mut roomless = Roomless::default();
        (0..count).for_each(|cookie| roomless.insert(Cookie(cookie)));
        roomless
    }

    #[test]
    fn each_is_looked_at_once_for_more_room_a_few_at_a_time() {
        let mut roomless = roomless(100);
        assert_eq!(roomless.poll_timeout(0), None, "there is no more room");
        assert!(roomless.due(NOW, 0).is_empty());
        assert!(roomless.poll_timeout(1).is_some_and(|at| at <= NOW));
        let mut seen = roomless.due(NOW, 1);
        assert_eq!(seen.len(), TURN);
        assert!(roomless.due(NOW, 1).is_empty(), "others have their turn");
        assert_eq!(roomless.poll_timeout(1), Some(NOW + PAUSE));
        seen.extend(roomless.due(NOW + PAUSE, 1));
        seen.sort();
        assert!(seen.into_iter().eq(roomless.iter()));
        assert_eq!(roomless.poll_timeout(1), None, "until there is more");
    }

    #[test]
    fn whoever_was_looked_at_first_is_the_last_of_the_next_round() {
        let mut roomless = roomless(TURN as u64 + 1);
        let late = Cookie(TURN as u64);
        assert!(!roomless.due(NOW, 1).contains(&late));
        assert_eq!(roomless.due(NOW + PAUSE, 2)[0], late);
        // Those that are gone are waited for no more.
        roomless.clear();
        assert_eq!(roomless.poll_timeout(3), None);
        assert!(roomless.due(NOW + PAUSE * 2, 3).is_empty());
    }
}
