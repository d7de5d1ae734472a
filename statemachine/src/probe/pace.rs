// SPDX-License-Identifier: MIT OR Apache-2.0
//! So many probes in a second and no more, however many paths there are.

use core::time::Duration;

use crate::time::Time;

/// In no second do more leave than the two together: 195.
const BURST: u32 = 20;
const PER_SECOND: u32 = 175;

const GAP: Duration = Duration::from_micros(1_000_000 / PER_SECOND as u64);

/// When the next probe may leave (GCRA: a bucket of tokens in one number).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Pace {
    /// When the bucket will be full again.
    full_at: Time,
}

impl Pace {
    /// From when on a probe may leave.
    pub(super) fn ready_at(&self) -> Time {
        Time(self.full_at.0.saturating_sub(span(GAP * (BURST - 1))))
    }

    /// One leaves.
    pub(super) fn take(&mut self, now: Time) {
        self.full_at = self.full_at.max(now) + GAP;
    }
}

/// How long it takes at least to probe so many paths once, with a reserve for what is lost.
pub(super) fn round(paths: usize) -> Duration {
    let paths = u32::try_from(paths).unwrap_or(u32::MAX);
    GAP.saturating_mul(paths).saturating_mul(5) / 4
}

fn span(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
