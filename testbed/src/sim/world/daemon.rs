// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines: what goes in, and what comes out.

use cm_msgs::PKey;
use cm_msgs::Qpn;
use cm_msgs::control::{Register, Role};
use cm_msgs::sa::PathRecord;
use statemachine::{
    Assess, Config, ConnId, Engine, Input, Level, Origin, PathQuery, Payer, Query, QueryError, Time,
};

use super::{Event, Keep, World};
use crate::sim::diagram::{Before, word};
use crate::sim::fabric::{PortOf, guid};
use crate::sim::host::{port_id, port_status};
use crate::sim::queue::{MS, SECOND};

/// What a daemon's source of paths takes to give up.
pub(super) const SOURCE_TIMEOUT: u64 = 5 * SECOND;

/// A side's queue pair number.
pub(super) fn qpn(conn: usize, side: usize) -> Qpn {
    Qpn(0x100 + conn as u32 * 2 + side as u32)
}

impl World<'_> {
    /// A daemon starts. Its libraries come one after the other.
    pub(super) fn start(&mut self, host: usize) {
        let mut engine = Engine::new(Config::default(), self.seeds.split());
        engine.set_trace_level((self.keep == Keep::Lines).then_some(Level::Debug));
        self.hosts[host].engine = Some(engine);
        self.hosts[host].wake = None;
        for port in 1..=2 {
            self.port((host, port));
        }
        let client = self.hosts[host].client;
        if self.plan.movable[host] {
            self.input(host, Input::MovesIdle(client));
        }
        for conn in 0..self.connections.len() {
            let ends = self.connections[conn].ends.iter();
            if ends.clone().any(|end| end.host == host && end.registered) {
                let delay = MS + u64::from(self.dice.below(100_000));
                self.queue.after(delay, Event::Register(host, client, conn));
            }
        }
    }

    /// As SIGKILL does it.
    pub(super) fn kill(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.engine = None;
        host.client += 1;
        host.told.clear();
        host.waiting.clear();
    }

    pub(super) fn register(&mut self, host: usize, client: u32, conn: usize) {
        let side = self.side_of(host, conn);
        let end = &self.connections[conn].ends[side];
        if self.hosts[host].client != client || !end.registered {
            return;
        }
        let register = Register {
            role: if side == 0 {
                Role::Active
            } else {
                Role::Passive
            },
            opted_in: false,
            node_guid: guid(host),
            qpn: qpn(conn, side),
            peer_qpn: qpn(conn, 1 - side),
            policy: self.plan.policies[host],
            snapshot: end.qp.snapshot(),
        };
        self.hosts[host].told.insert(conn, register.snapshot);
        let id = ConnId {
            client,
            conn: conn as u32,
        };
        self.input(host, Input::Register(id, Payer(1), register));
    }

    pub(super) fn port(&mut self, port: PortOf) {
        self.uek_port(port);
        let moves_idle = self.plan.movable[port.0];
        let status = port_status(&self.fabric, &self.addresses, port, moves_idle);
        self.input(port.0, Input::Port(port_id(port), Some(status)));
    }

    pub(super) fn wake(&mut self, host: usize) {
        if self.hosts[host].wake == Some(self.queue.now()) {
            self.hosts[host].wake = None;
            self.input(host, Input::Timeout);
        }
    }

    pub(super) fn input(&mut self, host: usize, input: Input) {
        let now = Time(self.queue.now());
        let Some(engine) = &mut self.hosts[host].engine else {
            return;
        };
        let watch = self.keep == Keep::Transitions;
        let seen = watch.then(|| (Before::new(engine, now), word(&input)));
        engine.handle(now, input);
        self.drain(host);
        if let (Some((before, upon)), Some(engine)) = (seen, &self.hosts[host].engine) {
            let transitions = &mut self.outcome.transitions;
            transitions.note(&before, &upon, engine, now);
        }
    }

    fn poll<T>(&mut self, host: usize, poll: impl FnOnce(&mut Engine) -> Option<T>) -> Option<T> {
        self.hosts[host].engine.as_mut().and_then(poll)
    }

    fn drain(&mut self, host: usize) {
        while let Some((id, order)) = self.poll(host, Engine::poll_order) {
            self.order(host, id, order);
        }
        while let Some(mad) = self.poll(host, |engine| engine.poll_transmit(|_| true)) {
            self.send(host, &mad);
        }
        while let Some(probe) = self.poll(host, |engine| engine.poll_probe(|_| true)) {
            self.send_probe(host, probe);
        }
        while let Some(query) = self.poll(host, Engine::poll_query) {
            self.query(host, query);
        }
        while let Some(trace) = self.poll(host, Engine::poll_trace) {
            self.tell(|| {
                let conn = trace.conn.map(|id| format!(" connection {}", id.conn));
                format!("host {host}{}: {trace}", conn.unwrap_or_default())
            });
        }
        let due = self.poll(host, |engine| engine.poll_timeout());
        if let Some(Time(due)) = due
            && self.hosts[host].wake.is_none_or(|wake| due < wake)
        {
            let due = due.max(self.queue.now());
            self.hosts[host].wake = Some(due);
            self.queue.at(due, Event::Wake(host));
        }
    }

    fn query(&mut self, host: usize, query: Query) {
        let client = self.hosts[host].client;
        match query {
            Query::Withdraw(_) => {}
            Query::Assess(assess) => {
                let input = self.assess(host, &assess);
                self.queue.after(MS, Event::Input(host, client, input));
            }
            Query::Paths(query) => {
                self.count_query(host, query.query);
                let weather = &self.weather;
                let delay = match weather.no_sa > 0 || weather.sa_delay > SOURCE_TIMEOUT {
                    true => SOURCE_TIMEOUT,
                    false => 2 * MS + weather.sa_delay,
                };
                self.queue.after(delay, Event::Answer(host, client, query));
            }
        }
    }

    fn assess(&self, host: usize, assess: &Assess) -> Input {
        let addresses = &self.addresses;
        let base = |gid| addresses.port_of(gid).map(|port| addresses.lid(port));
        let primary = addresses.ends(host, &assess.primary);
        let overlaps = assess.paths.iter().map(|path| {
            let slid = path.slid.or_else(|| base(path.sgid))?;
            let dlid = path.dlid.or_else(|| base(path.dgid))?;
            let way = addresses.ends_of((host, path.port.port), slid, dlid)?;
            self.fabric.overlap(primary?, way)
        });
        Input::Assessed {
            query: assess.query,
            overlaps: overlaps.collect(),
        }
    }

    pub(super) fn answer(&mut self, host: usize, client: u32, query: &PathQuery) {
        if self.hosts[host].client != client {
            return;
        }
        let weather = &self.weather;
        let (result, origin) = if weather.no_sa > 0 || weather.sa_delay > SOURCE_TIMEOUT {
            (Err(QueryError::Timeout), None)
        } else if weather.busy_sa > 0 {
            (Err(QueryError::Busy), Some(Origin::Sa))
        } else {
            (self.records(query), Some(Origin::Sa))
        };
        let input = Input::Paths {
            query: query.query,
            result,
            origin,
        };
        self.input(host, input);
    }

    /// What the subnet manager knows.
    fn records(&self, query: &PathQuery) -> Result<Vec<PathRecord>, QueryError> {
        let addresses = &self.addresses;
        let known = |gid| {
            let port = addresses.port_of(gid);
            port.filter(|&port| self.fabric.is_known(port))
        };
        let (Some(from), Some(to)) = (known(query.sgid), known(query.dgid)) else {
            return Err(QueryError::NoPath);
        };
        let slid = query.slid.unwrap_or(addresses.lid(from));
        let dlid = query.dlid.unwrap_or(addresses.lid(to));
        let place = addresses.ends_of(from, slid, dlid);
        let leads_there = place.is_some_and(|(_, place)| self.fabric.port_at(place) == Some(to));
        if !leads_there {
            return Err(QueryError::NoPath);
        }
        let record = PathRecord {
            dgid: query.dgid,
            sgid: query.sgid,
            dlid,
            slid,
            pkey: PKey::DEFAULT_FULL,
            reversible: true,
            mtu: 4,
            rate: 7,
            packet_life_time: 13,
            ..PathRecord::default()
        };
        Ok(vec![record])
    }
}
