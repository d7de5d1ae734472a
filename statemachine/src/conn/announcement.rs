// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this end, told to the peer without proposing a path: a LAP or SAP without alternate.

use core::time::Duration;

use cm_msgs::association::LapData;
use cm_msgs::cm::{self, Lap, PathFields};

use super::Core;
use super::association::{CommIds, timeout_code};
use crate::context::Context;
use crate::exchange::Exchange;

/// One that is repeated until it is answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Announcement {
    exchange: Exchange,
    /// Sequence number of the state in its first copy: what an answer is sure to be about.
    sequence: u32,
}

impl Announcement {
    pub(super) fn new(core: &Core, transaction: u32) -> Self {
        Self {
            exchange: Exchange::new(transaction, 0),
            sequence: core.own.sequence(),
        }
    }

    /// Sends the next copy, and says how long to wait for an answer. `None`: there were enough.
    pub(super) fn send(
        &mut self,
        core: &Core,
        cx: &mut Context,
        message: impl FnOnce() -> cm::Message,
    ) -> Option<Duration> {
        let routes = core.routes(cx);
        let claim = core.charged(cx);
        self.exchange
            .next(cx, &claim, &routes, core.round_trip, message)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        !self.exchange.has_yielded()
    }

    /// Whether an answer with this transaction ID is to it.
    pub(super) fn is_answered_by(&self, transaction: u32) -> bool {
        self.exchange.transaction == transaction
    }

    /// It was answered: the peer has the state that it told.
    pub(super) fn answered(&self, core: &mut Core, cx: &Context) {
        self.exchange.answered(cx, &mut core.round_trip);
        core.own.told(self.sequence);
    }

    /// The copy that still waits for its port is not sent.
    pub(super) fn take_back(&self, cx: &mut Context) {
        self.exchange.take_back(cx);
    }
}

/// A LAP with our state; without an alternate it is an announcement. `loaded`: the QP has this alternate already.
pub(super) fn lap(
    core: &Core,
    cx: &Context,
    ids: CommIds,
    alternate: PathFields,
    loaded: bool,
) -> Lap {
    let data = LapData {
        state: core.own.state(),
        loaded,
    };
    Lap {
        local_comm_id: ids.local,
        remote_comm_id: ids.remote,
        remote_qpn_eecn: core.peer_qpn,
        remote_cm_response_timeout: timeout_code(cx.config.retry_first),
        alternate,
        private_data: data.encode(),
    }
}
