// SPDX-License-Identifier: MIT OR Apache-2.0
//! When devices are looked for. Nobody tells of one that appears, unless IPoIB has an interface on it: so
//! they are looked for again and again, ever more slowly while nothing happens.

use std::time::Duration;

use statemachine::{Backoff, Time};

/// First pause, and the longest: what an idle host can bear.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// How often programs can have devices looked for, which name some that are not known.
const ON_DEMAND: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Scan {
    at: Time,
    last: Option<Time>,
    backoff: Backoff,
}

impl Scan {
    /// The first is due at once.
    pub(super) fn new() -> Self {
        Self {
            at: Time(0),
            last: None,
            backoff: Backoff::new(FIRST, LONGEST),
        }
    }

    /// When the next is due.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// Devices were looked for. `news`: some are new, or have just been found to be missing; more may
    /// follow.
    pub(super) fn done(&mut self, now: Time, news: bool) {
        if news {
            self.backoff.reset();
        }
        self.last = Some(now);
        self.at = now + self.backoff.next_delay();
    }

    /// Something is different: a device that has gone may be back in a moment.
    pub(super) fn soon(&mut self, now: Time) {
        self.backoff.reset();
        self.at = self.at.min(now + self.backoff.next_delay());
    }

    pub(super) fn at_once(&mut self, now: Time) {
        self.backoff.reset();
        self.at = now;
    }

    /// A program uses a device that is not known. Any program can say so, and as often as it likes.
    pub(super) fn on_demand(&mut self, now: Time) {
        let earliest = self.last.map_or(now, |last| last + ON_DEMAND);
        self.at = self.at.min(earliest.max(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// When devices are looked for in the hour from `now` on, if nothing else happens.
    fn an_hour(scan: &mut Scan, now: Time) -> Vec<Time> {
        let end = now + HOUR;
        std::iter::from_fn(|| {
            let at = scan.at().max(now);
            scan.done(at, false);
            (at < end).then_some(at)
        })
        .collect()
    }

    #[test]
    fn devices_are_looked_for_as_long_as_the_daemon_runs_but_rarely() {
        let mut scan = Scan::new();
        let now = Time(1_000_000);
        let first = an_hour(&mut scan, now);
        assert_eq!(first[0], now);
        assert!(first.len() < 70, "{}", first.len());
        let second = an_hour(&mut scan, now + HOUR);
        assert!((59..=61).contains(&second.len()), "{}", second.len());
        let mut pauses = second.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(pauses.all(|pause| pause == LONGEST));
    }

    #[test]
    fn a_device_that_is_gone_for_some_seconds_is_found_soon_after() {
        let mut scan = Scan::new();
        an_hour(&mut scan, Time(0));
        let lost = Time(0) + HOUR * 2;
        for gone in [1_500, 4_000, 20_000].map(Duration::from_millis) {
            scan.soon(lost);
            let scans = an_hour(&mut scan, lost);
            let back = lost + gone;
            let found = scans.into_iter().find(|at| *at >= back).unwrap();
            assert!(found - lost <= gone * 2 + FIRST, "{gone:?}: {found:?}");
        }
    }

    #[test]
    fn what_is_soon_is_put_off_by_nothing() {
        let mut scan = Scan::new();
        scan.done(Time(0), true);
        let at = scan.at();
        scan.soon(Time(900_000));
        assert_eq!(scan.at(), at);
        scan.on_demand(Time(900_000));
        assert_eq!(scan.at(), at);
    }

    #[test]
    fn programs_have_devices_looked_for_at_once_but_not_again_and_again() {
        let mut scan = Scan::new();
        an_hour(&mut scan, Time(0));
        let (before, mut count) = (Time(0) + HOUR * 3, 0);
        scan.done(before, false);
        let now = before + ON_DEMAND;
        for ms in 0..30_000 {
            let now = now + Duration::from_millis(ms);
            scan.on_demand(now);
            if scan.at() <= now {
                scan.done(now, false);
                count += 1;
            }
        }
        assert_eq!(count, 3);
    }
}
