// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which devices may have queue pairs that are older than the module, and when to look for them again
//! where that failed. No I/O here.

use std::collections::BTreeSet;
use std::time::Duration;

use cm_msgs::Guid;
use statemachine::Backoff;

/// After a round in which the kernel did not tell of all of a device.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Devices that are still to be read to the end.
#[derive(Debug)]
pub(crate) struct Search {
    devices: BTreeSet<Guid>,
    /// Of these something was missed in this round.
    missed: BTreeSet<Guid>,
    failures: Backoff,
}

impl Search {
    pub(crate) fn new() -> Self {
        Self {
            devices: BTreeSet::new(),
            missed: BTreeSet::new(),
            failures: Backoff::new(PAUSE, PAUSE_MAX),
        }
    }

    /// These are to be read; a round under way begins anew.
    pub(crate) fn begin(&mut self, devices: BTreeSet<Guid>) {
        self.devices.extend(devices);
        self.missed.clear();
        self.failures.reset();
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = Guid> + '_ {
        self.devices.iter().copied()
    }

    pub(crate) fn wants(&self, device: Guid) -> bool {
        self.devices.contains(&device)
    }

    /// Not all of it was told, or taken up.
    pub(crate) fn handle_missed(&mut self, device: Guid) {
        self.missed.insert(device);
    }

    /// It has been read to the end.
    pub(crate) fn handle_read(&mut self, device: Guid) {
        if !self.missed.contains(&device) {
            self.devices.remove(&device);
        }
    }

    /// A round is over. How long until the next, if any device is still to be read.
    pub(crate) fn handle_round_over(&mut self) -> Option<Duration> {
        self.missed.clear();
        (!self.devices.is_empty()).then(|| self.failures.next_delay())
    }

    /// The module is gone.
    pub(crate) fn end(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Guid = Guid(1);
    const B: Guid = Guid(2);

    fn search() -> Search {
        let mut search = Search::new();
        search.begin(BTreeSet::from([A, B]));
        search
    }

    #[test]
    fn what_has_been_read_is_searched_no_more() {
        let mut search = search();
        search.handle_read(A);
        assert!(!search.wants(A) && search.wants(B));
        search.handle_read(B);
        assert_eq!(search.handle_round_over(), None);
    }

    #[test]
    fn what_was_missed_is_searched_again_and_again_more_seldom() {
        let mut search = search();
        search.handle_read(B);
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            search.handle_missed(A);
            // Of another part of it the kernel has told.
            search.handle_read(A);
            let pause = Duration::from_secs(pause);
            assert_eq!(search.handle_round_over(), Some(pause));
            assert!(search.devices().eq([A]));
        }
        search.handle_read(A);
        assert_eq!(search.handle_round_over(), None);
        search.begin(BTreeSet::from([A]));
        search.handle_missed(A);
        assert_eq!(search.handle_round_over(), Some(PAUSE), "it begins anew");
    }

    #[test]
    fn without_the_module_nothing_is_searched() {
        let mut search = search();
        search.handle_missed(A);
        search.end();
        assert_eq!(search.handle_round_over(), None);
    }
}
