// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a sharer's connections may come and go. Many at once are no harm; to open and close them
//! in a loop has both hosts open and close associations for nobody's good.

use std::collections::BTreeMap;
use std::time::Duration;

use statemachine::Time;

use super::Sharer;

/// A connection closed sooner after its registration counts.
const SHORT: Duration = Duration::from_secs(60);
/// Short connections that a sharer may have had before new ones wait.
const BURST: u32 = 100;
/// In which time one of them is forgotten.
const FORGET: Duration = Duration::from_millis(100);
/// What a program that fails soon after its start costs its successor at most.
pub(super) const LONGEST_WAIT: Duration = SHORT;
/// Sharers of whom something is kept: a fabric may have as many ports as there are LIDs.
const SHARERS_MAX: usize = 4096;

/// Short connections by sharer.
#[derive(Debug, Default)]
pub(super) struct Turnover {
    /// When a sharer's short connections will all be forgotten.
    clear_at: BTreeMap<Sharer, Time>,
}

impl Turnover {
    /// A registered connection of this sharer was closed.
    pub(super) fn closed(&mut self, now: Time, sharer: &Sharer, registered: Time) {
        if now - registered < SHORT {
            self.make_room_for(now, sharer);
            let clear_at = self.clear_at.entry(sharer.clone()).or_insert(now);
            let latest = now + FORGET * BURST + LONGEST_WAIT;
            *clear_at = ((*clear_at).max(now) + FORGET).min(latest);
        }
    }

    /// Of too many, those are forgotten that do not wait yet, or else who waits for the shortest time.
    fn make_room_for(&mut self, now: Time, sharer: &Sharer) {
        if self.clear_at.len() < SHARERS_MAX || self.clear_at.contains_key(sharer) {
            return;
        }
        let waits = now + FORGET * BURST;
        self.clear_at.retain(|_, clear_at| *clear_at > waits);
        if self.clear_at.len() >= SHARERS_MAX {
            let least = self.clear_at.iter().min_by_key(|(_, clear_at)| **clear_at);
            if let Some(least) = least.map(|(sharer, _)| sharer.clone()) {
                self.clear_at.remove(&least);
            }
        }
    }

    /// From when on new connections of this sharer are registered; `None`: now.
    pub(super) fn wait(&mut self, now: Time, sharer: &Sharer) -> Option<Time> {
        let clear_at = *self.clear_at.get(sharer)?;
        if clear_at <= now {
            self.clear_at.remove(sharer);
            return None;
        }
        let burst = FORGET * BURST;
        let debt = (clear_at - now).checked_sub(burst)?;
        (!debt.is_zero()).then(|| now + debt)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use cm_msgs::Lid;

    use super::super::UlpPeer;
    use super::*;
    use crate::io::person::Person;

    const USER: Sharer = Sharer::User(Person::without_ranges(7));

    /// A target, as a far port connects to it.
    fn target(peer: u16) -> Sharer {
        Sharer::Ulp {
            name: Rc::from("ib_srpt"),
            peer: UlpPeer {
                prefix: 0xfe80 << 48,
                lid: Lid(peer),
            },
        }
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn opening_and_closing_in_a_loop_comes_to_ten_a_second() {
        let mut turnover = Turnover::default();
        let mut registered = 0;
        let mut now = at(1000);
        while now < at(1100) {
            if turnover.wait(now, &USER).is_none() {
                registered += 1;
                turnover.closed(now, &USER, now);
            }
            now = now + Duration::from_millis(1);
        }
        assert!((1050..1150).contains(&registered), "{registered}");
        assert_eq!(
            turnover.wait(now, &Sharer::User(Person::without_ranges(8))),
            None,
            "another user does not wait"
        );
        assert_eq!(turnover.wait(now + Duration::from_secs(20), &USER), None);
        assert!(turnover.clear_at.is_empty());
    }

    #[test]
    fn connections_that_lasted_are_no_turnover() {
        let mut turnover = Turnover::default();
        for _ in 0..10_000 {
            turnover.closed(at(100), &USER, at(30));
        }
        assert_eq!(turnover.wait(at(100), &USER), None);
        for _ in 0..300 {
            turnover.closed(at(100), &USER, at(90));
        }
        assert_eq!(
            turnover.wait(at(100), &USER),
            Some(at(120)),
            "a debt is paid"
        );
        for _ in 0..10_000 {
            turnover.closed(at(100), &USER, at(90));
        }
        assert_eq!(
            turnover.wait(at(100), &USER),
            Some(at(160)),
            "up to a minute"
        );
    }

    #[test]
    fn one_host_that_connects_in_a_loop_delays_neither_others_nor_root() {
        let mut turnover = Turnover::default();
        for _ in 0..10_000 {
            turnover.closed(at(100), &target(9), at(100));
        }
        assert_eq!(turnover.wait(at(100), &target(9)), Some(at(160)));
        assert_eq!(turnover.wait(at(100), &target(10)), None, "another host");
        assert_eq!(
            turnover.wait(at(100), &Sharer::User(Person::without_ranges(0))),
            None,
            "root"
        );
        let other = Sharer::Ulp {
            name: Rc::from("nvmet_rdma"),
            peer: UlpPeer {
                prefix: 0xfe80 << 48,
                lid: Lid(9),
            },
        };
        assert_eq!(turnover.wait(at(100), &other), None, "another ULP");
    }

    #[test]
    fn as_many_are_kept_as_there_is_room_for_and_who_waits_stays() {
        let mut turnover = Turnover::default();
        for _ in 0..200 {
            turnover.closed(at(100), &USER, at(100));
        }
        // As many as there are LIDs, and then some that wait as well.
        for peer in 1..=0xbfff {
            turnover.closed(at(100), &target(peer), at(100));
            assert!(turnover.clear_at.len() <= SHARERS_MAX);
        }
        for peer in 1..=5000 {
            for _ in 0..=BURST {
                turnover.closed(at(100), &target(peer), at(100));
            }
        }
        assert_eq!(turnover.clear_at.len(), SHARERS_MAX);
        assert!(turnover.wait(at(100), &target(5000)).is_some());
        assert!(turnover.wait(at(100), &USER).is_some());
    }
}
