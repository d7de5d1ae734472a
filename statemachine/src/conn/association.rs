// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side of an association: REQ until REP, again after every loss.

use alloc::boxed::Box;

use cm_msgs::association::{Refusal, RepData, ReqData};
use cm_msgs::cm::{
    self, Drep, Dreq, FailoverAccepted, Mra, Rej, RejReason, Rejected, Rep, Req, Rtu,
};
use core::time::Duration;

use super::Core;
use super::proposal::fields;
use crate::backoff::Backoff;
use crate::config::SERVICE_ID;
use crate::context::{ConnAlarm, Context, Owner, Route};
use crate::exchange::Exchange;
use crate::input::MadSource;
use crate::proven_ports::SentTo;
use crate::time::OptionalTime;
use crate::token_bucket::TokenBucket;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// The two names of an open association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommIds {
    /// Ours.
    pub(crate) local: u32,
    /// The peer's.
    pub(crate) remote: u32,
}

impl CommIds {
    /// Of a message of the peer's, in its order: each side names itself first. 0 is no name yet.
    pub(crate) const fn from_peer(local_comm_id: u32, remote_comm_id: u32) -> Self {
        Self {
            local: remote_comm_id,
            remote: local_comm_id,
        }
    }

    /// Of a REQ that has no answer: the peer has not named itself.
    fn unanswered(local: u32) -> Self {
        Self { local, remote: 0 }
    }

    fn rtu(self) -> Rtu {
        Rtu {
            local_comm_id: self.local,
            remote_comm_id: self.remote,
            ..Rtu::default()
        }
    }

    pub(crate) fn drep(self) -> Drep {
        Drep {
            local_comm_id: self.local,
            remote_comm_id: self.remote,
            ..Drep::default()
        }
    }

    pub(crate) fn mra(self, message: MraReceived, wait: Duration) -> Mra {
        Mra {
            local_comm_id: self.local,
            remote_comm_id: self.remote,
            message_mraed: message as u8,
            service_timeout: timeout_code(wait),
            ..Mra::default()
        }
    }

    pub(crate) fn rej(self, rejected: Rejected, reason: RejReason) -> Rej {
        Rej {
            local_comm_id: self.local,
            remote_comm_id: self.remote,
            message_rejected: rejected.into(),
            reason: reason.into(),
            ..Rej::default()
        }
    }

    /// Whether a message that names both IDs is of this association.
    pub(super) fn is(self, local: u32, remote: u32) -> bool {
        self.local == local && self.remote == remote
    }
}

/// What an MRA acknowledges (IBA 12.6.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MraReceived {
    Req = 0,
    Lap = 2,
}

/// 4.096 us * 2^n, rounded up, as CM messages code times in 5 bits.
pub(super) fn timeout_code(span: Duration) -> u8 {
    (0..31)
        .find(|&code| code_timeout(code) >= span)
        .unwrap_or(31)
}

/// The time that 5 bits of a CM message code.
pub(super) fn code_timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 31))
}

/// Copies of a REQ without an answer after which nobody seems to be there.
const SILENT: u8 = 4;

/// Pauses between copies of a REQ that the peer keeps: a daemon that is started anew there has forgotten it.
const PARKED: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));

/// Why a REQ to an active side is rejected: that side opens the association itself.
pub(super) const BOTH_ACTIVE: RejReason = RejReason::StaleConnection;

#[cfg_attr(test, derive(Clone, Debug))]
enum State {
    /// Other connections come first, of its owner's or of others.
    Queued,
    /// There is no room for a REQ.
    NoRoom,
    /// Nothing is asked; the next REQ goes out when the timer says.
    BackingOff(Box<Pause>),
    ReqSent(Box<ReqSent>),
    /// REP received.
    Established {
        ids: CommIds,
    },
}

/// A pause between attempts.
#[cfg_attr(test, derive(Clone, Debug))]
struct Pause {
    why: Reason,
    given_up: Option<CommIds>,
}

