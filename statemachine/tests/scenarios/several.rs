// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several hosts of two ports each in one subnet, in virtual time and fair weather. Any of them can answer
//! late, or not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use cm_msgs::cm::Message;
use cm_msgs::control::{
    Cause, MigrationState, PolicyOverride, QpState, Register, Report, Role, Snapshot,
};
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use statemachine::view::Protection;
use statemachine::{
    Config, ConnId, Engine, Input, MadSource, Order, Origin, PathQuery, Payer, PortId, PortStatus,
    Query, Random, Time, Transmit,
};

/// The host that is looked at: the active side of all connections.
pub(crate) const OWN: usize = 0;

const MS: u64 = 1_000;
/// From a daemon to a library, or back.
const LOCAL: u64 = 200;
/// From a daemon to another.
const WIRE: u64 = 50;
const SA: u64 = 2 * MS;

struct Host {
    engine: Engine,
    qps: BTreeMap<ConnId, Snapshot>,
    down: [bool; 2],
    /// How long its MADs take, in microseconds; `None`: they are lost.
    answers_after: Option<u64>,
}

enum Event {
    Mad(usize, MadSource, Box<Message>),
    Input(usize, Box<Input>),
}

pub(crate) struct Several {
    now: u64,
    hosts: Vec<Host>,
    queue: BTreeMap<(u64, u64), Event>,
    serial: u64,
    /// Those that were ordered to leave their primaries, in that order.
    pub(crate) left: Vec<ConnId>,
}

fn guid(host: usize) -> Guid {
    Guid(0x1000 * (host as u64 + 1))
}

fn lid(host: usize, port: u8) -> Lid {
    Lid(10 * (host as u16 + 1) + u16::from(port))
}

fn gid(host: usize, port: u8) -> Gid {
    Gid::new(0xfe80 << 48, Guid(guid(host).0 + u64::from(port)))
}

fn status(host: usize, port: u8, active: bool) -> PortStatus {
    PortStatus {
        active,
        lid: lid(host, port),
        lmc: 0,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
        gid: gid(host, port),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    }
}

/// Between the first ports of two hosts.
fn path(from: usize, dlid: Lid, dgid: Gid) -> Path {
    Path {
        port: 1,
        mtu: 4,
        rate: 7,
        slid: lid(from, 1),
        dlid,
        pkey: PKey::DEFAULT_FULL,
        sgid: gid(from, 1),
        dgid,
        ..Path::default()
    }
}

impl Several {
    pub(crate) fn new(hosts: usize) -> Self {
        let config = || Config {
            connection_limit: 100_000,
            verify: Duration::ZERO,
            ..Config::default()
        };
        let host = |host: usize| Host {
            engine: Engine::new(config(), Random::new([host as u8 + 1; 32])),
            qps: BTreeMap::new(),
            down: [false; 2],
            answers_after: Some(WIRE),
        };
        let mut several = Self {
            now: MS,
            hosts: (0..hosts).map(host).collect(),
            queue: BTreeMap::new(),
            serial: 0,
            left: Vec::new(),
        };
        for host in 0..hosts {
            for port in [1, 2] {
                several.plug(host, port, true);
            }
        }
        several.run(1_000);
        several
    }

    /// Another host's MADs take so long, in milliseconds, or are lost.
    pub(crate) fn answers_after(&mut self, host: usize, ms: Option<u64>) {
        self.hosts[host].answers_after = ms.map(|ms| ms * MS);
    }

    pub(crate) fn plug(&mut self, host: usize, port: u8, plugged: bool) {
        self.hosts[host].down[usize::from(port) - 1] = !plugged;
        let id = PortId::new(guid(host), port);
        let status = status(host, port, plugged);
        self.input(host, Input::Port(id, Some(status)));
    }

    /// Connections of one client and payer to another host; both ends register.
    pub(crate) fn connect(&mut self, to: usize, client: u32, payer: Payer, count: u32) {
        for conn in 0..count {
            let ends = [(to, OWN, Role::Passive), (OWN, to, Role::Active)];
            for (host, peer, role) in ends {
                let primary = path(host, lid(peer, 1), gid(peer, 1));
                self.register(host, ConnId { client, conn }, payer, role, primary);
            }
        }
    }

    /// A connection to a LID where nobody is.
    pub(crate) fn connect_to_nobody(&mut self, id: ConnId, payer: Payer, dlid: Lid) {
        let primary = path(OWN, dlid, gid(99, 1));
        self.register(OWN, id, payer, Role::Active, primary);
    }

