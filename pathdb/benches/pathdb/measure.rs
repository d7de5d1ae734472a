// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring one fabric.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pathdb::{Fabric, Finder, Pair, Path, PortId, World, recheck, recheck_after, snapshot};
use test_fabrics::{FatTree, Spread};

use crate::{Failure, reroute};

/// How many sources are enough for records a second and core.
const SOURCES: usize = 2048;

/// How many pairs are looked at again after a link failure.
const PAIRS: usize = 100_000;

/// What was measured.
pub(crate) struct Figures {
    end_ports: u32,
    dual: bool,
    lmc: u8,
    spread: Spread,
    switches: usize,
    /// Tables, and the whole process with them.
    table_bytes: usize,
    resident_bytes: u64,
    snapshot_bytes: usize,
    snapshot_write_s: f64,
    snapshot_read_s: f64,
    /// Path records a second: of one core's time, and of one thread's wall time.
    per_core: f64,
    per_thread: f64,
    /// One half-world alone.
    single_ms: f64,
    /// All half-worlds, on all cores.
    world_records: u64,
    world_s: f64,
    /// Best alternates a second: of one core's time, and of one thread's wall time; 0 where there is
    /// no choice.
    alternates_per_core: f64,
    alternates: f64,
    /// Pairs whose alternate shares nothing, in %.
    disjoint: f64,
    changes: usize,
    apply_ms: f64,
    pairs: usize,
    worse: usize,
    /// Looking at those that the delta can have changed, on all cores; of one core's time; and at all.
    recheck_ms: f64,
    recheck_core_ms: f64,
    recheck_all_ms: f64,
}

/// End ports of the fabric for which there are goals.
const GOAL_END_PORTS: u32 = 40_960;

impl Figures {
    /// Where the largest fabric misses its goals, in words.
    pub(crate) fn missed_goals(&self) -> Vec<String> {
        if self.end_ports != GOAL_END_PORTS {
            return Vec::new();
        }
        let goals = [
            ("M records/s of one core", 100.0, self.per_core / 1e6, true),
            ("MB of tables", 250.0, self.table_bytes as f64 / 1e6, false),
            ("s for the whole world", 60.0, self.world_s, false),
            ("ms for a link failure", 100.0, self.recheck_ms, false),
        ];
        let missed = goals.into_iter().filter(
            |(_, goal, is, at_least)| {
                if *at_least { is < goal } else { is > goal }
            },
        );
        let fabric = format!(
            "{} routing, {} a host",
            routing(self.spread),
            1 + u8::from(self.dual)
        );
        missed
            .map(|(what, goal, is, _)| format!("{fabric}: {is:.1} {what}, goal {goal}"))
            .collect()
    }

    pub(crate) const HEAD: &str = "end ports  per host  lmc  routing  switches  tables MB  RSS MB  \
        snapshot MB  write s  read s  \
        Mrec/s/core  wall  single ms  world Grec  world s  alternates/s/core  wall  disjoint %  changes  \
        apply ms  pairs  worse  recheck ms  core  of all";

