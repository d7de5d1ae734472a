// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a connection is protected, and why not.

use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::path::PortAddress;

use super::orders::OrderKind;
use super::{Connection, Side};
use crate::context::{ConnAlarm, Context};
use crate::id::ConnId;
use crate::input::QueryError;
use crate::time::Time;
use crate::trace::What;
use crate::view::{AssociationState, AssociationView, Grade, Protection, Reason, Transition};

/// How long a connection has been without protection, as far as an operator should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exposure {
    /// It is protected, idle or ended.
    Covered,
    /// It is not, and its timer runs.
    Exposed,
    /// An operator was told.
    Told,
}

/// What was said of a connection's protection last.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct ProtectionRecord {
    protection: Protection,
    changed: Time,
    exposure: Exposure,
    association: AssociationState,
    grade: Option<Grade>,
}

impl ProtectionRecord {
    pub(super) fn new(now: Time) -> Self {
        Self {
            protection: Protection::Unprotected,
            changed: now,
            exposure: Exposure::Covered,
            association: AssociationState::None,
            grade: None,
        }
    }

    /// When protection last changed.
    pub(super) fn changed(&self) -> Time {
        self.changed
    }

    /// One warning for each time that it stays unprotected, and one line when that is over.
    fn note_exposure(
        &mut self,
        cx: &mut Context,
        id: ConnId,
        protection: Protection,
        reason: Option<Reason>,
    ) {
        match (self.exposure, is_exposed(protection, reason)) {
            (Exposure::Covered, true) => {
                self.exposure = Exposure::Exposed;
                cx.set(id, ConnAlarm::Unprotected, cx.config.unprotected_after);
            }
            (Exposure::Exposed, false) => {
                self.exposure = Exposure::Covered;
                cx.stop(id, ConnAlarm::Unprotected);
            }
            // Nothing less than Armed ends it: one that only goes to and fro is told of once.
            (Exposure::Told, false) if protection == Protection::Armed => {
                self.exposure = Exposure::Covered;
                cx.trace(id, What::ProtectedAgain);
            }
            _ => {}
        }
    }

    fn warn(&mut self, cx: &mut Context, id: ConnId, reason: Reason, peer: PortAddress) {
        self.exposure = Exposure::Told;
        let since = cx.config.unprotected_after;
        cx.trace(
            id,
            What::Unprotected {
                since,
                reason,
                peer,
            },
        );
    }

    /// Whether it is another than before.
    fn note_protection(
        &mut self,
        cx: &mut Context,
        id: ConnId,
        to: Protection,
        reason: Option<Reason>,
        grade: Option<Grade>,
    ) -> bool {
        // That it is idle only time tells, which is no event.
        let to = match to {
            Protection::RearmingIdle | Protection::IdleMovable => Protection::Rearming,
            to => to,
        };
        let from = core::mem::replace(&mut self.protection, to);
        let old_grade = core::mem::replace(&mut self.grade, grade);
        if from == to {
            if let Some(grade) = grade.filter(|_| old_grade != grade) {
                cx.trace(id, What::Grade(grade));
            }
            return false;
        }
        self.changed = cx.now;
        let change = What::Protection {
            from,
            to,
            reason,
            grade,
        };
        cx.trace(id, change);
        true
    }

