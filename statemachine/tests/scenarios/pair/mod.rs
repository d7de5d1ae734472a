// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts in virtual time: two engines, their libraries and QPs, an SA, and a network that
//! loses, repeats and reorders as a seed says. Host 0 is the active side.

mod fabric;
mod host;
mod network;
mod qp;
mod standing;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cm_msgs::cm;
use cm_msgs::control::{
    Cause, MigrationState, PolicyOverride, QpState, Register, Report, Role, Snapshot,
};
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Lid, PKey, Qpn};
use statemachine::view::Protection;
use statemachine::{
    Assess, Command, Config, ConnId, ConnectionView, Engine, Input, MadSource, Order, Origin,
    Overlap, PathQuery, Payer, PortId, Probe, Query, QueryError, Random, Time, Trace, Transmit,
};

pub(crate) use self::fabric::{Fabric, shared};
pub(crate) use self::host::{Host, LibraryFault};
pub(crate) use self::network::{Cable, Network, PortOf, Weather, base_lid, gid, guid};
use self::qp::Event as QpEvent;
pub(crate) use self::qp::Qp;

/// Whether `peer` is this path seen from its other end.
fn is_reverse(path: &Path, peer: &Path) -> bool {
    path.slid == peer.dlid && path.dlid == peer.slid
}

/// Host numbers.
pub(crate) const ACTIVE: usize = 0;
pub(crate) const PASSIVE: usize = 1;

/// Whose the connections are.
pub(crate) const OWNER: Payer = Payer(1);
/// Another user of the same hosts.
pub(crate) const OTHER: Payer = Payer(2);

/// Microseconds.
const MS: u64 = 1_000;
/// Between two packets of an application, each way. Retries come as often: with [`qp`]'s number of
/// them, hardware takes half a second to give a path up, as with ACK timeout 14 and 7 retries.
const PACKET: u64 = 20 * MS;
/// From a thread to the next on the same host.
const LOCAL: u64 = 200;
/// An SA's answer.
const SA: u64 = 2 * MS;

/// Something on its way.
enum Pending {
    /// A MAD that a host will receive.
    Mad(usize, MadSource, cm::Message),
    /// A host's probe, on its way there.
    Probe(usize, Probe),
    /// Its answer, on its way back.
    ProbeAnswer(usize, Probe),
    /// An input to a host's engine, if its socket still is this one.
    Input(usize, u32, Input),
    /// What paths share reaches a host's engine, whichever that is by then.
    Assessed(usize, Input),
    /// A port's new state reaches a host's engine.
    Port(usize, u8),
    /// An order reaches a library.
    Order(usize, u32, usize, Order),
    /// A packet of an application.
    Packet(usize, usize),
    /// An SA's answer.
    Answer(usize, PathQuery),
}

/// What to lose: so many more MADs of that name.
type Losses = BTreeMap<&'static str, usize>;

pub(crate) struct Pair {
    pub(crate) now: u64,
    pub(crate) hosts: [Host; 2],
    pub(crate) net: Network,
    pub(crate) config: Config,
    pub(crate) fabric: Fabric,
    /// MADs still to be lost.
    pub(crate) lose: Losses,
    /// Both applications send.
    pub(crate) traffic: bool,
    pub(crate) opted_in: bool,
    /// What the libraries say of policies.
    pub(crate) policies: [PolicyOverride; 2],
    /// What the libraries take their applications for.
    pub(crate) roles: [Role; 2],
    /// The SA knows no LIDs but base LIDs.
    pub(crate) base_lids_only: bool,
    /// The SA does not answer.
    pub(crate) sa_dead: bool,
    /// The SA answers one question at a time, and takes this long over each, in microseconds.
    pub(crate) sa_takes: Option<u64>,
    sa_free_at: u64,
    /// The pairs of ports that the SA has paths for, when not all.
    sa_knows: Option<Vec<(PortOf, PortOf)>>,
    /// MADs of this name are kept as they arrive.
    record: Option<&'static str>,
    recorded: Vec<(usize, MadSource, cm::Message)>,
    /// MADs to LIDs that are neither host's.
    pub(crate) to_strangers: Vec<(Lid, cm::Message)>,
    transactions: BTreeMap<&'static str, u32>,
    /// What the engines said.
    traces: Vec<(usize, Trace)>,
    queue: BTreeMap<(u64, u64), Pending>,
    serial: u64,
    seeds: u64,
    /// Print what happens.
    verbose: bool,
}

