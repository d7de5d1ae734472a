// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passive side: answers REQ and LAP, and tells by SAP how it is.

mod handshake;
mod lap;
mod suggestion;

use alloc::boxed::Box;
use core::mem;
use core::time::Duration;

use cm_msgs::Gid;
use cm_msgs::association::{RepData, ReqData, State};
use cm_msgs::cm::{self, ApStatus, FailoverAccepted, PathFields, Rej, Rep, Req};
use cm_msgs::path::Path;

use self::handshake::{Handshake, Sender};
use self::suggestion::Suggestion;
use super::association::CommIds;
use super::qp::Core;
use crate::backoff::Backoff;
use crate::context::{ConnAlarm, Context, Owner, Route};
use crate::guard::guard;
use crate::input::MadSource;
use crate::token_bucket::TokenBucket;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// A LAP.
#[derive(Clone, Copy, Debug)]
struct Proposal {
    ids: CommIds,
    /// Where it came from.
    source: MadSource,
    alternate: PathFields,
    /// How the sender was when it sent.
    state: State,
    /// The sender has the alternate already.
    loaded: bool,
    /// Orders that it took so far to find out how the QP really is.
    trips: u8,
}

/// Orders that a LAP may take before it counts as stale.
const MAX_TRIPS: u8 = 2;

/// What an APR says, besides how this end is.
#[derive(Clone, Copy, Debug)]
struct Answer {
    ids: CommIds,
    /// The LAP's.
    transaction: u32,
    /// Of the state that came with it.
    sequence: u32,
    status: ApStatus,
    /// A port of ours that would do, if the one that was proposed does not.
    better: Option<Gid>,
}

/// What was done about the last LAP.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
enum LapState {
    /// There was none.
    #[default]
    None,
    /// It waits for the library to be free.
    Waiting(Box<Proposal>),
    /// The two primaries differ: the QP follows the peer's, or its library looks what is true.
    Comparing(Box<Proposal>),
    /// The library loads.
    Loading(Box<Proposal>),
    /// It was answered with this.
    Answered(Answer),
}

/// What is known of the peer's alternate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum PeerHas {
    /// Nothing.
    #[default]
    Unknown,
    /// The peer has proposed the one that is loaded here: it has the same, or the one before, or none.
    Proposed,
    /// It has loaded the same.
    Loaded,
}

impl PeerHas {
    /// By a LAP that names the alternate that is loaded here.
    fn by(proposal: &Proposal) -> Self {
        match proposal.loaded {
            true => Self::Loaded,
            false => Self::Proposed,
        }
    }
}

/// The passive side of a connection.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Passive {
    open: Option<CommIds>,
    /// The next association, which replaces `open` when it is seen to be real: so neither a stranger's
    /// REQ nor a late one of an association long gone does harm.
    handshake: Option<Box<Handshake>>,
    lap: LapState,
    suggestion: Suggestion,
    /// The alternate before the present one. A peer that migrated while its answer was on the way
    /// is on this.
    replaced: Option<Box<Path>>,
    peer_has: PeerHas,
    /// The last LAP could not be followed, for this reason.
    refused_lap: Option<ApStatus>,
    /// Limits the orders to the library that LAPs cause: each costs a firmware command.
    lap_orders: TokenBucket<LAP_ORDERS, 1_000_000>,
    /// A REQ was answered with this end's refusal: the peer may not ask again for a minute.
    has_refused: bool,
}

/// Orders for LAPs that may go out at once; from then on it is one a second.
const LAP_ORDERS: u32 = 16;

/// Pauses after which a passive end without an alternate acts by itself. It announces its state again: the answer shows
/// whether the peer still knows the association. If the peer does not, this end becomes active. A daemon that was
/// restarted may consider itself passive, too.
const UNAIDED: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(600));

impl Passive {
    /// Waits for the peer's REQ, but not for ever: the peer may be passive, too, or take the association that it had
    /// with the daemon before this one for open.
    pub(super) fn start(&mut self, core: &Core, cx: &mut Context) {
        let wait = if mem::take(&mut self.has_refused) {
            cx.config.unasked_for / SOONER
        } else {
            unasked_for(core, cx)
        };
        cx.set(core.id, ConnAlarm::Unasked, wait);
    }

