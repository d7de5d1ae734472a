// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to questions of other ports that wait until their local port has room.

use alloc::collections::{BTreeMap, VecDeque};

use super::PresenceTransmit;
use crate::fair_share::FairShare;
use crate::id::PortId;
use crate::sender::Sender;

/// Answers that wait for one local port: a port that sends nothing cannot use the places of others. A sender whose
/// answer finds no place asks again.
pub(super) const PORT_MAX: usize = 256;

/// One sender has a quarter of these at most.
pub(super) const SENDER_MAX: usize = PORT_MAX / 4;

/// What waits for one local port, in the order of arrival.
#[derive(Debug)]
struct Line {
    answers: VecDeque<(Sender, PresenceTransmit)>,
    share: FairShare<Sender>,
}

/// The answers that wait.
#[derive(Debug, Default)]
pub(super) struct Replies {
    lines: BTreeMap<PortId, Line>,
}

impl Replies {
    /// Adds an answer to this sender. False: it has no place, and is dropped.
    pub(super) fn push(&mut self, sender: Sender, answer: PresenceTransmit) -> bool {
        let line = self.lines.entry(answer.to.port).or_insert_with(|| Line {
            answers: VecDeque::new(),
            share: FairShare::new(PORT_MAX, 0),
        });
        let held = line.answers.iter().filter(|(of, _)| *of == sender).count();
        let granted = held < SENDER_MAX && line.share.take(sender, 1, false);
        if granted {
            line.answers.push_back((sender, answer));
        }
        granted
    }

    /// The next that goes out by a port that `has_room`.
    pub(super) fn pop(
        &mut self,
        mut has_room: impl FnMut(PortId) -> bool,
    ) -> Option<PresenceTransmit> {
        let (&port, line) = self.lines.iter_mut().find(|(port, _)| has_room(**port))?;
        let (sender, answer) = line.answers.pop_front()?;
        line.share.give_back(sender, 1);
        if line.answers.is_empty() {
            self.lines.remove(&port);
        }
        Some(answer)
    }

    /// Drops what waits for a local port.
    pub(super) fn drop_port(&mut self, port: PortId) {
        self.lines.remove(&port);
    }

    /// How many wait for all ports.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lines.values().map(|line| line.answers.len()).sum()
    }
}
