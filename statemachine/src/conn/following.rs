// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a connection is moved though its local port works: because the peer says that it has moved, or because
//! of probes.
//!
//! Either can be wrong, and moving back is then the next step. Who has been ordered from one path to another and
//! back three times in a minute stays until a port changes; the hardware's retries still move it.

use alloc::boxed::Box;
use core::time::Duration;

use cm_msgs::path::Path;

use crate::time::Time;
use crate::trace::PathLids;

/// Orders within [`WINDOW`] after which no other is given.
const LIMIT: usize = 3;

const WINDOW: Duration = Duration::from_secs(60);

/// Orders to leave a path whose local port works.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Following(Option<Box<Rounds>>);

/// The last orders between two paths, whichever the direction.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Rounds {
    paths: [PathLids; 2],
    /// The latest last; `None` for those that there were not.
    at: [Option<Time>; LIMIT],
}

impl Rounds {
    fn are_between(&self, from: &Path, to: &Path) -> bool {
        let (from, to) = (PathLids::from(from), PathLids::from(to));
        self.paths == [from, to] || self.paths == [to, from]
    }
}

impl Following {
    /// Whether there were so many orders between these paths that there is to be no other.
    pub(super) fn is_spent(&self, now: Time, from: &Path, to: &Path) -> bool {
        let rounds = self
            .0
            .as_ref()
            .filter(|rounds| rounds.are_between(from, to));
        let oldest = rounds.and_then(|rounds| rounds.at[0]);
        oldest.is_some_and(|at| now - at < WINDOW)
    }

    /// It is ordered from one path to the other.
    pub(super) fn ordered(&mut self, now: Time, from: &Path, to: &Path) {
        let same = self.0.take().filter(|rounds| rounds.are_between(from, to));
        let mut rounds = same.unwrap_or_else(|| {
            Box::new(Rounds {
                paths: [from.into(), to.into()],
                at: [None; LIMIT],
            })
        });
        rounds.at.rotate_left(1);
        rounds.at[LIMIT - 1] = Some(now);
        self.0 = Some(rounds);
    }

    /// A port has changed: what happened before is explained.
    pub(super) fn port_changed(&mut self) {
        self.0 = None;
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
}
