// SPDX-License-Identifier: MIT OR Apache-2.0
//! Since when connections have been armed with both paths on one port: a port was lost, here or at the peer, and the next
//! loss ends them. They are looked at a few at a time, because the loop stands still meanwhile (sans-IO).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use statemachine::{ConnId, Time};

/// After this long it is no transition any more.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(60);
/// Pause between two looks at all connections.
const PASS_EVERY: Duration = Duration::from_secs(10);
/// Connections looked at in one turn.
const BATCH: usize = 1024;
/// Pause between two turns.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections that one port's loss would end.
#[derive(Debug, Default)]
pub(crate) struct Redundancy {
    /// As the last look at all connections found them.
    since: BTreeMap<ConnId, Time>,
    /// As the present one has found them so far.
    found: BTreeMap<ConnId, Time>,
    /// It goes on behind this one.
    after: Option<ConnId>,
    next_at: Time,
}

impl Redundancy {
    /// When [`Self::handle_time`] is to be called, while there are connections.
    pub(crate) fn poll_timeout(&self) -> Time {
        self.next_at
    }

    /// Looks at some connections, if it is time. `shares_port` has those in a range, in their order, and whether both
    /// paths of each take the same port.
    pub(crate) fn handle_time<I>(
        &mut self,
        now: Time,
        shares_port: impl FnOnce((Bound<ConnId>, Bound<ConnId>)) -> I,
    ) where
        I: Iterator<Item = (ConnId, bool)>,
    {
        if now < self.next_at {
            return;
        }
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked_at = 0;
        for (id, shares) in shares_port((from, Bound::Unbounded)).take(BATCH) {
            looked_at += 1;
            self.after = Some(id);
            if shares {
                let since = self.since.get(&id).copied().unwrap_or(now);
                self.found.insert(id, since);
            }
        }
        self.next_at = now + PAUSE;
        if looked_at < BATCH {
            self.since = std::mem::take(&mut self.found);
            self.after = None;
            self.next_at = now + PASS_EVERY;
        }
    }

    /// How many have been so for [`LOST_AFTER`].
    pub(crate) fn lost(&self, now: Time) -> usize {
        let lost = |since: &&Time| now - **since >= LOST_AFTER;
        self.since.values().filter(lost).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(client: u32) -> ConnId {
        ConnId { client, conn: 1 }
    }

    /// Runs until `end`, in seconds, with these connections.
    fn run(redundancy: &mut Redundancy, end: u64, conns: &BTreeMap<ConnId, bool>) -> usize {
        let end = Time(end * 1_000_000);
        while redundancy.poll_timeout() <= end {
            let now = redundancy.poll_timeout();
            redundancy.handle_time(now, |range| {
                conns.range(range).map(|(id, shares)| (*id, *shares))
            });
        }
        redundancy.lost(end)
    }

    #[test]
    fn it_is_lost_after_a_minute_and_not_before() {
        let mut redundancy = Redundancy::default();
        let mut conns = BTreeMap::from([(id(1), false), (id(2), true)]);
        assert_eq!(run(&mut redundancy, 50, &conns), 0);
        assert_eq!(run(&mut redundancy, 60, &conns), 1);
        // The second port is back, and is lost again.
        conns.insert(id(2), false);
        assert_eq!(run(&mut redundancy, 70, &conns), 0);
        conns.insert(id(2), true);
        assert_eq!(run(&mut redundancy, 120, &conns), 0);
        assert_eq!(run(&mut redundancy, 141, &conns), 1);
        conns.remove(&id(2));
        assert_eq!(run(&mut redundancy, 151, &conns), 0, "it was closed");
    }

    #[test]
    fn many_are_looked_at_in_turns() {
        let mut redundancy = Redundancy::default();
        let all = u32::try_from(3 * BATCH).expect("some");
        let conns: BTreeMap<_, _> = (0..all).map(|client| (id(client), true)).collect();
        assert_eq!(run(&mut redundancy, 61, &conns), 3 * BATCH);
        let mut calls = 0;
        redundancy.next_at = Time(0);
        redundancy.handle_time(Time(200_000_000), |range| {
            conns.range(range).map(|(id, shares)| {
                calls += 1;
                (*id, *shares)
            })
        });
        assert_eq!(calls, BATCH);
    }
}
