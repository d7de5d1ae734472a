// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a question that is asked again and again stands.

use statemachine::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// To be asked.
    Due,
    /// The SA is being asked, under this number.
    Asked(u32),
    /// Done, or failed: to be asked again then.
    Until(Time),
    /// Done once and for all.
    Done,
}

impl Stage {
    /// When it is to be asked again.
    pub(super) fn due(self) -> Option<Time> {
        match self {
            Self::Until(at) => Some(at),
            Self::Due | Self::Asked(_) | Self::Done => None,
        }
    }

    /// Time has passed.
    pub(super) fn handle_time(&mut self, now: Time) {
        if self.due().is_some_and(|at| at <= now) {
            *self = Self::Due;
        }
    }
}
