// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders to a connection's library, and its reports.

use cm_msgs::control::{AppEvent, Cause, Load, Migrate, Report};
use cm_msgs::path::Path;

use super::Core;
use crate::context::{ConnAlarm, Context};
use crate::output::Order;
use crate::trace::{Ends, What};
use crate::view::Reason;

/// What a library can be ordered to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Load,
    Migrate,
    Query,
}

/// An order that the library has not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outstanding {
    pub(super) kind: Kind,
    token: u32,
}

/// How an order ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Done,
    Stale,
    Failed(u8),
    /// The library did not answer in time.
    Silent,
}

/// What a report changed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct News {
    /// The order that this ends, and how.
    pub(super) ended: Option<(Kind, End)>,
    /// The QP migrated.
    pub(super) left: Option<Left>,
    /// The QP says that its alternate is no good.
    pub(super) alternate_broken: bool,
}

/// A path that a QP left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Left {
    pub(super) path: Path,
    /// Hardware gave it up, and no local port tells why.
    pub(super) suspect: bool,
}

impl Core {
    pub(super) fn load(&mut self, cx: &mut Context, alternate: Path) {
        self.event(cx, AppEvent::LoadAltPath, 0);
        cx.trace(self.id, What::Load(Ends::from(&alternate)));
        let token = self.expect(cx, Kind::Load);
        let load = Load {
            token,
            primary: self.qp.primary,
            alternate,
        };
        cx.order(self.id, Order::Load(load));
    }

    pub(super) fn migrate(&mut self, cx: &mut Context) {
        let primary = self.qp.primary;
        cx.trace(self.id, What::Migrate(Ends::from(&primary)));
        let token = self.expect(cx, Kind::Migrate);
        cx.order(self.id, Order::Migrate(Migrate { token, primary }));
    }

    pub(super) fn query(&mut self, cx: &mut Context) {
        self.expect(cx, Kind::Query);
        cx.order(self.id, Order::Query);
    }

    fn expect(&mut self, cx: &mut Context, kind: Kind) -> u32 {
        let token = cx.token();
        self.order = Some(Outstanding { kind, token });
        cx.set(self.id, ConnAlarm::Order, cx.config.order_timeout);
        token
    }

    /// Whether the QP must leave its primary now: the port is down, and an armed alternate is not.
    pub(super) fn must_migrate(&self, cx: &Context) -> bool {
        let primary_down = self
            .port_of(cx, &self.qp.primary)
            .is_none_or(|port| !port.is_up());
        primary_down
            && cx.config.migrate_on_port_down
            && self.in_rts()
            && self.is_armed()
            && self
                .qp
                .alternate
                .is_some_and(|alternate| self.is_up(cx, &alternate))
            && !cx.is_set(self.id, ConnAlarm::MigrateHold)
    }

    /// Takes a report in. Libraries report in order, so its snapshot is the latest truth, whatever
    /// its cause.
    pub(super) fn report(&mut self, cx: &mut Context, report: &Report) -> News {
        let migrating = self.order.is_some_and(|order| order.kind == Kind::Migrate);
        let ended = self.match_order(cx, report.cause);
        let old = core::mem::replace(&mut self.qp, report.snapshot);
        self.complete_paths(self.lmc(cx));
        if old.migration != self.qp.migration {
            self.since = cx.now;
        }
        if let Some((kind, end)) = ended {
            self.end(cx, kind, end);
        }
        let moved = !old.primary.same_way(&self.qp.primary);
        let left = moved.then(|| self.left(cx, old.primary, migrating));
        News {
            ended,
            left,
            alternate_broken: report.cause == Cause::PathMigrationError,
        }
    }

    /// The library has taken too long over its order.
    pub(super) fn order_overdue(&mut self, cx: &mut Context) -> News {
        let Some(order) = self.order else {
            return News::default();
        };
        cx.trace(self.id, What::LibrarySilent);
        self.end(cx, order.kind, End::Silent);
        News {
            ended: Some((order.kind, End::Silent)),
            ..News::default()
        }
    }

    fn match_order(&self, cx: &mut Context, cause: Cause) -> Option<(Kind, End)> {
        let (token, end) = match cause {
            Cause::Done { token } => (token, End::Done),
            Cause::Stale { token } => (token, End::Stale),
            Cause::Failed { token, errno } => (token, End::Failed(errno)),
            Cause::Query => {
                let order = self.order.filter(|order| order.kind == Kind::Query)?;
                return Some((order.kind, End::Done));
            }
            Cause::PathMigrated | Cause::PathMigrationError | Cause::Armed | Cause::Broken => {
                return None;
            }
        };
        let order = self
            .order
            .filter(|order| order.kind != Kind::Query && order.token == token);
        if order.is_none() {
            cx.counters.reports_out_of_place += 1;
        }
        order.map(|order| (order.kind, end))
    }

    fn end(&mut self, cx: &mut Context, kind: Kind, end: End) {
        self.order = None;
        cx.stop(self.id, ConnAlarm::Order);
        self.trouble = match (kind, end) {
            (_, End::Done) => None,
            (_, End::Stale) => Some(Reason::Stale),
            (_, End::Silent) => Some(Reason::LibrarySilent),
            (Kind::Migrate, End::Failed(errno)) => Some(Reason::MigrateFailed(errno)),
            (_, End::Failed(errno)) => Some(Reason::LoadFailed(errno)),
        };
        match end {
            End::Done => {}
            End::Stale => {
                self.counters.stale_loads += 1;
                cx.trace(self.id, What::Stale);
            }
            End::Failed(errno) => {
                self.counters.failed_orders += 1;
                cx.trace(self.id, What::OrderFailed { errno });
            }
            End::Silent => self.counters.failed_orders += 1,
        }
        match (kind, end) {
            (Kind::Load, End::Done) => {
                self.counters.loads += 1;
                self.event(cx, AppEvent::AltPathLoaded, 0);
            }
            (Kind::Migrate, End::Stale | End::Failed(_) | End::Silent) => {
                let pause = cx.pause(0);
                cx.set(self.id, ConnAlarm::MigrateHold, pause);
            }
            _ => {}
        }
    }

    fn left(&mut self, cx: &mut Context, path: Path, ordered: bool) -> Left {
        let port_lost = self.port_of(cx, &path).is_none_or(|port| !port.is_up());
        let suspect = !ordered && !port_lost;
        self.counters.migrations += 1;
        self.counters.ordered_migrations += u64::from(ordered);
        cx.counters.migrations += 1;
        let (from, to) = (Ends::from(&path), Ends::from(&self.qp.primary));
        cx.trace(
            self.id,
            What::Migrated {
                from,
                to,
                ordered,
                suspect,
            },
        );
        self.event(cx, AppEvent::PathMigrated, 0);
        Left { path, suspect }
    }
}
