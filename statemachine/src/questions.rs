// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to the path sources, and to whoever knows the fabric.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::ConnId;
use crate::output::Query;

/// Path queries under way at the same time for connections that were never armed, while there are
/// no others.
const MAX_INITIAL: usize = 8;

/// Whose path query goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Urgency {
    /// The connection was armed, and is not any more or could be better.
    Rearm,
    /// The connection was never armed.
    Initial,
}

/// Questions that are waited for, and those of them that have not been polled.
///
/// Path sources answer a few at a time. However many new connections there are, their queries must
/// not stand before those of a connection that has just lost its alternate: these go first, and of
/// the others only some are let out at a time, and but one while such a connection waits.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    last: u32,
    asked: BTreeMap<u32, ConnId>,
    paths: BTreeMap<(Urgency, u32), Query>,
    assessments: BTreeMap<u32, Query>,
    /// Path queries under way.
    rearm: BTreeSet<u32>,
    initial: BTreeSet<u32>,
}

impl Questions {
    /// Asks for paths; the number of the question.
    pub(crate) fn paths(
        &mut self,
        conn: ConnId,
        urgency: Urgency,
        query: impl FnOnce(u32) -> Query,
    ) -> u32 {
        let number = self.number(conn);
        self.paths.insert((urgency, number), query(number));
        number
    }

    /// Asks what paths share; the number of the question.
    pub(crate) fn assess(&mut self, conn: ConnId, query: impl FnOnce(u32) -> Query) -> u32 {
        let number = self.number(conn);
        self.assessments.insert(number, query(number));
        number
    }

    fn number(&mut self, conn: ConnId) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.asked.insert(self.last, conn);
        self.last
    }

    /// The next question to put, and who asks.
    pub(crate) fn poll(&mut self) -> Option<(ConnId, Query)> {
        // Assessments first: they are answered from memory and hold nothing up.
        let (number, query) = match self.assessments.pop_first() {
            Some(assess) => assess,
            None => self.poll_paths()?,
        };
        Some((*self.asked.get(&number)?, query))
    }

    fn poll_paths(&mut self) -> Option<(u32, Query)> {
        let first = self.paths.first_entry()?;
        let &(urgency, number) = first.key();
        let limit = if self.rearm.is_empty() {
            MAX_INITIAL
        } else {
            1
        };
        match urgency {
            Urgency::Rearm => self.rearm.insert(number),
            Urgency::Initial if self.initial.len() < limit => self.initial.insert(number),
            Urgency::Initial => return None,
        };
        Some((number, first.remove()))
    }

    /// It was answered, or the answer is not waited for any more. Who asked, if that is not over.
    pub(crate) fn end(&mut self, number: u32) -> Option<ConnId> {
        for urgency in [Urgency::Rearm, Urgency::Initial] {
            self.paths.remove(&(urgency, number));
        }
        self.assessments.remove(&number);
        self.rearm.remove(&number);
        self.initial.remove(&number);
        self.asked.remove(&number)
    }
}
