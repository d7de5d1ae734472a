// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that are present and not open: opening failed, or no connection could use them.

use std::io;
use std::time::Duration;

use statemachine::{Backoff, Time};

/// How long one is left alone after it could not be opened. To open it asks its firmware, and everything else waits
/// for as long as that takes: longest where the firmware does not answer. One that has just appeared may only not be
/// ready yet.
const PACE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30 * 60));

/// Why a device is not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unopened {
    /// In words, and what to do about it.
    pub(crate) why: String,
    /// It has an InfiniBand port: connections of it could be protected, and are not.
    pub(crate) infiniband: bool,
    /// No connection could use it.
    pub(crate) ignored: bool,
    /// When it is tried again; `None`: whenever devices are looked for.
    again: Option<Time>,
    pace: Backoff,
}

impl Unopened {
    pub(crate) fn new(why: &str, infiniband: bool) -> Self {
        Self {
            why: why.to_owned(),
            infiniband,
            ignored: false,
            again: None,
            pace: PACE,
        }
    }

    /// No connection could use it. It is examined again with every scan, and is no problem.
    pub(crate) fn ignored(why: &str) -> Self {
        Self {
            ignored: true,
            ..Self::new(why, false)
        }
    }

    /// It was tried to open it, in vain, as it may have been before.
    pub(super) fn refused(
        before: Option<Self>,
        now: Time,
        error: &io::Error,
        infiniband: bool,
    ) -> Self {
        let mut pace = before.map_or(PACE, |before| before.pace);
        Self {
            why: format!("cannot be opened: {error}"),
            infiniband,
            ignored: false,
            again: Some(now + pace.next_delay()),
            pace,
        }
    }

    /// Whether it is to be left alone, whoever has devices looked for.
    pub(super) fn is_left_alone(&self, now: Time) -> bool {
        self.again.is_some_and(|again| now < again)
    }

    /// It is tried again with the next search: somebody may have mended it.
    pub(super) fn retry(&mut self) {
        (self.again, self.pace) = (None, PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_tried_ever_more_rarely_whoever_has_devices_looked_for() {
        let second = |seconds: u64| Time(seconds * 1_000_000);
        let mut unopened: Option<Unopened> = None;
        let mut tries = Vec::new();
        let mut search = |now, unopened: &mut Option<Unopened>| {
            if unopened.as_ref().is_some_and(|it| it.is_left_alone(now)) {
                return;
            }
            tries.push(now);
            let error = io::ErrorKind::TimedOut.into();
            *unopened = Some(Unopened::refused(unopened.take(), now, &error, true));
        };
        // Every ten seconds, as any program can have it.
        for seconds in (0..7200).step_by(10) {
            search(second(seconds), &mut unopened);
        }
        // An operator may have mended it.
        unopened.iter_mut().for_each(Unopened::retry);
        for at in 7200..7203 {
            search(second(at), &mut unopened);
        }
        let want = [
            0, 10, 20, 30, 40, 60, 100, 170, 300, 560, 1080, 2110, 3910, 5710, 7200, 7201,
        ];
        assert_eq!(tries, want.map(second));
    }
}
