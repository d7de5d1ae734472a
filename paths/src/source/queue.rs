// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits for a source on one of its lanes, and what is under way: the engine's first, with a reserve.

use std::collections::VecDeque;

use super::Urgency;

/// Classes of [`Urgency`].
const CLASSES: usize = 3;

/// Tickets of one lane, by urgency.
#[derive(Clone, Default, Debug)]
pub(super) struct Queue {
    waiting: [VecDeque<u32>; CLASSES],
    running: [usize; CLASSES],
}

impl Queue {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    pub(super) fn running(&self) -> usize {
        self.running.iter().sum()
    }

    pub(super) fn push(&mut self, urgency: Urgency, ticket: u32) {
        self.waiting[urgency as usize].push_back(ticket);
    }

    /// The next ticket for a lane that may be asked `in_flight` questions at a time.
    pub(super) fn next(&mut self, in_flight: usize, engine_asks: bool) -> Option<u32> {
        if self.running() >= in_flight {
            return None;
        }
        let [failover, client, recheck] = &mut self.waiting;
        if let Some(ticket) = failover.pop_front() {
            return Some(ticket);
        }
        let [_, clients, rechecks] = self.running;
        if clients + rechecks >= share_of_others(in_flight) {
            return None;
        }
        let ticket = client.pop_front();
        // Clients wait for their answers; for a recheck nobody does.
        if ticket.is_some() || engine_asks {
            return ticket;
        }
        recheck.pop_front()
    }

    pub(super) fn began(&mut self, urgency: Urgency) {
        self.running[urgency as usize] += 1;
    }

    pub(super) fn ended(&mut self, urgency: Urgency) {
        self.running[urgency as usize] -= 1;
    }
}

/// Questions that are not the engine's: half of what a lane may be asked, so that the engine need
/// not wait for their answers.
fn share_of_others(in_flight: usize) -> usize {
    (in_flight / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that may be put now.
    fn drain(queue: &mut Queue, in_flight: usize, engine_asks: bool) -> Vec<u32> {
        let mut taken = Vec::new();
        while let Some(ticket) = queue.next(in_flight, engine_asks) {
            queue.began(match ticket {
                0..100 => Urgency::Failover,
                100..200 => Urgency::Client,
                _ => Urgency::Recheck,
            });
            taken.push(ticket);
        }
        taken
    }

    #[test]
    fn a_flood_of_others_leaves_half_of_a_source_to_the_engine() {
        let mut queue = Queue::default();
        for ticket in 100..200 {
            queue.push(Urgency::Client, ticket);
        }
        assert_eq!(drain(&mut queue, 8, false), [100, 101, 102, 103]);
        for ticket in 0..6 {
            queue.push(Urgency::Failover, ticket);
        }
        assert_eq!(drain(&mut queue, 8, true), [0, 1, 2, 3], "at once");
        queue.ended(Urgency::Client);
        assert_eq!(drain(&mut queue, 8, true), [4], "before who waited longer");
    }

    #[test]
    fn rechecks_wait_while_the_engine_or_a_client_asks() {
        let mut queue = Queue::default();
        queue.push(Urgency::Recheck, 200);
        assert_eq!(drain(&mut queue, 8, true), []);
        queue.push(Urgency::Client, 100);
        assert_eq!(drain(&mut queue, 8, false), [100, 200]);
    }

    #[test]
    fn a_source_that_takes_one_question_at_a_time_takes_anybodys() {
        let mut queue = Queue::default();
        queue.push(Urgency::Client, 100);
        queue.push(Urgency::Failover, 0);
        assert_eq!(drain(&mut queue, 1, true), [0]);
        queue.ended(Urgency::Failover);
        assert_eq!(drain(&mut queue, 1, false), [100]);
    }
}
