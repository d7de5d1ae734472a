// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders to a connection's library, one at a time, and how they end.

use alloc::boxed::Box;
use core::num::NonZeroU32;

use cm_msgs::control::{Cause, NO_TOKEN};
use cm_msgs::path::Path;

use crate::context::{ConnAlarm, Context};
use crate::id::ConnId;
use crate::view::Reason;

/// What a library can be ordered to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrderKind {
    Load,
    Migrate,
    MoveIdle,
    Query,
}

/// An order that the library has not answered yet.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Outstanding {
    kind: OrderKind,
    token: u32,
    /// The alternate that it is to load.
    loading: Option<Path>,
    /// The order before this query was not answered, and may be carried out yet.
    unknown: bool,
}

/// How an order ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrderEnd {
    Done,
    Stale,
    Failed(u8),
    /// The library did not answer in time.
    Silent,
}

impl OrderEnd {
    /// Whether it would fail again. It would not if the program or the device was busy (EAGAIN, EBUSY), or the send queue
    /// did not drain (ETIMEDOUT).
    pub(super) fn is_refusal(self) -> bool {
        const EAGAIN: u8 = 11;
        const EBUSY: u8 = 16;
        const ETIMEDOUT: u8 = 110;
        match self {
            Self::Failed(errno) => !matches!(errno, EAGAIN | EBUSY | ETIMEDOUT),
            _ => false,
        }
    }
}

/// What a report changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct QpChange {
    /// The order that this ends, and how.
    pub(super) ended: Option<(OrderKind, OrderEnd)>,
    /// The QP migrated.
    pub(super) abandoned: Option<Abandoned>,
    /// The QP says that its alternate is no good.
    pub(super) alternate_broken: bool,
}

/// A path that a QP left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Abandoned {
    pub(super) path: Path,
    /// Hardware gave it up, and no local port tells why.
    pub(super) suspect: bool,
    /// Nothing is wrong with it: the connection belongs elsewhere.
    pub(super) chosen: bool,
}

/// The one order that the library has not answered, and what became of the last one.
///
/// One at a time, because every order names the QP as it was when the order was made: a second
/// one, sent before the first was answered, could only be stale.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Orders {
    /// Boxed, since nearly always there is none.
    outstanding: Option<Box<Outstanding>>,
    /// What went wrong with the last order; it stands until one succeeds.
    trouble: Option<Reason>,
    /// The migrate order that a standing order was ahead of: its own answer is still to come.
    overtaken: Option<NonZeroU32>,
}

impl Orders {
    /// The order that is not answered.
    pub(super) fn outstanding(&self) -> Option<OrderKind> {
        self.outstanding.as_ref().map(|order| order.kind)
    }

    /// Whether the library was ordered to have the QP leave its primary.
    pub(super) fn is_leaving(&self) -> bool {
        let kind = self.outstanding();
        matches!(kind, Some(OrderKind::Migrate | OrderKind::MoveIdle))
    }

    /// The alternate that the library was ordered to load, until it answers.
    pub(super) fn loading(&self) -> Option<&Path> {
        self.outstanding.as_ref()?.loading.as_ref()
    }

    pub(super) fn trouble(&self) -> Option<Reason> {
        self.trouble
    }

    /// Whether nobody knows how the QP is: an order is overdue.
    pub(super) fn is_unknown(&self) -> bool {
        self.outstanding.as_ref().is_some_and(|order| order.unknown)
    }

    /// The outstanding query is to tell what became of an order that is overdue.
    pub(super) fn unknown(&mut self) {
        if let Some(order) = &mut self.outstanding {
            order.unknown = true;
        }
    }

    /// An order goes out, with this token.
    pub(super) fn begin(&mut self, cx: &mut Context, id: ConnId, kind: OrderKind) -> u32 {
        self.begin_with(cx, id, kind, None)
    }

    /// An order to load an alternate goes out, with this token.
    pub(super) fn begin_load(&mut self, cx: &mut Context, id: ConnId, alternate: Path) -> u32 {
        self.begin_with(cx, id, OrderKind::Load, Some(alternate))
    }

    fn begin_with(
        &mut self,
        cx: &mut Context,
        id: ConnId,
        kind: OrderKind,
        loading: Option<Path>,
    ) -> u32 {
        let token = cx.token();
        self.outstanding = Some(Box::new(Outstanding {
            kind,
            token,
            loading,
            unknown: false,
        }));
        cx.set(id, ConnAlarm::Order, cx.config.order_timeout);
        token
    }

    /// Which order a report ends, and how.
    pub(super) fn matches(
        &mut self,
        cx: &mut Context,
        cause: Cause,
    ) -> Option<(OrderKind, OrderEnd)> {
        let (token, end) = match cause {
            Cause::Done { token } => (token, OrderEnd::Done),
            Cause::Stale { token } => (token, OrderEnd::Stale),
            Cause::Failed { token, errno } => (token, OrderEnd::Failed(errno)),
            // What an order to migrate asks for is done; that it comes too late is no news then.
            Cause::StandingOrder => {
                let order = self.outstanding.as_ref();
                let order = order.filter(|_| self.is_leaving())?;
                self.overtaken = NonZeroU32::new(order.token);
                return Some((order.kind, OrderEnd::Done));
            }
            // Asked by somebody else.
            Cause::Query { token: NO_TOKEN } => return None,
            Cause::Query { token } => (token, OrderEnd::Done),
            Cause::PathMigrated
            | Cause::PathMigrationError
            | Cause::Armed
            | Cause::Broken
            | Cause::Changed => {
                return None;
            }
        };
        let order = self.outstanding.as_ref();
        let order = order.filter(|order| order.token == token);
        let overtaken = self.overtaken.take_if(|overtaken| overtaken.get() == token);
        if order.is_none() && overtaken.is_none() {
            cx.counters.reports_out_of_place += 1;
        }
        order.map(|order| (order.kind, end))
    }

    /// The order is over.
    pub(super) fn end(&mut self, cx: &mut Context, id: ConnId, kind: OrderKind, end: OrderEnd) {
        self.outstanding = None;
        cx.stop(id, ConnAlarm::Order);
        self.trouble = match (kind, end) {
            (_, OrderEnd::Done) => None,
            (_, OrderEnd::Stale) => Some(Reason::Stale),
            (_, OrderEnd::Silent) => Some(Reason::LibrarySilent),
            (OrderKind::Migrate | OrderKind::MoveIdle, OrderEnd::Failed(errno)) => {
                Some(Reason::MigrateFailed(errno))
            }
            (_, OrderEnd::Failed(errno)) => Some(Reason::LoadFailed(errno)),
        };
    }
}
