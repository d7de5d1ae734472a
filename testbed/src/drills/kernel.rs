// SPDX-License-Identifier: MIT OR Apache-2.0
//! With the kernel module loaded, a program that knows nothing of apmd, has no library preloaded and
//! exchanges its queue pair numbers over TCP is protected; also while no daemon runs.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::observe::Pair;
use crate::port::Port;
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::exchange;
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel",
    about: "with the module apm a bare ib_send_lat is protected, daemons dead or not",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// For how long the program runs: the faults have to happen meanwhile.
const SECONDS: u32 = 60;
const LIMIT: Duration = Duration::from_secs(90);

/// What a queue pair of a program under no care does not survive at its ACK timeout, 0.6 s at most.
const RETRIES: Duration = Duration::from_secs(2);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    status(Host::A, "absent")?;
    // As fast as one answers the other, which leaves the emulated processors room for probes.
    let mut programs = exchange::start(&["ib_send_lat"], "18515", SECONDS)?;
    // What is older than it is taken up.
    let module = KernelModule::load()?;
    let pairs = context.world.wait_disjoint(1)?;
    status(Host::A, "loaded")?;
    shown(&pairs)?;
    needs_no_library()?;
    for host in Host::ALL {
        let port = context.world.wait_disjoint(1)?[0].active_port(host);
        leave(context, port, 1)?;
    }
    without_daemons(context, &mut programs)?;
    let refused = command::attempt(&["rmmod", "apm"])?;
    ensure(!refused.status.success(), || {
        "rmmod apm: unloaded while queue pairs are under its care".to_owned()
    })?;
    for program in &mut programs {
        let status = program.wait(LIMIT)?;
        let name = program.name().to_owned();
        ensure(status.success(), || {
            format!("{name}: {status}: {}", program.last_line())
        })?;
    }
    context.world.wait_for("no connection left", 0, |_| true)?;
    beside_the_library(context)?;
    module.unload()?;
    status(Host::A, "absent")?;
    on_its_way(context)
}

/// A queue pair that waits for its peer, in INIT, when the module comes is taken up as well.
fn on_its_way(context: &mut Context<'_>) -> Result<(), Failure> {
    let start = |host: Host, to: &[&str]| {
        let from = [
            "ibv_rc_pingpong",
            "-d",
            host.device(),
            "-i",
            "1",
            "-p",
            "18701",
        ];
        let words = [&from, &["-n", "1000000000"][..], to].concat();
        Program::start("ibv_rc_pingpong", host, &words)
    };
    let server = start(Host::B, &[])?;
    wait::until("the server waits in INIT", LIMIT, || {
        let table = command::run(&["rdma", "resource", "show", "qp"])?;
        Ok(Seen::when(table.contains("type RC state INIT"), || table))
    })?;
    let module = KernelModule::load()?;
    // What is older is looked for once, and at once.
    thread::sleep(Duration::from_secs(2));
    status(Host::B, "loaded")?;
    let client = start(Host::A, &["127.0.0.1"])?;
    context.world.wait_disjoint(1)?;
    drop((server, client));
    context.world.wait_for("no connection left", 0, |_| true)?;
    module.unload()
}

pub(super) fn apmctl(host: Host, words: &[&str]) -> Result<Value, Failure> {
    let json = command::run_as(host, &[&["apmctl", "-j"], words].concat())?;
    serde_json::from_str(&json).map_err(|error| Failure::Output {
        source_name: format!("apmctl -j {}", words.join(" ")),
        problem: error.to_string(),
    })
}

fn status(host: Host, wanted: &str) -> Result<(), Failure> {
    let kernel = &apmctl(host, &["status"])?["kernel"];
    ensure(kernel["state"] == wanted, || {
        format!("apmctl status says {kernel} of the kernel module, not {wanted}")
    })
}

