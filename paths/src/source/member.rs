// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of the list, and what each may take.

use std::collections::BTreeMap;
use std::time::Duration;

use statemachine::{Origin, key_after};

use super::Urgency;
use super::acm;
use super::health::{Health, Lane};
use super::queue::Queue;
use crate::sa::{self, Ask};

/// What a source may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Questions under way at the same time, of each lane; more wait.
    pub in_flight: usize,
    /// The longest time for one question, after which it counts as failed; a question waits as
    /// long at most before it is put.
    pub timeout: Duration,
}

impl Limits {
    /// What a source of this kind takes.
    fn of(origin: Origin) -> Self {
        match origin {
            Origin::Sa => Self {
                in_flight: sa::Limits::default().in_flight,
                timeout: Ask::longest(),
            },
            Origin::Acm => Self {
                in_flight: acm::CONNECTIONS,
                timeout: acm::TIMEOUT,
            },
            // They answer at once.
            Origin::Ssa | Origin::Static => Self {
                in_flight: 1024,
                timeout: Duration::from_secs(1),
            },
        }
    }
}

/// Which sources there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The sources, in the order in which they are asked.
    pub order: Vec<(Origin, Limits)>,
    /// How long a source may be silent before the next is asked as well.
    pub patience: Duration,
}

impl Plan {
    /// These sources, each with what its kind takes.
    pub fn new(order: impl IntoIterator<Item = Origin>) -> Self {
        let member = |origin| (origin, Limits::of(origin));
        Self {
            order: order.into_iter().map(member).collect(),
            patience: Duration::from_secs(2),
        }
    }
}

/// A source of the list.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) origin: Origin,
    pub(super) limits: Limits,
    /// What waits or is under way, by lane: where one is silent the others are served.
    queues: BTreeMap<Lane, Queue>,
    /// The lane that was served last.
    last: Option<Lane>,
    pub(super) health: Health,
}

impl Member {
    fn new(origin: Origin, limits: Limits) -> Self {
        Self {
            origin,
            limits,
            queues: BTreeMap::new(),
            last: None,
            health: Health::default(),
        }
    }

    /// Its name.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What it may take.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Questions under way.
    pub fn running(&self) -> usize {
        self.queues.values().map(Queue::running).sum()
    }

    /// Questions that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.queues.values().map(Queue::waiting).sum()
    }

    /// A ticket waits.
    pub(super) fn wait(&mut self, lane: Lane, urgency: Urgency, ticket: u32) {
        self.queues.entry(lane).or_default().push(urgency, ticket);
    }

    /// The next ticket that may be handed over. Lanes have turns.
    pub(super) fn next_ticket(&mut self, engine_asks: bool) -> Option<u32> {
        for _ in 0..self.queues.len() {
            let lane = key_after(&self.queues, self.last)?;
            self.last = Some(lane);
            let queue = self.queues.get_mut(&lane)?;
            let ticket = queue.next(self.limits.in_flight, engine_asks);
            if ticket.is_some() {
                return ticket;
            }
        }
        None
    }

    /// A ticket was handed over.
    pub(super) fn began(&mut self, lane: Lane, urgency: Urgency) {
        self.queues.entry(lane).or_default().began(urgency);
    }

    /// A ticket that was handed over is answered, or not waited for any more.
    pub(super) fn ended(&mut self, lane: Lane, urgency: Urgency) {
        let Some(queue) = self.queues.get_mut(&lane) else {
            return;
        };
        queue.ended(urgency);
        if queue.running() + queue.waiting() == 0 {
            self.queues.remove(&lane);
        }
    }

    /// How it is doing.
    pub fn health(&self) -> &Health {
        &self.health
    }
}

/// The members in this order, with what is known of those that were there before.
pub(super) fn members(order: Vec<(Origin, Limits)>, before: &mut Vec<Member>) -> Vec<Member> {
    let mut members = Vec::with_capacity(order.len());
    for (origin, limits) in order {
        let old = before.iter().position(|member| member.origin == origin);
        let member = match old {
            Some(old) => Member {
                limits,
                ..before.swap_remove(old)
            },
            None => Member::new(origin, limits),
        };
        members.push(member);
    }
    members
}
