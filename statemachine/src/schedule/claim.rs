// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request is charged to: its class, its payer and the far port that it goes to.

use crate::id::Payer;
use crate::subnet::SubnetLid;

/// In which order connections act. No class starves another: each has a floor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Their primary is lost, and they are armed.
    Migrate,
    /// They lost their protection.
    Rearm,
    /// They are armed, and the loss of one port would end both of their paths.
    SamePort,
    /// They never had any protection.
    Initial,
    /// They are protected, and could be better; or have something to report, such as their end.
    Improve,
}

impl Class {
    pub(super) const COUNT: usize = 5;

    /// Those that send requests, the most urgent first.
    pub(super) const SENDING: [Self; 4] =
        [Self::Rearm, Self::SamePort, Self::Initial, Self::Improve];
}

/// A port of another host, with all its LIDs; `None` if the local port that leads there is gone.
pub(crate) type FarEnd = Option<SubnetLid>;

/// What a request is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) class: Class,
    pub(crate) payer: Payer,
    pub(crate) far: FarEnd,
}

/// Requests of one connection that have no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) claim: Claim,
    pub(crate) requests: u8,
}
