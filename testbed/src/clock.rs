// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock that the drills share with the programs they run: CLOCK_MONOTONIC.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A point in time: microseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Now.
    pub fn now() -> Self {
        // The clock exists on every Linux; the call fails only for clocks that do not.
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        Self(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    /// From milliseconds, as programs print them.
    pub fn from_ms(ms: f64) -> Self {
        Self((ms * 1000.0).round() as u64)
    }

    /// How much later this is than `earlier`; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

/// A duration in milliseconds with one decimal: how the drills print and report durations.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Millis(pub f64);

impl Millis {
    /// The longer one.
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// Rounded to the decimal that is shown.
    pub fn rounded(self) -> f64 {
        (self.0 * 10.0).round() / 10.0
    }
}

/// The one in the middle; of an even number, half way between the two. NaN if there is none.
pub fn median(times: impl IntoIterator<Item = Millis>) -> Millis {
    let mut times: Vec<f64> = times.into_iter().map(|time| time.0).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    Millis(match times.as_slice() {
        [] => f64::NAN,
        some if some.len().is_multiple_of(2) => f64::midpoint(some[middle - 1], some[middle]),
        some => some[middle],
    })
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(duration.as_secs_f64() * 1000.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_has_its_median_between() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].map(Millis)), Millis(2.5));
        assert_eq!(median([4.0, 1.0, 3.0].map(Millis)), Millis(3.0));
        assert!(median([]).0.is_nan());
    }

    #[test]
    fn moments_are_ordered_and_subtract() {
        let early = Moment::from_ms(1000.5);
        let late = early + Duration::from_micros(250);
        assert!(early < late);
        assert_eq!(late.since(early), Duration::from_micros(250));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late - Duration::from_micros(250), early);
    }

    #[test]
    fn the_clock_goes_forward() {
        let before = Moment::now();
        assert!(before > Moment::from_ms(0.0));
        assert!(Moment::now() >= before);
    }

    #[test]
    fn milliseconds_have_one_decimal() {
        let millis = Millis::from(Duration::from_micros(12_345));
        assert_eq!(millis.to_string(), "12.3 ms");
        assert_eq!(millis.rounded(), 12.3);
    }
}