    fn register(&mut self, host: usize, id: ConnId, payer: Payer, role: Role, primary: Path) {
        let snapshot = Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary,
            alternate: None,
        };
        self.hosts[host].qps.insert(id, snapshot);
        let qpn = Qpn(id.client * 10_000 + id.conn + 100);
        let register = Register {
            role,
            opted_in: false,
            node_guid: guid(host),
            qpn,
            peer_qpn: qpn,
            policy: PolicyOverride::default(),
            snapshot,
        };
        self.input(host, Input::Register(id, payer, register));
    }

    /// Lets so many milliseconds pass.
    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.step(end) {}
        self.now = end;
    }

    /// Milliseconds until all connections of a client are armed, by alternates of this local port.
    pub(crate) fn armed_by(&mut self, client: u32, port: u8) -> u64 {
        let begin = self.now;
        while !self.is_armed_by(client, port) {
            assert!(
                self.step(begin + 120_000 * MS),
                "not armed after two minutes"
            );
        }
        (self.now - begin).div_ceil(MS)
    }

    fn is_armed_by(&self, client: u32, port: u8) -> bool {
        let engine = &self.hosts[OWN].engine;
        let mut views = engine.connections_in(Time(self.now), ConnId::of_client(client));
        views.all(|view| {
            view.protection == Protection::Armed
                && view.alternate.is_some_and(|path| path.port == port)
        })
    }

    /// The next thing happens, if it does before `end`.
    fn step(&mut self, end: u64) -> bool {
        let timers = self.hosts.iter().enumerate();
        let timer = timers
            .filter_map(|(host, Host { engine, .. })| Some((engine.poll_timeout()?.0, host)))
            .min();
        let event = self.queue.first_key_value().map(|(&key, _)| key);
        match (timer, event) {
            (Some((at, host)), event) if event.is_none_or(|(due, _)| at < due) => {
                if at >= end {
                    return false;
                }
                self.now = self.now.max(at);
                self.input(host, Input::Timeout);
            }
            (_, Some(key)) if key.0 < end => {
                self.now = self.now.max(key.0);
                match self.queue.remove(&key) {
                    Some(Event::Mad(host, source, mad)) => {
                        self.input(host, Input::Mad(source, *mad));
                    }
                    Some(Event::Input(host, input)) => self.input(host, *input),
                    None => {}
                }
            }
            _ => return false,
        }
        true
    }

    fn input(&mut self, host: usize, input: Input) {
        self.hosts[host].engine.handle(Time(self.now), input);
        while let Some((id, order)) = self.hosts[host].engine.poll_order() {
            self.obey(host, id, order);
        }
        while let Some(mad) = self.hosts[host].engine.poll_transmit(|_| true) {
            self.send(host, mad);
        }
        while let Some(query) = self.hosts[host].engine.poll_query() {
            match query {
                Query::Paths(query) => self.answer(host, &query),
                Query::Withdraw(_) => {}
                Query::Assess(assess) => {
                    let overlaps = vec![None; assess.paths.len()];
                    let query = assess.query;
                    self.push(LOCAL, host, Input::Assessed { query, overlaps });
                }
            }
        }
        while self.hosts[host].engine.poll_trace().is_some() {}
    }

    fn push(&mut self, delay: u64, host: usize, input: Input) {
        self.enqueue(delay, Event::Input(host, Box::new(input)));
    }

    fn enqueue(&mut self, delay: u64, event: Event) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), event);
    }

    /// A library does what it is told, and traffic arms at once what is loaded.
    fn obey(&mut self, host: usize, id: ConnId, order: Order) {
        let Some(qp) = self.hosts[host].qps.get_mut(&id) else {
            return;
        };
        let cause = match order {
            Order::Load(load) => {
                qp.alternate = Some(load.alternate);
                qp.migration = MigrationState::Armed;
                Cause::Done { token: load.token }
            }
            Order::Query(token) => Cause::Query { token },
            Order::Stand(_) | Order::Event(..) => return,
            Order::Migrate(_) => return self.left.push(id),
            other => panic!("{other:?} without a reason"),
        };
        let snapshot = *qp;
        self.push(LOCAL, host, Input::Report(id, Report { cause, snapshot }));
    }

    fn send(&mut self, from: usize, mad: Transmit) {
        let (to, port) = (
            usize::from(mad.lid.0 / 10).wrapping_sub(1),
            (mad.lid.0 % 10) as u8,
        );
        if to >= self.hosts.len() || !(1..=2).contains(&port) {
            return;
        }
        let is_down = |host: usize, port: u8| self.hosts[host].down[usize::from(port) - 1];
        if is_down(from, mad.port.port) || is_down(to, port) {
            return;
        }
        let Some(delay) = self.hosts[from].answers_after else {
            return;
        };
        let source = MadSource {
            port: PortId::new(guid(to), port),
            lid: lid(from, mad.port.port),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: mad.pkey,
            transaction_id: mad.transaction_id,
        };
        self.enqueue(delay, Event::Mad(to, source, Box::new(mad.message)));
    }

    fn answer(&mut self, host: usize, query: &PathQuery) {
        let ports = (0..self.hosts.len()).flat_map(|host| [(host, 1), (host, 2)]);
        let mut up = ports.filter(|&(host, port)| !self.hosts[host].down[usize::from(port) - 1]);
        let to = up.find(|&(host, port)| gid(host, port) == query.dgid);
        let record = |(to, port)| PathRecord {
            dgid: query.dgid,
            sgid: query.sgid,
            dlid: lid(to, port),
            slid: lid(host, query.port.port),
            pkey: query.pkey,
            reversible: true,
            mtu: 4,
            rate: 7,
            packet_life_time: 13,
            ..PathRecord::default()
        };
        let input = Input::Paths {
            query: query.query,
            result: Ok(to.map(record).into_iter().collect()),
            origin: Some(Origin::Sa),
        };
        self.push(SA, host, input);
    }
}
