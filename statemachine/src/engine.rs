// SPDX-License-Identifier: MIT OR Apache-2.0
//! All connections of a host.

mod messages;
mod turns;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeBounds;

use cm_msgs::control::{Ending, Refusal, Register};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Guid, Lid, Qpn};

use crate::closing::{ClosingTable, Ended};
use crate::config::Config;
use crate::conn::Connection;
use crate::context::{Alarm, Context};
use crate::id::{ConnId, Payer, PortId};
use crate::input::{Input, Origin, PortStatus, QueryError};
use crate::notices::Notices;
use crate::output::{Order, Query, Transmit};
use crate::overlap::Overlap;
use crate::parked::{Parked, ParkedReqs};
use crate::path_index::{Concerned, PathCount};
use crate::port::{Change, Port};
use crate::probe::{Answerer, Hearer, Probe};
use crate::random::Random;
use crate::schedule::Class;
use crate::sender::Sender;
use crate::time::Time;
use crate::trace::{Level, Trace, What};
use crate::view::{ConnectionView, Counters, Grade, Identity, PortState, PortView, Protection};

/// Connections that hear of a path one after the other, before the orders of the first of them are taken.
const HEARERS: usize = 16;

/// All connections of a host, its ports, and what is under way.
///
/// [`handle`](Self::handle) takes what happened; the `poll_*` give what to do, each its own kind; the
/// rest only looks. After one or more `handle`, poll each kind until it gives nothing, then wait until
/// [`poll_timeout`](Self::poll_timeout) at most and hand in [`Input::Timeout`]. MADs and questions may
/// be left for later where the way out is full; orders and traces may not.
#[cfg_attr(test, derive(Clone, Debug))]
pub struct Engine {
    cx: Context,
    conns: BTreeMap<ConnId, Box<Connection>>,
    /// By device.
    by_qp: BTreeMap<Guid, BTreeMap<Qpn, ConnId>>,
    closing: ClosingTable,
    parked: ParkedReqs,
    notices: Notices,
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
            notices: Notices::default(),
        }
    }

    /// Other timers and limits from now on; what is running runs out as it was started. Orders may
    /// come of it.
    pub fn set_config(&mut self, config: Config) {
        let before = core::mem::replace(&mut self.cx.config, config);
        let policy_changed = before.policy != self.cx.config.policy;
        for conn in self.conns.values_mut() {
            if policy_changed {
                conn.policy_changed(&mut self.cx);
            }
            conn.stand(&mut self.cx);
        }
    }

    /// Takes one thing that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        // Time never goes backwards, whatever a caller's clock does.
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::Timeout => {}
            Input::Port(id, status) => self.port(id, status),
            Input::MovesIdle(client) => self.moves_idle(client),
            Input::Register(id, payer, register) => self.register(id, payer, &register, None),
            Input::Refused(id, payer, register, why) => {
                self.register(id, payer, &register, Some(why));
            }
            Input::Report(id, report) => match self.conns.get_mut(&id) {
                Some(conn) => conn.report(&mut self.cx, &report),
                None => self.cx.counters.reports_out_of_place += 1,
            },
            Input::Policy(id, policy) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.set_policy(&mut self.cx, policy);
                }
            }
            Input::Close(id) => self.close(id, Ending::Gone),
            Input::Disconnect(id) => self.close(id, Ending::Disconnected),
            Input::ClientGone(client) => self.client_gone(client),
            Input::Mad(source, message) => self.mad(&source, &message),
            Input::Paths {
                query,
                result,
                origin,
            } => self.paths(query, result, origin),
            Input::Crowded(port) => self.cx.probes.crowded(self.cx.now, port),
            Input::Probed(answer, by) => self.probed(&answer, by),
            Input::Assessed { query, overlaps } => self.assessed(query, &overlaps),
            Input::FabricChanged => self.fabric_changed(),
            Input::Notice(port, notice) => self.notice(port, notice),
            Input::Command(id, command) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.command(&mut self.cx, command);
                }
            }
            Input::Drain(id, drained) => self.drain(id, drained),
        }
        // With every input, so that a caller who is never idle need not hand in timeouts.
        self.alarms();
        self.admit();
        self.cx.schedule.refresh();
        self.probe();
        // Improvements last.
        while let Some(id) = self.cx.failbacks.next() {
            match self.conns.get_mut(&id) {
                Some(conn) => conn.fail_back(&mut self.cx),
                None => self.cx.failbacks.remove(id),
            }
        }
    }

    /// The next order to a library. Orders come first: a connection whose port is lost waits for
    /// one. To be polled until there is none.
    ///
    /// This is where connections look at what happened, those that must migrate first, each after
    /// the order of the one before it has been taken. If many have to look, those that come first do;
    /// [`poll_timeout`](Self::poll_timeout) then says that it is time already.
    pub fn poll_order(&mut self) -> Option<(ConnId, Order)> {
        loop {
            if let Some(order) = self.cx.outbox.next_order() {
                return Some(order);
            }
            if !self.take_turn() && !self.probe() {
                return None;
            }
        }
    }

    /// The next MAD to send through a port that `has_room`, in each port's order. What is not taken
    /// waits here, one copy of each message at most, until the port has room again or goes down.
    pub fn poll_transmit(&mut self, has_room: impl FnMut(PortId) -> bool) -> Option<Transmit> {
        let mad = self.cx.outbox.next_mad(has_room)?;
        self.cx.counters.mads_sent += 1;
        Some(mad)
    }

    /// The next probe to send through a port that `has_room`. What is not taken waits here, one of each
    /// path at most; that it waits says nothing against its path.
    pub fn poll_probe(&mut self, has_room: impl FnMut(PortId) -> bool) -> Option<Probe> {
        let probe = self.cx.probes.poll(has_room)?;
        self.cx.counters.probes_sent += 1;
        Some(probe)
    }

    /// Whether this is the answer to a probe, to be handed in as [`Input::Probed`].
    pub fn expects_probe(&self, answer: &Probe) -> bool {
        self.cx.probes.expects(answer)
    }

    /// Whether a path of a connection leads from this local port to the port with that LID, by any LID of either port.
    /// Only connections count whose peer's daemon answers.
    pub fn leads_to(&self, id: PortId, lid: Lid) -> bool {
        let Some(Port { status, .. }) = self.cx.ports.get(id) else {
            return false;
        };
        let far = lid.base(status.lmc)..=lid.last(status.lmc);
        let mut own = status.lid.0..=status.lid.last(status.lmc).0;
        own.any(|slid| self.cx.probes.leads_to(id, Lid(slid), &far))
    }

    /// Returns the remote port that sends from this LID to a local port: quotas are charged to it.
    pub fn sender(&self, local: PortId, lid: Lid) -> Sender {
        Sender::new(&self.cx.ports, local, lid)
    }

    /// Whether probes that leave by this local port do not come back: of the paths over it at least one
    /// is suspect, and none answers.
    pub fn is_suspect_port(&self, port: PortId) -> bool {
        self.cx.probes.is_suspect_port(port)
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
        match self.is_runnable() || self.cx.outbox.has_order() {
            true => Some(self.cx.now),
            false => {
                let timers = self.cx.next_timer().into_iter();
                timers.chain(self.cx.probes.next()).min()
            }
        }
    }

    /// Whether somebody could act now.
    fn is_runnable(&self) -> bool {
        let answered = self.cx.questions.has_answers();
        self.cx.schedule.is_runnable(answered) || self.cx.probes.has_findings()
    }

    /// When something else is due than the next probe.
    pub fn next_alarm(&self) -> Option<Time> {
        match self.is_runnable() {
            true => Some(self.cx.now),
            false => self.cx.next_timer(),
        }
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Whether nothing is left of any connection. A REQ may be parked that somebody goes on sending.
    #[cfg(test)]
    pub(crate) fn has_forgotten_all(&self) -> bool {
        self.conns.is_empty() && self.cx.comm_ids.is_empty()
    }

    /// The connections, ordered by name.
    pub fn connections(&self, now: Time) -> impl Iterator<Item = ConnectionView> + '_ {
        self.connections_in(now, ..)
    }

    /// Whether each of them would survive the loss of its primary path, and what that covers: of a view,
    /// what costs little.
    pub fn protections(&self, now: Time) -> impl Iterator<Item = (Protection, Option<Grade>)> + '_ {
        let conns = self.conns.values();
        conns.map(move |conn| conn.protection(&self.cx, now))
    }

    /// What the protection of connections in a range covers; `None`: not armed.
    pub fn grades_in(
        &self,
        now: Time,
        range: impl RangeBounds<ConnId>,
    ) -> impl Iterator<Item = (ConnId, Option<Grade>)> + '_ {
        let conns = self.conns.range(range);
        conns.map(move |(id, conn)| (*id, conn.protection(&self.cx, now).1))
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

    /// What these are known by: of a view, what costs nothing.
    pub fn identities_in(
        &self,
        range: impl RangeBounds<ConnId>,
    ) -> impl Iterator<Item = Identity> + '_ {
        let conns = self.conns.range(range);
        conns.map(|(_, conn)| conn.identity())
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
        } = self.cx.path_index.count(port.id);
        let status = &port.status;
        PortView {
            id: port.id,
            state: port.state(),
            lid: status.lid,
            lmc: status.lmc,
            sm_lid: status.sm_lid,
            gid: status.gid,
            mtu: status.mtu,
            drained: self.cx.ports.is_drained(port.id),
            primaries,
            alternates,
            device_ports: status.device_ports,
        }
    }

    fn alarms(&mut self) {
        loop {
            if let Some(alarm) = self.cx.timers.expired(self.cx.now) {
                self.alarm(alarm);
            } else if let Some((id, alarm)) = self.cx.conn_timers.expired(self.cx.now) {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.timeout(&mut self.cx, alarm);
                }
            } else if let Some(id) = self.cx.verifications.expired(self.cx.now) {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.verify(&mut self.cx);
                }
            } else {
                return;
            }
        }
    }

    fn alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Port(id) => {
                if let Some(change) = self.cx.ports.settle(id) {
                    self.port_changed(id, change);
                }
            }
            Alarm::Notices => self.look_at_notices(),
            // What is left to do is done after every input.
            Alarm::Admission => {}
            Alarm::Query(number) => self.cx.questions.timed_out(self.cx.now, number),
            Alarm::Parked(number) => self.parked.expire(number),
            Alarm::Closing(comm_id) => self.closing.retry(&mut self.cx, comm_id),
        }
    }

    fn probed(&mut self, answer: &Probe, by: Answerer) {
        let cx = &mut self.cx;
        if cx.probes.take(cx.now, answer, by, cx.config.verify) {
            cx.counters.probes_answered += 1;
        }
    }

    /// Probes that are due wait to be polled, and some connections hear what became of their paths: no more at once
    /// than the first of them can wait for. Whether some did.
    fn probe(&mut self) -> bool {
        self.cx.probes.due(self.cx.now, self.cx.config.verify);
        for number in 0..HEARERS {
            let Some(hearer) = self.cx.probes.next_hearer() else {
                return number > 0;
            };
            let Hearer { path, finding, .. } = hearer;
            if let Some(users) = hearer.is_first_of {
                self.cx.trace_finding(&path, finding, users);
            }
            if let Some(conn) = self.conns.get_mut(&hearer.conn) {
                conn.probed(&mut self.cx, &path, finding);
            }
        }
        true
    }

    fn port(&mut self, id: PortId, status: Option<PortStatus>) {
        let hold_off = self.cx.config.port_hold_off;
        let lmc = status.as_ref().map(|status| status.lmc);
        self.cx.probes.set_lmc(id, lmc);
        let before = self.cx.ports.get(id).map(|port| &port.status);
        let both = before.zip(status.as_ref());
        if !both.is_some_and(|(before, now)| before.is_labelled_as(now)) {
            self.cx.proven_ports.forget(id.node_guid);
            self.cx.port_hosts.forget(id.node_guid);
        }
        let old = self.cx.ports.get(id).map(|port| port.status.clone());
        if let Some(change) = self.cx.ports.update(id, status, hold_off) {
            if let Some(old) = &old {
                self.cx.ports.note_loss(id, old, self.cx.now);
            }
            let new = self.cx.ports.get(id).map(|port| &port.status);
            if old
                .zip(new)
                .is_some_and(|(old, new)| !new.carries_paths_of(&old))
            {
                // Its link is up, and packets to the old LID or in the old partition do not arrive.
                self.mark_lost_primaries(id);
            }
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
        if to == PortState::Up && from != to {
            self.cx.ports.became_good(id, self.cx.now);
        }
        if from != to {
            self.cx.counters.ports_lost += u64::from(to == PortState::Down);
            self.cx.trace_port(id, What::Port { from, to });
        }
        self.tell_connections(id, to);
    }

    fn drain(&mut self, id: PortId, drained: bool) {
        if self.cx.ports.drain(id, drained) {
            self.cx.trace_port(id, What::Drained(drained));
            let state = self.cx.ports.get(id).map(|port| port.state());
            self.tell_connections(id, state.unwrap_or(PortState::Down));
        }
    }

    fn by_qp(&self, node_guid: Guid, qpn: Qpn) -> Option<ConnId> {
        self.by_qp.get(&node_guid)?.get(&qpn).copied()
    }

    fn register(
        &mut self,
        id: ConnId,
        payer: Payer,
        register: &Register,
        refused: Option<Refusal>,
    ) {
        self.close(id, Ending::Gone);
        if let Some(old) = self.by_qp(register.node_guid, register.qpn) {
            // The kernel has given the number out again: its former owner is gone, and did not say
            // so.
            self.close(old, Ending::Gone);
        }
        if self.conns.len() >= self.cx.config.connection_limit {
            self.cx.trace(id, What::Refused(Refusal::Full));
            self.cx.order(id, Order::Refuse(Refusal::Full));
            return;
        }
        let conn = Connection::new(&mut self.cx, id, payer, register, refused);
        let qps = self.by_qp.entry(register.node_guid).or_default();
        qps.insert(register.qpn, id);
        let conn = self.conns.entry(id).or_insert(Box::new(conn));
        let parked = self.parked.take(|parked| {
            self.cx.ports.device_at(
                &parked.source,
                parked.req.primary.remote_port_gid,
                parked.req.primary.remote_port_lid,
            ) == Some(register.node_guid)
                && conn.core.is_partition_of(&parked.source)
                && conn.is_asked_by(&parked.source, &self.cx, &parked.req, &parked.data)
        });
        for Parked {
            number,
            source,
            req,
            data,
        } in parked
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

    fn close(&mut self, id: ConnId, ending: Ending) {
        let Some(mut conn) = self.conns.remove(&id) else {
            return;
        };
        let peer_qpn = conn.core.peer_qpn;
        if let Some(qps) = self.by_qp.get_mut(&conn.core.node_guid) {
            qps.remove(&conn.core.qpn);
        }
        let claim = conn.closing_claim(&self.cx);
        if let Some((ids, routes)) = conn.close(&mut self.cx) {
            let ended = Ended {
                ids,
                claim,
                peer_qpn,
                pkey: conn.core.qp.primary.pkey,
                routes,
                round_trip: conn.core.round_trip,
                disconnected: (ending == Ending::Disconnected).then_some(id),
            };
            self.closing.open(&mut self.cx, ended);
        }
    }

    fn moves_idle(&mut self, client: u32) {
        // Each connection looks again: at what a library says once, not at what it repeats.
        if !self.cx.movers.insert(client) {
            return;
        }
        for (_, conn) in self.conns.range_mut(ConnId::of_client(client)) {
            conn.owner_moves_idle(&mut self.cx);
        }
    }

    fn client_gone(&mut self, client: u32) {
        self.cx.movers.remove(&client);
        let conns = self.conns.range(ConnId::of_client(client));
        let ids: Vec<ConnId> = conns.map(|(&id, _)| id).collect();
        for id in ids {
            self.close(id, Ending::Gone);
        }
    }

    fn paths(
        &mut self,
        query: u32,
        result: Result<Vec<PathRecord>, QueryError>,
        origin: Option<Origin>,
    ) {
        self.cx.timers.cancel(&Alarm::Query(query));
        self.cx
            .questions
            .answered(self.cx.now, query, result, origin);
    }

    fn assessed(&mut self, query: u32, overlaps: &[Option<Overlap>]) {
        let id = self.cx.questions.assessed(query);
        if let Some(conn) = id.and_then(|id| self.conns.get_mut(&id)) {
            conn.assessed(&mut self.cx, query, overlaps);
        }
    }

    fn fabric_changed(&mut self) {
        self.cx.fabric_changes = self.cx.fabric_changes.wrapping_add(1);
        self.cx.questions.forget_recent();
        let ports: Vec<_> = self.cx.path_index.all_ports().collect();
        for concerned in ports.into_iter().flat_map(Concerned::primaries) {
            self.mark(Class::Improve, concerned);
        }
    }
}
