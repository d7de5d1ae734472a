// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side of an association: REQ until REP, again after every loss.

use cm_msgs::association::{RepData, ReqData};
use cm_msgs::cm::{
    self, Drep, Dreq, FailoverAccepted, Mra, Rej, RejReason, Rejected, Rep, Req, Rtu,
};
use core::time::Duration;

use super::Core;
use super::proposal::fields;
use crate::config::SERVICE_ID;
use crate::context::{ConnAlarm, Context, Exchange, Owner, Route};
use crate::input::MadSource;
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// The two names of an open association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// Ours.
    pub(crate) local: u32,
    /// The peer's.
    pub(crate) remote: u32,
}

impl Link {
    pub(crate) fn drep(self) -> Drep {
        Drep {
            local_comm_id: self.local,
            remote_comm_id: self.remote,
            ..Drep::default()
        }
    }

    pub(crate) fn mra(self, message: Mraed, wait: Duration) -> Mra {
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
pub(crate) enum Mraed {
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

enum State {
    /// Nothing is asked; the next REQ goes out when the timer says.
    Pausing { why: Reason },
    /// REQ sent.
    Asked {
        comm_id: u32,
        exchange: Exchange,
        parked: bool,
    },
    /// REP received.
    Open { link: Link },
}

/// The active side of an association.
pub(super) struct Opening {
    state: State,
    /// REQs without REP in a row.
    failures: u32,
    /// Where the next exchange begins its rotation.
    route: usize,
}

/// What a message did to an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Nothing to do with it.
    Other,
    /// It is open now.
    Opened,
    /// It is not open any more.
    Lost,
    /// Taken care of.
    Handled,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            state: State::Pausing {
                why: Reason::Opening,
            },
            failures: 0,
            route: 0,
        }
    }
}

impl Opening {
    pub(super) fn link(&self) -> Option<Link> {
        match self.state {
            State::Open { link } => Some(link),
            _ => None,
        }
    }

