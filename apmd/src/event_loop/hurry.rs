// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of ACM that ask one thing after the other. To go to sleep and be woken takes longer than
//! to answer from memory, so for a moment after such an answer the loop stays awake; and it goes
//! through its other duties once in a while only, as long as nothing happens that concerns them.

use std::io;
use std::time::Duration;

use mio::Events;

use super::Daemon;

/// How soon after an answer the next request of a client in a hurry is there.
const HURRY: Duration = Duration::from_micros(200);

/// How long other duties may wait. Deadlines are in milliseconds anyway.
const ROUND: Duration = Duration::from_millis(1);

impl Daemon {
    /// Deals with what woke the loop, and then for a moment with clients in a hurry.
    pub(super) fn serve_events(&mut self, events: &mut Events) -> io::Result<()> {
        if !self.answer(events) {
            return Ok(());
        }
        let woken = self.clock.now();
        let mut answered = woken;
        // Two requests in a row show that somebody is in a hurry.
        let mut stay = woken - self.answered_at < HURRY;
        while stay {
            match self.poll.poll(events, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                polled => polled?,
            }
            let now = self.clock.now();
            if events.is_empty() {
                stay = now - answered < HURRY;
                std::thread::yield_now();
            } else {
                stay = self.answer(events);
                answered = now;
            }
            stay &= now - woken < ROUND;
        }
        self.answered_at = answered;
        Ok(())
    }

    /// Whether these events were requests of ACM's clients, all of which could be answered.
    fn answer(&mut self, events: &Events) -> bool {
        let mut answered = !events.is_empty();
        for event in events {
            answered &= self.dispatch(event);
        }
        answered
    }
}
