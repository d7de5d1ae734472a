// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path that is proposed to the peer: its LAP, repeated until the APR.

use core::time::Duration;

use cm_msgs::path::Path;

use crate::conn::Core;
use crate::conn::announcement::lap;
use crate::conn::association::CommIds;
use crate::conn::proposal::fields;
use crate::context::Context;
use crate::exchange::Exchange;
use crate::guard::guard;
use crate::input::Origin;

/// A LAP and what it is for.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Proposal {
    exchange: Exchange,
    /// Sequence number of our state in its first copy.
    sequence: u32,
    /// The primary that the alternate is for.
    primary: Path,
    pub(super) alternate: Path,
    /// Where its record came from.
    pub(super) origin: Option<Origin>,
    /// The ends were not known to have the same alternate, or it was no good: the answer can change that.
    pub(super) settles: bool,
    /// The peer has asked for more time.
    put_off: bool,
}

impl Proposal {
    pub(super) fn new(
        core: &Core,
        transaction: u32,
        alternate: Path,
        origin: Option<Origin>,
        settles: bool,
    ) -> Self {
        Self {
            exchange: Exchange::new(transaction, 0),
            sequence: core.own.sequence(),
            primary: core.qp.primary,
            alternate,
            origin,
            settles,
            put_off: false,
        }
    }

    /// Sends the next copy, and says how long to wait for an answer. `None`: there were enough.
    pub(super) fn send(&mut self, core: &Core, cx: &mut Context, ids: CommIds) -> Option<Duration> {
        let routes = core.routes_by(cx, &self.alternate);
        let loaded = core.has_loaded(&self.alternate) && !core.distrusted;
        let lap = lap(core, cx, ids, fields(&self.alternate), loaded);
        let claim = core.charged(cx);
        self.exchange
            .next(cx, &claim, &routes, core.round_trip, || lap.into())
    }

    /// The peer needs longer.
    pub(super) fn put_off(&mut self) {
        self.put_off = true;
        self.exchange.put_off();
    }

    pub(super) fn was_put_off(&self) -> bool {
        self.put_off
    }

    pub(super) fn is_in_flight(&self) -> bool {
        !self.exchange.has_yielded()
    }

    /// Whether an answer with this transaction ID is to its LAP, and not to an earlier one.
    pub(super) fn is_answered_by(&self, transaction: u32) -> bool {
        guard!(AnswerToThisLap, self.exchange.transaction == transaction)
    }

    /// It was answered: the peer has the state that came with it.
    pub(super) fn answered(&self, core: &mut Core, cx: &Context) {
        self.exchange.answered(cx, &mut core.round_trip);
        core.own.told(self.sequence);
    }

    /// Whether it is for the primary that the QP has.
    pub(super) fn fits(&self, core: &Core) -> bool {
        self.primary.same_way(&core.qp.primary)
    }

    /// The copy that still waits for its port is not sent.
    pub(super) fn take_back(&self, cx: &mut Context) {
        self.exchange.take_back(cx);
    }
}
