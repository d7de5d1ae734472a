// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a peer's messages may have an alternate looked for at once.
//!
//! A peer whose ports come and go has each change looked at as it is reported. One that reports something else with
//! every answer, or suggests another port in every SAP, must not have its host ask path sources and send LAPs as
//! fast as it answers.

use core::time::Duration;

use crate::time::Time;
use crate::token_bucket::TokenBucket;

/// Changes in a row that are looked at at once.
const BURST: u32 = 8;
/// And from then on.
const GAP_US: u64 = 1_000_000;

/// When the next look that a peer's message asks for may be taken.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct PeerPace {
    looks: TokenBucket<BURST, GAP_US>,
}

impl PeerPace {
    /// A message asks for a look. Whether it may be taken now; if not, it is owed.
    pub(super) fn ask(&mut self, now: Time) -> bool {
        let may = self.looks.has_token(now);
        if may {
            self.looks.take(now);
        }
        may
    }

    /// How long it is until a look may be taken.
    pub(super) fn wait(&self, now: Time) -> Duration {
        self.looks.next_token() - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_micros(GAP_US);

    #[test]
    fn a_burst_is_looked_at_at_once_and_then_one_a_second() {
        let mut pace = PeerPace::default();
        let mut now = Time(5_000_000);
        let burst = (0..1_000).filter(|_| pace.ask(now)).count();
        assert_eq!(burst, BURST as usize);
        assert_eq!(pace.wait(now), GAP);
        now = now + GAP;
        assert_eq!(pace.wait(now), Duration::ZERO);
        assert!(pace.ask(now) && !pace.ask(now), "that was the one");
        now = now + GAP * 100;
        assert_eq!((0..100).filter(|_| pace.ask(now)).count(), BURST as usize);
    }
}
