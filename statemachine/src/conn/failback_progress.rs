// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a connection is on its way to the port where it belongs.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

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

/// What one connection knows of it. Most are where they belong, and nobody would have them elsewhere:
/// then there is only when they came.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Failback {
    /// When it came to where it is.
    pub(super) arrived: Time,
    unrest: Option<Box<Unrest>>,
}

/// What there is to know of one that goes, or could.
#[derive(PartialEq, Eq, Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Unrest {
    pub(super) step: Step,
    /// Tries in a row that failed, and when the next may begin.
    pub(super) failures: u32,
    pub(super) not_before: Time,
    /// The port of the peer's where the peer would have the alternate end, for so long.
    pub(super) steered: Option<(Gid, Time)>,
    /// The peer asks to be moved there.
    pub(super) asked: Option<Gid>,
    /// The migration that is ordered is by choice.
    pub(super) by_choice: bool,
    /// When the peer is to be asked how it is.
    pub(super) ask_at: Option<Time>,
}

/// Of one that is where it belongs.
static NO_UNREST: Unrest = Unrest {
    step: Step::Resting,
    failures: 0,
    not_before: Time(0),
    steered: None,
    asked: None,
    by_choice: false,
    ask_at: None,
};

impl Deref for Failback {
    type Target = Unrest;

    fn deref(&self) -> &Unrest {
        self.unrest.as_deref().unwrap_or(&NO_UNREST)
    }
}

impl DerefMut for Failback {
    fn deref_mut(&mut self) -> &mut Unrest {
        self.unrest.get_or_insert_default()
    }
}

impl Failback {
    pub(super) fn new(now: Time) -> Self {
        Self {
            arrived: now,
            unrest: None,
        }
    }

    /// Nothing is kept of what is over.
    pub(super) fn tidy(&mut self, now: Time) {
        self.unrest.take_if(|unrest| {
            unrest.steered.take_if(|(_, until)| *until <= now);
            **unrest == NO_UNREST
        });
    }

    /// The QP is on another path.
    pub(super) fn moved(&mut self, now: Time) {
        self.arrived = now;
        if let Some(unrest) = &mut self.unrest {
            unrest.asked = None;
        }
    }

    /// A migration is ordered, because it has to be.
    pub(super) fn must(&mut self) {
        if let Some(unrest) = &mut self.unrest {
            unrest.by_choice = false;
        }
    }

    /// Whether the migration that has just ended was ordered by choice: nothing is wrong with the path
    /// that was left.
    pub(super) fn take_choice(&mut self) -> bool {
        let unrest = self.unrest.as_mut();
        unrest.is_some_and(|unrest| core::mem::take(&mut unrest.by_choice))
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.step, Step::Moving(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be a million connections, and most are where they belong.
    #[test]
    fn nothing_is_kept_of_what_is_over() {
        let mut failback = Failback::new(Time(1));
        failback.steered = Some((Gid::default(), Time(10)));
        failback.tidy(Time(9));
        assert!(failback.steered.is_some());
        failback.failures = 1;
        failback.tidy(Time(10));
        assert!(failback.steered.is_none() && failback.unrest.is_some());
        failback.failures = 0;
        failback.tidy(Time(11));
        assert!(failback.unrest.is_none());
    }

    #[test]
    fn a_migration_is_by_choice_only_if_nothing_has_made_it_necessary_since() {
        let mut failback = Failback::new(Time(1));
        assert!(!failback.take_choice());
        failback.by_choice = true;
        assert!(failback.take_choice() && !failback.take_choice());
        failback.by_choice = true;
        failback.must();
        assert!(!failback.take_choice());
    }

    #[test]
    fn it_moves_from_its_turn_until_it_is_there() {
        let mut failback = Failback::new(Time(1));
        let steps = [
            (Step::Resting, false),
            (Step::Queued, false),
            (Step::Moving(Time(9)), true),
            (Step::Arrived(Time(9)), false),
        ];
        for (step, moves) in steps {
            failback.step = step;
            assert_eq!(failback.is_moving(), moves);
        }
    }
}
