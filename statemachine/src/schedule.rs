// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who acts next. Events only mark; connections look at what happened one after the other, those
//! in need first, and each sends when there is room for what it has to send.

mod claim;
mod demand;
mod queue;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use self::claim::{Claim, Class, Flight};
use self::queue::Queue;
pub(crate) use self::queue::Waiter;
use self::window::Window;
use crate::id::ConnId;
use crate::members::{Members, Tour};
use crate::path_index::Concerned;

/// Connections that look in one go. Whoever polls has other things to do as well.
const MAX_LOOKS: usize = 64;

/// One round over the connections that an event concerns. Another event of the same kind makes it
/// last for a full round from there, so that none is left out however often a port flaps.
#[derive(Clone, Debug)]
struct Round {
    class: Class,
    concerned: Concerned,
    tour: Tour,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Somebody who has asked for a path.
    Answer,
    /// The next for which there is room.
    Waiting(Waiter),
    /// The next of those that an event concerns.
    Next(Class, Concerned),
}

/// Marks of events, and connections that wait for room.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Schedule {
    rounds: Vec<Round>,
    queue: Queue,
    window: Window,
    looks: usize,
}

impl Schedule {
    /// An event concerns these connections; `any`: whether there are any.
    pub(crate) fn mark(&mut self, class: Class, concerned: Concerned, any: bool) {
        let mut rounds = self.rounds.iter_mut();
        let same = |round: &&mut Round| round.class == class && round.concerned == concerned;
        if let Some(round) = rounds.find(same) {
            round.tour.again();
        } else if any {
            let at = self.rounds.partition_point(|round| round.class <= class);
            let round = Round {
                class,
                concerned,
                tour: Tour::default(),
            };
            self.rounds.insert(at, round);
        }
    }

    /// There is something to send, and no room.
    pub(crate) fn wait(&mut self, claim: Claim, waiter: Waiter) {
        self.queue.join(claim, waiter);
    }

    /// It does not wait any more.
    pub(crate) fn leave(&mut self, waiter: Waiter) {
        self.queue.leave(waiter);
    }

    /// It does not wait any more, for it is its turn.
    pub(crate) fn serve(&mut self, waiter: Waiter) {
        self.queue.serve(waiter);
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
        let round = self.rounds.first();
        let next = |round: &Round| Turn::Next(round.class, round.concerned);
        // A migration sends nothing itself.
        if let Some(round) = round.filter(|round| round.class == Class::Migrate) {
            return Some(next(round));
        }
        if answered {
            return Some(Turn::Answer);
        }
        // To look takes no room: what a connection then has to send waits in the queue, and its place there does
        // not depend on when it looked.
        Class::SENDING.into_iter().find_map(|class| {
            let waiting = self.queue.next(class, &self.window);
            let round = round.filter(|round| round.class == class);
            waiting.map(Turn::Waiting).or_else(|| round.map(next))
        })
    }

    /// Returns the next connection of the first round, which is over `members`. None: the round is over.
    pub(crate) fn next(&mut self, members: Option<&Members>) -> Option<ConnId> {
        let round = self.rounds.first_mut()?;
        let next = members.and_then(|members| round.tour.next(members));
        if next.is_none() {
            self.rounds.remove(0);
        }
        next
    }

    /// Whether one more request may leave.
    pub(crate) fn has_room(&self, claim: &Claim) -> bool {
        self.window.has_room(claim, self.queue.demand())
    }

    /// Whether others wait for what a request of this claim takes.
    pub(crate) fn is_crowded(&self, claim: &Claim) -> bool {
        !self.queue.is_empty() && !self.has_room(claim)
    }

    /// Whether anything waits until a request may leave.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// So many requests of one connection are without an answer now. Boxed, since of most there are none.
    pub(crate) fn in_flight(
        &mut self,
        flight: &mut Option<Box<Flight>>,
        claim: Claim,
        requests: u8,
    ) {
        if let Some(before) = flight {
            self.window.remove(&before.claim, before.requests.into());
        }
        if requests == 0 {
            *flight = None;
            return;
        }
        self.window.add(&claim, requests.into());
        let now = Flight { claim, requests };
        match flight {
            Some(flight) => **flight = now,
            None => *flight = Some(Box::new(now)),
        }
    }
}

#[cfg(test)]
mod tests;
