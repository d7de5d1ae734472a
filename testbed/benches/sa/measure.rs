// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring one fabric.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pathdb::import::Files;
use pathdb::{PortId, World};
use testbed::fabrics::dumped::Dumped;
use testbed::fabrics::hardware;
use testbed::fabrics::records::{self, Pair};
use testbed::fabrics::tally::Tally;
use testbed::ibsim::{
    Client, Dice, Engine, Net, OpenSm, Place, Reply, Routing, Settings, Simulator,
};

use crate::Fabric;

/// Whatever went wrong, in one line.
type Failure = Box<dyn Error + Send + Sync>;

/// The host where OpenSM runs and the client asks.
const MANAGER: &str = "host-0";

/// Queries under way at a time, of which the fastest number counts.
const WINDOWS: [usize; 3] = [16, 64, 256];

/// Queries of one measurement.
const CHUNK: usize = 40_000;

/// Queries one after the other.
const SINGLE: usize = 10_000;

/// Ports of hosts at a leaf of the larger fabric.
const NEIGHBOURS: usize = 16;

/// pathdb computes its records over and over for so long, so often.
const AT_LEAST: Duration = Duration::from_millis(250);
const MEASUREMENTS: usize = 4;

/// What was measured.
pub(crate) struct Figures {
    end_ports: usize,
    switches: usize,
    lids: usize,
    /// From OpenSM's start to the subnet being up, files written.
    up_s: f64,
    opensm_bytes: u64,
    /// Reading OpenSM's files.
    read_s: f64,
    pairs: usize,
    /// The SA's answers a second, one query at a time; and the best of several at a time.
    sa_single: f64,
    sa_best: f64,
    sa_window: usize,
    /// The SA's answers a second of OpenSM's processor time, ibsim's not counted.
    sa_core: f64,
    /// pathdb's records a second of one core's time.
    pathdb: f64,
    /// What was compared.
    pub(crate) tally: Tally,
}

impl Figures {
    pub(crate) const HEAD: &str = "end ports  switches   LIDs   up s  SM MB  read s    pairs  \
        SA/s one by one  SA/s best  window  SA/s/core  pathdb/s/core    ratio  equal records  equal hops  differ";

    pub(crate) fn row(&self) -> String {
        format!(
            "{:9}  {:8}  {:5}  {:5.1}  {:5.0}  {:6.2}  {:7}  {:15.0}  {:9.0}  {:6}  {:9.0}  {:13.0}  {:7.0}  {:13}  {:10}  {:6}",
            self.end_ports,
            self.switches,
            self.lids,
            self.up_s,
            self.opensm_bytes as f64 / 1e6,
            self.read_s,
            self.pairs,
            self.sa_single,
            self.sa_best,
            self.sa_window,
            self.sa_core,
            self.pathdb,
            self.pathdb / self.sa_core,
            self.tally.records,
            self.tally.hops,
            self.tally.differences,
        )
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"bench\":\"sa\",\"end_ports\":{},\"switches\":{},\"lids\":{},\"up_s\":{:.2},\
             \"opensm_resident_bytes\":{},\"read_s\":{:.3},\"pairs\":{},\
             \"sa_single_records_per_s\":{:.0},\"sa_records_per_s\":{:.0},\"sa_window\":{},\
             \"sa_records_per_core_second\":{:.0},\"pathdb_records_per_core_second\":{:.0},\"ratio\":{:.0},\"records_equal\":{},\
             \"hops_equal\":{},\"walks_equal\":{},\"differences\":{}}}",
            self.end_ports,
            self.switches,
            self.lids,
            self.up_s,
            self.opensm_bytes,
            self.read_s,
            self.pairs,
            self.sa_single,
            self.sa_best,
            self.sa_window,
            self.sa_core,
            self.pathdb,
            self.pathdb / self.sa_core,
            self.tally.records,
            self.tally.hops,
            self.tally.walks,
            self.tally.differences,
        )
    }
}

