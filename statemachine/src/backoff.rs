// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long to wait after failures in a row.

use core::time::Duration;

/// Exponential backoff: the first delay, doubled with every failure in a row, up to a longest one.
///
/// Delays come without jitter; where many wait for the same thing, spread them with
/// [`Random::jitter`](crate::Random::jitter).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// Counts a failure, and says how long to wait after it.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// How long to wait when there have been so many failures before the latest one: for callers
    /// that count by themselves.
    pub fn after(&self, earlier_failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(earlier_failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }

    /// Failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// It worked: the next failure is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_begin_anew_after_success() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::new(secs(2), secs(60));
        let delays = core::array::from_fn(|_| backoff.next_delay().as_secs());
        assert_eq!(delays, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.failures(), 7);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.next_delay()), (0, secs(2)));
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        for failures in [31, 32, 64, u32::MAX] {
            assert!(backoff.after(failures) >= Duration::from_secs(1 << 31));
        }
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(backoff.after(u32::MAX), Duration::MAX);
    }
}