    /// A REQ was answered with a refusal. Once that ends this end asks, since the peer may not do so for long.
    pub(super) fn has_refused(&mut self) {
        self.has_refused = true;
    }

    /// Sets the timer of [`UNAIDED`] while the association is open and no alternate is loaded.
    fn await_proposal(&mut self, core: &mut Core, cx: &mut Context) {
        if core.loaded().is_some() {
            core.unaided = 0;
        }
        if self.open.is_none() {
            return;
        }
        let waits = core.in_rts() && !self.is_busy() && core.loaded().is_none();
        match (waits, cx.is_set(core.id, ConnAlarm::Unasked)) {
            (true, false) => {
                // No jitter: the window limits how many announcements leave at once.
                let wait = UNAIDED.after(core.unaided.into());
                cx.set(core.id, ConnAlarm::Unasked, wait);
            }
            (false, true) => cx.stop(core.id, ConnAlarm::Unasked),
            (true, true) | (false, false) => {}
        }
    }

    /// No alternate was proposed for long: announces this end's state again.
    pub(super) fn make_sure_of_peer(&mut self, core: &mut Core) {
        core.unaided = core.unaided.saturating_add(1);
        core.own.forgotten();
    }

    /// Whether the peer has left the association to this side for too long.
    pub(super) fn is_unasked(&self, core: &Core) -> bool {
        self.open.is_none() && self.asked_as().is_none() && core.in_rts()
    }

    pub(super) fn req(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        req: &Req,
        data: &ReqData,
    ) {
        // A copy of the REQ: our REP was lost, or has crossed it.
        if let Some(ids) = self.open.filter(|ids| ids.remote == req.local_comm_id) {
            return core.answer(cx, source, rep(core, ids));
        }
        let handshake = self
            .handshake
            .get_or_insert_with(|| Box::new(Handshake::new(cx.comm_id(Owner::Conn(core.id)))));
        let ids = CommIds {
            local: handshake.local,
            remote: req.local_comm_id,
        };
        let (known, told) = (core.knows(cx, source), core.own.sequence());
        let sender = if known {
            Sender::AtPeer
        } else {
            Sender::Elsewhere
        };
        if let Some(before) = handshake.take(sender, ids.remote, &data.state, told, cx.now) {
            cx.set(core.id, ConnAlarm::Association, cx.config.parked_for);
            let routes = core.routes(cx);
            let elsewhere = routes.get(before % routes.len().max(1)).copied();
            let route = if known {
                core.route_back(cx, source)
            } else {
                // Each by another route: one may have failed.
                elsewhere
            };
            if let Some(route) = route {
                core.note_sent(cx, &mut handshake.sent_to, &[route]);
                cx.reply(route, source.transaction_id, rep(core, ids));
            }
            // The REP is no answer of the peer's yet.
            if guard!(HandshakeFirst, false) {
                self.confirm(core, cx, ids.local, ids.remote);
            }
        }
    }

    /// Whether the peer has said that it has loaded the alternate that this end has, or is armed since it has proposed
    /// that, and has proposed nothing since.
    pub(super) fn has_agreed(&self, core: &Core) -> bool {
        let has_loaded = match self.peer_has {
            PeerHas::Unknown => false,
            PeerHas::Proposed => core.peer.is_armed_on(&core.qp.primary),
            PeerHas::Loaded => true,
        };
        has_loaded && !self.is_busy()
    }

    /// Requests of its own without an answer.
    pub(super) fn in_flight(&self) -> u8 {
        u8::from(self.suggestion.is_in_flight())
    }

    fn forget_handshake(&mut self, core: &Core, cx: &mut Context) {
        if let Some(handshake) = self.handshake.take() {
            cx.comm_ids.remove(&handshake.local);
            cx.stop(core.id, ConnAlarm::Association);
        }
    }

    fn forget_open(&mut self, core: &mut Core, cx: &mut Context) {
        if let Some(ids) = self.open.take() {
            cx.comm_ids.remove(&ids.local);
            self.lap = LapState::None;
            core.verify_no_more(cx);
            self.suggestion.stop(core, cx);
        }
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context, alarm: ConnAlarm) {
        match alarm {
            ConnAlarm::Announcement => self.suggestion.timeout(core, cx, self.open),
            _ => self.forget_handshake(core, cx),
        }
    }

