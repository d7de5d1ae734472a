// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often the same thing may happen: messages of two ends, path queries, and migrations without a fault.

use std::collections::BTreeMap;

use cm_msgs::cm;
use cm_msgs::control::Placement;

use super::World;
use crate::sim::queue::SECOND;
use crate::sim::verdict::Rule;

/// The time over which messages and queries are counted.
const WINDOW: u64 = 10 * SECOND;
/// LAPs and SAPs of an association in that time, without copies. Whatever happens to ports and paths, each is answered
/// by a few.
const MESSAGES: u32 = 100;
/// Path queries of a host's daemon in that time, for each of its connections.
const QUERIES: u32 = 100;
/// So long after the last fault all that it led to has been done: the longest backoff, and a hold-down.
const QUIET: u64 = 90 * SECOND;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Of {
    /// Messages of a host's association.
    Association(usize, u32),
    /// Queries of one run of a host's daemon: the next one knows nothing of them.
    Queries(usize, u32),
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    window: u64,
    count: u32,
    /// Transaction ID of the last message: what has the same is a copy.
    last: Option<u32>,
}

/// What happened in the present window of time.
#[derive(Default)]
pub(super) struct Rounds(BTreeMap<Of, Count>);

impl Rounds {
    fn add(&mut self, of: Of, now: u64, number: u32) -> u32 {
        let count = self.0.entry(of).or_default();
        let window = now / WINDOW;
        if count.window != window {
            *count = Count {
                window,
                ..Count::default()
            };
        }
        if count.last != Some(number) {
            count.count += 1;
        }
        count.last = Some(number);
        count.count
    }
}

impl World<'_> {
    /// A host sends a message.
    pub(super) fn count_message(&mut self, host: usize, message: &cm::Message, transaction: u32) {
        let association = match message {
            cm::Message::Lap(lap) => lap.local_comm_id,
            cm::Message::Sap(sap) => sap.local_comm_id,
            _ => return,
        };
        let of = Of::Association(host, association);
        let count = self.rounds.add(of, self.queue.now(), transaction);
        if count > MESSAGES {
            self.violated(Rule::Rounds, || {
                let name = message.name();
                format!("host {host} sends more than {MESSAGES} {name}s of one association in 10 s")
            });
        }
    }

    /// A host asks for a path.
    pub(super) fn count_query(&mut self, host: usize, query: u32) {
        let ends = self.connections.iter().flat_map(|conn| &conn.ends);
        let bound = QUERIES * ends.filter(|end| end.host == host).count().max(1) as u32;
        let of = Of::Queries(host, self.hosts[host].client);
        let count = self.rounds.add(of, self.queue.now(), query);
        if count > bound {
            self.violated(Rule::Rounds, || {
                format!("host {host} asks for more than {bound} paths in 10 s")
            });
        }
    }

    /// A queue pair has migrated.
    pub(super) fn must_have_a_cause(&mut self, conn: usize, side: usize) {
        let ends = &self.connections[conn].ends;
        let stays = |end: &super::End| {
            let placement = self.plan.policies[end.host].placement;
            matches!(placement, None | Some(Placement::Stay))
        };
        let policy_moves = !ends.iter().all(stays);
        if !policy_moves && self.judge.is_quiet(self.queue.now(), QUIET) {
            self.violated(Rule::Unprovoked, || {
                format!("connection {conn} side {side} migrated, and nothing was wrong")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_what_was_in_another_window_do_not_count() {
        let mut rounds = Rounds::default();
        let (of, other) = (Of::Association(0, 1), Of::Association(0, 2));
        assert_eq!([7, 7, 8].map(|number| rounds.add(of, 0, number)), [1, 1, 2]);
        assert_eq!(rounds.add(other, 0, 9), 1);
        assert_eq!(rounds.add(of, WINDOW - 1, 9), 3);
        assert_eq!(rounds.add(of, WINDOW, 9), 1);
    }
}