impl Pair {
    /// Two hosts without daemons and one connection between their first ports.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, 0, 1)
    }

    pub(crate) fn with(seed: u64, lmc: u8, connections: usize) -> Self {
        let qps = |host: usize| vec![Qp::new(first_path(host)); connections];
        Self {
            now: 0,
            hosts: [Host::new(0, lmc, qps(0)), Host::new(1, lmc, qps(1))],
            net: Network::new(seed.wrapping_mul(2).wrapping_add(1), lmc),
            config: Config::default(),
            fabric: Fabric::unknown(),
            lose: Losses::new(),
            traffic: false,
            opted_in: false,
            policies: [PolicyOverride::default(); 2],
            roles: [Role::Active, Role::Passive],
            base_lids_only: false,
            sa_dead: false,
            sa_takes: None,
            sa_free_at: 0,
            sa_knows: None,
            record: None,
            recorded: Vec::new(),
            to_strangers: Vec::new(),
            transactions: BTreeMap::new(),
            traces: Vec::new(),
            queue: BTreeMap::new(),
            serial: 0,
            seeds: seed,
            verbose: std::env::var_os("APMD_VERBOSE").is_some(),
        }
    }

    /// Both daemons start, both applications register, and both send.
    pub(crate) fn begin(&mut self) {
        for host in [PASSIVE, ACTIVE] {
            self.start(host);
            self.register(host);
        }
        self.set_traffic(true);
    }

    /// Both daemons run, both applications have registered, both send.
    pub(crate) fn running(seed: u64) -> Self {
        let mut pair = Self::new(seed);
        pair.start(ACTIVE);
        pair.start(PASSIVE);
        pair.register(PASSIVE);
        pair.register(ACTIVE);
        pair.set_traffic(true);
        pair
    }

    /// The same, and armed.
    pub(crate) fn armed(seed: u64) -> Self {
        let mut pair = Self::running(seed);
        pair.run(1_000);
        pair.assert_armed();
        pair
    }

    // ---- what can be done ----

    /// Starts a host's daemon. Its library connects to it.
    pub(crate) fn start(&mut self, host: usize) {
        self.seeds += 1;
        let config = self.config.clone();
        self.hosts[host].engine = Some(Engine::new(config, random(self.seeds)));
        for port in 1..=2 {
            self.port_input(host, port);
        }
        self.reconnect(host);
    }

    /// Ends a host's daemon, as SIGKILL does.
    pub(crate) fn kill(&mut self, host: usize) {
        self.hosts[host].engine = None;
        self.forget_client(host);
    }

    fn forget_client(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.client += 1;
        host.waiting.clear();
        host.told.clear();
    }

    /// The library's socket breaks and is made again.
    pub(crate) fn reconnect(&mut self, host: usize) {
        let client = self.hosts[host].client;
        self.input(host, Input::ClientGone(client));
        self.forget_client(host);
        for conn in 0..self.hosts[host].qps.len() {
            if self.hosts[host].registered[conn] {
                self.say_register(host, conn);
            }
        }
    }

    /// The library registers all its connections.
    pub(crate) fn register(&mut self, host: usize) {
        self.register_some(host, 0..self.hosts[host].qps.len());
    }

    /// The library registers these of its connections.
    pub(crate) fn register_some(&mut self, host: usize, conns: Range<usize>) {
        for conn in conns {
            self.hosts[host].registered[conn] = true;
            self.say_register(host, conn);
        }
    }

    /// How a host's connections are to be protected from now on.
    pub(crate) fn set_policy(&mut self, host: usize, policy: PolicyOverride) {
        self.policies[host] = policy;
        for conn in 0..self.hosts[host].qps.len() {
            let id = self.id(host, conn);
            self.input(host, Input::Policy(id, policy));
        }
    }

    /// Anything at all happens to a host's engine.
    pub(crate) fn tell(&mut self, host: usize, input: Input) {
        self.input(host, input);
    }

    /// A host's daemon reads its configuration again.
    pub(crate) fn configure(&mut self, host: usize, config: Config) {
        if let Some(engine) = &mut self.hosts[host].engine {
            engine.set_config(config);
        }
        self.drain(host);
    }

    /// Another user's library registers a connection that the peer knows nothing of, and closes it.
    pub(crate) fn register_and_close(&mut self, host: usize, client: u32, conn: u32) {
        let id = ConnId { client, conn };
        let register = Register {
            qpn: Qpn(0x80_0000 + conn),
            peer_qpn: Qpn(0x90_0000 + conn),
            ..self.register_message(host, 0)
        };
        self.input(host, Input::Register(id, OTHER, register));
        self.run(1);
        self.input(host, Input::Close(id));
    }

    /// Another user's library registers a connection to where there is no host.
    pub(crate) fn register_to_nobody(&mut self, host: usize, conn: u32) {
        let id = ConnId { client: 99, conn };
        let snapshot = Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: Path {
                dlid: Lid(0x999),
                dgid: Default::default(),
                ..first_path(host)
            },
            alternate: None,
        };
        let register = Register {
            qpn: Qpn(0x80_0000 + conn),
            snapshot,
            ..self.register_message(host, 0)
        };
        self.input(host, Input::Register(id, OTHER, register));
    }

    fn say_register(&mut self, host: usize, conn: usize) {
        let register = self.register_message(host, conn);
        self.hosts[host].told.insert(conn, register.snapshot);
        let id = self.id(host, conn);
        self.input(host, Input::Register(id, OWNER, register));
    }

    fn register_message(&self, host: usize, conn: usize) -> Register {
        let snapshot = self.hosts[host].qps[conn].snapshot();
        Register {
            role: self.roles[host],
            opted_in: self.opted_in,
            node_guid: guid(host),
            qpn: self.hosts[host].qpn(conn),
            peer_qpn: host::qpn(1 - host, conn),
            policy: self.policies[host],
            snapshot,
        }
    }

    /// The application connects anew.
    pub(crate) fn new_connections(&mut self, host: usize) {
        for qp in &mut self.hosts[host].qps {
            *qp = Qp::new(first_path(host));
        }
    }

    /// The application closes its connections.
    pub(crate) fn close(&mut self, host: usize) {
        self.end(host, Input::Close);
    }

    /// It disconnects them.
    pub(crate) fn disconnect(&mut self, host: usize) {
        self.end(host, Input::Disconnect);
    }

    fn end(&mut self, host: usize, input: fn(ConnId) -> Input) {
        for conn in 0..self.hosts[host].qps.len() {
            self.hosts[host].registered[conn] = false;
            self.hosts[host].qps[conn].state = QpState::Reset;
            let id = self.id(host, conn);
            self.input(host, input(id));
        }
    }

    pub(crate) fn set_traffic(&mut self, on: bool) {
        if on && !self.traffic {
            for conn in 0..self.hosts[0].qps.len() {
                self.push(PACKET, Pending::Packet(0, conn));
                self.push(PACKET + PACKET / 2, Pending::Packet(1, conn));
            }
        }
        self.traffic = on;
    }

    pub(crate) fn pull(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::Pulled;
        self.hosts[host].ports[usize::from(port) - 1].active = false;
        self.push(MS, Pending::Port(host, port));
    }

    pub(crate) fn plug(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::Plugged;
        self.hosts[host].ports[usize::from(port) - 1].active = true;
        self.push(50 * MS, Pending::Port(host, port));
    }

    /// The subnet manager gives a port another LID. Packets to and from the old one are lost.
    pub(crate) fn relabel(&mut self, host: usize, port: u8, lid: Lid) {
        self.net.relabelled.push(((host, port), lid));
        self.hosts[host].ports[usize::from(port) - 1].lid = lid;
        self.push(MS, Pending::Port(host, port));
    }

    /// The subnet manager takes a port out of a partition, that of the connections. The SA knows.
    pub(crate) fn leave_partition(&mut self, host: usize, port: u8, pkey: PKey) {
        self.net.outside.push((host, port));
        let here = &mut self.hosts[host].ports[usize::from(port) - 1];
        here.pkeys.retain(|&key| key != pkey);
        self.push(MS, Pending::Port(host, port));
    }

    /// And into it again.
    pub(crate) fn join_partition(&mut self, host: usize, port: u8, pkey: PKey) {
        self.net.outside.retain(|&outside| outside != (host, port));
        let here = &mut self.hosts[host].ports[usize::from(port) - 1];
        here.pkeys.push(pkey);
        self.push(MS, Pending::Port(host, port));
    }

    /// A port's send queue is full, or has room again.
    pub(crate) fn set_full(&mut self, host: usize, port: u8, full: bool) {
        self.hosts[host].full[usize::from(port) - 1] = full;
        self.drain(host);
    }

    pub(crate) fn black_hole(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::BlackHole;
    }

    /// Hands a host's engine a MAD that nobody sent.
    pub(crate) fn forge(&mut self, host: usize, source: MadSource, message: cm::Message) {
        self.input(host, Input::Mad(source, message));
    }

    /// Hands a host's engine something else that nobody sent.
    pub(crate) fn hear(&mut self, host: usize, input: Input) {
        self.input(host, input);
    }

    pub(crate) fn sa_knows_only(&mut self, pairs: Vec<(PortOf, PortOf)>) {
        self.sa_knows = Some(pairs);
    }

    /// A library says that hardware finds its alternate no good.
    pub(crate) fn report_broken_alternate(&mut self, host: usize) {
        self.report(host, 0, Cause::PathMigrationError, LOCAL);
    }

    /// Paths take other switches from now on; both daemons hear of it.
    pub(crate) fn reroute(&mut self, fabric: Fabric) {
        self.fabric.reroute(fabric);
        for host in [ACTIVE, PASSIVE] {
            self.input(host, Input::FabricChanged);
        }
    }

    /// Hands a host's engine an answer that may have nothing to do with what it asks.
    pub(crate) fn forge_assessed(
        &mut self,
        host: usize,
        query: u32,
        overlaps: Vec<Option<Overlap>>,
    ) {
        self.input(host, Input::Assessed { query, overlaps });
    }

    /// An operator wants something of a host's first connection.
    pub(crate) fn command(&mut self, host: usize, command: Command) {
        let id = self.id(host, 0);
        self.input(host, Input::Command(id, command));
    }

    /// An operator wants connections off a port, or minds them no more.
    pub(crate) fn drain_port(&mut self, host: usize, port: u8, drained: bool) {
        let id = self.hosts[host].port_id(port);
        self.input(host, Input::Drain(id, drained));
    }

    /// A library says how its QP is, unasked.
    pub(crate) fn report_changed(&mut self, host: usize) {
        self.report(host, 0, Cause::Changed, LOCAL);
    }

    /// Keeps MADs of this name from now on.
    pub(crate) fn record(&mut self, name: &'static str) {
        self.record = Some(name);
    }

    pub(crate) fn recorded(&self) -> &[(usize, MadSource, cm::Message)] {
        &self.recorded
    }

    /// Transaction ID of the last MAD of this name.
    pub(crate) fn last_transaction(&self, name: &str) -> u32 {
        self.transactions[name]
    }

    /// Tells a host's engine what a port is like now.
    pub(crate) fn port_input(&mut self, host: usize, port: u8) {
        let here = &self.hosts[host];
        let status = here.ports[usize::from(port) - 1].clone();
        let id = here.port_id(port);
        self.input(host, Input::Port(id, Some(status)));
    }

    /// Forgets what the engines said.
    pub(crate) fn forget_traces(&mut self) {
        self.traces.clear();
    }

    // ---- what can be seen ----

    /// What a host's engine said since then.
    pub(crate) fn traces(&self, host: usize) -> impl Iterator<Item = &Trace> {
        let of_host = self.traces.iter().filter(move |(of, _)| *of == host);
        of_host.map(|(_, trace)| trace)
    }

    pub(crate) fn id(&self, host: usize, conn: usize) -> ConnId {
        ConnId {
            client: self.hosts[host].client,
            conn: conn as u32,
        }
    }

    pub(crate) fn view(&self, host: usize) -> ConnectionView {
        self.views(host).into_iter().next().expect("a connection")
    }

    pub(crate) fn views(&self, host: usize) -> Vec<ConnectionView> {
        let engine = self.hosts[host].engine.as_ref().expect("a daemon");
        engine.connections(Time(self.now)).collect()
    }

    pub(crate) fn qp(&self, host: usize) -> &Qp {
        &self.hosts[host].qps[0]
    }

    /// Whether none of its QPs has broken.
    pub(crate) fn is_alive(&self, host: usize) -> bool {
        self.hosts[host]
            .qps
            .iter()
            .all(|qp| qp.state == QpState::Rts)
    }

    pub(crate) fn all_sent(&self, host: usize) -> usize {
        self.hosts[host].sent.values().sum()
    }

    /// The pair of ports that a QP's path joins, from host 0's point of view.
    pub(crate) fn rails(path: &Path) -> (u8, PortOf) {
        let remote = [(0, 1), (0, 2), (1, 1), (1, 2)];
        let remote = remote
            .into_iter()
            .find(|&port| base_lid(port).0 == path.dlid.0 & !7);
        (path.port, remote.expect("a known LID"))
    }

    /// Invariant 1, and that both ends say what is true.
    pub(crate) fn assert_armed(&self) {
        for conn in 0..self.hosts[0].qps.len() {
            let [a, b] = [0, 1].map(|host| &self.hosts[host].qps[conn]);
            for (host, qp) in [(0, a), (1, b)] {
                let why = self.hosts[host]
                    .engine
                    .as_ref()
                    .map(|_| self.views(host)[conn].clone());
                assert_eq!(qp.state, QpState::Rts, "host {host}: {why:#?}");
                assert_eq!(qp.migration, MigrationState::Armed, "host {host}: {why:#?}");
            }
            assert!(is_reverse(&a.primary, &b.primary), "{a:?} {b:?}");
            let [left, right] = [a, b].map(|qp| qp.alternate.expect("armed"));
            assert!(
                is_reverse(&left, &right),
                "alternates {left:?} and {right:?}"
            );
            for host in 0..2 {
                if self.hosts[host].engine.is_some() {
                    let view = &self.views(host)[conn];
                    assert_eq!(view.protection, Protection::Armed, "{view:#?}");
                    assert_eq!(view.reason, None);
                }
            }
        }
    }

    /// All ports are up and above suspicion: alternates take other ports on both sides, and no
    /// other pair of LIDs there is known to share less with the primary.
    pub(crate) fn assert_best_alternates(&self) {
        for (conn, qp) in self.hosts[ACTIVE].qps.iter().enumerate() {
            let (primary, alternate) = (&qp.primary, qp.alternate.expect("armed"));
            let ports = |path: &Path| (path.slid.0 & !7, path.dlid.0 & !7);
            let [old, new] = [ports(primary), ports(&alternate)];
            assert!(old.0 != new.0 && old.1 != new.1, "{conn}: {old:?} {new:?}");
            let of = |lids| self.fabric.overlap(primary, lids);
            let overlap = of((alternate.slid, alternate.dlid));
            assert_eq!(self.views(ACTIVE)[conn].overlap, overlap);
            for offset in 0..1 << self.net.lmc {
                let other = of((Lid(new.0 | offset), Lid(new.1 | offset)));
                let better = match (other, overlap) {
                    (Some(other), Some(overlap)) => other < overlap,
                    (Some(other), None) => other.is_none(),
                    (None, _) => false,
                };
                assert!(
                    !better,
                    "{conn}: offset {offset}: {other:?}, not {overlap:?}"
                );
            }
        }
    }

    pub(crate) fn is_armed(&self) -> bool {
        let armed = |host: &Host| {
            host.qps
                .iter()
                .all(|qp| qp.migration == MigrationState::Armed)
                && host.qps.iter().all(|qp| qp.state == QpState::Rts)
        };
        self.hosts.iter().all(armed)
    }

    /// Nothing of a daemon's stays awake.
    pub(crate) fn assert_asleep(&self, host: usize) {
        let engine = self.hosts[host].engine.as_ref().expect("a daemon");
        // All that is left to do is to probe paths, and to make sure of the association now and then.
        let next = engine.next_alarm().map(|at| at - Time(self.now));
        assert!(
            next.is_none_or(|wait| wait.as_secs() >= 60),
            "host {host}: {next:?} {:#?}",
            self.views(host)
        );
    }

    // ---- time ----

    /// Lets so many milliseconds pass.
    pub(crate) fn run(&mut self, ms: u64) {
        self.run_us(ms * MS);
    }

    /// Lets so many microseconds pass.
    pub(crate) fn run_us(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            let event = self.queue.first_key_value().map(|(&(time, _), _)| time);
            let timer = self.next_timer();
            let next = [event, timer].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, pending) = self.queue.pop_first().expect("just seen");
                self.happen(pending);
            } else {
                for host in 0..2 {
                    self.input(host, Input::Timeout);
                }
            }
        }
        self.now = end;
        self.assert_counted(ACTIVE);
        self.assert_counted(PASSIVE);
    }

    /// Lets time pass until both ends are armed. How many milliseconds that took.
    pub(crate) fn run_until_armed(&mut self, limit_ms: u64) -> u64 {
        let start = self.now;
        while !self.is_armed() {
            assert!(
                (self.now - start) / MS < limit_ms,
                "not armed: {:#?}",
                [self.view(0), self.view(1)]
            );
            self.run(1);
        }
        (self.now - start) / MS
    }

    fn next_timer(&self) -> Option<u64> {
        let engines = self.hosts.iter().filter_map(|host| host.engine.as_ref());
        engines
            .filter_map(Engine::poll_timeout)
            .map(|time| time.0)
            .min()
    }

    fn push(&mut self, delay: u64, pending: Pending) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), pending);
    }

    fn happen(&mut self, pending: Pending) {
        match pending {
            Pending::Mad(host, _, _) if self.hosts[host].stopped => {}
            Pending::Mad(host, source, message) => self.input(host, Input::Mad(source, message)),
            Pending::Probe(host, probe) => self.answer_probe(host, probe),
            Pending::ProbeAnswer(host, probe) => self.input(host, Input::Probed(probe)),
            Pending::Input(host, client, input) => {
                if self.hosts[host].client == client {
                    self.arrive(host, input);
                }
            }
            Pending::Assessed(host, input) => self.input(host, input),
            Pending::Port(host, port) => self.port_input(host, port),
            Pending::Order(host, client, conn, order) => {
                if self.hosts[host].client == client {
                    self.obey(host, conn, order);
                }
            }
            Pending::Packet(host, conn) => self.packet(host, conn),
            Pending::Answer(host, query) => self.answer(host, &query),
        }
    }

    /// A report reaches an engine.
    fn arrive(&mut self, host: usize, input: Input) {
        if let Input::Report(id, report) = &input {
            let conn = id.conn as usize;
            self.hosts[host].told.insert(conn, report.snapshot);
            let answers = match report.cause {
                Cause::PathMigrated | Cause::Armed | Cause::Broken => false,
                Cause::StandingOrder => self.hosts[host].migrating[conn],
                _ => true,
            };
            if answers {
                self.hosts[host].waiting.insert(conn, false);
            }
        }
        self.input(host, input);
    }

    fn input(&mut self, host: usize, input: Input) {
        if self.verbose && !matches!(input, Input::Timeout) {
            eprintln!("{:>9} us host {host} <- {}", self.now, brief(&input));
        }
        let now = Time(self.now);
        let Some(engine) = &mut self.hosts[host].engine else {
            return;
        };
        engine.handle(now, input);
        self.drain(host);
    }

    /// Takes out of a host's engine what it wants done.
    fn drain(&mut self, host: usize) {
        while let Some((id, order)) = self.poll(host, Engine::poll_order) {
            self.order(host, id, order);
        }
        let full = self.hosts[host].full;
        let has_room = |id: PortId| !full[usize::from(id.port) - 1];
        while let Some(mad) = self.poll(host, |engine| engine.poll_transmit(has_room)) {
            self.send(host, mad);
        }
        while let Some(probe) = self.poll(host, |engine| engine.poll_probe(has_room)) {
            self.send_probe(host, probe);
        }
        while let Some(query) = self.poll(host, Engine::poll_query) {
            self.query(host, query);
        }
        while let Some(trace) = self.poll(host, Engine::poll_trace) {
            if self.verbose {
                eprintln!("{:>9} us host {host}    {trace}", self.now);
            }
            self.traces.push((host, trace));
        }
    }

    fn poll<T>(&mut self, host: usize, poll: impl FnOnce(&mut Engine) -> Option<T>) -> Option<T> {
        self.hosts[host].engine.as_mut().and_then(poll)
    }

    /// What ports say of their connections is what the connections say.
    fn assert_counted(&self, host: usize) {
        let Some(engine) = &self.hosts[host].engine else {
            return;
        };
        let views = || engine.connections(Time(self.now));
        for port in engine.ports() {
            let is_here = |path: &Path| path.port == port.id.port;
            let primaries = views().filter(|view| is_here(&view.primary)).count();
            let alternates = views().filter(|view| view.alternate.as_ref().is_some_and(is_here));
            assert_eq!(
                (port.primaries, port.alternates),
                (primaries, alternates.count()),
                "host {host} port {}",
                port.id.port
            );
        }
    }

    fn sa_delay(&mut self) -> u64 {
        let Some(takes) = self.sa_takes else {
            return SA;
        };
        self.sa_free_at = self.sa_free_at.max(self.now) + takes;
        self.sa_free_at - self.now
    }

    fn query(&mut self, host: usize, query: Query) {
        match query {
            Query::Paths(query) => {
                if !self.sa_dead {
                    let delay = self.sa_delay();
                    self.push(delay, Pending::Answer(host, query));
                } else {
                    let client = self.hosts[host].client;
                    let answer = Input::Paths {
                        query: query.query,
                        result: Err(QueryError::Timeout),
                        origin: None,
                    };
                    self.push(SA, Pending::Input(host, client, answer));
                }
            }
            Query::Assess(assess) => self.assess(host, &assess),
        }
    }

    /// The fabric as it is now is what the answer tells, however long that takes. As everything
    /// else, it can be lost, and come twice.
    fn assess(&mut self, host: usize, assess: &Assess) {
        self.fabric.asked.push((self.now, assess.query));
        let Weather {
            loss, duplication, ..
        } = self.net.weather;
        let answer = Input::Assessed {
            query: assess.query,
            overlaps: self.fabric.answer(assess),
        };
        let copies = 1 + u64::from(self.net.random(1000) < duplication);
        for copy in 0..copies {
            if self.net.random(1000) >= loss && !self.fabric.silent {
                let delay = LOCAL + self.fabric.takes * MS + copy * 7 * MS;
                self.push(delay, Pending::Assessed(host, answer.clone()));
            }
        }
    }

    fn order(&mut self, host: usize, id: ConnId, order: Order) {
        let (client, conn) = (self.hosts[host].client, id.conn as usize);
        assert_eq!(id.client, client, "an order to a socket that is gone");
        match &order {
            Order::Event(event, _) => return self.hosts[host].events.push(*event),
            Order::Disconnected => {
                self.hosts[host].disconnected += 1;
                return;
            }
            Order::Refuse(refusal) => {
                self.hosts[host].refused[conn] = Some(*refusal);
                return;
            }
            Order::Load(load) => {
                let port = &self.hosts[host].ports[usize::from(load.alternate.port) - 1];
                let known = self.hosts[host]
                    .engine
                    .as_ref()
                    .expect("it ordered")
                    .ports();
                let known = known
                    .iter()
                    .find(|view| view.id.port == load.alternate.port);
                let up =
                    known.is_some_and(|view| view.state != statemachine::view::PortState::Down);
                self.hosts[host].migrating[conn] = false;
                assert!(up, "alternate on a port that is down: {port:?}");
                self.hosts[host].check_order(conn);
            }
            Order::Migrate(_) => {
                self.hosts[host].migrating[conn] = true;
                self.hosts[host].check_migrate(conn);
                self.hosts[host].check_order(conn);
            }
            Order::Stand(_) => {}
            // What became of an order that is overdue may be asked.
            Order::Query(_) => {
                self.hosts[host].migrating[conn] = false;
                self.hosts[host].waiting.insert(conn, true);
            }
        }
        self.push(LOCAL, Pending::Order(host, client, conn, order));
    }

    /// A stopped process goes on.
    pub(crate) fn resume_library(&mut self, host: usize) {
        self.hosts[host].fault = None;
        for (conn, order) in core::mem::take(&mut self.hosts[host].unread) {
            self.obey(host, conn, order);
        }
    }

    /// What a library does with an order.
    fn obey(&mut self, host: usize, conn: usize, order: Order) {
        let token = match &order {
            Order::Load(load) => Some(load.token),
            Order::Migrate(migrate) => Some(migrate.token),
            _ => None,
        };
        match (&mut self.hosts[host].fault, token) {
            (Some(LibraryFault::Stopped), _) => {
                self.hosts[host].unread.push((conn, order));
                return;
            }
            (Some(LibraryFault::Fails(errno)), Some(token)) => {
                let cause = Cause::Failed {
                    token,
                    errno: *errno,
                };
                return self.report(host, conn, cause, LOCAL);
            }
            (Some(LibraryFault::Stale(left)), Some(token)) if *left > 0 => {
                *left -= 1;
                return self.report(host, conn, Cause::Stale { token }, LOCAL);
            }
            _ => {}
        }
        let qp = &mut self.hosts[host].qps[conn];
        let cause = match order {
            Order::Stand(stand) => return self.take_standing_order(host, conn, &stand),
            Order::Load(load) => {
                self.hosts[host].standing[conn] = load.standing.then_some(load.primary);
                let token = load.token;
                if qp.state == QpState::Rts && qp.primary.same_way(&load.primary) {
                    qp.load(load.alternate);
                    Cause::Done { token }
                } else {
                    self.hosts[host].standing[conn] = None;
                    Cause::Stale { token }
                }
            }
            Order::Migrate(migrate) => {
                let token = migrate.token;
                let armed = qp.migration == MigrationState::Armed && qp.state == QpState::Rts;
                if armed && qp.primary.same_way(&migrate.primary) {
                    qp.order_migration();
                    Cause::Done { token }
                } else {
                    Cause::Stale { token }
                }
            }
            Order::Query(token) => Cause::Query { token },
            _ => Cause::Changed,
        };
        self.report(host, conn, cause, LOCAL);
    }

    fn report(&mut self, host: usize, conn: usize, cause: Cause, delay: u64) {
        let snapshot = self.hosts[host].qps[conn].snapshot();
        let (id, client) = (self.id(host, conn), self.hosts[host].client);
        if !self.hosts[host].registered[conn] {
            return;
        }
        let due = (self.now + delay).max(self.hosts[host].last_report + 1);
        self.hosts[host].last_report = due;
        let snapshot = Snapshot {
            primary: hide_gid(snapshot.primary),
            ..snapshot
        };
        let input = Input::Report(id, Report { cause, snapshot });
        self.push(due - self.now, Pending::Input(host, client, input));
    }

    fn send(&mut self, host: usize, send: Transmit) {
        let name = send.message.name();
        *self.hosts[host].sent.entry(name).or_default() += 1;
        self.hosts[host].sent_in.insert(send.pkey);
        self.transactions.insert(name, send.transaction_id);
        let slid = self.net.lid((host, send.port.port));
        if let Some(left) = self.lose.get_mut(name).filter(|left| **left > 0) {
            *left -= 1;
            return;
        }
        // The codecs are part of the way.
        let mad = send.message.encode(0x2d, u64::from(send.transaction_id));
        let (_, message) = cm::Message::decode(&mad).expect("what was encoded can be decoded");
        assert_eq!(message, send.message);
        let Some((to, port)) = self.net.port_at(send.lid) else {
            self.to_strangers.push((send.lid, message));
            return;
        };
        if !self.net.passes(slid, send.lid) {
            return;
        }
        let receiver = &self.hosts[to];
        // As an HCA has it: by the first key of the port's own that lets the sender's in, or not at all.
        let mut keys = receiver.ports[usize::from(port) - 1].pkeys.iter();
        let Some(&pkey) = keys.find(|key| key.matches(send.pkey)) else {
            return;
        };
        let source = MadSource {
            port: receiver.port_id(port),
            lid: slid,
            qpn: 1,
            pkey,
            transaction_id: send.transaction_id,
        };
        if self.record == Some(name) {
            self.recorded.push((to, source, message.clone()));
        }
        let Weather {
            loss,
            duplication,
            delay,
        } = self.net.weather;
        let copies = 1 + u64::from(self.net.random(1000) < duplication);
        for _ in 0..copies {
            if self.net.random(1000) >= loss {
                let delay = 20 + self.net.random(delay);
                self.push(delay, Pending::Mad(to, source, message.clone()));
            }
        }
    }

    /// A probe takes the path that it is about.
    fn send_probe(&mut self, host: usize, probe: Probe) {
        self.hosts[host].probes += 1;
        if self.net.passes(probe.path.slid, probe.path.dlid) && !self.is_lost() {
            let delay = 20 + self.net.random(self.net.weather.delay);
            self.push(delay, Pending::Probe(host, probe));
        }
    }

    /// Where no daemon runs, the kernel answers. A stopped one does not.
    fn answer_probe(&mut self, host: usize, probe: Probe) {
        let there = self.net.port_at(probe.path.dlid).map(|(host, _)| host);
        let stopped = there.is_none_or(|there| self.hosts[there].stopped);
        if self.net.passes(probe.path.dlid, probe.path.slid) && !stopped && !self.is_lost() {
            let delay = 20 + self.net.random(self.net.weather.delay);
            self.push(delay, Pending::ProbeAnswer(host, probe));
        }
    }

    fn is_lost(&mut self) -> bool {
        self.net.random(1000) < self.net.weather.loss
    }

    fn answer(&mut self, host: usize, query: &PathQuery) {
        let known = |gid| {
            network::port_of(gid).filter(|&(host, port)| {
                self.net.cables[host][usize::from(port) - 1] != Cable::Pulled
                    && !self.net.outside.contains(&(host, port))
            })
        };
        let knows = |from, to| {
            self.sa_knows
                .as_ref()
                .is_none_or(|pairs| pairs.contains(&(from, to)))
        };
        let asked = |lid: Option<Lid>, port| {
            lid.filter(|_| !self.base_lids_only)
                .unwrap_or(self.net.lid(port))
        };
        let result = match (known(query.sgid), known(query.dgid)) {
            (Some(from), Some(to)) if knows(from, to) => Ok(vec![PathRecord {
                dgid: query.dgid,
                sgid: query.sgid,
                dlid: asked(query.dlid, to),
                slid: asked(query.slid, from),
                pkey: query.pkey,
                reversible: true,
                mtu: 4,
                rate: 7,
                packet_life_time: 13,
                ..PathRecord::default()
            }]),
            _ => Err(QueryError::NoPath),
        };
        self.input(
            host,
            Input::Paths {
                query: query.query,
                result,
                origin: Some(Origin::Sa),
            },
        );
    }

    /// An application sends a packet, and the QP waits for its acknowledgement.
    fn packet(&mut self, host: usize, conn: usize) {
        if !self.traffic {
            return;
        }
        self.push(PACKET, Pending::Packet(host, conn));
        let sender = self.hosts[host].qps[conn].clone();
        if sender.state != QpState::Rts {
            return;
        }
        let there = self.net.passes(sender.primary.slid, sender.primary.dlid);
        let (taken, event) = if there {
            self.hosts[1 - host].qps[conn].receive(&sender.primary, sender.migreq())
        } else {
            (false, None)
        };
        self.notice(1 - host, conn, event);
        // The acknowledgement goes by the receiver's primary.
        let back = &self.hosts[1 - host].qps[conn];
        let acknowledged = taken && self.net.passes(back.primary.slid, back.primary.dlid);
        let event = if acknowledged {
            let (path, migreq) = (back.primary, back.migreq());
            let qp = &mut self.hosts[host].qps[conn];
            qp.acknowledged();
            qp.receive(&path, migreq).1
        } else {
            self.hosts[host].qps[conn].not_acknowledged()
        };
        self.notice(host, conn, event);
    }

    /// A library sees what its QP does.
    fn notice(&mut self, host: usize, conn: usize, event: Option<QpEvent>) {
        let Some(event) = event else { return };
        if self.verbose {
            eprintln!("{:>9} us host {host}    QP {event:?}", self.now);
        }
        let cause = match event {
            QpEvent::Migrated => Cause::PathMigrated,
            QpEvent::Armed => Cause::Armed,
            QpEvent::Broken => Cause::Broken,
        };
        self.report(host, conn, cause, MS);
    }
}

