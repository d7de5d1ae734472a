// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user whose connects fail, and who goes on, causes work in the module apm as fast as the system takes calls. Standing
//! orders do not wait for that, and nothing is lost that is said to the daemons. How long a standing order waits is
//! measured, and compared with how long it does when that user stands still: the drill asserts no times.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::clock::{self, Millis};
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::program::Program;
use crate::trace::Trace;
use crate::world::Kind;

use super::exchange;
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-fairness",
    about: "the module apm while a user connects 1,000 QPs in vain: cables are left as soon",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// An overrun of its netlink socket is a debug message of apmd.
const POLICY: Policy = Policy {
    log: "info,apmd::parts::kernel=debug",
    ..Policy::NORMAL
};
const OVERRUN: &str = "the kernel module said more than there was room for";

/// Where no daemon is: what leads there is asked for each time.
const NOBODY: &str = "/sys/class/infiniband/shca2/ports/1/gids/0";
const NOBODYS_UID: &str = "--reuid=65534";

/// Longer than the drill: it kills them.
const SECONDS: u32 = 1200;
const LIMIT: Duration = Duration::from_secs(60);

/// Cables pulled while nothing else happens, and as many while that user connects.
const PULLS: usize = 20;
const PULLS_SHORT: usize = 4;

/// How many of the waits are longer is reported.
const GOAL: Millis = Millis(5.0);

const WORK: &str = "apm_standing_work";
const QUEUED: &str = "workqueue/workqueue_queue_work";
const BEGUN: &str = "workqueue/workqueue_execute_start";
const DONE: &str = "workqueue/workqueue_execute_end";

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    context.world.start_daemons(POLICY)?;
    let lat = exchange::start(&["ib_send_lat"], "18604", SECONDS)?;
    context.world.wait_disjoint(1)?;
    let filter = work_filter()?;
    let drops = drops()?;
    let mut crowd = start_crowd()?;
    let pulls = match context.options.short {
        true => PULLS_SHORT,
        false => PULLS,
    };
    let (mut quiet, mut crowded) = (Vec::new(), Vec::new());
    for pull in 0..pulls {
        crowd.signal(Signal::SIGSTOP)?;
        quiet.extend(leave(context, pull, &filter)?);
        crowd.signal(Signal::SIGCONT)?;
        let before = attempts(&crowd);
        crowded.extend(leave(context, pull, &filter)?);
        crowd.wait_for_line("what it has done meanwhile", LIMIT, |line| {
            attempts_of(line) > before
        })?;
    }
    report(context, &quiet, &crowded);
    context.report.set("attempts", attempts(&crowd));
    nothing_is_lost(context, drops)?;
    drop((crowd, lat));
    context.world.wait_for("no connection left", 0, |_| true)?;
    module.unload()
}

fn start_crowd() -> Result<Program, Failure> {
    command::run(&[
        "sh",
        "-c",
        "chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm",
    ])?;
    let from = Host::A.port(1).gid()?;
    let to = fs::read_to_string(NOBODY).map_err(|source| Failure::File {
        path: NOBODY.to_owned(),
        source,
    })?;
    let words = [
        "setpriv",
        NOBODYS_UID,
        "--clear-groups",
        "vain_connects",
        &from,
        to.trim(),
    ];
    let mut crowd = Program::start("vain_connects", Host::A, &words)?;
    crowd.wait_for_line("ready", LIMIT, |line| line == "ready")?;
    Ok(crowd)
}

/// How often it has tried, by what it said last.
fn attempts(crowd: &Program) -> u64 {
    attempts_of(&crowd.last_line())
}

fn attempts_of(line: &str) -> u64 {
    let count = line.strip_suffix(" attempts");
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Of what a standing order's work did between a cable that was pulled and the connection on its other path.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Wait {
    /// From the port's event to the work's beginning.
    begun: Millis,
    /// And to its end.
    done: Millis,
}

/// The cable under the connection is pulled, of each host in turn.
fn leave(context: &mut Context<'_>, turn: usize, filter: &str) -> Result<Vec<Wait>, Failure> {
    let host = Host::ALL[turn % 2];
    let port = context.world.wait_disjoint(1)?[0].active_port(host);
    let trace = Trace::begin(&[QUEUED, BEGUN, DONE].map(|event| (event, filter)))?;
    context.world.pull(port)?;
    context.world.wait_moved(1, port)?;
    let trace = trace.end()?;
    context.report.migrations += 1;
    context.world.plug(port)?;
    context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    let waits = waits(&trace);
    ensure(!waits.is_empty(), || format!("no standing work: {trace}"))?;
    Ok(waits)
}