/// A REQ that has no REP.
#[cfg_attr(test, derive(Clone, Debug))]
struct ReqSent {
    comm_id: u32,
    exchange: Exchange,
    parked: bool,
    /// Sequence number of our state in its first copy.
    told: u32,
    /// Where its copies went.
    sent_to: SentTo,
    /// The association before, which this end gave up and the peer may still take for open.
    given_up: Option<CommIds>,
}

/// The active side of an association.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct ActiveAssociation {
    state: State,
    /// Attempts in a row of which nothing came.
    failures: u32,
    /// When it was opened anew without a pause.
    reopened: OptionalTime,
    /// Where the next exchange begins its rotation.
    route: u8,
    /// Limits how often the peer's messages end a pause between our REQs.
    by_peer: TokenBucket<4, 1_000_000>,
}

/// What a message did to an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Nothing to do with it.
    Other,
    /// It is open now.
    Opened,
    /// It is not open any more.
    Lost,
    /// The peer is the active side as well, and comes first.
    Yielded,
    /// Taken care of.
    Handled,
}

impl Default for ActiveAssociation {
    fn default() -> Self {
        Self {
            state: State::Queued,
            failures: 0,
            reopened: OptionalTime::default(),
            route: 0,
            by_peer: TokenBucket::default(),
        }
    }
}

impl ActiveAssociation {
    pub(super) fn ids(&self) -> Option<CommIds> {
        match self.state {
            State::Established { ids } => Some(ids),
            _ => None,
        }
    }

    /// Why it is not open.
    pub(super) fn reason(&self) -> Option<Reason> {
        match &self.state {
            State::Queued | State::NoRoom => Some(Reason::Queued),
            State::BackingOff(pause) => Some(pause.why),
            State::ReqSent(sent) if sent.parked => Some(Reason::PeerNotRegistered),
            State::ReqSent(sent) if self.failures > 0 || sent.exchange.tries() >= SILENT => {
                Some(Reason::PeerNoApmd)
            }
            State::ReqSent(_) => Some(Reason::Opening),
            State::Established { .. } => None,
        }
    }

    pub(super) fn view(&self) -> (AssociationState, Option<CommIds>) {
        match &self.state {
            State::Queued | State::NoRoom => (AssociationState::None, None),
            State::BackingOff(pause) => match pause.why {
                Reason::PeerRefused(_) => (AssociationState::Refused, None),
                _ => (AssociationState::Pausing, None),
            },
            State::ReqSent(sent) => {
                let state = if sent.parked {
                    AssociationState::Parked
                } else {
                    AssociationState::Opening
                };
                (state, Some(CommIds::unanswered(sent.comm_id)))
            }
            State::Established { ids } => (AssociationState::Established, Some(*ids)),
        }
    }

    /// Starts, or starts again: a new name, and the first REQ.
    pub(super) fn ask(&mut self, core: &mut Core, cx: &mut Context) {
        let given_up = self.forget(core, cx);
        if !core.has_room(cx) {
            forget_names(cx, given_up);
            cx.stop(core.id, ConnAlarm::Association);
            self.state = State::NoRoom;
            return;
        }
        let comm_id = cx.comm_id(Owner::Conn(core.id));
        let exchange = Exchange::new(cx.transaction(), self.route);
        self.state = State::ReqSent(Box::new(ReqSent {
            comm_id,
            exchange,
            parked: false,
            told: core.own.sequence(),
            sent_to: SentTo::default(),
            given_up,
        }));
        self.send_req(core, cx);
    }

    /// The connection may be in another class than when it began to wait.
    pub(super) fn drive(&self, core: &Core, cx: &mut Context) {
        if let State::NoRoom = self.state {
            core.keep_waiting(cx);
        }
    }

    /// It waited for room, and there is some.
    pub(super) fn room(&mut self, core: &mut Core, cx: &mut Context) {
        if let State::NoRoom = self.state {
            self.ask(core, cx);
        }
    }

