// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side: opens the association, chooses the alternate, agrees on it with the peer, has it
//! loaded.

mod choice;
mod negotiation;
mod overlaps;
mod proposal;
mod search;

use alloc::boxed::Box;
use core::time::Duration;

use cm_msgs::Gid;
use cm_msgs::association::State;
use cm_msgs::cm::{self, Apr, Dreq, PathFields, Rejected, Req, Sap, SpStatus, Spr};
use cm_msgs::control::MigrationState;
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::sa::PathRecord;

pub(super) use self::negotiation::Negotiation;
use super::Core;
use super::announcement::{Announcement, lap};
use super::association::{ActiveAssociation, BOTH_ACTIVE, CommIds, MraReceived, Outcome};
use super::orders::QpChange;
use super::peer::{News, is_primary_of};
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::{MadSource, Origin, QueryError};
use crate::time::OptionalTime;
use crate::trace::{Drop, What};
use crate::view::{AssociationState, Reason};

/// A connection that closes so soon after its association was opened was not worth opening it.
const SHORT_LIVED: Duration = Duration::from_secs(10);

/// Whether a side is still the active one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Active,
    /// The peer is.
    Yielded,
}

/// The active side of a connection.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Active {
    association: ActiveAssociation,
    /// When the association was opened for the first time.
    opened: OptionalTime,
    pub(super) negotiation: Negotiation,
    announcement: Option<Box<Announcement>>,
}

/// How long ReArm lasts before the peer is asked whether it has the same alternate, which also says that this end has it. One
/// that can be moved while idle asks soon: without that the peer does not move its end.
fn confirm_after(core: &Core, cx: &Context) -> Duration {
    match core.may_be_moved(cx) {
        true => cx.config.rearm_idle * 3 / 2,
        false => cx.config.rearm_confirm,
    }
}

impl Active {
    pub(super) fn start(&mut self, core: &mut Core, cx: &mut Context) {
        cx.admission.enqueue(core.payer, core.id);
        if core.qp.migration == MigrationState::Rearm {
            cx.set(core.id, ConnAlarm::Rearm, confirm_after(core, cx));
        }
    }

    /// It is this connection's turn.
    pub(super) fn admitted(&mut self, core: &mut Core, cx: &mut Context) {
        self.association.ask(core, cx);
    }

    /// It waited for room to send, and there is some.
    pub(super) fn room(&mut self, core: &mut Core, cx: &mut Context) {
        self.association.room(core, cx);
    }

    /// Requests of its own without an answer.
    pub(super) fn in_flight(&self) -> u8 {
        u8::from(self.association.is_in_flight())
            + u8::from(self.negotiation.is_in_flight())
            + u8::from(
                self.announcement
                    .as_ref()
                    .is_some_and(|announcement| announcement.is_in_flight()),
            )
    }

    pub(super) fn close(&mut self, core: &mut Core, cx: &mut Context) -> Option<CommIds> {
        cx.admission.remove(core.payer, core.id);
        let early = |opened| cx.now - opened < SHORT_LIVED;
        if self.opened.get().is_some_and(early) {
            cx.admission.closed_early(cx.now, core.payer);
        }
        self.negotiation.stop(core, cx);
        self.silence(core, cx);
        self.association.close(core, cx)
    }

    pub(super) fn qp_changed(&mut self, core: &mut Core, cx: &mut Context, change: &QpChange) {
        self.negotiation.qp_changed(core, cx, change);
        match core.qp.migration {
            MigrationState::Rearm if core.loaded().is_some() => {
                if !cx.is_set(core.id, ConnAlarm::Rearm) {
                    cx.set(core.id, ConnAlarm::Rearm, confirm_after(core, cx));
                }
            }
            _ => cx.stop(core.id, ConnAlarm::Rearm),
        }
    }

    /// Its ability to be moved while idle has changed.
    pub(super) fn confirm_soon(&mut self, core: &Core, cx: &mut Context) {
        if cx.is_set(core.id, ConnAlarm::Rearm) {
            cx.set(core.id, ConnAlarm::Rearm, confirm_after(core, cx));
        }
    }

    pub(super) fn port_changed(&mut self, core: &mut Core, cx: &mut Context, id: PortId) {
        self.association.retry_now(core, cx);
        self.negotiation.port_changed(core, cx, id);
    }

