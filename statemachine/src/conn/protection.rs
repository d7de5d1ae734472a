// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a connection is protected, and why not.

use cm_msgs::control::{MigrationState, QpState};

use super::library::Kind;
use super::{Connection, Side};
use crate::context::Context;
use crate::time::Time;
use crate::trace::What;
use crate::view::{AssociationView, Protection, Reason};

impl Connection {
    /// Whether it would survive the loss of its primary, and why not.
    pub(super) fn judge(&self, cx: &Context, now: Time) -> (Protection, Option<Reason>) {
        let core = &self.core;
        if let Some(refusal) = core.refused {
            return (Protection::Refused, Some(Reason::Refused(refusal)));
        }
        if core.qp.qp_state != QpState::Rts {
            return (Protection::Broken, Some(Reason::Qp(core.qp.qp_state)));
        }
        let alternate_up = core.loaded().is_some_and(|path| core.is_up(cx, path));
        if core.order.is_some_and(|order| order.kind == Kind::Migrate) {
            return (Protection::Migrating, Some(Reason::WaitingForLibrary));
        }
        if core.is_armed() && alternate_up && !self.distrusts_alternate() {
            return (Protection::Armed, None);
        }
        if core.order.is_some_and(|order| order.kind == Kind::Load) {
            return (Protection::Loading, Some(Reason::WaitingForLibrary));
        }
        if core.qp.migration == MigrationState::Rearm && alternate_up {
            return self.judge_rearming(cx, now);
        }
        let (reason, busy) = self.reason(cx);
        let protection = if busy {
            Protection::Negotiating
        } else {
            Protection::Unprotected
        };
        (protection, Some(reason))
    }

    fn judge_rearming(&self, cx: &Context, now: Time) -> (Protection, Option<Reason>) {
        let core = &self.core;
        let reason = match core.port_of(cx, &core.qp.primary) {
            Some(port) if port.is_up() => Reason::WaitingForTraffic,
            _ => Reason::PrimaryPortDown,
        };
        let idle = now - core.since > cx.config.rearm_idle;
        let protection = if idle {
            Protection::RearmingIdle
        } else {
            Protection::Rearming
        };
        (protection, Some(reason))
    }

    fn distrusts_alternate(&self) -> bool {
        match &self.side {
            Side::Active(active) => active.distrusts_alternate(),
            Side::Passive(_) => false,
        }
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    fn reason(&self, cx: &Context) -> (Reason, bool) {
        let core = &self.core;
        let side = match &self.side {
            Side::Active(active) => active.reason(),
            Side::Passive(passive) => (passive.reason(), passive.is_busy()),
        };
        match core.trouble {
            _ if side.1 => side,
            Some(trouble) => (trouble, false),
            None if core.is_armed() && matches!(self.side, Side::Passive(_)) => {
                (Reason::AlternatePortDown, false)
            }
            None if core
                .port_of(cx, &core.qp.primary)
                .is_none_or(|port| !port.is_up()) =>
            {
                (Reason::PrimaryPortDown, false)
            }
            None => side,
        }
    }

    /// Says in the log what has changed.
    pub(super) fn note_protection(&mut self, cx: &mut Context) {
        let (to, reason) = self.judge(cx, cx.now);
        let to = if to == Protection::RearmingIdle {
            Protection::Rearming
        } else {
            to
        };
        let from = core::mem::replace(&mut self.core.protection, to);
        if from != to {
            self.core.changed = cx.now;
            self.core.counters.rearms += u64::from(to == Protection::Armed);
            cx.trace(self.core.id, What::Protection { from, to, reason });
        }
        let to = self.association_view().state;
        let from = core::mem::replace(&mut self.core.association, to);
        if from != to {
            cx.trace(self.core.id, What::Association { from, to });
        }
    }

    pub(super) fn association_view(&self) -> AssociationView {
        let (state, link) = match &self.side {
            Side::Active(active) => active.view(),
            Side::Passive(passive) => passive.view(&self.core),
        };
        AssociationView {
            state,
            local_comm_id: link.map(|link| link.local),
            remote_comm_id: link.map(|link| link.remote).filter(|&id| id != 0),
            peer_ports: self.core.peer_ports.clone(),
        }
    }
}
