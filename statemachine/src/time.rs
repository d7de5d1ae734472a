// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as an input.

use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment: microseconds since an origin that the caller chose. Never goes backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// A moment or none, in the room of a moment: there may be some for each of 100,000 connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionalTime(Option<NonZeroU64>);

impl OptionalTime {
    pub(crate) fn get(self) -> Option<Time> {
        self.0.map(|after| Time(after.get() - 1))
    }
}

impl From<Time> for OptionalTime {
    fn from(at: Time) -> Self {
        // One more, so that the origin is a moment as well.
        Self(Some(NonZeroU64::MIN.saturating_add(at.0)))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_or_none_takes_no_more_room_than_a_moment() {
        assert_eq!(size_of::<OptionalTime>(), size_of::<Time>());
        assert_eq!(OptionalTime::default().get(), None);
        for at in [Time(0), Time(1), Time(u64::MAX - 1)] {
            assert_eq!(OptionalTime::from(at).get(), Some(at));
        }
    }
}
