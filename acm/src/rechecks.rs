// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths are asked about again, and when, after the fabric has changed. In doubt is what was
//! learnt before; it is asked about a few at a time, and anew once the subnet may have settled.

use std::collections::HashSet;
use std::time::Duration;

use statemachine::Time;

use super::cache::{Cache, Destination, Key};
use super::doubtful::Doubtful;

/// How long a path in doubt is given away after nobody could be asked about it.
const DOUBT: Duration = Duration::from_secs(10);
/// Paths in doubt that are asked about at the same time without anybody wanting them.
const UNDER_WAY: usize = 16;
/// How long after somebody wanted it a path in doubt is still asked about without anybody wanting
/// it. Others are asked about when they are wanted again.
const WANTED: Duration = Duration::from_secs(3600);
/// After a link's change was reported, paths are doubted again this much later, and four and sixteen
/// times as late: switches report before the subnet manager has routed around it, which takes OpenSM
/// a quarter of a second for 1,000 hosts and a dozen seconds for 12,000.
const SETTLE: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
];

/// What is to be asked about again.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    /// When paths are doubted again, the first time last.
    settling: Vec<Time>,
    /// Paths in doubt, to be asked about.
    doubtful: Doubtful,
    /// Paths that are being asked about.
    under_way: HashSet<Key>,
    /// Nothing is asked about before.
    at: Time,
}

impl Rechecks {
    /// These are in doubt, and asked about when the others are.
    pub(super) fn add(&mut self, doubtful: impl IntoIterator<Item = Key>) {
        self.doubtful.extend(doubtful);
    }

    /// These are in doubt, and asked about from `at` on.
    pub(super) fn start(&mut self, at: Time, doubtful: impl IntoIterator<Item = Key>) {
        self.add(doubtful);
        self.at = at;
    }

    /// These are in doubt because a switch reported that a link of its own has changed. If another
    /// did so just before, they are asked about when that is due again, and not for each report.
    pub(super) fn start_with_report(&mut self, now: Time, doubtful: impl IntoIterator<Item = Key>) {
        let soon = now + SETTLE[0];
        let due = self.settling.last().copied().filter(|at| *at < soon);
        self.start(due.unwrap_or(now), doubtful);
        self.settling = SETTLE.iter().rev().map(|pause| now + *pause).collect();
        self.settling.extend(due);
    }

    /// Whether the subnet may have settled by now, so that all paths are to be doubted again. Each
    /// time of this is told once.
    pub(super) fn settled(&mut self, now: Time) -> bool {
        self.settling.pop_if(|at| *at <= now).is_some()
    }

    /// The next path to be asked about now, which is then under way until [`Rechecks::done`].
    pub(super) fn next(&mut self, now: Time, cache: &Cache) -> Option<Key> {
        while self.at <= now && self.has_room() {
            let key = self.doubtful.pop()?;
            if cache.get(&key).is_some_and(|known| is_due(now, known)) {
                self.under_way.insert(key);
                return Some(key);
            }
        }
        None
    }

    /// A destination was settled, whoever wanted it.
    pub(super) fn done(&mut self, key: &Key) {
        self.under_way.remove(key);
    }

    /// Nobody could be asked about a path: it is tried again later, and so are the others. When.
    pub(super) fn put_off(&mut self, now: Time, key: Key) -> Time {
        let again = now + DOUBT;
        self.start(again, [key]);
        again
    }

    /// When [`Rechecks::settled`] or [`Rechecks::next`] has something to say.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let recheck = (self.has_room() && !self.doubtful.is_empty()).then_some(self.at);
        recheck
            .into_iter()
            .chain(self.settling.last().copied())
            .min()
    }

    fn has_room(&self) -> bool {
        self.under_way.len() < UNDER_WAY
    }
}

/// Whether nobody has asked about it meanwhile, and somebody may want it.
fn is_due(now: Time, known: &Destination) -> bool {
    known.asking.is_none()
        && now < known.wanted_at + WANTED
        && (known.claimed || known.route.as_ref().is_some_and(|route| route.doubtful))
}