    pub(crate) fn row(&self) -> String {
        format!(
            "{:9}  {:8}  {:3}  {:7}  {:8}  {:9.1}  {:6.0}  {:11.2}  {:7.2}  {:6.2}  {:11.1}  {:4.0}  {:9.2}  {:10.3}  \
             {:7.2}  {:17.0}  {:4.0}k  {:10.1}  {:7}  {:8.2}  {:5}  {:5}  {:10.2}  {:4.0}  {:6.1}",
            self.end_ports,
            if self.dual { 2 } else { 1 },
            self.lmc,
            routing(self.spread),
            self.switches,
            self.table_bytes as f64 / 1e6,
            self.resident_bytes as f64 / 1e6,
            self.snapshot_bytes as f64 / 1e6,
            self.snapshot_write_s,
            self.snapshot_read_s,
            self.per_core / 1e6,
            self.per_thread / 1e6,
            self.single_ms,
            self.world_records as f64 / 1e9,
            self.world_s,
            self.alternates_per_core,
            self.alternates / 1e3,
            self.disjoint,
            self.changes,
            self.apply_ms,
            self.pairs,
            self.worse,
            self.recheck_ms,
            self.recheck_core_ms,
            self.recheck_all_ms,
        )
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"bench\":\"pathdb\",\"end_ports\":{},\"ports_per_host\":{},\"lmc\":{},\
             \"routing\":\"{}\",\"switches\":{},\"table_bytes\":{},\"resident_bytes\":{},\
             \"snapshot_bytes\":{},\"snapshot_write_s\":{:.3},\"snapshot_read_s\":{:.3},\
             \"records_per_core_second\":{:.0},\"records_per_thread_second\":{:.0},\
             \"single_half_world_ms\":{:.3},\"world_records\":{},\"world_s\":{:.3},\
             \"alternates_per_core_second\":{:.0},\"alternates_per_s\":{:.0},\"disjoint_percent\":{:.1},\"delta_changes\":{},\
             \"apply_ms\":{:.3},\"pairs\":{},\"worse\":{},\"recheck_ms\":{:.3},\"recheck_core_ms\":{:.3},\
             \"recheck_all_ms\":{:.3}}}",
            self.end_ports,
            if self.dual { 2 } else { 1 },
            self.lmc,
            routing(self.spread),
            self.switches,
            self.table_bytes,
            self.resident_bytes,
            self.snapshot_bytes,
            self.snapshot_write_s,
            self.snapshot_read_s,
            self.per_core,
            self.per_thread,
            self.single_ms,
            self.world_records,
            self.world_s,
            self.alternates_per_core,
            self.alternates,
            self.disjoint,
            self.changes,
            self.apply_ms,
            self.pairs,
            self.worse,
            self.recheck_ms,
            self.recheck_core_ms,
            self.recheck_all_ms,
        )
    }
}

/// How paths are spread, in a word.
pub(crate) fn routing(spread: Spread) -> &'static str {
    match spread {
        Spread::DModK => "d-mod-k",
        Spread::Random(_) => "random",
    }
}

/// Builds a fabric and measures everything.
pub(crate) fn figures(tree: &FatTree) -> Result<Figures, Failure> {
    let mut fabric = tree.build()?;
    let hosts: Vec<PortId> = fabric
        .end_ports()
        .filter(|&port| fabric.port_number(port) != 0)
        .collect();
    let world = World::new(&fabric);
    let resident_bytes = memory_bytes("VmRSS")?;
    let (snapshot_bytes, snapshot_write_s, snapshot_read_s) = through_snapshot(&fabric)?;
    let (per_core, per_thread) = one_thread(&world, &hosts[..SOURCES.min(hosts.len())])?;
    let started = Instant::now();
    black_box(world.half_world(hosts[hosts.len() / 2]));
    let single_ms = milliseconds(started);
    let started = Instant::now();
    let world_records = count(&world, &hosts);
    let world_s = started.elapsed().as_secs_f64();
    let (cpu, started) = (cpu_seconds()?, Instant::now());
    let pairs = match tree.dual {
        true => pairs(&fabric, &hosts)?,
        false => Vec::new(),
    };
    let alternates = pairs.len() as f64 / started.elapsed().as_secs_f64();
    let alternates_per_core = match pairs.is_empty() {
        true => 0.0,
        false => pairs.len() as f64 / (cpu_seconds()? - cpu),
    };
    let disjoint = pairs.iter().filter(|pair| pair.shared.is_none()).count();
    let delta = reroute::link_failure(&fabric, tree)?;
    let started = Instant::now();
    fabric.apply(&delta)?;
    let apply_ms = milliseconds(started);
    let started = Instant::now();
    let worse = recheck_after(&fabric, &delta, &pairs);
    let recheck_ms = milliseconds(started);
    let recheck_core_ms = on_one_core(|| recheck_after(&fabric, &delta, &pairs))? * 1e3;
    let started = Instant::now();
    let worse_of_all = recheck(&fabric, &pairs);
    let recheck_all_ms = milliseconds(started);
    if worse != worse_of_all {
        return Err("a pair that the delta made worse was not looked at".into());
    }
    Ok(Figures {
        end_ports: tree.end_ports(),
        dual: tree.dual,
        lmc: tree.lmc,
        spread: tree.spread,
        switches: fabric.switch_count(),
        table_bytes: fabric.table_bytes(),
        resident_bytes,
        snapshot_bytes,
        snapshot_write_s,
        snapshot_read_s,
        per_core,
        per_thread,
        single_ms,
        world_records,
        world_s,
        alternates_per_core,
        alternates,
        disjoint: 100.0 * disjoint as f64 / pairs.len().max(1) as f64,
        changes: delta.changes.len(),
        apply_ms,
        pairs: pairs.len(),
        worse: worse.len(),
        recheck_ms,
        recheck_core_ms,
        recheck_all_ms,
    })
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// The size of a snapshot and the seconds that writing and reading it take.
fn through_snapshot(fabric: &Fabric) -> Result<(usize, f64, f64), Failure> {
    let mut bytes = Vec::new();
    let started = Instant::now();
    snapshot::write(fabric, &mut bytes)?;
    let write_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let again = snapshot::read(&bytes[..])?;
    let read_s = started.elapsed().as_secs_f64();
    if again != *fabric {
        return Err("a snapshot is not read as it was written".into());
    }
    Ok((bytes.len(), write_s, read_s))
}

/// Computes half-worlds and counts their records.
fn count(world: &World<'_>, sources: &[PortId]) -> u64 {
    let records = AtomicU64::new(0);
    world.each(sources, |_, half| {
        records.fetch_add(black_box(half).len() as u64, Ordering::Relaxed);
    });
    records.into_inner()
}

/// Seconds of processor time that something takes on one thread.
fn on_one_core<T: Send>(what: impl FnOnce() -> T + Send) -> Result<f64, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let cpu = cpu_seconds()?;
        black_box(what());
        Ok(cpu_seconds()? - cpu)
    })
}