    /// Whether it is another than before.
    fn note_association(&mut self, cx: &mut Context, id: ConnId, to: AssociationState) -> bool {
        let from = core::mem::replace(&mut self.association, to);
        if from != to {
            cx.trace(id, What::Association { from, to });
        }
        from != to
    }
}

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
        if core.orders.is_unknown() {
            return (Protection::Unprotected, Some(Reason::LibrarySilent));
        }
        let alternate_good = core.has_good_alternate(cx) && !self.forbids_alternate(cx);
        // Asked before Armed: what the QP was read as is about to be over.
        if core.orders.is_leaving() {
            return (Protection::Migrating, Some(Reason::WaitingForLibrary));
        }
        if core.is_armed() && alternate_good {
            return (Protection::Armed, None);
        }
        if core.orders.outstanding() == Some(OrderKind::Load) {
            return (Protection::Loading, Some(Reason::WaitingForLibrary));
        }
        if core.qp.migration == MigrationState::Rearm && alternate_good {
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
        let protection = match idle {
            true if core.is_movable(cx, self.has_agreed()) => Protection::IdleMovable,
            true => Protection::RearmingIdle,
            false => Protection::Rearming,
        };
        (protection, Some(reason))
    }

    fn forbids_alternate(&self, cx: &Context) -> bool {
        let core = &self.core;
        match &self.side {
            Side::Active(active) => active.negotiation.is_forbidden_by_peer(core, cx),
            Side::Passive(_) => core.forbidden_by(cx).is_some(),
        }
    }

    /// The same, and told apart: a port that is down, and one that has left the partition.
    fn reason(&self, cx: &Context) -> (Reason, bool) {
        let core = &self.core;
        let (reason, busy) = self.first_reason(cx);
        let outside = core.loaded().and_then(|path| {
            let port = core.port_of(cx, path)?;
            (port.is_up() && !port.has_pkey(path.pkey))
                .then_some(Reason::NotInPartition(path.port, path.pkey))
        });
        match (reason, outside) {
            (Reason::AlternatePortDown, Some(outside)) => (outside, busy),
            _ => (reason, busy),
        }
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    fn first_reason(&self, cx: &Context) -> (Reason, bool) {
        let core = &self.core;
        let side = match &self.side {
            Side::Active(active) => active.reason(),
            Side::Passive(passive) => (passive.reason(), passive.is_busy()),
        };
        match core.orders.trouble() {
            _ if side.1 => side,
            Some(trouble) => (trouble, false),
            None if let Some(mode) = core.forbidden_by(cx) => (Reason::Policy(mode), false),
            None if core.loaded().is_some_and(|path| core.is_suspect(cx, path)) => {
                (Reason::AlternateSuspect, false)
            }
            None if core.is_armed() && core.distrusted => (Reason::AlternateRefused, false),
            None if core.is_armed() && matches!(self.side, Side::Passive(_)) => {
                let up = core.loaded().is_some_and(|path| core.is_up(cx, path));
                let lost = match up {
                    true => Reason::AlternatePortDownAtPeer,
                    false => Reason::AlternatePortDown,
                };
                (core.missing_port(cx).unwrap_or(lost), false)
            }
            None if core
                .port_of(cx, &core.qp.primary)
                .is_none_or(|port| !port.is_up()) =>
            {
                (Reason::PrimaryPortDown, false)
            }
            None if matches!(
                side.0,
                Reason::WaitingForLap | Reason::NoPath(QueryError::NoPath)
            ) =>
            {
                let missing = core.missing_port(cx);
                let missing = missing.or_else(|| core.outside_partition(cx, side.0));
                (missing.unwrap_or(side.0), false)
            }
            None => side,
        }
    }

    /// It has stayed unprotected.
    pub(super) fn warn_unprotected(&mut self, cx: &mut Context) {
        if let (_, Some(reason)) = self.judge(cx, cx.now) {
            let peer = self.core.qp.primary.remote_end();
            self.record.warn(cx, self.core.id, reason, peer);
        }
    }

    /// Says in the log what has changed.
    pub(super) fn note_protection(&mut self, cx: &mut Context) {
        let (to, reason) = self.judge(cx, cx.now);
        let id = self.core.id;
        self.record.note_exposure(cx, id, to, reason);
        let node_guid = self.core.node_guid;
        let member = self.core.member();
        cx.path_index
            .expose(member, node_guid, to != Protection::Armed);
        let armed = to == Protection::Armed;
        let grade = self.grade(cx, self.overlap(cx)).filter(|_| armed);
        if self.record.note_protection(cx, id, to, reason, grade) {
            self.core.counters.rearms += u32::from(armed);
            let history = &mut self.core.history;
            history.push(cx.now, Transition::Protection { to, reason });
        }
        let association = self.association_state();
        if self.record.note_association(cx, id, association) {
            let history = &mut self.core.history;
            history.push(cx.now, Transition::Association(association));
        }
    }

    fn association_state(&self) -> AssociationState {
        let (state, _) = match &self.side {
            Side::Active(active) => active.view(),
            Side::Passive(passive) => passive.view(&self.core),
        };
        state
    }

    pub(super) fn association_view(&self, cx: &Context) -> AssociationView {
        let (state, ids) = match &self.side {
            Side::Active(active) => active.view(),
            Side::Passive(passive) => passive.view(&self.core),
        };
        AssociationView {
            state,
            local_comm_id: ids.map(|ids| ids.local),
            remote_comm_id: ids.map(|ids| ids.remote).filter(|&id| id != 0),
            peer_ports: self.core.peer.ports.to_vec(),
            drained_peer_ports: self.core.peer.drained().collect(),
            heard: self.core.peer_heard(cx),
        }
    }
}

/// Whether it would not survive the loss of its primary though it is in use. An idle one has all
/// that it can have; so has one that waits for traffic.
fn is_exposed(protection: Protection, reason: Option<Reason>) -> bool {
    match protection {
        Protection::Armed | Protection::Broken => false,
        Protection::Rearming | Protection::RearmingIdle | Protection::IdleMovable => {
            reason != Some(Reason::WaitingForTraffic)
        }
        Protection::Loading
        | Protection::Migrating
        | Protection::Negotiating
        | Protection::Unprotected
        | Protection::Refused => true,
    }
}
