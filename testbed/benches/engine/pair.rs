// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two engines joined in memory: all connections are armed, one port is pulled, all move and are armed
//! again over what is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use cm_msgs::Lid;
use cm_msgs::cm::Message;
use cm_msgs::control::{Cause, MigrationState, NO_TOKEN, Report, Role, Snapshot};
use cm_msgs::sa::PathRecord;
use statemachine::view::Protection;
use statemachine::{
    Answerer, Config, Engine, Input, MadSource, Order, Origin, PathQuery, Query, Time, Transmit,
};

use crate::host::{config, engine, gid, id, lid, path, port, register, snapshot, status};
use crate::{Figure, allocations};

/// Microseconds on the wire.
const WIRE: u64 = 5;

pub(crate) struct Pair {
    pub(crate) now: u64,
    pub(crate) engines: [Engine; 2],
    /// As the libraries see them.
    pub(crate) qps: [Vec<Snapshot>; 2],
    /// What is loaded becomes Armed.
    pub(crate) traffic: bool,
    wire: VecDeque<(u64, usize, Input)>,
    /// Whose port's cable is pulled.
    pulled: Option<Lid>,
    /// Of each host: requests without an answer.
    open: [BTreeSet<u32>; 2],
    most_open: usize,
    asked: BTreeMap<PathQuery, usize>,
}

/// What it is measured at.
const ENDS: [&str; 2] = ["active end", "passive end"];

pub(crate) fn figures(count: usize) -> Vec<Figure> {
    let armed = Pair::armed(count).bytes(count);
    let mut pair = Pair::armed(count);
    let steady = pair.steady();
    let reports = [0, 1].map(|host| pair.repeated_report(host));
    pair.most_open = 0;
    pair.asked.clear();
    pair.pull();
    let most_open = pair.most_open;
    let most_asked = pair.asked.values().copied().max().unwrap_or(0);
    let moved = pair.bytes(count);
    let figure = |name: String, value, unit, goal| Figure {
        name,
        value,
        unit,
        goal,
        is_time: false,
    };
    let memory = |what: &str, bytes: [f64; 2]| {
        let what = what.to_owned();
        let ends = ENDS.into_iter().zip(bytes);
        ends.map(move |(end, bytes)| figure(format!("{what}, {end}"), bytes, "bytes", 1024.0))
    };
    let mut figures: Vec<Figure> = memory("memory of a connection", armed).collect();
    figures.extend(memory(
        "the same after all have moved and are armed again",
        moved,
    ));
    // A tour over them allocates for each owner and far port, and for no connection.
    figures.push(figure(
        "allocations of armed connections that look at a port event, for each".to_owned(),
        steady / count as f64,
        "allocations",
        0.1,
    ));
    let reports = ENDS.into_iter().zip(reports);
    figures.extend(reports.map(|(end, count)| {
        let name = format!("allocations of a report that changes nothing, {end}");
        figure(name, count, "allocations", 0.0)
    }));
    figures.push(figure(
        "requests in flight while all move and are armed again".to_owned(),
        most_open as f64,
        "messages",
        64.0,
    ));
    figures.push(figure(
        "path queries for one pair of ports meanwhile".to_owned(),
        most_asked as f64,
        "queries",
        1.0,
    ));
    figures
}

impl Pair {
    /// So many connections over the first port of either host, of which the daemons know nothing.
    pub(crate) fn new(count: usize, config: &Config, traffic: bool) -> Self {
        let qps = |host| vec![snapshot(path(host, 1, 1), None); count];
        Self {
            now: 1,
            engines: [0, 1].map(|host| engine(host, config.clone())),
            qps: [qps(0), qps(1)],
            traffic,
            wire: VecDeque::new(),
            pulled: None,
            open: [BTreeSet::new(), BTreeSet::new()],
            most_open: 0,
            asked: BTreeMap::new(),
        }
    }

