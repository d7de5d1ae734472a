// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a peer's messages may have an alternate looked for at once.
//!
//! A peer whose ports come and go has each change looked at as it is reported. One that reports something else with
//! every answer, or suggests another port in every SAP, must not have its host ask path sources and send LAPs as
//! fast as it answers.

use core::time::Duration;

use crate::time::Time;

/// Changes in a row that are looked at at once.
const BURST: u32 = 8;
/// And from then on.
const GAP: Duration = Duration::from_secs(1);

/// When the next look that a peer's message asks for may be taken (GCRA, as for probes).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct PeerPace {
    /// When a whole burst will be possible again.
    full_at: Time,
    /// A message has asked for a look that was not taken.
    owed: bool,
}

impl PeerPace {
    /// A message asks for a look. Whether it may be taken now; if not, it is owed.
    pub(super) fn ask(&mut self, now: Time) -> bool {
        self.owed = self.wait(now).is_some();
        if !self.owed {
            self.full_at = self.full_at.max(now) + GAP;
        }
        !self.owed
    }

    /// How long it is until the look that is owed may be taken; `None`: now, or none is owed.
    pub(super) fn owes(&mut self, now: Time) -> Option<Duration> {
        let wait = self.wait(now).filter(|_| self.owed);
        if wait.is_none() && self.owed {
            self.ask(now);
        }
        wait
    }

    /// Something else is a reason for a look.
    pub(super) fn forgive(&mut self) {
        self.owed = false;
    }

    fn wait(&self, now: Time) -> Option<Duration> {
        let ready = now + GAP * (BURST - 1);
        (self.full_at > ready).then(|| self.full_at - ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_looked_at_at_once_and_then_one_a_second() {
        let mut pace = PeerPace::default();
        let mut now = Time(5_000_000);
        let burst = (0..1_000).filter(|_| pace.ask(now)).count();
        assert_eq!(burst, BURST as usize);
        assert_eq!(pace.owes(now), Some(GAP));
        now = now + GAP;
        assert_eq!(pace.owes(now), None, "it is taken");
        assert!(!pace.ask(now), "that was the one");
        pace.forgive();
        assert_eq!(pace.owes(now), None);
        now = now + GAP * 100;
        assert_eq!((0..100).filter(|_| pace.ask(now)).count(), BURST as usize);
    }
}