fn brief(input: &Input) -> String {
    match input {
        Input::Mad(source, message) => format!("{} from lid {}", message.name(), source.lid),
        Input::Report(_, report) => format!(
            "{:?}: {:?} primary {} alternate {:?}",
            report.cause,
            report.snapshot.migration,
            report.snapshot.primary.port,
            report.snapshot.alternate.map(|path| path.port)
        ),
        Input::Port(id, status) => {
            format!(
                "port {} active {}",
                id.port,
                status.as_ref().is_some_and(|s| s.active)
            )
        }
        other => format!("{other:?}").chars().take(60).collect(),
    }
}

/// The path that the connection management gave a host's QP: first port to first port.
fn first_path(host: usize) -> Path {
    Path {
        port: 1,
        mtu: 4,
        rate: 7,
        ack_timeout: 14,
        slid: base_lid((host, 1)),
        dlid: base_lid((1 - host, 1)),
        pkey: PKey::DEFAULT_FULL,
        sgid: gid((host, 1)),
        dgid: gid((1 - host, 1)),
        ..Path::default()
    }
}

/// The stream of random numbers that a seed stands for.
pub(crate) fn random(seed: u64) -> Random {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Random::new(bytes)
}

/// Without a GRH, a QP's attributes do not show the remote GID.
fn hide_gid(path: Path) -> Path {
    Path {
        dgid: Default::default(),
        ..path
    }
}

/// Runs a test over many seeds; names the one that fails. `APMD_SEED` runs that one only.
pub(crate) fn seeds(count: u64, test: impl Fn(u64)) {
    let only = std::env::var("APMD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = only.map_or_else(|| (0..count).collect(), |seed| vec![seed]);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with APMD_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