    /// An operator wants an alternate looked for again, now.
    pub(super) fn look_again(&mut self, core: &mut Core, cx: &mut Context) {
        core.own.forgotten();
        self.association.retry_now(core, cx);
        self.negotiation.look_again(core, cx);
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context, alarm: ConnAlarm) {
        match alarm {
            ConnAlarm::Association => self.association.timeout(core, cx),
            ConnAlarm::Negotiation => self.negotiation.timeout(core, cx, &mut self.association),
            ConnAlarm::Announcement => {
                if let Some(announcement) = self.announcement.take() {
                    self.send_announcement(core, cx, announcement);
                }
            }
            ConnAlarm::Suspect => self.negotiation.suspicion_over(core, cx),
            ConnAlarm::Rearm => {
                // Traffic may be all that is missing; or the peer never loaded its end.
                self.negotiation.confirm(core, cx);
                let wait = (cx.config.rearm_confirm * 2).max(cx.now - core.since);
                cx.set(core.id, ConnAlarm::Rearm, wait.min(cx.config.backoff_max));
            }
            ConnAlarm::Order
            | ConnAlarm::MigrateHold
            | ConnAlarm::StandHold
            | ConnAlarm::Departure
            | ConnAlarm::Unasked
            | ConnAlarm::Failback
            | ConnAlarm::Steered
            | ConnAlarm::Unprotected => {}
        }
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) -> Standing {
        // Whoever names what only the peer was told is the peer, wherever it sends from.
        if source.qpn != 1 {
            cx.drop_mad(source, message.name(), Drop::Stranger);
            return Standing::Active;
        }
        let outcome = match message {
            cm::Message::Apr(apr) => self.apr(core, cx, source, apr),
            cm::Message::Sap(sap) => self.sap(core, cx, source, sap),
            cm::Message::Mra(mra) if mra.message_mraed == MraReceived::Lap as u8 => self
                .negotiation
                .mra(core, cx, &self.association, source, mra),
            _ => self.association.message(core, cx, source, message),
        };
        match outcome {
            Outcome::Other => cx.drop_mad(source, message.name(), Drop::OutOfPlace),
            Outcome::Handled => {}
            Outcome::Opened => {
                if self.opened.get().is_none() {
                    self.opened = cx.now.into();
                    cx.admission.opened(core.payer);
                }
                self.negotiation.opened(core, cx);
            }
            Outcome::Lost => {
                core.verify_no_more(cx);
                self.negotiation.stop(core, cx);
                self.silence(core, cx);
            }
            Outcome::Yielded => return Standing::Yielded,
        }
        Standing::Active
    }

    /// A REQ for this very connection: the peer's daemon takes itself for the active side, too. Of the
    /// two the lower one is; the other learns it from its REJ.
    pub(super) fn req(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, req: &Req) {
        // Anybody can send a REQ, and the peer finds a way by which it is known.
        if !core.knows(cx, source) {
            return cx.drop_mad(source, "REQ", Drop::Stranger);
        }
        // It would not ask if it knew an open association.
        core.own.forgotten();
        let is_ours_to_ask = (req.local_ca_guid, req.local_qpn) > (core.node_guid, core.qpn);
        if is_ours_to_ask {
            let ids = CommIds::from_peer(req.local_comm_id, 0);
            core.answer(cx, source, ids.rej(Rejected::Req, BOTH_ACTIVE));
        }
        self.association.peer_asks(core, cx, is_ours_to_ask);
    }

    /// A SAP of an association that is not open.
    pub(super) fn late_sap(&mut self, core: &mut Core, cx: &mut Context, sap: &Sap) {
        let ids = CommIds::from_peer(sap.local_comm_id, sap.remote_comm_id);
        self.association.late_sap(core, cx, ids);
    }

    /// A DREQ of an association that is not open.
    pub(super) fn late_dreq(&mut self, core: &Core, cx: &mut Context, dreq: &Dreq) {
        self.association.late_dreq(core, cx, dreq);
    }

    fn apr(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, apr: &Apr) -> Outcome {
        let ids = CommIds::from_peer(apr.local_comm_id, apr.remote_comm_id);
        if self.association.ids() != Some(ids) {
            return Outcome::Other;
        }
        let Ok(state) = State::decode(&apr.private_data) else {
            cx.drop_mad(source, "APR", Drop::Malformed);
            return Outcome::Handled;
        };
        self.peer_says(core, cx, source, &state);
        let transaction = source.transaction_id;
        let is_answer =
            |announcement: &mut Box<Announcement>| announcement.is_answered_by(transaction);
        if let Some(announcement) = self.announcement.take_if(is_answer) {
            cx.stop(core.id, ConnAlarm::Announcement);
            announcement.answered(core, cx);
            return Outcome::Handled;
        }
        let association = &mut self.association;
        self.negotiation.apr(core, cx, association, source, apr)
    }

