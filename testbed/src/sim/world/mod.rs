// SPDX-License-Identifier: MIT OR Apache-2.0
//! All of it running: engines, libraries, queue pairs, fabric and subnet administration.

mod calm;
mod daemon;
mod holes;
mod judge;
mod library;
mod network;
pub mod rearm;
mod redirect;
mod rounds;
mod standing;
mod traffic;
mod trouble;
mod uek;

use cm_msgs::PKey;
use cm_msgs::cm;
use cm_msgs::path::Path;
use statemachine::{Input, MadSource, PathQuery, Probe, Random};

use self::calm::Calms;
use self::holes::Holes;
use self::judge::Judge;
use self::network::Weather;
use self::rounds::Rounds;
use super::addresses::{Addresses, Subnets};
use super::diagram::Transitions;
use super::fabric::{Fabric, PortOf};
use super::fault::NEVER;
use super::host::{Host, SentOrder};
use super::plan::{Plan, random};
use super::profile::Profile;
use super::qp::Qp;
use super::queue::{MS, Queue, SECOND};
use super::verdict::{Rule, Violation};

/// After the last fault, all that can be armed is armed within this time: the longest backoff, twice.
const LIVENESS: u64 = 150 * SECOND;
/// And stays armed for this time.
const STEADY: u64 = 5 * SECOND;
/// After all connections are closed, nothing is left after this time.
const FORGOTTEN: u64 = 300 * SECOND;

/// Something that will happen.
enum Event {
    /// A host receives a MAD.
    Mad(usize, MadSource, cm::Message),
    /// A host's probe arrives at its path's far end.
    Probe(usize, Probe),
    /// A host's engine is told something, if its libraries' socket still is this one.
    Input(usize, u32, Input),
    /// The SA answers, as the fabric is then.
    Answer(usize, u32, PathQuery),
    /// A library carries out an order.
    Obey(usize, SentOrder),
    /// An application sends a packet.
    Packet(usize, usize),
    /// A daemon looks at a port.
    Port(PortOf),
    /// Libraries have an event of a port.
    Failed(PortOf),
    /// A daemon's timer.
    Wake(usize),
    /// A library registers a connection.
    Register(usize, u32, usize),
    /// An application closes its side.
    Close(usize, usize),
    /// The subnet manager looks at the fabric.
    Sweep,
    /// A fault begins.
    Begin(usize),
    /// A fault is over.
    End(usize),
    /// Something happens at a side that has no daemon, but UEK's schedule.
    Uek(usize, uek::Step),
    /// Somebody sends what nobody should believe.
    Forge,
    /// All connections that live should be armed.
    Settled,
    /// All are still armed; they are closed.
    Steady,
    /// Nothing should be left of them.
    Forgotten,
}

/// One side of a connection.
struct End {
    host: usize,
    qp: Qp,
    /// The primary that its library may leave by itself.
    standing: Option<Path>,
    registered: bool,
}

/// A connection; side 0 is the active one.
struct Connection {
    ends: [End; 2],
    closed: bool,
}

/// What came of a run.
#[derive(Default)]
pub struct Outcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Connections that died, rightly or not.
    pub deaths: usize,
    /// Migrations that QPs made.
    pub migrations: usize,
    /// Events.
    pub events: u64,
    /// A line for each thing worth telling, where that was asked for.
    pub lines: Vec<String>,
    /// Which states of connections followed each other.
    pub transitions: Transitions,
}

/// What of a run is kept besides what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// Lines that say what happened.
    Lines,
    /// States of connections.
    Transitions,
}

/// All of it.
struct World<'a> {
    plan: &'a Plan,
    queue: Queue<Event>,
    fabric: Fabric,
    addresses: Addresses,
    hosts: Vec<Host>,
    connections: Vec<Connection>,
    weather: Weather,
    judge: Judge,
    calms: Calms,
    holes: Holes,
    rounds: Rounds,
    /// Seeds of daemons.
    seeds: Random,
    dice: Random,
    keep: Keep,
    /// Between two packets of a side, and between two tries of one.
    packet_every: u64,
    /// UEK's schedule, where it is in the daemons' place.
    uek: Option<uek::Ends>,
    outcome: Outcome,
}

