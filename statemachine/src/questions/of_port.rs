// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path queries of one local port, and which of them is put next.

use alloc::collections::BTreeSet;

use super::Urgency;
use super::lines::Lines;
use crate::id::Payer;

/// Path queries under way at the same time, of each local port.
pub(super) const MAX_UNDER_WAY: usize = 32;

/// Of these for connections that were never armed, while there are no others.
pub(super) const MAX_INITIAL: usize = 8;

/// How many they may always have, while there are others.
const FLOOR_INITIAL: usize = 1;

/// Path queries from one local port: those that wait, and those under way.
///
/// However many new connections there are, their queries must not stand before those of a connection that has just
/// lost its alternate: these go first, and of the others only some are let out at a time, and but one while such a
/// connection waits. Of each kind queries go by turns over payers.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct OfPort {
    waiting_rearm: Lines,
    waiting_initial: Lines,
    /// Under way.
    rearm: BTreeSet<u32>,
    initial: BTreeSet<u32>,
}

impl OfPort {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting_rearm.is_empty()
            && self.waiting_initial.is_empty()
            && self.rearm.is_empty()
            && self.initial.is_empty()
    }

    /// A payer waits for a query. The query may be in several lines; it leaves when the first of them is served.
    pub(super) fn wait(&mut self, payer: Payer, urgency: Urgency, number: u32) {
        match urgency {
            Urgency::Rearm => self.waiting_rearm.join(payer, number),
            Urgency::Initial => self.waiting_initial.join(payer, number),
        }
    }

    /// A payer waits for a query that another waits for. If that is under way there is nothing to do.
    pub(super) fn join(&mut self, payer: Payer, urgency: Urgency, number: u32) {
        if self.waiting_rearm.contains(number) || self.waiting_initial.contains(number) {
            self.wait(payer, urgency, number);
        }
    }

    /// The next query to put, which is under way then.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.rearm.len() + self.initial.len() >= MAX_UNDER_WAY {
            return None;
        }
        self.next_initial(FLOOR_INITIAL)
            .or_else(|| self.next_rearm())
            .or_else(|| {
                let is_alone = self.rearm.is_empty() && self.waiting_rearm.is_empty();
                is_alone.then(|| self.next_initial(MAX_INITIAL)).flatten()
            })
    }

    /// It is not waited for any more. Whether it was under way.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        self.waiting_rearm.remove(number);
        self.waiting_initial.remove(number);
        let (rearm, initial) = (self.rearm.remove(&number), self.initial.remove(&number));
        rearm || initial
    }

    /// The next of a connection that was armed. Those that never were keep their floor.
    fn next_rearm(&mut self) -> Option<u32> {
        if self.rearm.len() >= MAX_UNDER_WAY - FLOOR_INITIAL {
            return None;
        }
        let number = self.waiting_rearm.next()?;
        self.waiting_initial.remove(number);
        self.rearm.insert(number);
        Some(number)
    }

    /// The next of a connection that was never armed, while fewer than `limit` are under way.
    fn next_initial(&mut self, limit: usize) -> Option<u32> {
        if self.initial.len() >= limit {
            return None;
        }
        let number = self.waiting_initial.next()?;
        self.waiting_rearm.remove(number);
        self.initial.insert(number);
        Some(number)
    }
}
