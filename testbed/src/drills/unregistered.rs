// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with the library in it has a queue pair by calls that it looked up by the handle of libibverbs, which the
//! library does not see: `apmctl status` warns of it, and of nothing when the program has opened the library instead.

use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "unregistered",
    about: "queue pairs by dlopen of libibverbs, as NCCL's: status warns of what is missed",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// Two rounds of 30 s find it; the drill gives them twice that.
const LIMIT: Duration = Duration::from_secs(120);

/// For a program to start and connect.
const CONNECTS: Duration = Duration::from_secs(30);

/// What the program opens in the place of libibverbs, by its path in the VM.
const LIBRARY: &str = "VERBS_LIBRARY=/usr/lib/x86_64-linux-gnu/rdmacm-apm/librdmacm-apm.so";

/// Two connections, of which one has its queue pair by handle.
const SERVER: &[&str] = &["cm_peers", "-o", "-v", "-n", "2", "10.0.1.2"];
const CLIENT: &[&str] = &[
    "cm_peers", "-o", "-v", "-n", "2", "-d", "600", "-c", "10.0.1.1", "10.0.1.2",
];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let programs = start(&["apmctl", "run", "--"])?;
    context.world.wait_disjoint(1)?;
    for host in Host::ALL {
        let what = format!("apmctl status on {host} warns of one queue pair");
        let status = wait::until(&what, LIMIT, || {
            let status = status(host)?;
            let count = status["unregistered"]["queue_pairs"].clone();
            match count == 1 {
                true => Ok(Seen::Ready(status)),
                false => Ok(Seen::NotYet(format!("{count} are not registered"))),
            }
        })?;
        let program = &status["unregistered"]["largest"][0];
        ensure(program["command"] == "cm_peers", || {
            format!("{host} names another program: {program}")
        })?;
        // A warning, and no reason for another exit status.
        let text = command::run_as(host, &["apmctl", "status"])?;
        ensure(
            text.contains("1 connected RC queue pairs of programs with the library"),
            || format!("apmctl status on {host} does not tell: {text}"),
        )?;
    }
    context.timeline.note("drill", "both hosts warn of one");
    drop(programs);

    let programs = start(&["env", LIBRARY, "apmctl", "run", "--"])?;
    context.world.wait_disjoint(2)?;
    context
        .timeline
        .note("drill", "with the library both are registered");
    drop(programs);
    context.world.stop_daemons()?;
    context.world.mend()
}

/// Both ends, started by `starter`.
fn start(starter: &[&str]) -> Result<[Program; 2], Failure> {
    let words = |line: &[&'static str]| [starter, line].concat();
    let mut server = Program::start("server", Host::B, &words(SERVER))?;
    server.wait_for_line("that it listens", CONNECTS, |line| line.contains("ready"))?;
    let client = Program::start("client", Host::A, &words(CLIENT))?;
    Ok([client, server])
}

fn status(host: Host) -> Result<Value, Failure> {
    let text = command::run_as(host, &["apmctl", "-j", "status"])?;
    serde_json::from_str(&text).map_err(|error| Failure::Output {
        source_name: format!("apmctl -j status on {host}"),
        problem: error.to_string(),
    })
}