/// Only the work of standing orders is traced: of that, there is one for each device.
fn work_filter() -> Result<String, Failure> {
    let symbols = command::run(&["grep", WORK, "/proc/kallsyms"])?;
    let address = symbols.split_whitespace().next();
    let address = address.ok_or_else(|| Failure::not_shown(format!("no function {WORK}")))?;
    Ok(format!("function == 0x{address}"))
}

/// By the kernel's lines: "kworker/u4:1-34 [000] d..1. 41.790123: workqueue_queue_work: work struct=..". A work that is
/// queued while it waits is one.
fn waits(trace: &str) -> Vec<Wait> {
    let mut waits = Vec::new();
    let (mut queued, mut begun) = (None, None);
    for line in trace.lines().filter(|line| line.contains(WORK)) {
        let Some(at) = seconds(line) else { continue };
        if line.contains("workqueue_queue_work:") {
            queued = queued.or(Some(at));
        } else if line.contains("workqueue_execute_start:") {
            begun = queued.take().map(|queued| (queued, at));
        } else if let Some((queued, begun)) = begun.take() {
            let since = |time: f64| Millis((time - queued) * 1000.0);
            waits.push(Wait {
                begun: since(begun),
                done: since(at),
            });
        }
    }
    waits
}

/// When, in seconds: the word before the event's name.
fn seconds(line: &str) -> Option<f64> {
    let (before, _) = line.split_once(": workqueue_")?;
    before.split_whitespace().last()?.parse().ok()
}

fn report(context: &mut Context<'_>, quiet: &[Wait], crowded: &[Wait]) {
    for (name, waits) in [("quiet", quiet), ("crowded", crowded)] {
        let begun = || waits.iter().map(|wait| wait.begun);
        let longest = begun().fold(Millis(0.0), Millis::max);
        let late = begun().filter(|wait| wait.0 > GOAL.0).count();
        let round = |time: Millis| (time.0 * 1000.0).round() / 1000.0;
        let figures = json!({
            "waits": waits.len(),
            "begun_ms_median": round(clock::median(begun())),
            "begun_ms_longest": round(longest),
            "later_than_5_ms": late,
            "done_ms_median": round(clock::median(waits.iter().map(|wait| wait.done))),
        });
        context.timeline.note("drill", format!("{name}: {figures}"));
        context.report.set(name, figures);
    }
}

fn nothing_is_lost(context: &mut Context<'_>, before: u64) -> Result<(), Failure> {
    let lost = drops()? - before;
    context.report.set("dropped_messages", lost);
    ensure(lost == 0, || {
        format!("{lost} netlink messages were dropped")
    })?;
    for host in Host::ALL {
        let log = context.world.log(host);
        let overruns = log
            .iter()
            .filter(|line| line.text.contains(OVERRUN))
            .count();
        ensure(overruns == 0, || {
            format!("{host}: apmd's netlink socket has overrun {overruns} times")
        })?;
    }
    Ok(())
}

/// Messages that sockets of generic netlink had no room for, until now.
fn drops() -> Result<u64, Failure> {
    Ok(drops_in(&command::run(&["cat", "/proc/net/netlink"])?))
}

/// "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode", where Eth is the protocol.
fn drops_in(table: &str) -> u64 {
    const GENERIC: &str = "16";
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_generic = rows.filter(|row| row.get(1) == Some(&GENERIC));
    of_generic
        .filter_map(|row| row.get(8)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_waits_from_its_event_until_it_runs() {
        let trace = "# tracer: nop\n\
            kworker/u4:2-41 [001] d..2. 61.500000: workqueue_queue_work: work struct=0 function=apm_standing_work [apm] workqueue=apm_urgent\n\
            kworker/u4:2-41 [001] d..2. 61.500100: workqueue_queue_work: work struct=0 function=apm_standing_work [apm] workqueue=apm_urgent\n\
            kworker/u5:1-33 [000] ..... 61.500250: workqueue_execute_start: work struct 0: function apm_standing_work [apm]\n\
            kworker/u5:1-33 [000] ..... 61.502000: workqueue_execute_end: work struct 0: function apm_standing_work [apm]\n";
        let [wait] = waits(trace)[..] else {
            panic!("one wait: {:?}", waits(trace));
        };
        assert!((wait.begun.0 - 0.25).abs() < 1e-6 && (wait.done.0 - 2.0).abs() < 1e-6);
    }

    #[test]
    fn drops_are_those_of_generic_netlink() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
            0000000000000000 0   1          00000113 0        0        0     2        7        12\n\
            0000000000000000 16  812        00000000 0        0        0     2        3        13\n\
            0000000000000000 16  0          00000000 0        0        0     2        1        14\n";
        assert_eq!(drops_in(table), 4);
    }
}