    /// An operator wants an alternate looked for again: a SAP asks the peer, who chooses.
    pub(super) fn look_again(&mut self, core: &mut Core, cx: &mut Context) {
        core.own.forgotten();
        self.suggestion.trigger(core, cx);
    }

    pub(super) fn port_changed(&mut self, core: &Core, cx: &mut Context) {
        self.suggestion.trigger(core, cx);
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) {
        // Whoever names what only the peer was told is the peer, wherever it sends from.
        if source.qpn != 1 {
            cx.drop_mad(source, message.name(), Drop::Stranger);
            return;
        }
        let taken = match message {
            cm::Message::Rtu(rtu) => {
                let open = self.confirm(core, cx, rtu.remote_comm_id, rtu.local_comm_id);
                if open {
                    core.note_sender(cx, source);
                }
                open
            }
            cm::Message::Lap(lap) => {
                self.confirm(core, cx, lap.remote_comm_id, lap.local_comm_id)
                    && self.lap(core, cx, source, lap)
            }
            cm::Message::Spr(spr) => self.spr(core, cx, source, spr),
            cm::Message::Dreq(dreq) => {
                let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
                cx.reply(Route::from(source), source.transaction_id, ids.drep());
                if self.open == Some(ids) {
                    core.disconnected(cx, dreq);
                }
                self.closed_by_peer(core, cx, ids)
            }
            cm::Message::Rej(rej) => self.rej(core, cx, rej),
            _ => false,
        };
        if !taken {
            cx.drop_mad(source, message.name(), Drop::OutOfPlace);
        }
    }

    /// RTU, or whatever only an open association sends. Whether the association is (now) open.
    fn confirm(&mut self, core: &mut Core, cx: &mut Context, local: u32, remote: u32) -> bool {
        if self.open.is_some_and(|ids| ids.is(local, remote)) {
            return true;
        }
        let handshake = self.handshake.as_mut();
        let sent_to = handshake.as_ref().map(|handshake| handshake.sent_to);
        let Some(offer) = handshake.and_then(|handshake| handshake.confirm(local, remote)) else {
            return false;
        };
        self.forget_open(core, cx);
        // Its name is the open association's now.
        self.handshake = None;
        cx.stop(core.id, ConnAlarm::Association);
        cx.stop(core.id, ConnAlarm::Unasked);
        cx.counters.associations += 1;
        self.open = Some(CommIds { local, remote });
        core.proven(cx, &offer.state, offer.told, sent_to.unwrap_or_default());
        true
    }

    fn closed_by_peer(&mut self, core: &mut Core, cx: &mut Context, ids: CommIds) -> bool {
        if self.open == Some(ids) {
            self.forget_open(core, cx);
            self.start(core, cx);
            return true;
        }
        let handshake = self.handshake.as_mut();
        let Some(handshake) = handshake.filter(|handshake| handshake.local == ids.local) else {
            return false;
        };
        handshake.refused(ids.remote);
        true
    }

    fn rej(&mut self, core: &mut Core, cx: &mut Context, rej: &Rej) -> bool {
        let ids = CommIds::from_peer(rej.local_comm_id, rej.remote_comm_id);
        let was_open = self.open == Some(ids);
        let taken = self.closed_by_peer(core, cx, ids);
        if was_open {
            // The peer's daemon is running. An active one sends a REQ at once; if none comes it is passive, too.
            let wait = UNAIDED.after(core.unaided.into());
            core.unaided = core.unaided.saturating_add(1);
            cx.set(core.id, ConnAlarm::Unasked, wait.min(unasked_for(core, cx)));
        }
        taken
    }