    /// Why it is not open.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self.state {
            State::Pausing { why } => Some(why),
            State::Asked { parked: true, .. } => Some(Reason::PeerNotRegistered),
            State::Asked { .. } if self.failures > 0 => Some(Reason::PeerNoApmd),
            State::Asked { .. } => Some(Reason::Opening),
            State::Open { .. } => None,
        }
    }

    pub(super) fn view(&self) -> (AssociationState, Option<Link>) {
        match self.state {
            State::Pausing {
                why: Reason::PeerRefused(_),
            } => (AssociationState::Refused, None),
            State::Pausing { .. } => (AssociationState::Pausing, None),
            State::Asked {
                comm_id, parked, ..
            } => {
                let state = if parked {
                    AssociationState::Parked
                } else {
                    AssociationState::Opening
                };
                (
                    state,
                    Some(Link {
                        local: comm_id,
                        remote: 0,
                    }),
                )
            }
            State::Open { link } => (AssociationState::Established, Some(link)),
        }
    }

    /// Starts, or starts again: a new name, and the first REQ.
    pub(super) fn ask(&mut self, core: &Core, cx: &mut Context) {
        self.forget(cx);
        let comm_id = cx.comm_id(Owner::Conn(core.id));
        let exchange = Exchange::new(cx.transaction(), self.route);
        self.state = State::Asked {
            comm_id,
            exchange,
            parked: false,
        };
        self.send_req(core, cx);
    }

    /// If it is pausing: stop that.
    pub(super) fn hurry(&mut self, core: &Core, cx: &mut Context) {
        if let State::Pausing { .. } = self.state {
            self.ask(core, cx);
        }
    }

    pub(super) fn timeout(&mut self, core: &Core, cx: &mut Context) {
        match self.state {
            State::Pausing { .. } => self.ask(core, cx),
            State::Asked { .. } => self.send_req(core, cx),
            State::Open { .. } => {}
        }
    }

    fn send_req(&mut self, core: &Core, cx: &mut Context) {
        let State::Asked {
            comm_id,
            exchange,
            parked,
        } = &mut self.state
        else {
            return;
        };
        let routes = core.routes(cx);
        let req = core.req(cx, *comm_id);
        let was_parked = core::mem::replace(parked, false);
        match exchange.next(cx, &routes, || req.into()) {
            Some(wait) => {
                self.route = exchange.next_route();
                cx.set(core.id, ConnAlarm::Association, wait);
            }
            None if was_parked => self.ask(core, cx),
            None => self.pause(core, cx, Reason::PeerNoApmd),
        }
    }

    /// Gives up for a while.
    pub(super) fn pause(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        self.forget(cx);
        let pause = match why {
            Reason::PeerRefused(_) => cx.config.backoff_max,
            _ => cx.pause(self.failures),
        };
        self.failures += 1;
        self.state = State::Pausing { why };
        cx.set(core.id, ConnAlarm::Association, pause);
    }

    fn forget(&mut self, cx: &mut Context) {
        match self.state {
            State::Asked { comm_id: id, .. }
            | State::Open {
                link: Link { local: id, .. },
            } => {
                cx.comm_ids.remove(&id);
            }
            State::Pausing { .. } => {}
        }
    }

    /// The application has gone. What there is to close is left to the caller.
    pub(super) fn close(&mut self, core: &Core, cx: &mut Context) -> Option<Link> {
        self.forget(cx);
        if let State::Asked {
            comm_id, exchange, ..
        } = self.state
        {
            // A REQ may be parked at the peer; if this is lost, its time there runs out.
            let rej = Link {
                local: comm_id,
                remote: 0,
            }
            .rej(Rejected::NoMessage, RejReason::ConsumerReject);
            if let Some(&route) = core.routes(cx).first() {
                cx.send(route, exchange.transaction, rej);
            }
        }
        self.link()
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) -> Turn {
        match message {
            cm::Message::Rep(rep) => self.rep(core, cx, source, rep),
            cm::Message::Mra(mra) => self.mra(core, cx, mra),
            cm::Message::Rej(rej) => self.rej(core, cx, rej),
            cm::Message::Dreq(dreq) => self.dreq(core, cx, source, dreq),
            _ => Turn::Other,
        }
    }

    fn rep(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, rep: &Rep) -> Turn {
        let link = Link {
            local: rep.remote_comm_id,
            remote: rep.local_comm_id,
        };
        let Ok(data) = RepData::decode(&rep.private_data) else {
            cx.drop_mad(source, "REP", Drop::Malformed);
            return Turn::Handled;
        };
        match self.state {
            State::Open { link: open } if open == link => {
                send_rtu(cx, source, link);
                Turn::Handled
            }
            // A peer that has been started anew answered a late copy of an old REQ.
            State::Open { .. } => {
                let rej = link.rej(Rejected::Rep, RejReason::InvalidCommId);
                cx.send(Route::from(source), source.transaction_id, rej);
                Turn::Handled
            }
            State::Asked { comm_id, .. } if comm_id == link.local => {
                if rep.failover() != FailoverAccepted::Accepted {
                    self.pause(core, cx, Reason::PeerRefused(data.refusal));
                    return Turn::Handled;
                }
                core.peer_ports = data.ports.as_slice().to_vec();
                core.complete_paths(core.lmc(cx));
                self.failures = 0;
                self.route = 0;
                self.state = State::Open { link };
                cx.stop(core.id, ConnAlarm::Association);
                cx.counters.associations += 1;
                send_rtu(cx, source, link);
                Turn::Opened
            }
            _ => Turn::Other,
        }
    }

    fn mra(&mut self, core: &Core, cx: &mut Context, mra: &Mra) -> Turn {
        match &mut self.state {
            State::Asked { parked, .. } if mra.message_mraed == Mraed::Req as u8 => {
                *parked = true;
                self.failures = 0;
                let wait = code_timeout(mra.service_timeout).min(cx.config.backoff_max);
                cx.set(core.id, ConnAlarm::Association, wait);
                Turn::Handled
            }
            _ => Turn::Other,
        }
    }

    fn rej(&mut self, core: &Core, cx: &mut Context, rej: &Rej) -> Turn {
        match self.state {
            State::Asked { .. } => {
                self.pause(core, cx, Reason::Rejected(rej.rej_reason()));
                Turn::Handled
            }
            State::Open { link } if link.is(rej.remote_comm_id, rej.local_comm_id) => {
                match rej.rej_reason() {
                    RejReason::InvalidCommId => self.ask(core, cx),
                    reason => self.pause(core, cx, Reason::Rejected(reason)),
                }
                Turn::Lost
            }
            _ => Turn::Other,
        }
    }

    fn dreq(&mut self, core: &Core, cx: &mut Context, source: &MadSource, dreq: &Dreq) -> Turn {
        let link = Link {
            local: dreq.remote_comm_id,
            remote: dreq.local_comm_id,
        };
        cx.send(Route::from(source), source.transaction_id, link.drep());
        match self.state {
            State::Open { link: open } if open == link => {
                self.pause(core, cx, Reason::PeerClosed);
                Turn::Lost
            }
            State::Asked { .. } => {
                self.pause(core, cx, Reason::PeerClosed);
                Turn::Handled
            }
            _ => Turn::Other,
        }
    }
}

fn send_rtu(cx: &mut Context, source: &MadSource, link: Link) {
    let rtu = Rtu {
        local_comm_id: link.local,
        remote_comm_id: link.remote,
        ..Rtu::default()
    };
    cx.send(Route::from(source), source.transaction_id, rtu);
}

impl Core {
    /// REQ for the application's connection as it is now.
    fn req(&self, cx: &Context, comm_id: u32) -> Req {
        let ports = cx.ports.announce(self.node_guid);
        let primary = &self.qp.primary;
        Req {
            local_comm_id: comm_id,
            service_id: SERVICE_ID,
            local_ca_guid: self.node_guid,
            local_qpn: self.qpn,
            remote_cm_response_timeout: timeout_code(cx.config.retry_first),
            local_cm_response_timeout: timeout_code(cx.config.retry_first),
            partition_key: primary.pkey,
            path_packet_payload_mtu: primary.mtu,
            max_cm_retries: cx.config.tries.min(15),
            primary: fields(primary),
            alternate: self.loaded().map(fields).unwrap_or_default(),
            // The truth, as long as a SAP gets no SPR.
            sap_supported: false,
            private_data: ReqData {
                peer_qpn: self.peer_qpn,
                ports,
            }
            .encode(),
            ..Req::default()
        }
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
