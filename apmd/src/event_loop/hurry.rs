// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of ACM that ask one thing after the other. To go to sleep and be woken takes longer than
//! to answer from memory, so for a moment after such an answer the loop stays awake; and it goes
//! through its other duties once in a while only, as long as nothing happens that concerns them. A
//! client that is alone is read without asking the poll: most likely its next request is there.

use std::io;
use std::time::Duration;

use mio::Events;
use statemachine::Time;

use super::Daemon;
use crate::acm::Ended;

/// How soon after an answer the next request of a client in a hurry is there.
const HURRY: Duration = Duration::from_micros(200);

/// How long other duties may wait. Deadlines are in milliseconds anyway.
const ROUND: Duration = Duration::from_millis(1);

/// What came of a look at who wants something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Nobody does.
    Quiet,
    /// Clients of ACM did, and have their answers; `by`: the client, if it is one only.
    Answered { by: Option<u32> },
    /// Other duties may hang on it.
    Other,
}

impl Turn {
    fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Other, _) | (_, Self::Other) => Self::Other,
            (Self::Quiet, turn) | (turn, Self::Quiet) => turn,
            (Self::Answered { .. }, Self::Answered { .. }) => Self::Answered { by: None },
        }
    }
}

impl Daemon {
    /// Deals with what woke the loop, and then for a moment with clients in a hurry.
    pub(super) fn serve_events(&mut self, events: &mut Events) -> io::Result<()> {
        let woken = self.clock.now();
        let Turn::Answered { by: mut last } = self.answer(woken, events) else {
            return Ok(());
        };
        let mut answered = woken;
        let mut alone = None;
        // Two requests in a row show that somebody is in a hurry.
        let mut stay = woken - self.answered_at < HURRY;
        while stay {
            let now = self.clock.now();
            let direct = alone.map(|key| self.acm_caller(now, key, Ended::Nothing));
            let turn = match direct {
                None | Some(Turn::Quiet) => self.look(now, events)?,
                Some(turn) => turn,
            };
            match turn {
                Turn::Quiet => {
                    stay = now - answered < HURRY;
                    std::thread::yield_now();
                }
                Turn::Answered { by } => {
                    alone = by.filter(|_| by == last);
                    last = by;
                    answered = now;
                }
                Turn::Other => {
                    self.drain_engine();
                    break;
                }
            }
            stay &= now - woken < ROUND;
        }
        self.answered_at = answered;
        Ok(())
    }

    /// Deals with what there is to be done now, if anything.
    fn look(&mut self, now: Time, events: &mut Events) -> io::Result<Turn> {
        match self.poll.poll(events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Turn::Other),
            polled => polled.map(|()| self.answer(now, events)),
        }
    }

    fn answer(&mut self, now: Time, events: &Events) -> Turn {
        events
            .iter()
            .map(|event| self.dispatch(now, event))
            .fold(Turn::Quiet, Turn::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_is_alone_and_other_duties_come_first() {
        let by = |key| Turn::Answered { by: Some(key) };
        let several = Turn::Answered { by: None };
        assert_eq!(by(7).and(Turn::Quiet), by(7));
        assert_eq!(Turn::Quiet.and(by(7)), by(7));
        assert_eq!(by(7).and(by(8)), several);
        assert_eq!(several.and(by(7)), several);
        for turn in [Turn::Quiet, by(7), several, Turn::Other] {
            assert_eq!(turn.and(Turn::Other), Turn::Other);
            assert_eq!(Turn::Other.and(turn), Turn::Other);
        }
    }
}
