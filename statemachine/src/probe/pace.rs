// SPDX-License-Identifier: MIT OR Apache-2.0
//! So many probes in a second and no more, however many paths there are.

use core::time::Duration;

use crate::token_bucket::TokenBucket;

/// In no second do more leave than the two together: 195.
const BURST: u32 = 20;
const PER_SECOND: u32 = 175;

/// When the next probe may leave.
pub(super) type Pace = TokenBucket<BURST, { 1_000_000 / PER_SECOND as u64 }>;

/// How long it takes at least to probe so many paths once, with a reserve for what is lost.
pub(super) fn round(paths: u32) -> Duration {
    Pace::INTERVAL.saturating_mul(paths).saturating_mul(5) / 4
}