/// Starts the fabric, measures and compares.
pub(crate) fn figures(net: &Net, shape: &Fabric) -> Result<Figures, Failure> {
    let place = Place::new()?;
    let _simulator = Simulator::start(&place, net)?;
    let settings = Settings {
        routing: Routing::Engine(Engine::Minhop),
        lmc: 0,
        roots: Vec::new(),
    };
    let started = Instant::now();
    let opensm = OpenSm::start(&place, &settings, MANAGER)?;
    let up_s = started.elapsed().as_secs_f64();
    let mut client = Client::attach(&place.socket_name(), MANAGER)?;
    let started = Instant::now();
    let mut fabric = Files::in_dir(opensm.files()).read()?.whole()?;
    let read_s = started.elapsed().as_secs_f64();
    let mut tally = Tally::default();
    let ports0 = hardware::ask_ports(&mut client, &mut fabric, MANAGER, &mut tally)?;
    let all: Vec<PortId> = fabric.end_ports().collect();
    let lid = |port: &PortId| fabric.port(*port).lids.map(|lids| lids.base().0);
    let mut lids: Vec<u16> = all.iter().filter_map(lid).collect();
    lids.sort_unstable();
    let sources = some(&all, shape.sources);
    let from: Vec<u16> = sources.iter().filter_map(lid).collect();
    let pairs = records::pairs(&fabric, &ports0, &from, &lids);
    let sa = ask(&mut client, &opensm, &pairs, |pairs, replies| {
        for (pair, reply) in pairs.iter().zip(&replies) {
            records::judge(&fabric, pair, reply, &mut tally);
        }
    })?;
    records::compare_hops(
        &fabric,
        &Dumped::read(opensm.files())?,
        &pairs,
        true,
        &mut tally,
    );
    let pathdb = compute(&World::new(&fabric), &sources, pairs.len())?;
    Ok(Figures {
        end_ports: net.end_ports(),
        switches: net.switch_count(),
        lids: lids.len(),
        up_s,
        opensm_bytes: opensm.resident_bytes()?,
        read_s,
        pairs: pairs.len(),
        sa_single: sa.single,
        sa_best: sa.best,
        sa_window: sa.window,
        sa_core: sa.core,
        pathdb,
        tally,
    })
}

/// `count` of all ports, taken by neighbours from random places: all of a leaf, as who serves a rack
/// wants them.
fn some(ports: &[PortId], count: usize) -> Vec<PortId> {
    let mut neighbours: Vec<&[PortId]> = ports.chunks(NEIGHBOURS).collect();
    Dice::new(1).shuffle(&mut neighbours);
    let ports = neighbours.concat();
    ports.into_iter().take(count).collect()
}

/// How fast the SA answers.
struct Speed {
    single: f64,
    best: f64,
    window: usize,
    core: f64,
}

/// Asks the SA for each pair once, chunk by chunk with another window each, and hands the replies
/// on outside the time measured.
fn ask(
    client: &mut Client,
    opensm: &OpenSm,
    pairs: &[Pair],
    mut judge: impl FnMut(&[Pair], Vec<Reply>),
) -> Result<Speed, Failure> {
    let manager = client.manager_lid()?;
    let (few, rest) = pairs.split_at(SINGLE.min(pairs.len()));
    let (single, replies) = measure(client, manager, 1, few)?;
    judge(few, replies);
    let mut speed = Speed {
        single,
        best: 0.0,
        window: 0,
        core: 0.0,
    };
    let before = opensm.cpu_seconds()?;
    for (chunk, &window) in rest.chunks(CHUNK).zip(WINDOWS.iter().cycle()) {
        let (rate, replies) = measure(client, manager, window, chunk)?;
        judge(chunk, replies);
        // A short rest of the pairs is no measurement.
        if rate > speed.best && chunk.len() == CHUNK {
            speed.best = rate;
            speed.window = window;
        }
    }
    speed.core = rest.len() as f64 / (opensm.cpu_seconds()? - before);
    Ok(speed)
}

/// Answers a second, and the answers.
fn measure(
    client: &mut Client,
    manager: u16,
    window: usize,
    pairs: &[Pair],
) -> Result<(f64, Vec<Reply>), Failure> {
    let mut replies: Vec<Option<Reply>> = vec![None; pairs.len()];
    let queries = pairs.iter().map(|pair| records::query(manager, pair.lids));
    let started = Instant::now();
    client.exchange(window, queries, |position, reply| {
        replies[position] = Some(reply);
        Ok(())
    })?;
    let rate = pairs.len() as f64 / started.elapsed().as_secs_f64();
    let replies: Option<Vec<Reply>> = replies.into_iter().collect();
    Ok((rate, replies.ok_or("a query has no reply")?))
}

/// pathdb's records a second of processor time, which others on the machine disturb less: the best of
/// some measurements over the same pairs.
fn compute(world: &World<'_>, sources: &[PortId], pairs: usize) -> Result<f64, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let mut best: f64 = 0.0;
        for _ in 0..MEASUREMENTS {
            let (before, started) = (cpu_seconds()?, Instant::now());
            let mut rounds = 0;
            while started.elapsed() < AT_LEAST {
                world.each(sources, |_, records| {
                    black_box(records);
                });
                rounds += 1;
            }
            best = best.max((rounds * pairs) as f64 / (cpu_seconds()? - before));
        }
        Ok(best)
    })
}

/// What this thread has run, from the kernel's scheduler statistics (nanoseconds, first field).
fn cpu_seconds() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}
