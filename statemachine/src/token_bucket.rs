// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often something may happen.

use core::time::Duration;

use crate::time::Time;

/// Tokens: a new one comes in every `INTERVAL_US` microseconds until there are `SIZE` of them. Kept in one number
/// (GCRA), since there may be one for each connection.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct TokenBucket<const SIZE: u32, const INTERVAL_US: u64> {
    /// When it will be full: an interval later for each token that is missing.
    full_at: Time,
}

impl<const SIZE: u32, const INTERVAL_US: u64> TokenBucket<SIZE, INTERVAL_US> {
    /// Between two tokens.
    pub(crate) const INTERVAL: Duration = Duration::from_micros(INTERVAL_US);

    /// When it has a token.
    pub(crate) fn next_token(&self) -> Time {
        let missing = Self::INTERVAL * (SIZE - 1);
        Time(0) + (self.full_at - Time(0)).saturating_sub(missing)
    }

    pub(crate) fn has_token(&self, now: Time) -> bool {
        self.next_token() <= now
    }

    pub(crate) fn is_full(&self, now: Time) -> bool {
        self.full_at <= now
    }

    /// Takes a token, if there is one. Whether there was.
    pub fn try_take(&mut self, now: Time) -> bool {
        let has = self.has_token(now);
        if has {
            self.take(now);
        }
        has
    }

    /// Takes a token, or takes one that is still to come: then it is longer until the next.
    pub(crate) fn take(&mut self, now: Time) {
        let empty = now + Self::INTERVAL * SIZE;
        self.full_at = (self.full_at.max(now) + Self::INTERVAL).min(empty);
    }

    pub(crate) fn give_back(&mut self) {
        self.full_at = Time(0) + (self.full_at - Time(0)).saturating_sub(Self::INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Three at once, and one each 10 ms.
    type Bucket = TokenBucket<3, 10_000>;

    /// How many of so many attempts at one moment find a token.
    fn taken(bucket: &mut Bucket, now: Time, attempts: usize) -> usize {
        (0..attempts).filter(|_| bucket.try_take(now)).count()
    }

    #[test]
    fn a_burst_and_then_one_each_interval() {
        let mut bucket = Bucket::default();
        let now = Time(5_000_000);
        assert_eq!(taken(&mut bucket, now, 10), 3);
        assert_eq!(bucket.next_token(), now + MS * 10);
        assert_eq!(taken(&mut bucket, now + MS * 9, 10), 0);
        assert_eq!(taken(&mut bucket, now + MS * 10, 10), 1);
        assert!(!bucket.is_full(now + MS * 39) && bucket.is_full(now + MS * 40));
        assert_eq!(
            taken(&mut bucket, now + MS * 1_000, 10),
            3,
            "no more than its size"
        );
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut bucket = Bucket::default();
        let now = Time(5_000_000);
        assert_eq!(taken(&mut bucket, now, 10), 3);
        bucket.give_back();
        assert_eq!(taken(&mut bucket, now, 10), 1);
        for _ in 0..10 {
            bucket.give_back();
        }
        assert_eq!(taken(&mut bucket, now, 10), 3);
    }

    #[test]
    fn what_is_taken_without_a_token_is_owed_for_no_longer_than_a_burst() {
        let mut bucket = Bucket::default();
        let now = Time(5_000_000);
        for _ in 0..100 {
            bucket.take(now);
        }
        assert_eq!(bucket.next_token(), now + MS * 10);
    }
}
