// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a user's connections may come and go. Many at once are no harm; to open and close them
//! in a loop has both hosts open and close associations for nobody's good.

use std::collections::BTreeMap;
use std::time::Duration;

use statemachine::Time;

/// A connection closed sooner after its registration counts.
const SHORT: Duration = Duration::from_secs(60);
/// Short connections that a user may have had before new ones wait.
const BURST: u32 = 100;
/// In which time one of them is forgotten.
const FORGET: Duration = Duration::from_millis(100);
/// What a program that fails soon after its start costs its successor at most.
const LONGEST_WAIT: Duration = SHORT;

/// Short connections by user.
#[derive(Debug, Default)]
pub(super) struct Turnover {
    /// When a user's short connections will all be forgotten.
    clear_at: BTreeMap<u32, Time>,
}

impl Turnover {
    /// A registered connection of `uid` was closed.
    pub(super) fn closed(&mut self, now: Time, uid: u32, registered: Time) {
        if now - registered < SHORT {
            let clear_at = self.clear_at.entry(uid).or_insert(now);
            let latest = now + FORGET * BURST + LONGEST_WAIT;
            *clear_at = ((*clear_at).max(now) + FORGET).min(latest);
        }
    }

    /// From when on new connections of `uid` are registered; `None`: now.
    pub(super) fn wait(&mut self, now: Time, uid: u32) -> Option<Time> {
        let clear_at = *self.clear_at.get(&uid)?;
        if clear_at <= now {
            self.clear_at.remove(&uid);
            return None;
        }
        let burst = FORGET * BURST;
        let debt = (clear_at - now).checked_sub(burst)?;
        (!debt.is_zero()).then(|| now + debt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn opening_and_closing_in_a_loop_comes_to_ten_a_second() {
        let mut turnover = Turnover::default();
        let mut registered = 0;
        let mut now = at(1000);
        while now < at(1100) {
            if turnover.wait(now, 7).is_none() {
                registered += 1;
                turnover.closed(now, 7, now);
            }
            now = now + Duration::from_millis(1);
        }
        assert!((1050..1150).contains(&registered), "{registered}");
        assert_eq!(turnover.wait(now, 8), None, "another user does not wait");
        assert_eq!(turnover.wait(now + Duration::from_secs(20), 7), None);
        assert!(turnover.clear_at.is_empty());
    }

    #[test]
    fn connections_that_lasted_are_no_turnover() {
        let mut turnover = Turnover::default();
        for _ in 0..10_000 {
            turnover.closed(at(100), 7, at(30));
        }
        assert_eq!(turnover.wait(at(100), 7), None);
        for _ in 0..300 {
            turnover.closed(at(100), 7, at(90));
        }
        assert_eq!(turnover.wait(at(100), 7), Some(at(120)), "a debt is paid");
        for _ in 0..10_000 {
            turnover.closed(at(100), 7, at(90));
        }
        assert_eq!(turnover.wait(at(100), 7), Some(at(160)), "up to a minute");
    }
}
