// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who acts next. Events only mark; connections look at what happened one after the other, those
//! in need first, each when there is room for what it may send.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::ConnId;
use crate::path_index::Concerned;

/// Requests of ours without an answer, for all connections together.
const MAX_IN_FLIGHT: usize = 64;

/// A request that arms no connection again leaves only while fewer than these are without an answer. So what
/// failover needs is set apart: whoever connects to where nobody answers, or ends a thousand connections,
/// takes nothing of it. A share for each owner would not do as much: it leaves those who lose their
/// protection no room beside others of their own owner.
const MAX_ORDINARY: usize = MAX_IN_FLIGHT / 4 * 3;

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
    /// They are protected, and could be better; or have something to say, as that they end.
    Improve,
}

impl Class {
    const fn room(self) -> usize {
        match self {
            Self::Migrate | Self::Rearm => MAX_IN_FLIGHT,
            Self::Initial | Self::Improve => MAX_ORDINARY,
        }
    }
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
        let next = |round: &Round| (round.class, Turn::Next(round.class, round.concerned));
        let (class, turn) = match (waiting, round) {
            // A migration sends nothing itself.
            (_, Some(round)) if round.class == Class::Migrate => return Some(next(round).1),
            // Whose it is tells the answer only.
            _ if answered && self.has_room(Class::Rearm) => return Some(Turn::Answer),
            (Some(&(class, _, id)), round) if round.is_none_or(|round| class <= round.class) => {
                (class, Turn::Waiting(id))
            }
            (_, round) => round.map(next)?,
        };
        // Of those that come later nobody has more room.
        self.has_room(class).then_some(turn)
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
    pub(crate) fn has_room(&self, class: Class) -> bool {
        self.in_flight < class.room()
    }

    /// Whether there is no room, and somebody waits for it.
    pub(crate) fn is_crowded(&self, class: Class) -> bool {
        let nobody_waits = self.waiting.is_empty() && self.rounds.is_empty();
        !self.has_room(class) && !nobody_waits
    }

    /// Somebody had so many requests in flight, and has so many.
    pub(crate) fn in_flight(&mut self, before: usize, now: usize) {
        self.in_flight = self.in_flight - before + now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(conn: u32) -> ConnId {
        ConnId { client: 1, conn }
    }

    /// Sends as many as there is room for; how many.
    fn fill(schedule: &mut Schedule, class: Class) -> usize {
        let before = schedule.in_flight;
        while schedule.has_room(class) {
            schedule.in_flight(0, 1);
        }
        schedule.in_flight - before
    }

    #[test]
    fn a_quarter_of_the_room_is_for_those_that_lost_their_protection() {
        let mut schedule = Schedule::default();
        assert_eq!(fill(&mut schedule, Class::Initial), 48);
        schedule.wait(Class::Initial, id(1));
        schedule.wait(Class::Improve, id(2));
        assert!(!schedule.is_runnable(false) && schedule.is_crowded(Class::Improve));
        assert!(!schedule.is_crowded(Class::Rearm));
        schedule.wait(Class::Rearm, id(3));
        assert_eq!(schedule.first(false), Some(Turn::Waiting(id(3))));
        schedule.leave(id(3));
        assert_eq!(fill(&mut schedule, Class::Rearm), 16);
        schedule.wait(Class::Rearm, id(3));
        assert!(!schedule.is_runnable(true) && schedule.is_crowded(Class::Rearm));
        // What becomes free is theirs first.
        schedule.in_flight(17, 0);
        assert_eq!(schedule.first(false), Some(Turn::Waiting(id(3))));
        schedule.leave(id(3));
        assert_eq!(schedule.first(false), Some(Turn::Waiting(id(1))));
    }

    #[test]
    fn who_must_leave_a_port_or_has_an_answer_waits_for_no_others_requests() {
        let mut schedule = Schedule::default();
        fill(&mut schedule, Class::Improve);
        schedule.mark(Class::Improve, Concerned::All, 1);
        assert_eq!(schedule.first(false), None);
        assert_eq!(schedule.first(true), Some(Turn::Answer));
        fill(&mut schedule, Class::Rearm);
        assert_eq!(schedule.first(true), None);
        schedule.mark(Class::Migrate, Concerned::All, 1);
        let migrate = Turn::Next(Class::Migrate, Concerned::All);
        assert_eq!(schedule.first(true), Some(migrate));
    }
}
