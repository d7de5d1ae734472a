// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often something may happen.

use core::time::Duration;

use crate::time::Time;

/// Tokens: a new one comes in every interval until there are `size` of them.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct TokenBucket {
    size: u32,
    interval: Duration,
    /// When it will be full: an interval later for each token that is missing.
    full_at: Time,
}

impl TokenBucket {
    pub(crate) fn new(size: u32, interval: Duration) -> Self {
        Self {
            size,
            interval,
            full_at: Time(0),
        }
    }

    /// When it has a token.
    pub(crate) fn next_token(&self) -> Time {
        let missing = self.interval * (self.size - 1);
        Time(0) + (self.full_at - Time(0)).saturating_sub(missing)
    }

    pub(crate) fn has_token(&self, now: Time) -> bool {
        self.next_token() <= now
    }

    pub(crate) fn is_full(&self, now: Time) -> bool {
        self.full_at <= now
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Time) {
        let empty = now + self.interval * self.size;
        self.full_at = (self.full_at.max(now) + self.interval).min(empty);
    }

    pub(crate) fn give_back(&mut self) {
        self.full_at = Time(0) + (self.full_at - Time(0)).saturating_sub(self.interval);
    }
}
