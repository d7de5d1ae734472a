// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device is given to a network namespace, which is deleted while a program in it uses the device: it comes back, and what
//! connects then is protected by the same apmd.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::program::Program;
use crate::stream::{Armed, Options, Streams};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "given-away",
    about: "a device lost to a namespace that is deleted in use: protected when it is back",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// How often the device is given away; in the short form once.
const ROUNDS: usize = 3;

const NAMESPACE: &str = "borrower";

/// Bound for the program in the namespace to open the device, and to end.
const LIMIT: Duration = Duration::from_secs(30);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    protected(context, Armed::ByDaemons)?;
    let module = KernelModule::load()?;
    let shown = protected(context, Armed::ByModule);
    context.world.stop_daemons()?;
    shown?;
    module.unload()
}

fn protected(context: &mut Context<'_>, armed: Armed) -> Result<(), Failure> {
    let options = Options {
        armed,
        ..Options::default()
    };
    context.world.start_daemons(Policy::default())?;
    let daemon = |context: &Context<'_>| context.world.rights(Host::A).map(|(pid, _)| pid);
    let pid = daemon(context)?;
    let rounds = match context.options.short {
        true => 1,
        false => ROUNDS,
    };
    for round in 1..=rounds {
        let streams = Streams::start(&context.timeline, options)?;
        context.world.wait_disjoint(1)?;
        // rdmavt keeps a program's queues mapped when its device goes, and uses what it has freed when the program
        // ends (docs/soft-hca.md).
        drop(streams);
        let back = lend(context);
        // Whatever became of it, the next ones need the device in its place.
        drop(command::run_as(Host::A, &["ip", "netns", "del", NAMESPACE]));
        back?;
        let text = format!("{}: round {round}: the device is back", Host::A.device());
        context.timeline.note("drill", text);
    }
    let mut streams = Streams::start(&context.timeline, options)?;
    let pairs = context.world.wait_disjoint(1)?;
    let left = pairs[0].active_port(Host::A);
    context.world.pull(left)?;
    context.world.wait_moved(1, left)?;
    context.report.migrations += 1;
    streams.wait_flowing()?;
    context.finish(streams)?;
    context.world.plug(left)?;
    ensure(daemon(context)? == pid, || {
        "apmd was started again".to_owned()
    })?;
    context.world.stop_daemons()
}

/// Gives host A's device away, and deletes the namespace that has it while a program there uses it.
fn lend(context: &Context<'_>) -> Result<(), Failure> {
    let device = Host::A.device();
    command::run(&["world", "give", device, NAMESPACE])?;
    context
        .timeline
        .note("drill", format!("{device} is in {NAMESPACE}"));
    let words = [
        "ip",
        "netns",
        "exec",
        NAMESPACE,
        "ibv_asyncwatch",
        "-d",
        device,
    ];
    let mut user = Program::start("user of the device", Host::A, &words)?;
    user.wait_for_line("that it has the device", LIMIT, |line| {
        line.contains(device)
    })?;
    command::run_as(Host::A, &["ip", "netns", "del", NAMESPACE])?;
    // Nobody asks what is about to leave (see the script world).
    command::run(&["killall", "-STOP", "opensm"])?;
    let ended = user
        .signal(Signal::SIGKILL)
        .and_then(|()| user.wait(LIMIT).map(drop))
        .and_then(|()| Host::A.ports().try_for_each(|port| port.wait_active()));
    command::run(&["killall", "-CONT", "opensm"])?;
    ended
}