/// Runs a plan.
pub fn run(plan: &Plan, profile: &Profile, keep: Keep) -> Outcome {
    let mut world = World::new(plan, profile, keep);
    world.prepare();
    while world.outcome.violation.is_none()
        && let Some(event) = world.queue.pop()
    {
        world.outcome.events += 1;
        let over = matches!(event, Event::Forgotten);
        world.happen(event);
        if over {
            break;
        }
    }
    world.outcome
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, profile: &Profile, keep: Keep) -> Self {
        let mut root = random(plan.seed ^ 0x5157_4c44);
        let addresses = Addresses::new(plan.subnets, plan.hosts, plan.lmc);
        let ends = |index: usize, (active, passive)| {
            let port = (index % 2) as u8 + 1;
            let end = |host, peer| End {
                host,
                qp: Qp::new(first_path(&addresses, (host, port), (peer, port))),
                standing: None,
                registered: false,
            };
            Connection {
                ends: [end(active, passive), end(passive, active)],
                closed: false,
            }
        };
        let pairs = plan.connections.iter().enumerate();
        let connections: Vec<Connection> = pairs.map(|(i, &pair)| ends(i, pair)).collect();
        Self {
            plan,
            queue: Queue::default(),
            fabric: Fabric::new(
                plan.groups,
                plan.spines,
                plan.lmc,
                plan.subnets != Subnets::One,
            ),
            addresses,
            hosts: (0..plan.hosts).map(|_| Host::default()).collect(),
            judge: Judge::new(profile, connections.len()),
            calms: Calms::new(connections.len()),
            holes: Holes::new(connections.len()),
            rounds: Rounds::default(),
            connections,
            weather: Weather::default(),
            seeds: root.split(),
            dice: root.split(),
            keep,
            packet_every: traffic::PACKET,
            uek: None,
            outcome: Outcome::default(),
        }
    }

    fn prepare(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
        for conn in 0..self.connections.len() {
            for side in [0, 1] {
                self.connections[conn].ends[side].registered = true;
                let host = self.connections[conn].ends[side].host;
                let client = self.hosts[host].client;
                let delay = u64::from(self.dice.below(300_000));
                self.queue.after(delay, Event::Register(host, client, conn));
                let delay = 10 * MS * side as u64 + u64::from(self.dice.below(1000));
                self.queue.after(delay, Event::Packet(conn, side));
            }
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.queue.at(fault.begin, Event::Begin(index));
            if fault.end != NEVER {
                self.queue.at(fault.end, Event::End(index));
            }
        }
        let settled = self.plan.calm_from() + LIVENESS;
        self.queue.at(settled, Event::Settled);
        self.queue.at(settled + STEADY, Event::Steady);
        self.queue
            .at(settled + STEADY + FORGOTTEN, Event::Forgotten);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Mad(host, source, message) => {
                let message = self.heard(host, source.transaction_id, message);
                self.input(host, Input::Mad(source, message));
            }
            Event::Probe(host, probe) => self.answer_probe(host, probe),
            Event::Input(host, client, input) => self.hear_library(host, client, input),
            Event::Answer(host, client, query) => self.answer(host, client, &query),
            Event::Obey(host, sent) => self.obey(host, sent),
            Event::Packet(conn, side) => self.packet(conn, side),
            Event::Port(port) => self.port(port),
            Event::Failed(port) => self.port_failed(port),
            Event::Wake(host) => self.wake(host),
            Event::Register(host, client, conn) => self.register(host, client, conn),
            Event::Close(conn, side) => self.close(conn, side),
            Event::Sweep => self.sweep(),
            Event::Begin(index) => self.begin(index),
            Event::End(index) => self.end(index),
            Event::Uek(side, step) => self.uek(side, step),
            Event::Forge => self.forge(),
            Event::Settled => self.must_be_armed(),
            Event::Steady => {
                self.must_be_armed();
                self.must_be_home();
                for conn in 0..self.connections.len() {
                    self.close_soon(conn);
                }
            }
            Event::Forgotten => self.must_be_forgotten(),
        }
    }

    fn side_of(&self, host: usize, conn: usize) -> usize {
        usize::from(self.connections[conn].ends[0].host != host)
    }

    fn tell(&mut self, words: impl FnOnce() -> String) {
        if self.keep == Keep::Lines {
            let seconds = self.queue.now() as f64 / SECOND as f64;
            self.outcome
                .lines
                .push(format!("{seconds:12.6}  {}", words()));
        }
    }

    fn violated(&mut self, rule: Rule, words: impl FnOnce() -> String) {
        if self.outcome.violation.is_none() && self.judge.judges(rule) {
            self.outcome.violation = Some(Violation {
                rule,
                at: self.queue.now(),
                words: words(),
            });
        }
    }
}

/// The path that the connection manager gives a connection.
fn first_path(addresses: &Addresses, from: PortOf, to: PortOf) -> Path {
    Path {
        port: from.1,
        mtu: 4,
        rate: 7,
        ack_timeout: 14,
        slid: addresses.lid(from),
        dlid: addresses.lid(to),
        pkey: PKey::DEFAULT_FULL,
        sgid: addresses.gid(from),
        dgid: addresses.gid(to),
        ..Path::default()
    }
}
