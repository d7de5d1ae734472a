// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side: opens the association, chooses the alternate, agrees on it with the peer, has it
//! loaded.

mod choice;
mod negotiation;
mod overlaps;
mod proposal;
mod search;

use core::time::Duration;

use cm_msgs::cm;
use cm_msgs::control::MigrationState;
use cm_msgs::sa::PathRecord;

pub(super) use self::negotiation::Negotiation;
use super::Core;
use super::association::{ActiveAssociation, CommIds, MraReceived, Outcome};
use super::orders::QpChange;
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::{MadSource, Origin, QueryError};
use crate::time::Time;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// A connection that closes so soon after its association was opened was not worth opening it.
const SHORT_LIVED: Duration = Duration::from_secs(10);

/// The active side of a connection.
#[derive(Default)]
pub(super) struct Active {
    association: ActiveAssociation,
    /// When the association was opened for the first time.
    opened: Option<Time>,
    pub(super) negotiation: Negotiation,
}

impl Active {
    pub(super) fn start(&mut self, core: &mut Core, cx: &mut Context) {
        cx.admission.enqueue(core.id);
        if core.qp.migration == MigrationState::Rearm {
            cx.set(core.id, ConnAlarm::Rearm, cx.config.rearm_confirm);
        }
    }

    /// It is this connection's turn.
    pub(super) fn admitted(&mut self, core: &Core, cx: &mut Context) {
        self.association.ask(core, cx);
    }

    pub(super) fn close(&mut self, core: &mut Core, cx: &mut Context) -> Option<CommIds> {
        cx.admission.remove(core.id);
        let early = |opened| cx.now - opened < SHORT_LIVED;
        if self.opened.is_some_and(early) {
            cx.admission.closed_early(cx.now, core.id);
        }
        self.negotiation.stop(core, cx);
        self.association.close(core, cx)
    }

    pub(super) fn qp_changed(&mut self, core: &mut Core, cx: &mut Context, change: &QpChange) {
        self.negotiation.qp_changed(core, cx, change);
        match core.qp.migration {
            MigrationState::Rearm if core.loaded().is_some() => {
                if !cx.is_set(core.id, ConnAlarm::Rearm) {
                    cx.set(core.id, ConnAlarm::Rearm, cx.config.rearm_confirm);
                }
            }
            _ => cx.stop(core.id, ConnAlarm::Rearm),
        }
    }

    pub(super) fn port_changed(&mut self, core: &mut Core, cx: &mut Context, id: PortId) {
        self.association.retry_now(core, cx);
        self.negotiation.port_changed(core, cx, id);
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context, alarm: ConnAlarm) {
        match alarm {
            ConnAlarm::Association => self.association.timeout(core, cx),
            ConnAlarm::Negotiation => self.negotiation.timeout(core, cx, &mut self.association),
            ConnAlarm::Suspect => self.negotiation.suspicion_over(core, cx),
            ConnAlarm::Rearm => {
                // Traffic may be all that is missing; or the peer never loaded its end.
                self.negotiation.confirm(core, cx);
                let wait = (cx.config.rearm_confirm * 2).max(cx.now - core.since);
                cx.set(core.id, ConnAlarm::Rearm, wait.min(cx.config.backoff_max));
            }
            ConnAlarm::Order | ConnAlarm::MigrateHold | ConnAlarm::Unprotected => {}
        }
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) {
        if !core.knows(cx, source) {
            cx.drop_mad(source, message.name(), Drop::Stranger);
            return;
        }
        let Self {
            association,
            opened,
            negotiation,
        } = self;
        let outcome = match message {
            cm::Message::Apr(apr) => negotiation.apr(core, cx, association, source, apr),
            cm::Message::Mra(mra) if mra.message_mraed == MraReceived::Lap as u8 => {
                negotiation.mra(core, cx, association, source, mra)
            }
            _ => association.message(core, cx, source, message),
        };
        match outcome {
            Outcome::Other => cx.drop_mad(source, message.name(), Drop::OutOfPlace),
            Outcome::Handled => {}
            Outcome::Opened => {
                if opened.is_none() {
                    *opened = Some(cx.now);
                    cx.admission.opened(core.id);
                }
                negotiation.opened(core, cx);
            }
            Outcome::Lost => negotiation.stop(core, cx),
        }
    }

    pub(super) fn paths(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        number: u32,
        result: Result<&[PathRecord], QueryError>,
        origin: Option<Origin>,
    ) {
        let association = &mut self.association;
        self.negotiation
            .paths(core, cx, association, number, result, origin);
    }

    pub(super) fn drive(&mut self, core: &mut Core, cx: &mut Context) {
        if !core.in_rts() {
            self.negotiation.stop(core, cx);
        } else if self.association.ids().is_some() {
            self.negotiation.drive(core, cx, &mut self.association);
        }
    }

    // ---- what to show ----

    pub(super) fn view(&self) -> (AssociationState, Option<CommIds>) {
        self.association.view()
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    pub(super) fn reason(&self) -> (Reason, bool) {
        match self.association.reason() {
            Some(reason) => (reason, false),
            None => self.negotiation.reason(),
        }
    }
}
