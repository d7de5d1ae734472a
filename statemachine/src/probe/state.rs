// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of one path.

use alloc::collections::BTreeSet;

use super::lateness::Lateness;
use super::loss::LossRate;
use super::{Answerer, Finding, PATIENCE_IF_LATE, PathHealth, REPEAT};
use crate::id::ConnId;
use crate::time::Time;

/// Copies without an answer that are remembered: late answers count as well.
const REMEMBERED: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) transaction: u32,
    pub(super) at: Time,
}

/// A path that is probed.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct PathState {
    /// The connections that use it, or mean to.
    pub(super) users: BTreeSet<ConnId>,
    pub(super) health: PathHealth,
    /// The last copies, since the last answer.
    pub(super) sent: [Sent; REMEMBERED],
    /// Copies since the last answer.
    pub(super) unanswered: u8,
    /// When the first of them was sent.
    pub(super) began: Time,
    /// The last copy has not left yet.
    pub(super) waits: bool,
    /// Somebody waits for the next answer.
    pub(super) awaited: bool,
    pub(super) last_answer: Option<LastAnswer>,
    pub(super) lateness: Lateness,
    /// When probes were sent that were answered promptly, the last first.
    pub(super) prompt: [Time; 3],
    pub(super) loss: LossRate,
}

/// The last answer to a probe of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastAnswer {
    /// When it came.
    pub(super) at: Time,
    /// When the latest of the probes was sent that have been answered.
    pub(super) asked: Time,
    pub(super) by: Answerer,
}

impl PathState {
    /// When an answer came last.
    pub(super) fn answered(&self) -> Option<Time> {
        self.last_answer.map(|answer| answer.at)
    }

    /// When the latest of the probes was sent that have been answered.
    pub(super) fn asked(&self) -> Option<Time> {
        self.last_answer.map(|answer| answer.asked)
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.health == PathHealth::Suspect
    }

    /// Copies in a row without an answer that make it suspect; `crowded`: answers by its port may be late.
    pub(super) fn patience(&self, crowded: bool) -> u8 {
        let least = match crowded || self.lateness.is_late() {
            true => PATIENCE_IF_LATE,
            false => 0,
        };
        self.loss.patience().max(least)
    }

    /// What its users are told when another copy is due.
    pub(super) fn loss_found(&self, crowded: bool) -> Option<Finding> {
        match self.health {
            PathHealth::Suspect => (self.unanswered > 0).then_some(Finding::StillSuspect),
            _ if self.unanswered >= self.patience(crowded) => Some(Finding::Suspect),
            PathHealth::Verified => (self.unanswered == 1).then_some(Finding::Loss),
            PathHealth::Unknown => None,
        }
    }

    /// Another copy is sent.
    pub(super) fn send(&mut self, now: Time, transaction: u32) {
        // One over a silent port fell with that.
        if self.unanswered == 0 && !self.is_suspect() {
            self.began = now;
        }
        let at = now;
        self.sent[Self::place(self.unanswered)] = Sent { transaction, at };
        // Beyond that only the place counts.
        self.unanswered = match self.unanswered.checked_add(1) {
            Some(number) => number,
            None => REMEMBERED as u8,
        };
        self.waits = true;
    }

    /// The last copy has not left, since its port has no room: that says nothing of the path. Nor is what leaves late
    /// lost at once.
    pub(super) fn delay(&mut self, now: Time) {
        self.sent[Self::place(self.unanswered.wrapping_sub(1))].at = now;
        if self.unanswered == 1 {
            self.began = now;
        }
    }

    /// The transaction ID of the last copy, which leaves now.
    pub(super) fn leave(&mut self) -> u32 {
        self.waits = false;
        self.sent[Self::place(self.unanswered.wrapping_sub(1))].transaction
    }

    /// The place of a copy among those that are remembered, by the order of sending.
    fn place(number: u8) -> usize {
        usize::from(number) % REMEMBERED
    }

    /// When the last copy was sent that can be called lost.
    pub(super) fn lost_at(&self, now: Time) -> Option<Time> {
        let copies = self.sent[..usize::from(self.unanswered).min(REMEMBERED)].iter();
        let sent = copies.map(|sent| sent.at);
        sent.filter(|&at| now - at >= REPEAT).max()
    }

    /// Copies since the last answer that were sent before the one of that moment.
    pub(super) fn copies_before(&self, at: Time) -> u8 {
        let copies = &self.sent[..usize::from(self.unanswered).min(REMEMBERED)];
        copies.iter().filter(|sent| sent.at < at).count() as u8
    }

    /// When the last copy since the last answer was sent.
    pub(super) fn last_sent(&self) -> Option<Time> {
        let number = self.unanswered.checked_sub(1)?;
        Some(self.sent[Self::place(number)].at)
    }

    pub(super) fn find(&self, transaction: u32) -> Option<Sent> {
        let copies = &self.sent[..usize::from(self.unanswered).min(REMEMBERED)];
        let mut copies = copies.iter().copied();
        copies.find(|sent| sent.transaction == transaction)
    }
}