    /// The passive side tells how it is, and perhaps which of its ports it would rather have.
    fn sap(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, sap: &Sap) -> Outcome {
        let ids = CommIds::from_peer(sap.local_comm_id, sap.remote_comm_id);
        if self.association.ids() != Some(ids) {
            return Outcome::Other;
        }
        let Ok(state) = State::decode(&sap.private_data) else {
            cx.drop_mad(source, "SAP", Drop::Malformed);
            return Outcome::Handled;
        };
        self.peer_says(core, cx, source, &state);
        let suggests = !sap.alternate_local_port_gid.is_unspecified();
        let suggested = PortAddress {
            gid: sap.alternate_local_port_gid,
            lid: sap.alternate_local_port_lid,
        };
        let status = if suggests && core.is_anothers_port(cx, &suggested) {
            SpStatus::Rejected
        } else if suggests && self.negotiation.is_proposing() {
            SpStatus::Busy
        } else {
            SpStatus::Success
        };
        cx.trace(core.id, What::SapReceived(status));
        core.look_at_paths(cx);
        let spr = Spr {
            local_comm_id: ids.local,
            remote_comm_id: ids.remote,
            sp_status: status.into(),
            private_data: core.own.state().encode(),
            ..Spr::default()
        };
        core.answer(cx, source, spr);
        if suggests && status == SpStatus::Success {
            self.suggested(core, cx, &state, sap.alternate_local_port_gid);
        } else {
            self.negotiation.peer_may_allow(core, cx);
        }
        Outcome::Handled
    }

    /// The peer would have the alternate end at this port of its own; or, where it does already and the
    /// peer, as it says itself, is armed, it wants to be moved there.
    fn suggested(&mut self, core: &mut Core, cx: &mut Context, state: &State, gid: Gid) {
        let alternate = core.qp.alternate.filter(|_| core.is_armed());
        let good = |path: &Path| core.leads_to_peer(cx, path) && core.is_usable(cx, path);
        let alternate = alternate.filter(good);
        let same = is_primary_of(&core.qp.primary, state) && !core.peer.is_past(state);
        let armed = core.peer.is_armed() && state.migration == MigrationState::Armed;
        match alternate.filter(|_| same && armed) {
            Some(path) if core.suits(cx, &path, gid) && self.negotiation.is_settled() => {
                core.asked_to_move(cx, gid);
            }
            Some(_) => {
                core.steered_to(cx, gid);
                self.negotiation.suggested(core, cx, gid);
            }
            None => self.negotiation.suggested(core, cx, gid),
        }
    }

    /// The peer's daemon says how its end is.
    fn peer_says(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, state: &State) {
        let news = core.peer.update(state);
        core.note_sender(cx, source);
        match news {
            News::None => {}
            News::State => self.negotiation.peer_ports_repeated(core),
            News::Ports => {
                core.complete_paths(cx);
                self.negotiation.peer_ports_changed(core, cx);
            }
        }
    }

    /// Tells the peer how this end is, unless a LAP does that.
    fn announce(&mut self, core: &mut Core, cx: &mut Context) {
        if self.negotiation.is_proposing() {
            self.silence(core, cx);
        } else if self.announcement.is_none()
            && (core.has_news() || core.asks_state(cx))
            && core.has_room(cx)
        {
            core.state_asked(cx);
            let transaction = self.negotiation.next_transaction();
            let announcement = Box::new(Announcement::new(core, transaction));
            self.send_announcement(core, cx, announcement);
        }
    }

    fn send_announcement(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        mut announcement: Box<Announcement>,
    ) {
        let Some(ids) = self.association.ids() else {
            return;
        };
        let lap = lap(core, cx, ids, PathFields::default(), false);
        match announcement.send(core, cx, || lap.into()) {
            Some(wait) => {
                cx.set(core.id, ConnAlarm::Announcement, wait);
                self.announcement = Some(announcement);
            }
            // Perhaps the peer has forgotten the association.
            None => {
                core.round_trip.unanswered(cx);
                self.association.reopen(core, cx, Reason::NoApr);
            }
        }
    }

    /// What was announced is not to be repeated.
    fn silence(&mut self, core: &Core, cx: &mut Context) {
        if let Some(announcement) = self.announcement.take() {
            announcement.take_back(cx);
            cx.stop(core.id, ConnAlarm::Announcement);
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
            self.silence(core, cx);
        } else if self.association.ids().is_some() {
            self.negotiation.drive(core, cx, &mut self.association);
            self.announce(core, cx);
        } else {
            self.association.drive(core, cx);
        }
    }

    /// Whether the association is open.
    pub(super) fn is_open(&self) -> bool {
        self.association.ids().is_some()
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