    /// So many connections, armed at both ends.
    fn armed(count: usize) -> Self {
        let mut pair = Self::new(count, &config(), true);
        pair.register(0..count);
        pair.until_all_are(Protection::Armed);
        pair
    }

    pub(crate) fn register(&mut self, conns: Range<usize>) {
        for conn in conns {
            for (host, role) in [(1, Role::Passive), (0, Role::Active)] {
                let input = register(host, role, conn, self.qps[host][conn]);
                self.tell(host, input);
            }
            self.run(100);
        }
    }

    /// Bytes that each end holds for each connection: what is free without its engine.
    fn bytes(self, count: usize) -> [f64; 2] {
        self.engines.map(|engine| {
            let before = allocations::held();
            drop(engine);
            (before - allocations::held()) as f64 / count as f64
        })
    }

    /// What is allocated for a report of what is known already.
    fn repeated_report(&mut self, host: usize) -> f64 {
        let cause = Cause::Query { token: NO_TOKEN };
        let snapshot = self.qps[host][0];
        let input = Input::Report(id(0), Report { cause, snapshot });
        let before = allocations::count();
        self.engines[host].handle(Time(self.now), input);
        let count = allocations::count() - before;
        self.drain(host);
        count as f64
    }

    pub(crate) fn tell(&mut self, host: usize, input: Input) {
        self.engines[host].handle(Time(self.now), input);
        self.drain(host);
    }

    fn drain(&mut self, host: usize) {
        while let Some((conn, order)) = self.engines[host].poll_order() {
            self.obey(host, conn.conn as usize, order);
        }
        while let Some(mad) = self.engines[host].poll_transmit(|_| true) {
            self.send(host, mad);
        }
        while let Some(query) = self.engines[host].poll_query() {
            self.answer(host, query);
        }
        while let Some(probe) = self.engines[host].poll_probe(|_| true) {
            if [probe.path.slid, probe.path.dlid]
                .map(Some)
                .contains(&self.pulled)
            {
                continue;
            }
            let answer = Input::Probed(probe, Answerer::Daemon);
            self.wire.push_back((self.now + WIRE, host, answer));
        }
    }

    /// The library carries out an order, and reports.
    fn obey(&mut self, host: usize, conn: usize, order: Order) {
        let qp = &mut self.qps[host][conn];
        let cause = match order {
            Order::Load(load) => {
                qp.alternate = Some(load.alternate);
                qp.migration = match self.traffic {
                    true => MigrationState::Armed,
                    false => MigrationState::Rearm,
                };
                Cause::Done { token: load.token }
            }
            Order::Migrate(migrate) => {
                qp.primary = qp.alternate.take().expect("it is armed");
                qp.migration = MigrationState::Migrated;
                Cause::Done {
                    token: migrate.token,
                }
            }
            Order::MoveIdle(migrate) => {
                qp.primary = qp.alternate.expect("it is in ReArm");
                Cause::Done {
                    token: migrate.token,
                }
            }
            Order::Query(token) => Cause::Done { token },
            Order::Refuse(refusal) => panic!("refused: {refusal:?}"),
            _ => return,
        };
        let report = Report {
            cause,
            snapshot: *qp,
        };
        let report = Input::Report(id(conn), report);
        self.wire.push_back((self.now + WIRE, host, report));
    }

    fn send(&mut self, host: usize, mad: Transmit) {
        match mad.message {
            Message::Req(_) | Message::Lap(_) | Message::Sap(_) | Message::Dreq(_) => {
                self.open[host].insert(mad.transaction_id);
                self.most_open = self.most_open.max(self.open[host].len());
            }
            Message::Rep(_) | Message::Apr(_) | Message::Spr(_) | Message::Drep(_) => {
                self.open[1 - host].remove(&mad.transaction_id);
            }
            _ => {}
        }
        let to = [1, 2].into_iter().find(|&to| lid(1 - host, to) == mad.lid);
        let to = to.expect("a port of the other host");
        let source = MadSource {
            port: port(1 - host, to),
            lid: lid(host, mad.port.port),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: mad.pkey,
            transaction_id: mad.transaction_id,
        };
        let input = Input::Mad(source, mad.message);
        self.wire.push_back((self.now + WIRE, 1 - host, input));
    }

