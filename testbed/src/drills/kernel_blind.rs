// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module apm where it may not or cannot work: on a kernel without the fix apmd does not use it by default, and when
//! its probes are switched off `apmctl status` is degraded until they are on again.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::exchange;
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-blind",
    about: "the module apm on a kernel that lacks a fix, and with its probes switched off",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// As it is where the operator has not decided otherwise.
const DEFAULT: Policy = Policy {
    sections: "[kernel]\nallow_unfixed = false\n",
    ..Policy::NORMAL
};

/// Switches all probes of the kernel, which is not told to the modules that have them.
const SWITCH: &str = "/sys/kernel/debug/kprobes/enabled";
const PROBLEM: &str = "its probes are switched off";

const PROGRAM: &[&str] = &["ib_send_lat"];
/// Longer than the drill: it kills them.
const SECONDS: u32 = 300;

/// apmd asks every 30 s.
const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    context.world.start_daemons(DEFAULT)?;
    refused_by_default()?;
    context.world.stop_daemons()?;
    context.world.start_daemons(Policy::default())?;
    let before = exchange::start(PROGRAM, "18601", SECONDS)?;
    context.world.wait_disjoint(1)?;
    switch("0")?;
    let shown = wait_problem(true);
    // Not seen when it is connected.
    let unseen = exchange::start(PROGRAM, "18602", SECONDS);
    switch("1")?;
    shown?;
    let unseen = unseen?;
    wait_problem(false)?;
    context.world.wait_disjoint(2)?;
    drop((before, unseen));
    context.world.wait_for("no connection left", 0, |_| true)?;
    module.unload()
}

/// Whether the kernel lacks the fix is asked in another way than apmd asks.
fn refused_by_default() -> Result<(), Failure> {
    let symbols = command::run(&["grep", "rdma_restrack_", "/proc/kallsyms"])?;
    let is_unfixed = !symbols.contains("rdma_restrack_begin_del");
    for host in Host::ALL {
        let status = status(host)?;
        let problems = status["problems"].to_string();
        let is_unused = status["kernel"]["state"] == "unusable";
        let is_explained = problems.contains("lets a queue pair be found")
            && problems.contains("allow_unfixed = true");
        ensure(
            (is_unused, is_explained) == (is_unfixed, is_unfixed),
            || format!("{host}: lacks the fix: {is_unfixed}; {status}"),
        )?;
    }
    Ok(())
}

fn switch(on: &str) -> Result<(), Failure> {
    fs::write(SWITCH, on).map_err(|source| Failure::File {
        path: SWITCH.to_owned(),
        source,
    })
}

/// Within a minute both hosts are degraded for it, or are not any more.
fn wait_problem(wanted: bool) -> Result<(), Failure> {
    wait::until("apmctl status tells of the probes", LIMIT, || {
        let mut problems = Vec::new();
        for host in Host::ALL {
            problems.push(status(host)?["problems"].to_string());
        }
        let is_so = |problems: &String| problems.contains(PROBLEM) == wanted;
        Ok(Seen::when(problems.iter().all(is_so), || problems.concat()))
    })
}

/// Of a daemon that may have something to complain of.
fn status(host: Host) -> Result<Value, Failure> {
    let words = [host.name(), "apmctl", "-j", "status"];
    let output = command::attempt(&words)?;
    serde_json::from_slice(&output.stdout).map_err(|error| Failure::Output {
        source_name: words.join(" "),
        problem: error.to_string(),
    })
}
