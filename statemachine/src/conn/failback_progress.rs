// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a connection is on its way to the port where it belongs.

use alloc::boxed::Box;

use cm_msgs::Gid;

use crate::time::Time;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Step {
    /// It is where it belongs, or its time has not come.
    #[default]
    Resting,
    /// Others come first.
    Queued,
    /// It is on its way, until then.
    Moving(Time),
    /// It is there; its new alternate is not armed yet.
    Arrived(Time),
}

/// What one connection knows of it.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Failback {
    pub(super) step: Step,
    /// When it came to where it is.
    pub(super) arrived: Time,
    /// Tries in a row that failed, and when the next may begin.
    pub(super) failures: u32,
    pub(super) not_before: Time,
    /// The port of the peer's where the peer would have the alternate end, for so long.
    pub(super) steered: Option<Box<(Gid, Time)>>,
    /// The peer asks to be moved there.
    pub(super) asked: Option<Box<Gid>>,
    /// The migration that is ordered is by choice.
    pub(super) by_choice: bool,
    /// When the peer is to be asked how it is.
    pub(super) ask_at: Option<Time>,
}

impl Failback {
    pub(super) fn new(now: Time) -> Self {
        Self {
            arrived: now,
            ..Self::default()
        }
    }

    /// The QP is on another path.
    pub(super) fn moved(&mut self, now: Time) {
        self.arrived = now;
        self.asked = None;
    }

    /// A migration is ordered, because it has to be.
    pub(super) fn must(&mut self) {
        self.by_choice = false;
    }

    /// Whether the migration that has just ended was ordered by choice: nothing is wrong with the path
    /// that was left.
    pub(super) fn take_choice(&mut self) -> bool {
        core::mem::take(&mut self.by_choice)
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.step, Step::Moving(_))
    }
}
