// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator waits for: `apmctl fabric check`, and `diff` of a fabric before and after a link
//! failure, on all cores; by the clock, and the time that all cores ran for it.

use std::fs;
use std::time::Instant;

use pathdb::{Fabric, check, snapshot};
use test_fabrics::FatTree;

use crate::measure::{memory_bytes, routing};
use crate::{Failure, reroute};

/// Pairs of hosts that the two commands look at unless they are told otherwise.
const PAIRS: u64 = 1_000_000;

/// What was measured.
pub(crate) struct Figures {
    tree: FatTree,
    switches: usize,
    lids: usize,
    /// LIDs that not every host reaches: loops and dead ends.
    forwarding_s: f64,
    /// Pairs of hosts looked at for what they share needlessly.
    pairs: u64,
    survey_s: f64,
    /// Both, on all cores together.
    check_cpu_s: f64,
    /// Of the process while it checked, the fabric included.
    check_peak_bytes: u64,
    /// Two states compared, the same number of pairs among it.
    diff_s: f64,
    diff_cpu_s: f64,
    /// Of it what is not pairs: nodes, links, LIDs and forwarding tables.
    diff_tables_s: f64,
    /// With both fabrics.
    diff_peak_bytes: u64,
    /// Switches whose tables differ, and pairs that got worse.
    rerouted: usize,
    worse: usize,
}

impl Figures {
    pub(crate) const HEAD: &str = "end ports  per host  lmc  routing  switches   lids  loops, dead ends s  \
        pairs  needless s  all cores s  RSS MB at most  diff s  all cores s  without pairs  RSS MB at most  rerouted  worse";

    pub(crate) fn row(&self) -> String {
        format!(
            "{:9}  {:8}  {:3}  {:7}  {:8}  {:5}  {:18.2}  {:7}  {:10.2}  {:11.2}  {:14.0}  {:6.2}  {:11.2}  {:13.2}  {:14.0}  {:8}  {:5}",
            self.tree.end_ports(),
            self.ports_per_host(),
            self.tree.lmc,
            routing(self.tree.spread),
            self.switches,
            self.lids,
            self.forwarding_s,
            self.pairs,
            self.survey_s,
            self.check_cpu_s,
            self.check_peak_bytes as f64 / 1e6,
            self.diff_s,
            self.diff_cpu_s,
            self.diff_tables_s,
            self.diff_peak_bytes as f64 / 1e6,
            self.rerouted,
            self.worse,
        )
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"bench\":\"pathdb-operator\",\"end_ports\":{},\"ports_per_host\":{},\"lmc\":{},\
             \"routing\":\"{}\",\"switches\":{},\"lids\":{},\"forwarding_s\":{:.3},\"pairs\":{},\
             \"survey_s\":{:.3},\"check_cpu_s\":{:.3},\"check_peak_bytes\":{},\"diff_s\":{:.3},\"diff_cpu_s\":{:.3},\"diff_tables_s\":{:.3},\
             \"diff_peak_bytes\":{},\"rerouted\":{},\"worse\":{}}}",
            self.tree.end_ports(),
            self.ports_per_host(),
            self.tree.lmc,
            routing(self.tree.spread),
            self.switches,
            self.lids,
            self.forwarding_s,
            self.pairs,
            self.survey_s,
            self.check_cpu_s,
            self.check_peak_bytes,
            self.diff_s,
            self.diff_cpu_s,
            self.diff_tables_s,
            self.diff_peak_bytes,
            self.rerouted,
            self.worse,
        )
    }

    fn ports_per_host(&self) -> u8 {
        1 + u8::from(self.tree.dual)
    }
}

/// Builds a fabric and does what the two commands do.
pub(crate) fn figures(tree: &FatTree) -> Result<Figures, Failure> {
    // As read from a file: building one takes more memory than it has in the end.
    let fabric = again(&tree.build()?)?;
    forget_peak()?;
    let (cpu, started) = (process_cpu_seconds()?, Instant::now());
    let unreachable = fabric.unreachable();
    let forwarding_s = started.elapsed().as_secs_f64();
    if let Some(found) = unreachable.first() {
        return Err(format!("lid {} is out of reach in a whole fat tree", found.lid).into());
    }
    let started = Instant::now();
    let survey = check::survey(&fabric, PAIRS, &mut |_, _| ());
    let survey_s = started.elapsed().as_secs_f64();
    let check_cpu_s = process_cpu_seconds()? - cpu;
    let check_peak_bytes = peak_bytes()?;

    let mut after = again(&fabric)?;
    after.apply(&reroute::link_failure(&fabric, tree)?)?;
    forget_peak()?;
    let (cpu, started) = (process_cpu_seconds()?, Instant::now());
    let difference = check::difference(&fabric, &after, PAIRS, &mut |_, _| ());
    let diff_s = started.elapsed().as_secs_f64();
    let diff_cpu_s = process_cpu_seconds()? - cpu;
    let diff_peak_bytes = peak_bytes()?;
    let started = Instant::now();
    let tables = check::difference(&fabric, &after, 0, &mut |_, _| ());
    let diff_tables_s = started.elapsed().as_secs_f64();
    if tables.routes != difference.routes || tables.changed.len() != 1 || tables.routes.is_empty() {
        return Err("the diff does not show the link that failed".into());
    }
    Ok(Figures {
        tree: *tree,
        switches: fabric.switch_count(),
        lids: fabric.summary().lids,
        forwarding_s,
        pairs: survey.looked_at,
        survey_s,
        check_cpu_s,
        check_peak_bytes,
        diff_s,
        diff_cpu_s,
        diff_tables_s,
        diff_peak_bytes,
        rerouted: difference.routes.len(),
        worse: difference.worse.len(),
    })
}

fn again(fabric: &Fabric) -> Result<Fabric, Failure> {
    let mut bytes = Vec::new();
    snapshot::write(fabric, &mut bytes)?;
    Ok(snapshot::read(&bytes[..])?)
}

/// From now on the peak is that of what follows (proc(5), `clear_refs`).
fn forget_peak() -> Result<(), Failure> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// What all threads have run (proc(5), `stat`, in the 100ths of a second that Linux shows).
fn process_cpu_seconds() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}

fn peak_bytes() -> Result<u64, Failure> {
    memory_bytes("VmHWM")
}