    /// Whether a REQ has no answer of any kind.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(&self.state, State::ReqSent(sent) if !sent.parked && !sent.exchange.has_yielded())
    }

    /// The peer has agreed to a path.
    pub(super) fn works(&mut self) {
        self.failures = 0;
    }

    /// The peer knows nothing of it, or does not answer: it is opened anew, at once if all was well, or after a pause.
    /// A peer may agree to a path and know nothing of it, again and again.
    pub(super) fn reopen(&mut self, core: &mut Core, cx: &mut Context, why: Reason) {
        let is_soon = self
            .reopened
            .get()
            .is_some_and(|at| cx.now - at < cx.config.backoff_first);
        if self.failures > 0 || is_soon {
            return self.back_off(core, cx, why);
        }
        self.failures = 1;
        self.reopened = cx.now.into();
        self.ask(core, cx);
    }

    /// A REQ of the peer's has come, so its daemon is present: ends a pause between our REQs. If this end is the one that
    /// opens the association (`is_ours_to_ask`), the peer's application has registered, and a REQ parked there is sent
    /// again. Rate-limited, or a peer that sends REQs and REJs in turn would get a REQ with every round trip.
    pub(super) fn peer_asks(&mut self, core: &mut Core, cx: &mut Context, is_ours_to_ask: bool) {
        let asks = match &self.state {
            State::BackingOff(_) => true,
            State::ReqSent(sent) => is_ours_to_ask && sent.parked,
            State::Queued | State::NoRoom | State::Established { .. } => false,
        };
        if asks && self.by_peer.try_take(cx.now) {
            self.end_pause(core, cx);
        }
    }

    /// A SAP of the association that this end gave up: the peer is present, so a pause between our REQs or between the
    /// late copies of one ends. Nobody else knows these names.
    pub(super) fn late_sap(&mut self, core: &mut Core, cx: &mut Context, ids: CommIds) {
        let asks = match &self.state {
            State::BackingOff(pause) => pause.given_up == Some(ids),
            // Its copies got lost, and the next one is due after a while.
            State::ReqSent(sent) => sent.given_up == Some(ids) && sent.exchange.tries() >= SILENT,
            State::Queued | State::NoRoom | State::Established { .. } => false,
        };
        if asks && self.by_peer.try_take(cx.now) {
            self.end_pause(core, cx);
        }
    }

    /// A DREQ of the association that this end gave up, as of an open one. Its copies name an association that nobody has
    /// any more.
    pub(super) fn late_dreq(&mut self, core: &Core, cx: &mut Context, dreq: &Dreq) {
        let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
        let given_up = match &mut self.state {
            State::BackingOff(pause) => &mut pause.given_up,
            State::ReqSent(sent) => &mut sent.given_up,
            State::Queued | State::NoRoom | State::Established { .. } => return,
        };
        let given_up = given_up.take_if(|given_up| *given_up == ids);
        if given_up.is_some() {
            core.disconnected(cx, dreq);
            forget_names(cx, given_up);
        }
    }

    /// If it is pausing: stop that.
    pub(super) fn retry_now(&mut self, core: &mut Core, cx: &mut Context) {
        if let State::BackingOff(_) = self.state {
            self.end_pause(core, cx);
        }
    }

    /// Ends a pause, if there is one, before its time, and asks. The next pause is as long as this one was to be: pauses
    /// grow with the time that has passed without an answer.
    fn end_pause(&mut self, core: &mut Core, cx: &mut Context) {
        if let State::BackingOff(_) = self.state {
            self.failures = self.failures.saturating_sub(1).max(1);
        }
        self.ask(core, cx);
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context) {
        match self.state {
            State::BackingOff(_) => self.ask(core, cx),
            State::ReqSent(_) => self.send_req(core, cx),
            State::Queued | State::NoRoom | State::Established { .. } => {}
        }
    }

    fn send_req(&mut self, core: &mut Core, cx: &mut Context) {
        let State::ReqSent(sent) = &mut self.state else {
            return;
        };
        let routes = core.routes(cx);
        let req = req(core, cx, sent.comm_id);
        let claim = core.charged(cx);
        core.note_sent(cx, &mut sent.sent_to, &routes);
        match sent
            .exchange
            .next(cx, &claim, &routes, core.round_trip, || req.into())
        {
            Some(wait) => {
                self.route = sent.exchange.next_route();
                cx.set(core.id, ConnAlarm::Association, wait);
            }
            // Somebody was there, and may have forgotten the REQ: no reason for a pause.
            None if sent.parked => self.ask(core, cx),
            None => {
                core.round_trip.unanswered(cx);
                self.back_off(core, cx, Reason::PeerNoApmd);
            }
        }
    }

    /// Gives up for a while.
    pub(super) fn back_off(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        let given_up = self.forget(core, cx);
        let delay = match why {
            // Most queue pairs that are in RTR go on to RTS.
            Reason::PeerRefused(Some(Refusal::ReceivesOnly)) => cx.backoff_delay(self.failures),
            // A decision, not a failure: asked soon again, the peer would say the same.
            Reason::PeerRefused(_) => cx.config.backoff_max,
            _ => cx.backoff_delay(self.failures),
        };
        self.failures += 1;
        self.state = State::BackingOff(Box::new(Pause { why, given_up }));
        cx.set(core.id, ConnAlarm::Association, delay);
    }

    /// Forgets the names of this state. Returns those of an association that the peer may take for open: they lead here
    /// until [`forget_names`].
    fn forget(&self, core: &Core, cx: &mut Context) -> Option<CommIds> {
        match &self.state {
            State::ReqSent(sent) => {
                sent.exchange.take_back(cx);
                cx.comm_ids.remove(&sent.comm_id);
                sent.given_up
            }
            State::Established { ids } => {
                cx.comm_ids.insert(ids.local, Owner::GivenUp(core.id));
                Some(*ids)
            }
            State::BackingOff(pause) => pause.given_up,
            State::Queued | State::NoRoom => None,
        }
    }

    /// The peer has closed the association before: it sends a copy of its DREQ at most, which is answered as any stray one.
    fn forget_given_up(&mut self, cx: &mut Context) {
        if let State::BackingOff(pause) = &mut self.state {
            forget_names(cx, pause.given_up.take());
        }
    }

    /// The application has gone. What there is to close is left to the caller.
    pub(super) fn close(&mut self, core: &Core, cx: &mut Context) -> Option<CommIds> {
        let given_up = self.forget(core, cx);
        forget_names(cx, given_up);
        if let State::ReqSent(sent) = &self.state {
            // A REQ may be parked at the peer; if this is lost, its time there runs out.
            let ids = CommIds::unanswered(sent.comm_id);
            let rej = ids.rej(Rejected::NoMessage, RejReason::ConsumerReject);
            if let Some(&route) = core.routes(cx).first() {
                cx.send(route, sent.exchange.transaction, rej);
            }
        }
        self.ids()
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) -> Outcome {
        match message {
            cm::Message::Rep(rep) => self.rep(core, cx, source, rep),
            cm::Message::Mra(mra) => self.mra(core, cx, mra),
            cm::Message::Rej(rej) => self.rej(core, cx, rej),
            cm::Message::Dreq(dreq) => self.dreq(core, cx, source, dreq),
            _ => Outcome::Other,
        }
    }

    fn rep(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, rep: &Rep) -> Outcome {
        let ids = CommIds::from_peer(rep.local_comm_id, rep.remote_comm_id);
        let Ok(data) = RepData::decode(&rep.private_data) else {
            cx.drop_mad(source, "REP", Drop::Malformed);
            return Outcome::Handled;
        };
        match &self.state {
            State::Established { ids: open } if *open == ids => {
                core.answer(cx, source, ids.rtu());
                Outcome::Handled
            }
            // A peer that has been started anew answered a late copy of an old REQ.
            State::Established { .. } => {
                let rej = ids.rej(Rejected::Rep, RejReason::InvalidCommId);
                cx.reply(Route::from(source), source.transaction_id, rej);
                Outcome::Handled
            }
            // Only the ID of this REQ leads here: those of earlier ones are forgotten.
            State::ReqSent(sent) => {
                let (told, sent_to, given_up) = (sent.told, sent.sent_to, sent.given_up);
                if !sent.parked {
                    sent.exchange.answered(cx, &mut core.round_trip);
                }
                if rep.failover() != FailoverAccepted::Accepted {
                    self.back_off(core, cx, Reason::PeerRefused(data.refusal));
                    return Outcome::Handled;
                }
                core.proven(cx, &data.state, told, sent_to);
                core.note_sender(cx, source);
                self.route = 0;
                forget_names(cx, given_up);
                self.state = State::Established { ids };
                cx.stop(core.id, ConnAlarm::Association);
                cx.counters.associations += 1;
                core.answer(cx, source, ids.rtu());
                Outcome::Opened
            }
            _ => Outcome::Other,
        }
    }

    fn mra(&mut self, core: &Core, cx: &mut Context, mra: &Mra) -> Outcome {
        match &mut self.state {
            State::ReqSent(sent) if mra.message_mraed == MraReceived::Req as u8 => {
                sent.parked = true;
                // Its 5 bits can say 2.4 hours, in which a peer could put us off for good, or 4 us.
                let copies = u32::from(sent.exchange.tries());
                let pause = cx.jitter(PARKED.after(copies.saturating_sub(1)));
                let wait = code_timeout(mra.service_timeout);
                let wait = wait.min(pause).max(cx.config.retry_first);
                cx.set(core.id, ConnAlarm::Association, wait);
                Outcome::Handled
            }
            _ => Outcome::Other,
        }
    }

    fn rej(&mut self, core: &mut Core, cx: &mut Context, rej: &Rej) -> Outcome {
        match self.state {
            State::ReqSent(_) if rej.rej_reason() == BOTH_ACTIVE => Outcome::Yielded,
            State::ReqSent(_) => {
                self.back_off(core, cx, Reason::Rejected(rej.reason));
                Outcome::Handled
            }
            State::Established { ids } if ids.is(rej.remote_comm_id, rej.local_comm_id) => {
                let why = Reason::Rejected(rej.reason);
                match rej.rej_reason() {
                    // A daemon that was started anew. One that says so again and again has to wait.
                    RejReason::InvalidCommId => self.reopen(core, cx, why),
                    _ => self.back_off(core, cx, why),
                }
                Outcome::Lost
            }
            _ => Outcome::Other,
        }
    }

    fn dreq(&mut self, core: &Core, cx: &mut Context, source: &MadSource, dreq: &Dreq) -> Outcome {
        let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
        // In every state: a peer without an answer goes on repeating it.
        cx.reply(Route::from(source), source.transaction_id, ids.drep());
        match self.state {
            State::Established { ids: open } if open == ids => {
                core.disconnected(cx, dreq);
                self.back_off(core, cx, Reason::PeerClosed);
                self.forget_given_up(cx);
                Outcome::Lost
            }
            State::ReqSent(_) => {
                self.back_off(core, cx, Reason::PeerClosed);
                Outcome::Handled
            }
            _ => Outcome::Other,
        }
    }
}