    fn answer(&mut self, host: usize, query: Query) {
        let input = match query {
            Query::Withdraw(_) => return,
            Query::Paths(query) => {
                *self
                    .asked
                    .entry(PathQuery { query: 0, ..query })
                    .or_default() += 1;
                let end = |of: usize, gid_of| [1, 2].into_iter().find(|&at| gid(of, at) == gid_of);
                let from = end(host, query.sgid).expect("a port of its own");
                let to = end(1 - host, query.dgid).expect("a port of the peer's");
                Input::Paths {
                    query: query.query,
                    result: Ok(vec![PathRecord {
                        dgid: query.dgid,
                        sgid: query.sgid,
                        dlid: lid(1 - host, to),
                        slid: lid(host, from),
                        pkey: query.pkey,
                        reversible: true,
                        mtu: 4,
                        rate: 7,
                        packet_life_time: 13,
                        ..PathRecord::default()
                    }]),
                    origin: Some(Origin::Sa),
                }
            }
            Query::Assess(assess) => Input::Assessed {
                query: assess.query,
                overlaps: vec![None; assess.paths.len()],
            },
        };
        self.wire.push_back((self.now + WIRE, host, input));
    }

    /// Lets so many microseconds pass.
    pub(crate) fn run(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            let event = self.wire.front().map(|&(at, ..)| at);
            let timers = self.engines.iter().filter_map(Engine::poll_timeout);
            let timer = timers.map(|at| at.0.max(self.now)).min();
            let next = [event, timer].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = next;
            if event == Some(next) {
                let (_, host, input) = self.wire.pop_front().expect("just seen");
                self.tell(host, input);
            } else {
                self.tell(0, Input::Timeout);
                self.tell(1, Input::Timeout);
            }
        }
        self.now = end;
    }

    pub(crate) fn until_all_are(&mut self, wanted: Protection) {
        let begin = self.now;
        loop {
            let now = Time(self.now);
            let mut all = self
                .engines
                .iter()
                .flat_map(|engine| engine.protections(now));
            if all.all(|(protection, _)| protection == wanted) && self.wire.is_empty() {
                return;
            }
            drop(all);
            assert!(
                self.now - begin < 600_000_000,
                "not {wanted:?} in ten minutes"
            );
            self.run(1_000);
        }
    }

    /// What is allocated while the connections look at an event that changes nothing for them.
    fn steady(&mut self) -> f64 {
        // Its subnet manager has another LID now; what comes with the event is the caller's.
        let mut status = status(1, 1, true);
        status.sm_lid = Lid(2);
        let now = Time(self.now);
        let input = Input::Port(port(1, 1), Some(status));
        self.engines[1].handle(now, input);
        let before = allocations::count();
        loop {
            while self.engines[1].poll_order().is_some() {}
            if self.engines[1].poll_timeout().is_none_or(|at| at > now) {
                break;
            }
            self.engines[1].handle(now, Input::Timeout);
        }
        let count = allocations::count() - before;
        self.drain(1);
        count as f64
    }

    /// The cable between host 0's first port and its switch is pulled: all move, and are armed again over
    /// host 0's second port and host 1's first.
    fn pull(&mut self) {
        self.pulled = Some(lid(0, 1));
        let down = Some(status(0, 1, false));
        self.tell(0, Input::Port(port(0, 1), down));
        self.until_all_are(Protection::Armed);
        let moved = |qp: &Snapshot| qp.primary.port == 2;
        assert!(self.qps.iter().flatten().all(moved), "all have moved");
    }
}
