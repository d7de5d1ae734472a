// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passive side: answers REQ and LAP.

mod lap;

use alloc::vec::Vec;

use cm_msgs::association::{self, LapData, PortAddress, RepData, ReqData};
use cm_msgs::cm::{self, ApStatus, Apr, FailoverAccepted, PathFields, Rej, Rep, Req};
use cm_msgs::control::Refusal;
use cm_msgs::path::Path;

use super::association::CommIds;
use super::qp::{Core, is_from};
use crate::context::{ConnAlarm, Context, Exchange, Owner, Route};
use crate::input::MadSource;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// An association that waits for RTU.
struct RepSent {
    ids: CommIds,
    exchange: Exchange,
    reply: Route,
    ports: Vec<PortAddress>,
}

/// A LAP, and where its answer goes.
#[derive(Clone, Copy, Debug)]
struct Proposal {
    ids: CommIds,
    transaction: u32,
    reply: Route,
    alternate: PathFields,
    /// The sender's primary when it sent.
    primary: LapData,
    /// Orders that it took so far to find out how the QP really is.
    trips: u8,
}

/// Orders that a LAP may take before it counts as stale.
const MAX_TRIPS: u8 = 2;

/// What was done about the last LAP.
#[derive(Default)]
enum LapState {
    /// There was none.
    #[default]
    None,
    /// It waits for the library to be free.
    Waiting(Proposal),
    /// The two primaries differ: the QP follows the peer's, or its library looks what is true.
    Comparing(Proposal),
    /// The library loads.
    Loading(Proposal),
    /// It was answered with this.
    Answered { transaction: u32, apr: Apr },
}

/// The passive side of a connection.
#[derive(Default)]
pub(super) struct Passive {
    open: Option<CommIds>,
    /// The next association, which replaces `open` when it is seen to be real: so a late REQ of an
    /// association long gone does no harm.
    rep_sent: Option<RepSent>,
    lap: LapState,
    /// The alternate before the present one. A peer that migrated while its answer was on the way
    /// is on this.
    replaced: Option<Path>,
    /// The last LAP could not be followed, for this reason.
    refused_lap: Option<ApStatus>,
}

impl Passive {
    pub(super) fn req(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        req: &Req,
        data: &ReqData,
    ) {
        if let Some(refusal) = core.refused {
            let ids = CommIds::from_peer(req.local_comm_id, 0);
            let rep = refused_rep(core, cx, ids, refusal);
            cx.reply(Route::from(source), source.transaction_id, rep);
            return;
        }
        // A copy of the REQ: our REP was lost, or has crossed it.
        if let Some(ids) = self.open.filter(|ids| ids.remote == req.local_comm_id) {
            let rep = rep(core, cx, ids);
            cx.reply(Route::from(source), source.transaction_id, rep);
            return;
        }
        let same = |rep_sent: &RepSent| rep_sent.ids.remote == req.local_comm_id;
        if !self.rep_sent.as_ref().is_some_and(same) {
            self.forget_rep_sent(core, cx);
            let local = cx.comm_id(Owner::Conn(core.id));
            self.rep_sent = Some(RepSent {
                ids: CommIds {
                    local,
                    remote: req.local_comm_id,
                },
                exchange: Exchange::new(source.transaction_id, 0),
                reply: Route::from(source),
                ports: data.ports.as_slice().to_vec(),
            });
        }
        self.send_rep(core, cx);
    }

    fn send_rep(&mut self, core: &Core, cx: &mut Context) {
        let Some(rep_sent) = &mut self.rep_sent else {
            return;
        };
        let rep = rep(core, cx, rep_sent.ids);
        // Copies go where the peer says that it has ports, the first where the REQ came from.
        let mut routes = core.routes(cx);
        routes.retain(|route| *route != rep_sent.reply);
        routes.insert(0, rep_sent.reply);
        match rep_sent.exchange.next(cx, &routes, || rep.into()) {
            Some(wait) => cx.set(core.id, ConnAlarm::Association, wait),
            None => self.forget_rep_sent(core, cx),
        }
    }

    fn forget_rep_sent(&mut self, core: &Core, cx: &mut Context) {
        if let Some(rep_sent) = self.rep_sent.take() {
            rep_sent.exchange.take_back(cx);
            cx.comm_ids.remove(&rep_sent.ids.local);
            cx.stop(core.id, ConnAlarm::Association);
        }
    }

