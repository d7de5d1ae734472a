// SPDX-License-Identifier: MIT OR Apache-2.0
//! All connections of a host.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeBounds;

use cm_msgs::association::{AssociationError, ReqData};
use cm_msgs::cm::{self, RejReason, Rejected, Req};
use cm_msgs::control::{Refusal, Register};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Guid, Qpn};

use crate::closing::ClosingTable;
use crate::config::{Config, SERVICE_ID};
use crate::conn::{CommIds, Connection, MraReceived};
use crate::context::{Alarm, Context, Owner, Route};
use crate::id::{ConnId, PortId};
use crate::input::{Input, MadSource, Origin, PortStatus, QueryError};
use crate::output::{Order, Query, Transmit};
use crate::overlap::Overlap;
use crate::parked::{Parked, ParkedReqs, Parking};
use crate::port::{Change, PathCount, Port};
use crate::random::Random;
use crate::sweep::Sweep;
use crate::time::Time;
use crate::trace::{Drop, Level, Trace, What};
use crate::view::{ConnectionView, Counters, PortState, PortView, Protection};

/// All connections of a host, its ports, and what is under way.
///
/// [`handle`](Self::handle) takes what happened; the `poll_*` give what to do, each its own kind; the
/// rest only looks. After one or more `handle`, poll each kind until it gives nothing, then wait until
/// [`poll_timeout`](Self::poll_timeout) at most and hand in [`Input::Timeout`]. MADs and questions may
/// be left for later where the way out is full; orders and traces may not.
pub struct Engine {
    cx: Context,
    conns: BTreeMap<ConnId, Connection>,
    by_qp: BTreeMap<(Guid, Qpn), ConnId>,
    closing: ClosingTable,
    parked: ParkedReqs,
    sweep: Sweep,
}

impl Engine {
    /// An engine without ports or connections. Communication IDs come out of `random`: its seed
    /// must differ from start to start, since a peer takes an old ID for the old association.
    pub fn new(config: Config, random: Random) -> Self {
        Self {
            cx: Context::new(config, random),
            conns: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            closing: ClosingTable::default(),
            parked: ParkedReqs::default(),
            sweep: Sweep::default(),
        }
    }

    /// Other timers and limits from now on; what is running runs out as it was started.
    pub fn set_config(&mut self, config: Config) {
        self.cx.config = config;
    }