    /// The application has gone.
    pub(super) fn close(&mut self, core: &mut Core, cx: &mut Context) -> Option<CommIds> {
        let handshake = self.handshake.take();
        if let Some(handshake) = &handshake {
            cx.comm_ids.remove(&handshake.local);
        }
        let open = self.open;
        self.forget_open(core, cx);
        open.or(handshake.and_then(|handshake| handshake.ids()))
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Probes of a path do not come back: the peer, which chooses, is to look at it.
    pub(super) fn path_suspect(&mut self, core: &mut Core, cx: &mut Context) {
        core.own.repeat();
        self.suggestion.trigger(core, cx);
    }

    pub(super) fn view(&self, core: &Core) -> (AssociationState, Option<CommIds>) {
        match (self.open, self.asked_as()) {
            _ if core.refused.is_some() => (AssociationState::Refused, None),
            (Some(ids), _) => (AssociationState::Established, Some(ids)),
            (None, Some(ids)) => (AssociationState::Opening, Some(ids)),
            (None, None) => (AssociationState::None, None),
        }
    }

    /// The names in a REQ of the peer's that was answered.
    fn asked_as(&self) -> Option<CommIds> {
        self.handshake
            .as_ref()
            .and_then(|handshake| handshake.ids())
    }

    /// Why there is no alternate.
    pub(super) fn reason(&self) -> Reason {
        match (self.open, self.asked_as(), self.refused_lap) {
            (None, None, _) => Reason::WaitingForReq,
            (None, Some(_), _) => Reason::Opening,
            (Some(_), _, Some(status)) => Reason::AprSent(status),
            (Some(_), _, None) => Reason::WaitingForLap,
        }
    }

    /// Whether a LAP is being answered.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self.lap,
            LapState::Waiting(_) | LapState::Comparing(_) | LapState::Loading(_)
        )
    }
}

/// Times that the higher of two passive ends waits longer than the lower one.
const HIGHER_WAITS: u32 = 6;

/// Times that a REQ is waited for less long where there is a reason to expect none.
const SOONER: u32 = 5;

/// How long the peer's REQ is waited for. Of two passive ends the lower one asks; the higher one much later, since the
/// lower may take the association that it had with the daemon before this one for open. If there is an alternate, that
/// daemon has agreed on it with the peer, which may not know that it is gone: until it does nobody probes that
/// alternate, and neither end hears of the other's ports.
fn unasked_for(core: &Core, cx: &Context) -> Duration {
    let wait = cx.config.unasked_for;
    match core.loaded() {
        Some(_) => wait / SOONER,
        None if is_lower(core) => wait,
        None => wait * HIGHER_WAITS,
    }
}

/// Of the two ends, which both know both LIDs and QPNs.
fn is_lower(core: &Core) -> bool {
    let primary = &core.qp.primary;
    (primary.slid, core.qpn) < (primary.dlid, core.peer_qpn)
}

pub(super) fn rep(core: &Core, ids: CommIds) -> Rep {
    let data = RepData {
        state: core.own.state(),
        refusal: None,
    };
    Rep {
        local_comm_id: ids.local,
        remote_comm_id: ids.remote,
        local_qpn: core.qpn,
        failover_accepted: FailoverAccepted::Accepted.into(),
        local_ca_guid: core.node_guid,
        private_data: data.encode(),
        ..Rep::default()
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::{Lid, PKey};

    use super::*;
    use crate::config::Config;
    use crate::conn::sample;
    use crate::id::PortId;
    use crate::random::Random;

    #[test]
    fn ends_agree_once_the_peer_has_loaded_and_proposed_nothing_since() {
        let mut cx = Context::new(Config::default(), Random::new([1; 32]));
        let core = &sample::core(&mut cx);
        let mut passive = Passive::default();
        assert!(!passive.has_agreed(core), "nothing was proposed");
        passive.peer_has = PeerHas::Proposed;
        assert!(!passive.has_agreed(core), "its device may refuse it");
        passive.peer_has = PeerHas::Loaded;
        assert!(passive.has_agreed(core));
        let source = MadSource {
            port: PortId::new(cm_msgs::Guid(1), 1),
            lid: Lid(1),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: 1,
        };
        passive.lap = LapState::Waiting(Box::new(Proposal {
            ids: CommIds {
                local: 1,
                remote: 2,
            },
            source,
            alternate: PathFields::default(),
            state: State::default(),
            loaded: false,
            trips: 0,
        }));
        assert!(!passive.has_agreed(core), "another is proposed");
    }
}