/// Records a second of processor time, which others on the machine disturb less, and of wall time.
fn one_thread(world: &World<'_>, sources: &[PortId]) -> Result<(f64, f64), Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let (cpu, wall) = (cpu_seconds()?, Instant::now());
        let records = count(world, sources) as f64;
        Ok((
            records / (cpu_seconds()? - cpu),
            records / wall.elapsed().as_secs_f64(),
        ))
    })
}

/// What this thread has run, from the kernel's scheduler statistics (nanoseconds, first field).
fn cpu_seconds() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}

/// Memory of this process, by its name in `/proc/self/status`.
pub(crate) fn memory_bytes(name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/self/status")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let value = lines.find_map(|(own, value)| (own == name).then_some(value.trim()));
    let kilobytes: u64 = value
        .and_then(|value| value.strip_suffix(" kB"))
        .ok_or_else(|| format!("no {name} in /proc/self/status"))?
        .parse()?;
    Ok(kilobytes * 1024)
}

/// Random pairs of two-port hosts, each with the best alternate for the path between first ports.
fn pairs(fabric: &Fabric, ports: &[PortId]) -> Result<Vec<Pair>, Failure> {
    // The ports of one host follow each other by their numbers, though not by their LIDs.
    let mut ports = ports.to_vec();
    ports.sort();
    let hosts: Vec<&[PortId]> = ports.chunks(2).collect();
    let mut state = 1u64;
    let mut random = || {
        // Constants of Knuth's MMIX generator; its upper bits are random enough to choose hosts.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % hosts.len()
    };
    let base = |port: PortId| fabric.port(port).lids.map(|lids| lids.base());
    let mut finder = Finder::new(fabric);
    let mut pairs = Vec::with_capacity(PAIRS);
    while pairs.len() < PAIRS {
        let (local, remote) = (hosts[random()], hosts[random()]);
        if local == remote {
            continue;
        }
        let (slid, dlid) = base(local[0]).zip(base(remote[0])).ok_or("no LID")?;
        let primary = Path { slid, dlid };
        let found = finder.best(primary, local, remote)?;
        let found = found.ok_or("a two-port host without an alternate")?;
        pairs.push(Pair {
            primary,
            alternate: found.path,
            shared: found.shared,
        });
    }
    Ok(pairs)
}
