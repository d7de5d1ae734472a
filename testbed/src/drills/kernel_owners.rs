// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `[kernel] except` names is left alone: a command, a user, a cgroup and those below it. `apmctl run` knows of it.

use std::time::Duration;
use std::{fs, io};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file::DIRECTORY;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::exchange;
use super::kernel::apmctl;
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-owners",
    about: "the module apm leaves alone what [kernel] except names, and nothing else",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

const EXCEPT: &str = r#"[kernel]
except = ["ib_ipoib", "ib_read_lat_of_a_long_name", "uid:1234", "cgroup:/left.alone", "busybox"]
"#;

/// A cgroup below the one that is named, and a program with a name of which the kernel keeps the beginning.
const CGROUP: &str = "/sys/fs/cgroup/left.alone/below";
const LONG_NAME: &str = "/run/drill/ib_read_lat_of_a_long_name";

/// What `apmctl qp` says of them.
const REASON: &str = "[kernel] in apmd.toml leaves its owner alone";

/// How a program comes to be an exception, and what one is whose queue pairs are protected.
const EXCEPTIONS: [(&str, &[&str]); 3] = [
    ("18601", &[LONG_NAME]),
    (
        "18602",
        &["setpriv", "--reuid=1234", "--clear-groups", "ib_send_lat"],
    ),
    (
        "18603",
        &[
            "bash",
            "-c",
            "echo 0 >/sys/fs/cgroup/left.alone/below/cgroup.procs && exec ib_send_lat \"$@\"",
            "in-a-cgroup",
        ],
    ),
];
const ORDINARY: (&str, &[&str]) = ("18604", &["ib_send_lat"]);

/// Longer than the drill: it kills them.
const SECONDS: u32 = 120;

const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    prepare(CGROUP, fs::create_dir_all(CGROUP))?;
    prepare(DIRECTORY, fs::create_dir_all(DIRECTORY))?;
    prepare(LONG_NAME, fs::copy("/usr/bin/ib_read_lat", LONG_NAME))?;
    let module = KernelModule::load()?;
    let with_exceptions = Policy {
        sections: EXCEPT,
        ..Policy::default()
    };
    context.world.start_daemons(with_exceptions)?;
    let mut exceptions = Vec::new();
    for (port, words) in EXCEPTIONS {
        let mut pair = exchange::start(words, port, SECONDS)?;
        // Their queue pairs stay as they are, and leave the processors to others.
        for program in &mut pair {
            program.signal(Signal::SIGSTOP)?;
        }
        exceptions.push(pair);
    }
    let ordinary = exchange::start(ORDINARY.1, ORDINARY.0, SECONDS)?;
    context.world.wait_disjoint(1)?;
    seen(&ordinary, |qp| qp["protection"] == "armed")?;
    for pair in &exceptions {
        seen(pair, |qp| {
            qp["reason"] == REASON && qp["connection"].is_null()
        })?;
    }
    not_told_that_it_is_protected()?;
    let kernel = &apmctl(Host::A, &["status"])?["kernel"];
    let is_told = kernel["except"]
        .as_array()
        .is_some_and(|all| all.len() == 5);
    ensure(is_told, || format!("apmctl status: {kernel}"))?;
    // What is an exception no more is managed.
    context.world.stop_daemons()?;
    context.world.start_daemons(Policy::default())?;
    for pair in &exceptions {
        seen(pair, |qp| qp["connection"].is_string())?;
    }
    drop((exceptions, ordinary));
    context.world.wait_for("no connection left", 0, |_| true)?;
    module.unload()
}

fn prepare<T>(path: &str, made: io::Result<T>) -> Result<(), Failure> {
    let path = path.to_owned();
    made.map(drop)
        .map_err(|source| Failure::File { path, source })
}

/// Waits until `apmctl qp` shows the queue pairs of both so.
fn seen(programs: &[Program; 2], is_so: impl Fn(&Value) -> bool) -> Result<(), Failure> {
    for (program, host) in programs.iter().zip(Host::ALL) {
        let pid = program.pid();
        wait::until(&format!("the queue pair of {pid}"), LIMIT, || {
            let all = apmctl(host, &["qp", "show"])?;
            let its = |qp: &&Value| qp["pid"] == pid && qp["device"] == host.device();
            let qp = all.as_array().into_iter().flatten().find(its);
            Ok(Seen::when(qp.is_some_and(&is_so), || format!("{qp:?}")))
        })?;
    }
    Ok(())
}

/// Nothing can be preloaded into busybox, and the module leaves it alone.
fn not_told_that_it_is_protected() -> Result<(), Failure> {
    let words = ["apmctl", "run", "--require", "/usr/bin/busybox", "true"];
    let tried = command::attempt(&[&[Host::A.name()], &words[..]].concat())?;
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    let is_right = tried.status.code() == Some(125) && said.contains("is not protected");
    ensure(is_right, || {
        format!("apmctl run of an exception: {}: {said}", tried.status)
    })
}
