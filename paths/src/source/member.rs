// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of the list, and what each may take.

use std::time::Duration;

use statemachine::Origin;

use super::acm;
use super::health::Health;
use super::queue::Queue;
use crate::sa::{self, Ask};

/// What a source may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Questions under way at the same time; more wait.
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
    pub(super) queue: Queue,
    pub(super) health: Health,
}

impl Member {
    fn new(origin: Origin, limits: Limits) -> Self {
        Self {
            origin,
            limits,
            queue: Queue::default(),
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
        self.queue.running()
    }

    /// Questions that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
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
