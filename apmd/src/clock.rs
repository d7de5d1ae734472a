// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock, and how long to sleep.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use statemachine::Time;

/// The daemon's clock: microseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts the clock.
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Now.
    pub(super) fn now(self) -> Time {
        Time(0) + self.start.elapsed()
    }
}

/// What the system's clock says, for people.
pub(super) fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The least of `deadlines`, as the time to sleep from `now`; `None`: until something happens.
/// Rounded up to poll's milliseconds, or the loop would spin through the last one.
pub(super) fn sleep(
    now: Time,
    deadlines: impl IntoIterator<Item = Option<Time>>,
) -> Option<Duration> {
    let least = deadlines
        .into_iter()
        .flatten()
        .min()
        .filter(|time| *time != Time(u64::MAX))?;
    let micros = (least - now).as_micros();
    Some(Duration::from_millis(
        u64::try_from(micros.div_ceil(1000)).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_deadline_counts() {
        let now = Time(1_000_000);
        assert_eq!(sleep(now, [None, None]), None);
        assert_eq!(sleep(now, [Some(Time(u64::MAX))]), None);
        assert_eq!(
            sleep(now, [Some(Time(1_500_001)), None, Some(Time(9_000_000))]),
            Some(Duration::from_millis(501))
        );
        assert_eq!(sleep(now, [Some(Time(5))]), Some(Duration::ZERO));
    }
}