    /// Takes one thing that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        // Time never goes backwards, whatever a caller's clock does.
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::Timeout => {}
            Input::Port(id, status) => self.port(id, status),
            Input::Register(id, register) => self.register(id, &register),
            Input::Report(id, report) => match self.conns.get_mut(&id) {
                Some(conn) => conn.report(&mut self.cx, &report),
                None => self.cx.counters.reports_out_of_place += 1,
            },
            Input::Close(id) => self.close(id),
            Input::ClientGone(client) => self.client_gone(client),
            Input::Mad(source, message) => self.mad(&source, &message),
            Input::Paths {
                query,
                result,
                origin,
            } => self.paths(query, result.as_deref().map_err(|e| *e), origin),
            Input::Assessed { query, overlaps } => self.assessed(query, &overlaps),
            Input::FabricChanged => self.fabric_changed(),
        }
        // With every input, so that a caller who is never idle need not hand in timeouts.
        while let Some(alarm) = self.cx.timers.expired(self.cx.now) {
            self.alarm(alarm);
        }
        self.admit();
    }

    /// The next order to a library. Orders come first: a connection whose port is lost waits for
    /// one. To be polled until there is none.
    pub fn poll_order(&mut self) -> Option<(ConnId, Order)> {
        self.cx.outbox.next_order()
    }

    /// The next MAD to send through a port that `has_room`, in each port's order. What is not taken
    /// waits here, one copy of each message at most, until the port has room again or goes down.
    pub fn poll_transmit(&mut self, has_room: impl FnMut(PortId) -> bool) -> Option<Transmit> {
        let mad = self.cx.outbox.next_mad(has_room)?;
        self.cx.counters.mads_sent += 1;
        Some(mad)
    }

    /// The next question. What is not taken waits here, one of each connection at most.
    pub fn poll_query(&mut self) -> Option<Query> {
        self.cx.poll_query()
    }

    /// The next thing worth saying. To be polled until there is none, or switched off.
    pub fn poll_trace(&mut self) -> Option<Trace> {
        self.cx.outbox.next_trace()
    }

    /// Traces below this level are not made; with `None`, none are.
    pub fn set_trace_level(&mut self, least: Option<Level>) {
        self.cx.outbox.set_trace_level(least);
    }

    /// When to hand in [`Input::Timeout`] at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cx.timers.next()
    }

    /// The connections, ordered by name.
    pub fn connections(&self, now: Time) -> impl Iterator<Item = ConnectionView> + '_ {
        self.connections_in(now, ..)
    }

    /// Whether each of them would survive the loss of its primary path: of a view, what costs
    /// little.
    pub fn protections(&self, now: Time) -> impl Iterator<Item = Protection> + '_ {
        let conns = self.conns.values();
        conns.map(move |conn| conn.protection(&self.cx, now))
    }

    /// Those whose names are in a range: a caller with many of them looks at a few at a time.
    pub fn connections_in(
        &self,
        now: Time,
        range: impl RangeBounds<ConnId>,
    ) -> impl Iterator<Item = ConnectionView> + '_ {
        let conns = self.conns.range(range);
        conns.map(move |(_, conn)| conn.view(&self.cx, now))
    }

    /// The local ports, ordered by name.
    pub fn ports(&self) -> Vec<PortView> {
        self.cx
            .ports
            .iter()
            .map(|port| self.port_view(port))
            .collect()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.cx.counters
    }

    fn port_view(&self, port: &Port) -> PortView {
        let PathCount {
            primaries,
            alternates,
        } = self.cx.path_counts.of(port.id);
        let status = &port.status;
        PortView {
            id: port.id,
            state: port.state(),
            lid: status.lid,
            lmc: status.lmc,
            sm_lid: status.sm_lid,
            gid: status.gid,
            mtu: status.mtu,
            primaries,
            alternates,
        }
    }

    fn alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Port(id) => {
                if let Some(change) = self.cx.ports.settle(id) {
                    self.port_changed(id, change);
                }
            }
            Alarm::Sweep => self.reassess_some(),
            // What is left to do is done after every input.
            Alarm::Admission => {}
            Alarm::Parked(number) => self.parked.expire(number),
            Alarm::Closing(comm_id) => self.closing.retry(&mut self.cx, comm_id),
            Alarm::Conn(id, alarm) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.timeout(&mut self.cx, alarm);
                }
            }
        }
    }

    fn port(&mut self, id: PortId, status: Option<PortStatus>) {
        let hold_off = self.cx.config.port_hold_off;
        if let Some(change) = self.cx.ports.update(id, status, hold_off) {
            self.port_changed(id, change);
        }
    }

    fn port_changed(&mut self, id: PortId, change: Change) {
        let Change { from, to, settle } = change;
        match settle {
            Some(wait) => self.cx.timers.set(Alarm::Port(id), self.cx.now + wait),
            None => self.cx.timers.cancel(&Alarm::Port(id)),
        }
        if to == PortState::Down {
            // They would leave when the port is back, long after they meant anything.
            self.cx.outbox.drop_port(id);
        }
        if from != to {
            self.cx.counters.ports_lost += u64::from(to == PortState::Down);
            self.cx.trace_port(id, What::Port { from, to });
        }
        for conn in self.conns.values_mut() {
            if conn.core.node_guid == id.node_guid {
                conn.port_changed(&mut self.cx, id);
            }
        }
    }

    fn register(&mut self, id: ConnId, register: &Register) {
        let qp = (register.node_guid, register.qpn);
        self.close(id);
        if let Some(&old) = self.by_qp.get(&qp) {
            // The kernel has given the number out again: its former owner is gone, and did not say
            // so.
            self.close(old);
        }
        if self.conns.len() >= self.cx.config.connection_limit {
            self.cx.trace(id, What::Refused(Refusal::Full));
            self.cx.order(id, Order::Refuse(Refusal::Full));
            return;
        }
        let conn = Connection::new(&mut self.cx, id, register);
        self.by_qp.insert(qp, id);
        let conn = self.conns.entry(id).or_insert(conn);
        let parked = self.parked.take(|parked| {
            self.cx.ports.device_at(
                parked.req.primary.remote_port_gid,
                parked.req.primary.remote_port_lid,
            ) == Some(register.node_guid)
                && conn.is_asked_by(&parked.source, &self.cx, &parked.req, &parked.data)
        });
        if let Some(Parked {
            number,
            source,
            req,
            data,
        }) = parked
        {
            self.cx.timers.cancel(&Alarm::Parked(number));
            conn.req(&mut self.cx, &source, &req, &data);
        }
    }

    /// Connections that wait for their association get it, as far as there is room.
    fn admit(&mut self) {
        while let Some(id) = self.cx.admission.next(self.cx.now) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.admitted(&mut self.cx);
            }
        }
        match self.cx.admission.next_token() {
            Some(at) => self.cx.timers.set(Alarm::Admission, at),
            None => self.cx.timers.cancel(&Alarm::Admission),
        }
    }

    fn close(&mut self, id: ConnId) {
        let Some(mut conn) = self.conns.remove(&id) else {
            return;
        };
        let peer_qpn = conn.core.peer_qpn;
        self.by_qp.remove(&(conn.core.node_guid, conn.core.qpn));
        if let Some((ids, routes)) = conn.close(&mut self.cx) {
            let ports = conn.peer_ports().to_vec();
            self.closing.open(
                &mut self.cx,
                ids,
                peer_qpn,
                ports,
                routes,
                conn.core.round_trip,
            );
        }
    }

    fn client_gone(&mut self, client: u64) {
        let conns = self.conns.range(ConnId::of_client(client));
        let ids: Vec<ConnId> = conns.map(|(&id, _)| id).collect();
        for id in ids {
            self.close(id);
        }
        self.cx.admission.client_gone(client);
    }

    fn paths(
        &mut self,
        query: u32,
        result: Result<&[PathRecord], QueryError>,
        origin: Option<Origin>,
    ) {
        let id = self.cx.questions.end(query);
        if let Some(conn) = id.and_then(|id| self.conns.get_mut(&id)) {
            conn.paths(&mut self.cx, query, result, origin);
        }
    }

    fn assessed(&mut self, query: u32, overlaps: &[Option<Overlap>]) {
        let id = self.cx.questions.end(query);
        if let Some(conn) = id.and_then(|id| self.conns.get_mut(&id)) {
            conn.assessed(&mut self.cx, query, overlaps);
        }
    }

    fn fabric_changed(&mut self) {
        self.sweep.restart(self.conns.len());
        if !self.cx.timers.is_set(&Alarm::Sweep) {
            self.cx.timers.set(Alarm::Sweep, self.cx.now);
        }
    }

    /// The next connections look at the changed fabric.
    fn reassess_some(&mut self) {
        for _ in 0..self.cx.config.reassess_batch.max(1) {
            let id = self.sweep.next(&self.conns);
            if let Some(conn) = id.and_then(|id| self.conns.get_mut(&id)) {
                conn.fabric_changed(&mut self.cx);
            }
        }
        if !self.sweep.is_over() {
            let next = self.cx.now + self.cx.config.reassess_interval;
            self.cx.timers.set(Alarm::Sweep, next);
        }
    }

    fn mad(&mut self, source: &MadSource, message: &cm::Message) {
        self.cx.counters.mads_received += 1;
        let comm_id = match message {
            cm::Message::Req(req) => return self.req(source, req),
            cm::Message::Rep(rep) => rep.remote_comm_id,
            cm::Message::Rtu(rtu) => rtu.remote_comm_id,
            cm::Message::Mra(mra) => mra.remote_comm_id,
            cm::Message::Rej(rej) => rej.remote_comm_id,
            cm::Message::Dreq(dreq) => dreq.remote_comm_id,
            cm::Message::Drep(drep) => drep.remote_comm_id,
            cm::Message::Lap(lap) => lap.remote_comm_id,
            cm::Message::Apr(apr) => apr.remote_comm_id,
            cm::Message::Sap(sap) => sap.remote_comm_id,
            cm::Message::Spr(spr) => spr.remote_comm_id,
            cm::Message::SidrReq(_) | cm::Message::SidrRep(_) => {
                return self.cx.drop_mad(source, message.name(), Drop::OutOfPlace);
            }
        };
        match self.cx.comm_ids.get(&comm_id) {
            Some(&Owner::Conn(id)) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.message(&mut self.cx, source, message);
                }
            }
            Some(Owner::Closing) => self.closing_message(comm_id, source, message),
            None => self.stray(source, message),
        }
    }

    /// A message for an association that is being closed.
    fn closing_message(&mut self, comm_id: u32, source: &MadSource, message: &cm::Message) {
        if !self.closing.knows(&self.cx, comm_id, source) {
            return self.cx.drop_mad(source, message.name(), Drop::Stranger);
        }
        match message {
            cm::Message::Drep(_) | cm::Message::Rej(_) => self.closing.free(&mut self.cx, comm_id),
            cm::Message::Dreq(_) => {
                self.stray(source, message);
                self.closing.free(&mut self.cx, comm_id);
            }
            _ => self.cx.drop_mad(source, message.name(), Drop::OutOfPlace),
        }
    }

    /// A message for no association: the sender is told, where it would wait otherwise.
    fn stray(&mut self, source: &MadSource, message: &cm::Message) {
        let to = Route::from(source);
        let rejected = match message {
            cm::Message::Dreq(dreq) => {
                let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
                // Answered though nothing is known of it, or the peer would repeat it until it
                // gives up.
                return self.cx.reply(to, source.transaction_id, ids.drep());
            }
            cm::Message::Rej(rej) => {
                let parked = self.parked.take(|parked| {
                    parked.req.local_comm_id == rej.local_comm_id && parked.source.lid == source.lid
                });
                if let Some(parked) = parked {
                    return self.cx.timers.cancel(&Alarm::Parked(parked.number));
                }
                None
            }
            cm::Message::Rep(rep) => {
                let ids = CommIds::from_peer(rep.local_comm_id, rep.remote_comm_id);
                Some((ids, Rejected::Rep))
            }
            cm::Message::Lap(lap) => {
                let ids = CommIds::from_peer(lap.local_comm_id, lap.remote_comm_id);
                Some((ids, Rejected::NoMessage))
            }
            cm::Message::Sap(sap) => {
                let ids = CommIds::from_peer(sap.local_comm_id, sap.remote_comm_id);
                Some((ids, Rejected::NoMessage))
            }
            _ => None,
        };
        // A daemon that was started anew knows nothing of old associations. A peer that is told so
        // opens another at once; one that is not waits for its retries to end.
        if let Some((ids, rejected)) = rejected {
            let rej = ids.rej(rejected, RejReason::InvalidCommId);
            self.cx.reply(to, source.transaction_id, rej);
        }
        self.cx.drop_mad(source, message.name(), Drop::OutOfPlace);
    }

    fn req(&mut self, source: &MadSource, req: &Req) {
        let reject = |reason| {
            let ids = CommIds::from_peer(req.local_comm_id, 0);
            ids.rej(Rejected::Req, reason)
        };
        let to = Route::from(source);
        if req.service_id != SERVICE_ID {
            let rej = reject(RejReason::InvalidServiceId);
            return self.cx.reply(to, source.transaction_id, rej);
        }
        let data = match ReqData::decode(&req.private_data) {
            Ok(data) => data,
            Err(error) => {
                self.cx.drop_mad(source, "REQ", Drop::Malformed);
                let rej = reject(match error {
                    AssociationError::Version(_) => RejReason::InvalidClassVersion,
                    _ => RejReason::Unsupported,
                });
                return self.cx.reply(to, source.transaction_id, rej);
            }
        };
        let primary = &req.primary;
        let device = self
            .cx
            .ports
            .device_at(primary.remote_port_gid, primary.remote_port_lid);
        let Some(device) = device else {
            let rej = reject(RejReason::InvalidPrimaryGid);
            return self.cx.reply(to, source.transaction_id, rej);
        };
        let id = self.by_qp.get(&(device, data.peer_qpn));
        match id.and_then(|id| self.conns.get_mut(id)) {
            Some(conn) if conn.is_asked_by(source, &self.cx, req, &data) => {
                conn.req(&mut self.cx, source, req, &data);
            }
            // Not registered yet, or an older connection had that QP.
            _ => self.park(source, req, data),
        }
    }

    fn park(&mut self, source: &MadSource, req: &Req, data: ReqData) {
        let wait = self.cx.config.parked_for;
        let limit = self.cx.config.parked_limit;
        let port = self.cx.ports.get(source.port);
        let lmc = port.map_or(0, |port| port.status.lmc);
        match self.parked.park(*source, req.clone(), data, limit, lmc) {
            Parking::Full => return self.cx.drop_mad(source, "REQ", Drop::Overflow),
            Parking::New(number) => self
                .cx
                .timers
                .set(Alarm::Parked(number), self.cx.now + wait),
            Parking::Copy => {}
        }
        let ids = CommIds::from_peer(req.local_comm_id, 0);
        let mra = ids.mra(MraReceived::Req, wait);
        self.cx
            .reply(Route::from(source), source.transaction_id, mra);
    }
}