/// Messages with the names of an association that was given up lead here no more: another is open, or none is asked for.
fn forget_names(cx: &mut Context, given_up: Option<CommIds>) {
    if let Some(ids) = given_up {
        cx.comm_ids.remove(&ids.local);
    }
}

/// REQ for the application's connection as it is now.
fn req(core: &Core, cx: &Context, comm_id: u32) -> Req {
    let primary = &core.qp.primary;
    Req {
        local_comm_id: comm_id,
        service_id: SERVICE_ID,
        local_ca_guid: core.node_guid,
        local_qpn: core.qpn,
        remote_cm_response_timeout: timeout_code(cx.config.retry_first),
        local_cm_response_timeout: timeout_code(cx.config.retry_first),
        partition_key: primary.pkey,
        path_packet_payload_mtu: primary.mtu,
        max_cm_retries: cx.config.tries.min(15),
        primary: fields(primary),
        alternate: core.loaded().map(fields).unwrap_or_default(),
        sap_supported: true,
        private_data: ReqData {
            peer_qpn: core.peer_qpn,
            state: core.own.state(),
        }
        .encode(),
        ..Req::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_coded_upwards() {
        assert_eq!(timeout_code(Duration::from_micros(4)), 0);
        assert_eq!(timeout_code(Duration::from_micros(5)), 1);
        assert!(code_timeout(timeout_code(Duration::from_secs(30))) >= Duration::from_secs(30));
        assert_eq!(timeout_code(Duration::MAX), 31);
    }
}
