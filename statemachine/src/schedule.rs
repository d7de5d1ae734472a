// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who acts next. Events only mark; connections look at what happened one after the other, those
//! in need first, each when there is room for what it may send.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::ConnId;
use crate::path_index::Concerned;

/// Requests of ours without an answer, for all connections together.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// Connections that look in one go. Whoever polls has other things to do as well.
const MAX_LOOKS: usize = 64;

/// In which order connections act.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Their primary is lost, and they are armed.
    Migrate,
    /// They lost their protection.
    Rearm,
    /// They never had any.
    Initial,
    /// They are protected, and could be better, or have something to say.
    Improve,
}

/// One round over the connections that an event concerns. Another event of the same kind makes it
/// last for a full round from there, so that none is left out however often a port flaps.
#[derive(Clone, Copy, Debug)]
struct Round {
    class: Class,
    concerned: Concerned,
    last: Option<ConnId>,
    left: usize,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Somebody who has asked for a path.
    Answer,
    /// Somebody who waits for room.
    Waiting(ConnId),
    /// The next of those that an event concerns.
    Next(Class, Concerned),
}

/// Marks of events, and connections that wait for room.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Schedule {
    rounds: Vec<Round>,
    /// In the order of their coming.
    waiting: BTreeSet<(Class, u64, ConnId)>,
    places: BTreeMap<ConnId, (Class, u64)>,
    last_place: u64,
    in_flight: usize,
    looks: usize,
}

impl Schedule {
    /// An event concerns so many connections.
    pub(crate) fn mark(&mut self, class: Class, concerned: Concerned, count: usize) {
        let mut rounds = self.rounds.iter_mut();
        let same = |round: &&mut Round| round.class == class && round.concerned == concerned;
        if let Some(round) = rounds.find(same) {
            round.left = count;
        } else if count > 0 {
            let at = self.rounds.partition_point(|round| round.class <= class);
            let round = Round {
                class,
                concerned,
                last: None,
                left: count,
            };
            self.rounds.insert(at, round);
        }
    }

    /// A connection has something to send, and there is no room.
    pub(crate) fn wait(&mut self, class: Class, id: ConnId) {
        let number = match self.places.get(&id) {
            Some(&(before, _)) if before <= class => return,
            Some(&(_, number)) => number,
            None => {
                self.last_place += 1;
                self.last_place
            }
        };
        self.leave(id);
        self.waiting.insert((class, number, id));
        self.places.insert(id, (class, number));
    }

    /// It does not wait any more.
    pub(crate) fn leave(&mut self, id: ConnId) {
        if let Some((class, number)) = self.places.remove(&id) {
            self.waiting.remove(&(class, number, id));
        }
    }

    /// A new batch of looks.
    pub(crate) fn refresh(&mut self) {
        self.looks = MAX_LOOKS;
    }

    /// Whose turn it is, if somebody can do something now. `answered`: answers of path sources are
    /// there to be taken.
    pub(crate) fn turn(&mut self, answered: bool) -> Option<Turn> {
        let turn = self.first(answered)?;
        // Each migration is an order, which the poll gives before the next look.
        if !matches!(turn, Turn::Next(Class::Migrate, _)) {
            self.looks = self.looks.checked_sub(1)?;
        }
        Some(turn)
    }

    /// Whether there is something to do that waits for nothing.
    pub(crate) fn is_runnable(&self, answered: bool) -> bool {
        self.first(answered).is_some()
    }

    fn first(&self, answered: bool) -> Option<Turn> {
        let waiting = self.waiting.first();
        let round = self.rounds.first();
        let next = |round: &Round| Turn::Next(round.class, round.concerned);
        match (waiting, round) {
            // A migration sends nothing itself.
            (_, Some(round)) if round.class == Class::Migrate => Some(next(round)),
            _ if !self.has_room() => None,
            _ if answered => Some(Turn::Answer),
            (Some(&(class, _, id)), round) if round.is_none_or(|round| class <= round.class) => {
                Some(Turn::Waiting(id))
            }
            (_, round) => round.map(next),
        }
    }

    /// The next of the connections that the first round is over; `after` gives the one that follows.
    pub(crate) fn next(
        &mut self,
        after: impl Fn(Option<ConnId>) -> Option<ConnId>,
    ) -> Option<ConnId> {
        let round = self.rounds.first_mut()?;
        let next = after(round.last).or_else(|| after(None));
        round.last = next;
        round.left -= 1;
        if round.left == 0 || next.is_none() {
            self.rounds.remove(0);
        }
        next
    }

    /// Whether one more request may leave.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < MAX_IN_FLIGHT
    }

    /// Whether there is no room, and somebody waits for it.
    pub(crate) fn is_crowded(&self) -> bool {
        let nobody_waits = self.waiting.is_empty() && self.rounds.is_empty();
        !self.has_room() && !nobody_waits
    }

    /// Somebody had so many requests in flight, and has so many.
    pub(crate) fn in_flight(&mut self, before: usize, now: usize) {
        self.in_flight = self.in_flight - before + now;
    }
}
