// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts in virtual time: two engines, their libraries and QPs, an SA, and a network that
//! loses, repeats and reorders as a seed says. Host 0 is the active side.

mod clock;
mod daemons;
mod fabric;
mod faults;
mod host;
mod library;
mod network;
mod qp;
mod sa;
mod seen;
mod standing;
mod wire;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cm_msgs::cm;
use cm_msgs::control::{PolicyOverride, Role};
use cm_msgs::path::Path;
use cm_msgs::{Lid, PKey};
use statemachine::{
    Answerer, Config, Input, MadSource, Order, PathQuery, Payer, Probe, Random, Trace,
};

pub(crate) use self::fabric::{Fabric, shared};
pub(crate) use self::host::{Host, LibraryFault};
pub(crate) use self::network::{
    Cable, Network, PlaceTold, PortOf, Weather, base_lid, gid, gid_in, guid,
};
pub(crate) use self::qp::Qp;
use self::seen::is_reverse;

/// Host numbers.
pub(crate) const ACTIVE: usize = 0;
pub(crate) const PASSIVE: usize = 1;

/// Whose the connections are.
pub(crate) const OWNER: Payer = Payer(1);
/// Another user of the same hosts.
pub(crate) const OTHER: Payer = Payer(2);

/// Microseconds.
const MS: u64 = 1_000;
/// From a thread to the next on the same host.
const LOCAL: u64 = 200;

/// Something on its way.
enum Pending {
    /// A MAD that a host will receive.
    Mad(usize, MadSource, cm::Message),
    /// A host's probe, on its way there.
    Probe(usize, Probe),
    /// Its answer, on its way back.
    ProbeAnswer(usize, Probe, Answerer),
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

/// Changes MADs.
struct Twist(Box<dyn FnMut(&mut cm::Message)>);

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
    /// No port has room for probes.
    pub(crate) probes_wait: bool,
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
    /// The SA answers that it is busy.
    pub(crate) sa_busy: bool,
    /// The SA answers one question at a time, and takes this long over each, in microseconds.
    pub(crate) sa_takes: Option<u64>,
    sa_free_at: u64,
    /// Path queries that the SA has not answered.
    pub(crate) sa_open: usize,
    /// The pairs of ports that the SA has paths for, when not all.
    sa_knows: Option<Vec<(PortOf, PortOf)>>,
    /// The SA still has paths to ports that are down.
    pub(crate) sa_names_dead_ports: bool,
    /// The SA still gives a port the LID that it had.
    pub(crate) sa_old_lid: Option<(PortOf, Lid)>,
    /// What happens to MADs of the passive host.
    twist: Option<Twist>,
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
            probes_wait: false,
            traffic: false,
            opted_in: false,
            policies: [PolicyOverride::default(); 2],
            roles: [Role::Active, Role::Passive],
            base_lids_only: false,
            sa_dead: false,
            sa_busy: false,
            sa_takes: None,
            sa_free_at: 0,
            sa_open: 0,
            sa_knows: None,
            sa_names_dead_ports: false,
            sa_old_lid: None,
            twist: None,
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
