// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[timers]`: retries and limits of the engine.

use serde::{Deserialize, Serialize};

use super::{Check, millis, want_within};

/// `[timers]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timers {
    /// Wait for an answer to the first copy of a MAD; doubles with every further copy.
    pub retry_ms: u64,
    /// Every wait is spread by up to this many percent both ways.
    pub jitter_percent: u8,
    /// Copies of a MAD before it is given up.
    pub tries: u8,
    /// First pause after giving up; doubles with every failure in a row.
    pub backoff_ms: u64,
    /// The longest pause.
    pub backoff_max_ms: u64,
    /// How long a path that hardware left without a visible cause is chosen last.
    pub suspect_ms: u64,
    /// How long a library may take over an order.
    pub order_ms: u64,
}

impl Default for Timers {
    fn default() -> Self {
        let engine = statemachine::Config::default();
        Self {
            retry_ms: millis(engine.retry_first),
            jitter_percent: engine.jitter_percent,
            tries: engine.tries,
            backoff_ms: millis(engine.backoff_first),
            backoff_max_ms: millis(engine.backoff_max),
            suspect_ms: millis(engine.suspect_hold_off),
            order_ms: millis(engine.order_timeout),
        }
    }
}

impl Timers {
    pub(super) fn check(&self) -> Check {
        want_within(self.retry_ms, 1..=60_000, "retry_ms")?;
        want_within(self.jitter_percent, 0..=90, "jitter_percent")?;
        // A REQ says them in four bits (Max CM Retries).
        want_within(self.tries, 1..=15, "tries")?;
        want_within(self.backoff_ms, 1..=3_600_000, "backoff_ms")?;
        want_within(self.backoff_max_ms, 1..=86_400_000, "backoff_max_ms")?;
        want_within(self.suspect_ms, 0..=86_400_000, "suspect_ms")?;
        want_within(self.order_ms, 1..=600_000, "order_ms")
    }
}
