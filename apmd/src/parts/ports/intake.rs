// SPDX-License-Identifier: MIT OR Apache-2.0
//! Association MADs between the umad files and the engine.
//!
//! A MAD is read in a few microseconds and takes the engine some tens. Who sends more than the engine
//! handles would have probes, their answers and subnet administration wait behind his: so everything is
//! read, association MADs wait here, and the rest goes on at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cm_msgs::Lid;
use statemachine::{FairShare, PortId, key_after};

/// MADs that wait, of all ports together. No sender has more than a share of it.
const LIMIT: usize = 2_048;

/// A sender, as far as nobody can pretend to be another: an HCA puts a LID of its own into what it sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sender {
    /// The local port by which it is heard.
    port: PortId,
    /// Its first LID.
    base: Lid,
}

impl Sender {
    /// The port that has this LID, where ports have 2^`lmc` LIDs each, as all of a subnet.
    pub(super) fn new(port: PortId, lid: Lid, lmc: u8) -> Self {
        Self {
            port,
            base: lid.base(lmc),
        }
    }
}

/// The MADs that wait, by their senders, who are served in turn: a peer is heard at once while a stranger
/// sends as fast as he can.
#[derive(Debug)]
pub(super) struct Intake<Mad> {
    waiting: BTreeMap<Sender, VecDeque<Mad>>,
    shares: FairShare<Sender>,
    /// Who was served last.
    last: Option<Sender>,
}

impl<Mad> Intake<Mad> {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            shares: FairShare::new(LIMIT, 0),
            last: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The ports by which those came that wait.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        let ports: BTreeSet<_> = self.waiting.keys().map(|sender| sender.port).collect();
        ports.into_iter()
    }

    /// One more. False: too many of its sender wait already, and it is gone.
    #[must_use]
    pub(super) fn push(&mut self, sender: Sender, mad: Mad) -> bool {
        let granted = self.shares.take(sender, 1, false);
        if granted {
            self.waiting.entry(sender).or_default().push_back(mad);
        }
        granted
    }

    /// The oldest of the sender whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Mad> {
        let sender = key_after(&self.waiting, self.last)?;
        let queue = self.waiting.get_mut(&sender)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&sender);
        }
        self.shares.give_back(sender, 1);
        self.last = Some(sender);
        next
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    fn sender(lid: u16) -> Sender {
        let node_guid = Guid(1);
        Sender::new(PortId { node_guid, port: 1 }, Lid(lid), 0)
    }

    #[test]
    fn eight_lids_of_a_port_are_one_sender() {
        let port = PortId::new(Guid(1), 1);
        let sender = |lid| Sender::new(port, Lid(lid), 3);
        let mut intake = Intake::new();
        let sent = (0..8 * LIMIT).filter(|&mad| intake.push(sender(8 + mad as u16 % 8), mad));
        assert_eq!(sent.count(), LIMIT / 4 * 3);
        assert!(intake.push(sender(16), 20_000));
        assert_eq!([intake.pop(), intake.pop()], [Some(0), Some(20_000)]);
    }

    #[test]
    fn who_sends_much_neither_delays_nor_displaces_others() {
        let mut intake = Intake::new();
        let sent = (0..10_000)
            .filter(|&mad| intake.push(sender(1), mad))
            .count();
        assert_eq!(sent, LIMIT / 4 * 3);
        assert!(intake.push(sender(2), 20_000));
        assert!(intake.push(sender(2), 20_001));
        let first: [_; 5] = core::array::from_fn(|_| intake.pop().unwrap());
        assert_eq!(
            first,
            [0, 20_000, 1, 20_001, 2],
            "in turn, and each in its order"
        );
    }

    #[test]
    fn what_is_taken_makes_room() {
        let mut intake = Intake::new();
        while intake.push(sender(1), ()) {}
        assert!(intake.pop().is_some());
        assert!(intake.push(sender(1), ()));
        while intake.pop().is_some() {}
        assert!(intake.is_empty());
        assert_eq!(
            (0..LIMIT).filter(|_| intake.push(sender(3), ())).count(),
            LIMIT / 4 * 3
        );
    }
}
