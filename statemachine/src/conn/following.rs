// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a connection is moved though its local port works: because the peer says that it has moved, or because
//! of probes.
//!
//! Either can be wrong, and moving back is then the next step. Who has been ordered from one path to another and
//! back three times in a minute, or eight times over whichever paths, stays until a port changes; the hardware's retries
//! still move it.
//!
//! Nothing but orders moves a connection that waits for traffic, and one of which a single end has been moved is lost. So no
//! end leads off any more, whatever the reason, a good while before the other stops to follow.

use alloc::boxed::Box;
use core::time::Duration;

use cm_msgs::path::Path;

use crate::time::{OptionalTime, Time};
use crate::trace::PathLids;

/// Orders between the same two paths within [`WINDOW`] after which no other is given.
const LIMIT: usize = 3;

/// The same, between whichever paths.
const LIMIT_OF_ALL: usize = 8;

const WINDOW: Duration = Duration::from_secs(60);

/// Moves of a QP that waits for traffic within [`WINDOW`] after which this end is not the first to go.
const IDLE_LEADS: usize = 6;

/// The same, after which it does not follow its peer either.
const IDLE_FOLLOWS: usize = 12;

/// Orders to leave a path whose local port works.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Following(Option<Box<Rounds>>);

/// The last orders.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Rounds {
    /// The latest order was between these, in either direction.
    paths: [PathLids; 2],
    /// How many orders in a row were between these.
    between: usize,
    /// When the last orders were given, the latest last.
    at: [OptionalTime; LIMIT_OF_ALL],
    /// When it was moved while it waited for traffic, the latest last. Ports that change explain nothing here: the peer
    /// may not hear of it. Few connections have this.
    idle: Option<Box<[OptionalTime; IDLE_FOLLOWS]>>,
}

impl Default for Rounds {
    fn default() -> Self {
        let nowhere = PathLids::from(&Path::default());
        Self {
            paths: [nowhere; 2],
            between: 0,
            at: Default::default(),
            idle: None,
        }
    }
}

fn is_recent(now: Time, at: OptionalTime) -> bool {
    at.get().is_some_and(|at| now - at < WINDOW)
}

impl Rounds {
    fn are_between(&self, from: &Path, to: &Path) -> bool {
        let (from, to) = (PathLids::from(from), PathLids::from(to));
        self.paths == [from, to] || self.paths == [to, from]
    }
}

impl Following {
    /// Whether the limit of orders is reached, between these two paths or in all.
    pub(super) fn is_spent(&self, now: Time, from: &Path, to: &Path) -> bool {
        let Some(rounds) = &self.0 else {
            return false;
        };
        let oldest_between = rounds.at[LIMIT_OF_ALL - LIMIT];
        let between = rounds.are_between(from, to) && rounds.between >= LIMIT;
        is_recent(now, rounds.at[0]) || between && is_recent(now, oldest_between)
    }

    /// Whether a QP that waits for traffic may be moved before its peer is.
    pub(super) fn may_lead_idle(&self, now: Time) -> bool {
        !self.idle_moves_reach(IDLE_LEADS, now)
    }

    /// Whether a QP that waits for traffic may be moved after its peer.
    pub(super) fn may_follow_idle(&self, now: Time) -> bool {
        !self.idle_moves_reach(IDLE_FOLLOWS, now)
    }

    fn idle_moves_reach(&self, limit: usize, now: Time) -> bool {
        let moves = self.0.as_ref().and_then(|rounds| rounds.idle.as_ref());
        moves.is_some_and(|moves| is_recent(now, moves[IDLE_FOLLOWS - limit]))
    }

    /// A QP that waits for traffic is moved.
    pub(super) fn moved_idle(&mut self, now: Time) {
        let moves = self.0.get_or_insert_default().idle.get_or_insert_default();
        moves.rotate_left(1);
        moves[IDLE_FOLLOWS - 1] = now.into();
    }

    /// It is ordered from one path to the other.
    pub(super) fn ordered(&mut self, now: Time, from: &Path, to: &Path) {
        let paths = [from.into(), to.into()];
        let rounds = self.0.get_or_insert_default();
        if !rounds.are_between(from, to) {
            (rounds.paths, rounds.between) = (paths, 0);
        }
        rounds.between += 1;
        rounds.at.rotate_left(1);
        rounds.at[LIMIT_OF_ALL - 1] = now.into();
    }

    /// A port has changed: what happened before is explained.
    pub(super) fn port_changed(&mut self) {
        if let Some(rounds) = &mut self.0 {
            (rounds.between, rounds.at) = Default::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(port: u8) -> Path {
        Path {
            port,
            ..Path::default()
        }
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn the_fourth_order_in_a_minute_between_two_paths_is_not_given() {
        let (a, b) = (path(1), path(2));
        let mut following = Following::default();
        for (number, [from, to]) in (1..).zip([[&a, &b], [&b, &a], [&a, &b]]) {
            assert!(!following.is_spent(second(number), from, to));
            following.ordered(second(number), from, to);
        }
        assert!(following.is_spent(second(4), &b, &a));
        assert!(following.is_spent(second(60), &a, &b));
        assert!(!following.is_spent(second(4), &a, &path(3)), "another path");
        assert!(!following.is_spent(second(61), &b, &a), "the first is past");
        following.ordered(second(61), &b, &a);
        assert!(
            following.is_spent(second(61), &a, &b),
            "three from the second on"
        );
        following.port_changed();
        assert!(!following.is_spent(second(61), &a, &b));
    }

    #[test]
    fn orders_between_other_paths_begin_the_count_again() {
        let (a, b, c) = (path(1), path(2), path(3));
        let mut following = Following::default();
        for to in [&b, &b, &c] {
            following.ordered(second(1), &a, to);
        }
        following.ordered(second(1), &a, &b);
        assert!(!following.is_spent(second(1), &a, &b));
    }

    #[test]
    fn who_leads_stops_long_before_who_follows() {
        let mut following = Following::default();
        let counts = |may: fn(&Following, Time) -> bool, following: &mut Following| {
            let ordered = (0..50).filter(|_| {
                let goes = may(following, second(7));
                if goes {
                    following.moved_idle(second(7));
                    following.port_changed();
                }
                goes
            });
            ordered.count()
        };
        assert_eq!(counts(Following::may_lead_idle, &mut following), IDLE_LEADS);
        let more = IDLE_FOLLOWS - IDLE_LEADS;
        assert_eq!(counts(Following::may_follow_idle, &mut following), more);
        assert!(!following.may_lead_idle(second(66)) && following.may_lead_idle(second(67)));
    }

    /// Three ports, or two LIDs each, make a tour of three paths.
    #[test]
    fn a_tour_of_three_paths_is_bounded_as_well() {
        let paths = [path(1), path(2), path(3)];
        let mut following = Following::default();
        let mut ordered = 0;
        for number in 0..50 {
            let [from, to] = [number % 3, (number + 1) % 3].map(|at| &paths[at]);
            let now = second(number as u64);
            if !following.is_spent(now, from, to) {
                following.ordered(now, from, to);
                ordered += 1;
            }
        }
        assert_eq!(ordered, LIMIT_OF_ALL);
        assert!(
            !following.is_spent(second(61), &paths[0], &paths[1]),
            "the first is past"
        );
    }
}
