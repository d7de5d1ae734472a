// SPDX-License-Identifier: MIT OR Apache-2.0
//! New connections wait here until no more come: a program that connects many is not slowed down
//! by what is done for each of them, and what lasts a moment only costs nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::Connection;

/// For so long nothing new has to come.
const QUIET: Duration = Duration::from_millis(50);
/// A program that never stops connecting has its connections managed all the same.
const LONGEST: Duration = Duration::from_millis(500);
/// A QP that has been in RTR for so long only receives (`kernel/look.c` waits as long).
const STAYS_IN_RTR: Duration = Duration::from_secs(3);
/// Connections taken up before orders for others have their turn.
const BATCH: usize = 32;

/// Connections that are not managed yet, in the order in which they came.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: VecDeque<(Arc<Connection>, Instant)>,
    /// QPs in RTR with the time at which they are due, by number: later ones have higher numbers. Nearly all leave RTR
    /// within a moment.
    receivers: BTreeMap<u64, (Arc<Connection>, Instant)>,
}

impl Arrivals {
    pub(crate) fn add(&mut self, connection: Arc<Connection>, now: Instant) {
        self.waiting.push_back((connection, now));
    }

    /// A QP has come to RTR. It is registered after three seconds, unless it is removed before.
    pub(crate) fn add_receiver(&mut self, connection: Arc<Connection>, now: Instant) {
        let due = now + STAYS_IN_RTR;
        self.receivers.insert(connection.number, (connection, due));
    }

    /// It is over already. False if it was not among them.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        if self.receivers.remove(&number).is_some() {
            return true;
        }
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| waiting.number != number);
        self.waiting.len() < before
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let mut numbers = self.waiting.iter().map(|(waiting, _)| waiting.number);
        numbers.any(|waiting| waiting == number)
    }

    /// When to take some up.
    pub(crate) fn due(&self) -> Option<Instant> {
        let receiver = self.receivers.first_key_value();
        let receiver = receiver.map(|(_, (_, due))| *due);
        [self.waiting_due(), receiver].into_iter().flatten().min()
    }

    fn waiting_due(&self) -> Option<Instant> {
        let (_, oldest) = self.waiting.front()?;
        let (_, newest) = self.waiting.back()?;
        Some((*newest + QUIET).min(*oldest + LONGEST))
    }

    /// The next ones to take up, if it is time. What is left is due at once.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<Arc<Connection>> {
        let count = match self.waiting_due() {
            Some(due) if due <= now => self.waiting.len().min(BATCH),
            _ => 0,
        };
        let batch = self.waiting.drain(..count);
        let mut batch: Vec<_> = batch.map(|(connection, _)| connection).collect();
        while batch.len() < BATCH
            && let Some(receiver) = self.receivers.first_entry()
            && receiver.get().1 <= now
        {
            batch.push(receiver.remove().0);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{ContextKey, Description, QpKey};
    use crate::tests::model::{Model, path};

    fn connection(number: u64) -> Arc<Connection> {
        Arc::new(Connection::new(
            number,
            Description {
                role: None,
                id: None,
                qp_key: QpKey(number as usize),
                context: ContextKey {
                    address: 1,
                    async_fd: -1,
                },
                peer_gid: path(1).dgid,
                opted_in: false,
                policy: cm_msgs::control::PolicyOverride::default(),
                answer_came_late: false,
                only_receives: false,
                qp: Arc::new(Model::new(path(1))),
            },
        ))
    }

    fn numbers(taken: &[Arc<Connection>]) -> Vec<u64> {
        taken.iter().map(|connection| connection.number).collect()
    }

    #[test]
    fn many_in_a_row_wait_for_the_last() {
        let start = Instant::now();
        let mut arrivals = Arrivals::default();
        let mut now = start;
        for number in 0..5 {
            now += QUIET / 2;
            arrivals.add(connection(number), now);
            assert!(arrivals.take(now).is_empty());
        }
        let due = arrivals.due().expect("some wait");
        assert_eq!(due, now + QUIET);
        assert_eq!(numbers(&arrivals.take(due)), [0, 1, 2, 3, 4]);
        assert_eq!(arrivals.due(), None);
    }

    #[test]
    fn what_never_stops_is_taken_up_all_the_same() {
        let start = Instant::now();
        let mut arrivals = Arrivals::default();
        let mut now = start;
        let mut number = 0;
        while arrivals.take(now).is_empty() {
            now += QUIET / 2;
            arrivals.add(connection(number), now);
            number += 1;
        }
        assert!(now <= start + LONGEST + QUIET, "{number}");
    }

    #[test]
    fn what_is_over_before_is_never_taken_up() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.add(connection(1), now);
        arrivals.add(connection(2), now);
        assert!(arrivals.contains(1) && arrivals.remove(1));
        assert!(!arrivals.contains(1) && !arrivals.remove(1));
        assert_eq!(numbers(&arrivals.take(now + QUIET)), [2]);
        assert_eq!(arrivals.due(), None);
    }

    #[test]
    fn what_stays_in_rtr_is_taken_up_after_three_seconds_and_what_leaves_it_never() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.add_receiver(connection(1), now);
        arrivals.add_receiver(connection(2), now);
        arrivals.add(connection(3), now);
        assert_eq!(numbers(&arrivals.take(now + QUIET)), [3]);
        assert!(arrivals.remove(1) && !arrivals.remove(1));
        let due = arrivals.due().expect("one is left");
        assert_eq!(due, now + Duration::from_secs(3));
        assert!(arrivals.take(due - Duration::from_millis(1)).is_empty());
        assert_eq!(numbers(&arrivals.take(due)), [2]);
        assert_eq!(arrivals.due(), None);
    }

    #[test]
    fn a_crowd_is_taken_up_in_parts() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        for number in 0..BATCH as u64 + 1 {
            arrivals.add(connection(number), now);
        }
        let due = now + QUIET;
        assert_eq!(arrivals.take(due).len(), BATCH);
        assert_eq!(arrivals.take(due).len(), 1, "the rest is due, too");
    }
}
