// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which path is probed next: by turns over far ports. However many paths of one far port are due, another's waits for
//! one of them.

use alloc::collections::{BTreeMap, BTreeSet};

use super::ProbePath;
use super::far_ports::{FarPort, FarPorts};
use crate::round_robin::next_after;
use crate::time::Time;
use crate::timers::Timers;

/// Where a path waits: behind those of its far port that were due before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    far: FarPort,
    at: Time,
    path: ProbePath,
}

/// Paths that wait for their turn.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct PathQueue {
    /// One set, and not one for each far port: it allocates nothing while paths come and go one by one.
    waiting: BTreeSet<Place>,
    places: BTreeMap<ProbePath, Place>,
    /// Behind all places of the far port that was served last.
    last: Option<Place>,
}

impl PathQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn contains(&self, path: &ProbePath) -> bool {
        self.places.contains_key(path)
    }

    /// Adds a path to a far port that is due since `at`, unless it waits already.
    pub(super) fn join(&mut self, far: FarPort, at: Time, path: ProbePath) {
        let place = Place { far, at, path };
        if !self.contains(&path) {
            self.waiting.insert(place);
            self.places.insert(path, place);
        }
    }

    /// It does not wait any more.
    pub(super) fn leave(&mut self, path: &ProbePath) {
        if let Some(place) = self.places.remove(path) {
            self.waiting.remove(&place);
        }
    }

    /// Takes out the next one.
    pub(super) fn next(&mut self) -> Option<ProbePath> {
        let place = next_after(&self.waiting, self.last)?;
        self.leave(&place.path);
        let at = Time(u64::MAX);
        self.last = Some(Place { at, ..place });
        Some(place.path)
    }

    #[cfg(test)]
    pub(super) fn paths(&self) -> impl Iterator<Item = ProbePath> + '_ {
        self.places.keys().copied()
    }
}

/// When the next probe of each path is due.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct ProbeSchedule {
    timers: Timers<ProbePath>,
    /// Those that are due, and wait until one more probe may leave.
    due: PathQueue,
    /// Those that go first: a few that tell whether their local port is silent.
    witnesses: PathQueue,
}

impl ProbeSchedule {
    /// Sets when the path is due, instead of what was set before.
    pub(super) fn set(&mut self, path: ProbePath, at: Time) {
        self.leave(&path);
        self.timers.set(path, at);
    }

    /// The path is due, and goes before those that are no witnesses.
    pub(super) fn set_first(&mut self, path: ProbePath, now: Time, far_ports: &FarPorts) {
        self.cancel(&path);
        self.witnesses.join(far_ports.of(&path), now, path);
    }

    /// Sets when the path is due, unless it is due earlier.
    pub(super) fn set_no_later(&mut self, path: ProbePath, at: Time) {
        if !self.due.contains(&path) && !self.witnesses.contains(&path) {
            self.timers.set_no_later(path, at);
        }
    }

    /// The path is not probed any more.
    pub(super) fn cancel(&mut self, path: &ProbePath) {
        self.leave(path);
        self.timers.cancel(path);
    }

    fn leave(&mut self, path: &ProbePath) {
        self.due.leave(path);
        self.witnesses.leave(path);
    }

    /// Returns when a path is due; the start of time if one is.
    pub(super) fn next_time(&self) -> Option<Time> {
        match self.due.is_empty() && self.witnesses.is_empty() {
            true => self.timers.next(),
            false => Some(Time(0)),
        }
    }

    /// Takes out the path whose turn it is, or None while none is due.
    pub(super) fn next(&mut self, now: Time, far_ports: &FarPorts) -> Option<ProbePath> {
        while let Some(at) = self.timers.next()
            && let Some(path) = self.timers.expired(now)
        {
            self.due.join(far_ports.of(&path), at, path);
        }
        self.witnesses.next().or_else(|| self.due.next())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::probe::tests::path_to as path;

    fn order(schedule: &mut ProbeSchedule, now: Time) -> Vec<(u16, u16)> {
        let next = || schedule.next(now, &FarPorts::default());
        let paths = core::iter::from_fn(next);
        paths.map(|path| (path.dlid.0, path.slid.0)).collect()
    }

    #[test]
    fn turns_go_over_far_ports_and_of_each_the_first_due_is_first() {
        let mut schedule = ProbeSchedule::default();
        for (far, number, at) in [(1, 1, 3), (1, 2, 2), (1, 3, 1), (2, 1, 9), (3, 1, 10)] {
            schedule.set(path(far, number), Time(at));
        }
        assert_eq!(schedule.next_time(), Some(Time(1)));
        let first = schedule.next(Time(9), &FarPorts::default());
        assert_eq!(first, Some(path(1, 3)));
        assert_eq!(schedule.next_time(), Some(Time(0)), "others are due");
        schedule.set_no_later(path(1, 2), Time(9));
        assert_eq!(order(&mut schedule, Time(9)), [(2, 1), (1, 2), (1, 1)]);
        assert_eq!(schedule.next_time(), Some(Time(10)));
    }

    #[test]
    fn witnesses_go_first() {
        let far_ports = FarPorts::default();
        let mut schedule = ProbeSchedule::default();
        for far in 1..=5 {
            schedule.set(path(far, 1), Time(1));
        }
        schedule.next(Time(1), &far_ports);
        for far in [3, 4, 5] {
            schedule.set_first(path(far, 1), Time(2), &far_ports);
        }
        schedule.set_no_later(path(4, 1), Time(2));
        schedule.set(path(5, 1), Time(3));
        assert_eq!(order(&mut schedule, Time(2)), [(3, 1), (4, 1), (2, 1)]);
        assert_eq!(schedule.next_time(), Some(Time(3)));
    }

    #[test]
    fn what_is_set_again_or_cancelled_does_not_wait_any_more() {
        let mut schedule = ProbeSchedule::default();
        for number in 0..4 {
            schedule.set(path(1, number), Time(1));
        }
        assert_eq!(
            schedule.next(Time(1), &FarPorts::default()),
            Some(path(1, 0))
        );
        schedule.set(path(1, 1), Time(5));
        schedule.cancel(&path(1, 2));
        assert_eq!(order(&mut schedule, Time(4)), [(1, 3)]);
        assert_eq!(order(&mut schedule, Time(5)), [(1, 1)]);
        assert_eq!(schedule.next_time(), None);
        assert!(schedule.due.places.is_empty());
    }
}