/// What operators see of it.
fn shown(pairs: &[Pair]) -> Result<(), Failure> {
    for host in [Host::A, Host::B] {
        let conns = apmctl(host, &["conn", "show", "command", "ib_send_lat"])?;
        ensure(conns[0]["by"] == "kernel", || {
            format!("apmctl conn on {host}: {conns}")
        })?;
        let id = &conns[0]["id"];
        let all = apmctl(host, &["qp", "show", "ib_send_lat"])?;
        let all = all.as_array().cloned().unwrap_or_default();
        // Both hosts are in one kernel here, and each daemon sees the other's queue pair, too.
        let own = all.iter().find(|qp| qp["device"] == host.device());
        let own = own.cloned().unwrap_or_default();
        let is_it = own["connection"] == *id && own["qpn"] == pairs[0].end(host).qpn;
        ensure(is_it && own["protection"] == "armed", || {
            format!("apmctl qp on {host}: {own}, not connection {id}, armed")
        })?;
    }
    Ok(())
}

/// A command that nothing can be preloaded into is not said to be unprotected.
fn needs_no_library() -> Result<(), Failure> {
    let words = ["apmctl", "run", "--require", "/usr/bin/busybox", "true"];
    let words = [&[Host::A.name()], &words[..]].concat();
    let tried = command::attempt(&words)?;
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    let is_right = tried.status.success() && said.contains("is not needed");
    ensure(is_right, || {
        format!("apmctl run of a static program: {said}")
    })
}

/// The cable of this port is pulled and plugged, under so many connections.
fn leave(context: &mut Context<'_>, port: Port, connections: usize) -> Result<(), Failure> {
    context.world.pull(port)?;
    context.world.wait_moved(connections, port)?;
    context.report.migrations += 1;
    context.world.plug(port)?;
    context.world.wait_disjoint(connections)?;
    context.report.rearmed += 1;
    Ok(())
}

/// The module's standing order is enough; daemons that come later find everything as it is.
fn without_daemons(context: &mut Context<'_>, programs: &mut [Program]) -> Result<(), Failure> {
    let port = context.world.wait_disjoint(1)?[0].active_port(Host::A);
    for host in [Host::A, Host::B] {
        context.world.kill_daemon(host)?;
    }
    context.world.pull(port)?;
    thread::sleep(RETRIES);
    for program in &mut *programs {
        program.ensure_running()?;
    }
    context.world.plug(port)?;
    context.world.start_daemons(Policy::default())?;
    context.world.wait_moved(1, port)?;
    context.world.wait_disjoint(1)?;
    context.report.migrations += 1;
    context.report.rearmed += 1;
    Ok(())
}

/// What a library has registered stays the library's, and is one connection for both: also when it moves,
/// of which the module has no event.
fn beside_the_library(context: &mut Context<'_>) -> Result<(), Failure> {
    let streams = Streams::start(&context.timeline, Options::default())?;
    let pair = &context.world.wait_disjoint(1)?[0];
    let qpn = by_library()?;
    ensure(pair.end(Host::A).qpn == qpn, || {
        "the library's queue pair is not the one that is armed".to_owned()
    })?;
    leave(context, pair.active_port(Host::A), 1)?;
    ensure(by_library()? == qpn, || {
        "another queue pair is the library's".to_owned()
    })?;
    context.finish(streams)
}

/// The queue pair of the one connection, a library's: shown once, and with the kernel's owner.
fn by_library() -> Result<u32, Failure> {
    let conns = apmctl(Host::A, &["conn", "show"])?;
    let conns = conns.as_array().cloned().unwrap_or_default();
    let of = |by: &str| conns.iter().filter(|conn| conn["by"] == by).count();
    ensure((of("kernel"), of("library")) == (0, 1), || {
        format!("apmctl conn: {conns:?}")
    })?;
    let conn = conns.iter().find(|conn| conn["by"] == "library");
    let conn = conn.cloned().unwrap_or_default();
    let all = apmctl(Host::A, &["qp", "show"])?;
    let all = all.as_array().cloned().unwrap_or_default();
    let its = |qp: &&Value| qp["device"] == Host::A.device() && qp["qpn"] == conn["qpn"];
    let qp = all.iter().find(its).cloned().unwrap_or_default();
    let is_one = qp["connection"] == conn["id"]
        && qp["protection"] == conn["protection"]
        && qp["owner"] == conn["command"]
        && qp["pid"] == conn["pid"];
    ensure(is_one, || format!("apmctl qp: {qp}, apmctl conn: {conn}"))?;
    let qpn = conn["qpn"].as_u64().and_then(|qpn| qpn.try_into().ok());
    Ok(qpn.unwrap_or_default())
}