    fn forget_open(&mut self, cx: &mut Context) {
        if let Some(ids) = self.open.take() {
            cx.comm_ids.remove(&ids.local);
            self.lap = LapState::None;
        }
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context) {
        self.send_rep(core, cx);
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) {
        if !self.knows(core, cx, source) {
            cx.drop_mad(source, message.name(), Drop::Stranger);
            return;
        }
        let taken = match message {
            cm::Message::Rtu(rtu) => self.confirm(core, cx, rtu.remote_comm_id, rtu.local_comm_id),
            cm::Message::Lap(lap) => {
                self.confirm(core, cx, lap.remote_comm_id, lap.local_comm_id)
                    && self.lap(core, cx, source, lap)
            }
            cm::Message::Dreq(dreq) => {
                let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
                cx.reply(Route::from(source), source.transaction_id, ids.drep());
                self.closed_by_peer(core, cx, ids)
            }
            cm::Message::Rej(rej) => self.rej(core, cx, rej),
            _ => false,
        };
        if !taken {
            cx.drop_mad(source, message.name(), Drop::OutOfPlace);
        }
    }

    fn knows(&self, core: &Core, cx: &Context, source: &MadSource) -> bool {
        let lmc = core.lmc(cx);
        let from = |port: &PortAddress| is_from(source, *port, lmc);
        let named = self
            .rep_sent
            .as_ref()
            .is_some_and(|rep_sent| rep_sent.ports.iter().any(from));
        // The ports that its REQ named count as well: the association that they answer for is not
        // open yet, so the connection does not know them.
        core.knows(cx, source) || (named && source.qpn == 1)
    }

    /// RTU, or whatever only an open association sends. Whether the association is (now) open.
    fn confirm(&mut self, core: &mut Core, cx: &mut Context, local: u32, remote: u32) -> bool {
        if self.open.is_some_and(|ids| ids.is(local, remote)) {
            return true;
        }
        let Some(rep_sent) = self
            .rep_sent
            .take_if(|rep_sent| rep_sent.ids.is(local, remote))
        else {
            return false;
        };
        self.forget_open(cx);
        cx.stop(core.id, ConnAlarm::Association);
        cx.counters.associations += 1;
        self.open = Some(rep_sent.ids);
        self.lap = LapState::None;
        core.peer_ports = rep_sent.ports;
        core.complete_paths(core.lmc(cx));
        true
    }

    fn closed_by_peer(&mut self, core: &Core, cx: &mut Context, ids: CommIds) -> bool {
        if self.open == Some(ids) {
            self.forget_open(cx);
            true
        } else if self
            .rep_sent
            .as_ref()
            .is_some_and(|rep_sent| rep_sent.ids == ids)
        {
            self.forget_rep_sent(core, cx);
            true
        } else {
            false
        }
    }

    fn rej(&mut self, core: &Core, cx: &mut Context, rej: &Rej) -> bool {
        let ids = CommIds::from_peer(rej.local_comm_id, rej.remote_comm_id);
        self.closed_by_peer(core, cx, ids)
    }

    /// The application has gone.
    pub(super) fn close(&mut self, cx: &mut Context) -> Option<CommIds> {
        let rep_sent = self.rep_sent.take().map(|rep_sent| rep_sent.ids);
        let open = self.open.take();
        for ids in [rep_sent, open].into_iter().flatten() {
            cx.comm_ids.remove(&ids.local);
        }
        open.or(rep_sent)
    }

    pub(super) fn view(&self, core: &Core) -> (AssociationState, Option<CommIds>) {
        match (&self.open, &self.rep_sent) {
            _ if core.refused.is_some() => (AssociationState::Refused, None),
            (Some(ids), _) => (AssociationState::Established, Some(*ids)),
            (None, Some(rep_sent)) => (AssociationState::Opening, Some(rep_sent.ids)),
            (None, None) => (AssociationState::None, None),
        }
    }

    /// Why there is no alternate.
    pub(super) fn reason(&self) -> Reason {
        match (&self.open, &self.rep_sent, self.refused_lap) {
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

fn rep(core: &Core, cx: &Context, ids: CommIds) -> Rep {
    let data = RepData {
        ports: cx.ports.announce(core.node_guid),
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

fn refused_rep(core: &Core, cx: &Context, ids: CommIds, refusal: Refusal) -> Rep {
    let (failover, refusal) = match refusal {
        Refusal::OnePath => (
            FailoverAccepted::Rejected,
            association::Refusal::NoSecondPath,
        ),
        Refusal::NoDevice | Refusal::NotInfiniBand | Refusal::NoApm => (
            FailoverAccepted::NotSupported,
            association::Refusal::DeviceCannot,
        ),
        Refusal::NotOwner | Refusal::Full | Refusal::Contradicted => {
            (FailoverAccepted::Rejected, association::Refusal::Policy)
        }
    };
    let ports = cx.ports.announce(core.node_guid);
    Rep {
        failover_accepted: failover.into(),
        private_data: RepData {
            ports,
            refusal: Some(refusal),
        }
        .encode(),
        ..rep(core, cx, ids)
    }
}
