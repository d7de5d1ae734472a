// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passive side: answers REQ and LAP.

mod lap;

use alloc::vec::Vec;

use cm_msgs::association::{self, LapData, PortAddress, RepData, ReqData};
use cm_msgs::cm::{self, ApStatus, Apr, FailoverAccepted, PathFields, Rej, Rep, Req};
use cm_msgs::control::Refusal;
use cm_msgs::path::Path;

use super::Core;
use super::association::Link;
use crate::context::{ConnAlarm, Context, Exchange, Owner, Route};
use crate::input::MadSource;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// An association that waits for RTU.
struct Opening {
    link: Link,
    exchange: Exchange,
    reply: Route,
    ports: Vec<PortAddress>,
}

/// A LAP, and where its answer goes.
#[derive(Clone, Copy, Debug)]
struct Proposal {
    link: Link,
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
enum Work {
    /// There was none.
    #[default]
    Idle,
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
    open: Option<Link>,
    /// The next association, which replaces `open` when it is seen to be real: so a late REQ of an
    /// association long gone does no harm.
    opening: Option<Opening>,
    work: Work,
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
            let link = Link {
                local: 0,
                remote: req.local_comm_id,
            };
            let rep = refused_rep(core, cx, link, refusal);
            cx.send(Route::from(source), source.transaction_id, rep);
            return;
        }
        if let Some(link) = self.open.filter(|link| link.remote == req.local_comm_id) {
            let rep = rep(core, cx, link);
            cx.send(Route::from(source), source.transaction_id, rep);
            return;
        }
        let same = |opening: &Opening| opening.link.remote == req.local_comm_id;
        if !self.opening.as_ref().is_some_and(same) {
            self.forget_opening(core, cx);
            let local = cx.comm_id(Owner::Conn(core.id));
            self.opening = Some(Opening {
                link: Link {
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
        let Some(opening) = &mut self.opening else {
            return;
        };
        let rep = rep(core, cx, opening.link);
        // Copies go where the peer says that it has ports, the first where the REQ came from.
        let mut routes = core.routes(cx);
        routes.retain(|route| *route != opening.reply);
        routes.insert(0, opening.reply);
        match opening.exchange.next(cx, &routes, || rep.into()) {
            Some(wait) => cx.set(core.id, ConnAlarm::Association, wait),
            None => self.forget_opening(core, cx),
        }
    }

    fn forget_opening(&mut self, core: &Core, cx: &mut Context) {
        if let Some(opening) = self.opening.take() {
            cx.comm_ids.remove(&opening.link.local);
            cx.stop(core.id, ConnAlarm::Association);
        }
    }

    fn forget_open(&mut self, cx: &mut Context) {
        if let Some(link) = self.open.take() {
            cx.comm_ids.remove(&link.local);
            self.work = Work::Idle;
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
                let link = Link {
                    local: dreq.remote_comm_id,
                    remote: dreq.local_comm_id,
                };
                cx.send(Route::from(source), source.transaction_id, link.drep());
                self.closed_by_peer(core, cx, link)
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
        let from = |port: &PortAddress| super::is_from(source, *port, lmc);
        let named = self
            .opening
            .as_ref()
            .is_some_and(|opening| opening.ports.iter().any(from));
        core.knows(cx, source) || (named && source.qpn == 1)
    }

    /// RTU, or whatever only an open association sends. Whether the association is (now) open.
    fn confirm(&mut self, core: &mut Core, cx: &mut Context, local: u32, remote: u32) -> bool {
        if self.open.is_some_and(|link| link.is(local, remote)) {
            return true;
        }
        let Some(opening) = self
            .opening
            .take_if(|opening| opening.link.is(local, remote))
        else {
            return false;
        };
        self.forget_open(cx);
        cx.stop(core.id, ConnAlarm::Association);
        cx.counters.associations += 1;
        self.open = Some(opening.link);
        self.work = Work::Idle;
        core.peer_ports = opening.ports;
        core.complete_paths(core.lmc(cx));
        true
    }

    fn closed_by_peer(&mut self, core: &Core, cx: &mut Context, link: Link) -> bool {
        if self.open == Some(link) {
            self.forget_open(cx);
            true
        } else if self
            .opening
            .as_ref()
            .is_some_and(|opening| opening.link == link)
        {
            self.forget_opening(core, cx);
            true
        } else {
            false
        }
    }

    fn rej(&mut self, core: &Core, cx: &mut Context, rej: &Rej) -> bool {
        let link = Link {
            local: rej.remote_comm_id,
            remote: rej.local_comm_id,
        };
        self.closed_by_peer(core, cx, link)
    }

    /// The application has gone.
    pub(super) fn close(&mut self, cx: &mut Context) -> Option<Link> {
        let opening = self.opening.take().map(|opening| opening.link);
        let open = self.open.take();
        for link in [opening, open].into_iter().flatten() {
            cx.comm_ids.remove(&link.local);
        }
        open.or(opening)
    }

    pub(super) fn view(&self, core: &Core) -> (AssociationState, Option<Link>) {
        match (&self.open, &self.opening) {
            _ if core.refused.is_some() => (AssociationState::Refused, None),
            (Some(link), _) => (AssociationState::Established, Some(*link)),
            (None, Some(opening)) => (AssociationState::Opening, Some(opening.link)),
            (None, None) => (AssociationState::None, None),
        }
    }

    /// Why there is no alternate.
    pub(super) fn reason(&self) -> Reason {
        match (&self.open, &self.opening, self.refused_lap) {
            (None, None, _) => Reason::WaitingForReq,
            (None, Some(_), _) => Reason::Opening,
            (Some(_), _, Some(status)) => Reason::AprSent(status),
            (Some(_), _, None) => Reason::WaitingForLap,
        }
    }

    /// Whether a LAP is being answered.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self.work,
            Work::Waiting(_) | Work::Comparing(_) | Work::Loading(_)
        )
    }
}

fn rep(core: &Core, cx: &Context, link: Link) -> Rep {
    let data = RepData {
        ports: cx.ports.announce(core.node_guid),
        refusal: None,
    };
    Rep {
        local_comm_id: link.local,
        remote_comm_id: link.remote,
        local_qpn: core.qpn,
        failover_accepted: FailoverAccepted::Accepted.into(),
        local_ca_guid: core.node_guid,
        private_data: data.encode(),
        ..Rep::default()
    }
}

fn refused_rep(core: &Core, cx: &Context, link: Link, refusal: Refusal) -> Rep {
    let (failover, refusal) = match refusal {
        Refusal::OnePath => (
            FailoverAccepted::Rejected,
            association::Refusal::NoSecondPath,
        ),
        Refusal::NoDevice | Refusal::NotInfiniBand | Refusal::NoApm => (
            FailoverAccepted::NotSupported,
            association::Refusal::DeviceCannot,
        ),
        Refusal::NotOwner | Refusal::Full => {
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
        ..rep(core, cx, link)
    }
}
