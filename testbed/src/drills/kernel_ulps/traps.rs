// SPDX-License-Identifier: MIT OR Apache-2.0
//! What undoes APM for a kernel ULP though all is armed: apmd says so to whom it concerns, once.

use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::kernel_ulp::{self, stream::Stream};
use crate::wait::{self, Seen};

use super::super::Context;

const LIMIT: Duration = Duration::from_secs(30);

/// Nothing bounds ACK timeouts: rdma_cm's is 19, and eight tries are longer than NVMe's keep-alive of 5 s.
const UNBOUNDED: Policy = Policy {
    sections: "[kernel]\nack_timeout = 0\n",
    ..Policy::NORMAL
};
const KEEP_ALIVE: &str = "the keep-alive of nvme0, 5 s, is shorter than the hardware tries before it leaves a path, \
                          17.2 s (4.096 us * 2^19 * 8)";
const BOND: &str = "bond0 is a bond of IPoIB interfaces";

/// As it is where the operator has not decided otherwise.
const DEFAULT: Policy = Policy {
    sections: "[kernel]\nallow_unfixed = false\n",
    ..Policy::NORMAL
};

pub(super) fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    let told = told(context);
    context.world.stop_daemons()?;
    drop(command::attempt(&["ip", "link", "del", "bond0"]));
    let unloaded = module.unload();
    told.and(unloaded)
}

fn told(context: &mut Context<'_>) -> Result<(), Failure> {
    command::run(&["one-namespace", "bond"])?;
    context.world.start_daemons(UNBOUNDED)?;
    let is_late = of_the_kernel()?;
    let stream = Stream::start(&kernel_ulp::NVME, context.world.hosts())?;
    stream.wait_armed(context.world)?;
    wait::until("apmd warns of both", LIMIT, || {
        let problems = apmctl(Host::A, &["status"])?["problems"].to_string();
        let has = |what: &str| problems.contains(&format!("nvme_rdma, 2 connections: {what}"));
        Ok(Seen::when(has(BOND) && has(KEEP_ALIVE), || problems))
    })?;
    of_connections()?;
    for what in [BOND, KEEP_ALIVE] {
        context.world.wait_logged(Host::A, &[what])?;
        let lines = context.world.log(Host::A);
        let lines = lines.iter().filter(|line| line.text.contains(what));
        let count = lines.count();
        ensure(count == 1, || {
            format!("the log says it {count} times: {what}")
        })?;
    }
    owners()?;
    context.world.stop_daemons()?;
    context.world.start_daemons(DEFAULT)?;
    refused_by_default(is_late)?;
    stream.finish().map(drop)
}

/// Each is told of the connections of the host whose they are.
fn of_connections() -> Result<(), Failure> {
    for (host, count) in [(Host::A, 2), (Host::B, 0)] {
        let all = apmctl(host, &["conn", "show"])?;
        for conn in all.as_array().into_iter().flatten() {
            let warnings = conn["warnings"].as_array().map(Vec::len);
            ensure(warnings == Some(count), || {
                format!(
                    "{host}: {} has the warnings {}",
                    conn["id"], conn["warnings"]
                )
            })?;
        }
    }
    let text = command::run_as(Host::A, &["apmctl", "-d", "conn", "show"])?;
    let lines = text
        .lines()
        .filter(|line| line.trim().starts_with("warning"));
    ensure(lines.count() == 4, || format!("not as in JSON: {text}"))
}

/// Filters by owner, in the words in which owners are shown.
fn owners() -> Result<(), Failure> {
    for (owner, count) in [
        ("nvme_rdma", 2),
        ("kernel", 2),
        ("nvmet_rdma", 0),
        ("nvme_rdma[7]", 0),
    ] {
        let found = apmctl(Host::A, &["conn", "show", "owner", owner])?;
        ensure(found.as_array().map(Vec::len) == Some(count), || {
            format!("owner {owner}: {found}")
        })?;
        let text = command::run_as(Host::A, &["apmctl", "conn", "show", "owner", owner])?;
        let rows = text
            .lines()
            .filter(|line| line.contains("nvme_rdma  "))
            .count();
        ensure(rows == count, || format!("owner {owner}: {text}"))?;
    }
    Ok(())
}

/// Whether the kernel is one that apmd is to warn of: asked in another way than it asks.
fn of_the_kernel() -> Result<bool, Failure> {
    let symbols = command::run(&["grep", "rdma_restrack_", "/proc/kallsyms"])?;
    let is_late = !symbols.contains("rdma_restrack_begin_del");
    let release = command::run(&["uname", "-r"])?;
    let version = command::run(&["uname", "-v"])?;
    let debian = version
        .split_whitespace()
        .skip_while(|word| *word != "Debian");
    let debian = debian.take(2).collect::<Vec<_>>().join(" ");
    let name = format!(
        "kernel {} ({debian}) lets a queue pair be found",
        release.trim()
    );
    for host in Host::ALL {
        let status = apmctl(host, &["status"])?;
        ensure(
            status["problems"].to_string().contains(&name) == is_late,
            || format!("{host}: of {name}: {}", status["problems"]),
        )?;
    }
    Ok(is_late)
}

/// On such a kernel the module is not used unless that is allowed; on another nothing is different.
fn refused_by_default(is_late: bool) -> Result<(), Failure> {
    let wanted = if is_late { "unusable" } else { "loaded" };
    for host in Host::ALL {
        let status = apmctl(host, &["status"])?;
        let kernel = &status["kernel"];
        let reason = kernel["reason"].as_str().unwrap_or_default();
        ensure(
            kernel["state"] == wanted && reason.contains("lets a queue pair be found") == is_late,
            || format!("{host}: by default: {kernel}"),
        )?;
        if is_late {
            let text = String::from_utf8_lossy(
                &command::attempt(&[host.name(), "apmctl", "status"])?.stdout,
            )
            .into_owned();
            ensure(
                text.contains("not used: kernel ") && text.contains("allow_unfixed = true"),
                || text.clone(),
            )?;
            let connections = status["connections"]["total"].as_u64();
            ensure(connections == Some(0), || {
                format!("{host}: {connections:?} connections by a module that is not used")
            })?;
        }
    }
    Ok(())
}

/// Of a daemon that may have something to complain of.
fn apmctl(host: Host, words: &[&str]) -> Result<Value, Failure> {
    let words = [&[host.name(), "apmctl", "-j"], words].concat();
    let output = command::attempt(&words)?;
    serde_json::from_slice(&output.stdout).map_err(|error| Failure::Output {
        source_name: words.join(" "),
        problem: error.to_string(),
    })
}
