// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that have exchanged one message and are silent: their primary paths fail, one after the other, and then they
//! speak. An idle queue pair waits in ReArm, and its hardware does not migrate.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::observe::{self, Connection};
use crate::port::Port;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "idle",
    about: "200 silent connections lose paths, six times; then they speak: nothing is lost",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

const CONNECTIONS: usize = 200;
const SHORT_CONNECTIONS: usize = 20;
/// Where they are to die.
const UNPROTECTED_CONNECTIONS: usize = 2;

const MOVABLE: &str = "idle (movable)";
const ARMED: &str = "armed";
const WAITING: &str = "rearming (idle)";

/// Whether the software HCA's queue pairs can go to SQD.
const SQD: &str = "/sys/module/shca/parameters/sqd";

const LIMIT: Duration = Duration::from_secs(120);

/// What fails.
#[derive(Clone, Copy)]
enum Fault {
    /// A cable of this host is pulled.
    Cable(Host),
    /// A port of this host is black-holed; its link stays up.
    Hole(Host),
}

const FAULTS: [Fault; 6] = [
    Fault::Cable(Host::A),
    Fault::Cable(Host::B),
    Fault::Hole(Host::A),
    Fault::Cable(Host::A),
    Fault::Cable(Host::B),
    Fault::Hole(Host::B),
];

/// How the programs are started that the library protects, and those of the module.
const BY_LIBRARY: &[&str] = &["apmctl", "run", "--"];
const BY_MODULE: &[&str] = &[];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    protected(context, BY_LIBRARY)?;
    let module = KernelModule::load()?;
    protected(context, BY_MODULE)?;
    module.unload()
}

fn protected(context: &mut Context<'_>, starter: &[&str]) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    moved(context, starter)?;
    context.world.stop_daemons()?;
    file::write(SQD, "N")?;
    let died = left(context, starter);
    file::write(SQD, "Y")?;
    died
}

/// Both ends of all of them are moved away from each fault.
fn moved(context: &mut Context<'_>, starter: &[&str]) -> Result<(), Failure> {
    let connections = match context.options.short {
        true => SHORT_CONNECTIONS,
        false => CONNECTIONS,
    };
    let mut pair = start(starter, connections)?;
    // Some may have had their alternate before they spoke, which armed them.
    shown(connections, &[MOVABLE, ARMED])?;
    for (number, fault) in (1..).zip(FAULTS) {
        let port = primary_port(fault.host())?;
        let lid = port.lid()?;
        match fault {
            Fault::Cable(_) => context.world.pull(port)?,
            Fault::Hole(_) => context.world.blackhole(port)?,
        };
        has_left(connections, port, lid)?;
        if number < FAULTS.len() {
            match fault {
                Fault::Cable(_) => context.world.plug(port)?,
                Fault::Hole(_) => context.world.heal(port)?,
            }
            shown(connections, &[MOVABLE])?;
        }
    }
    // The last fault lasts.
    for program in &mut pair {
        program.ensure_running()?;
    }
    speak(&mut pair)?;
    for program in &mut pair {
        let status = program.wait(LIMIT)?;
        ensure(status.success(), || {
            format!("{}: {status}: {}", program.name(), program.last_line())
        })?;
    }
    let last = pair[1].last_line();
    let all = format!("{} messages, all right", 2 * connections);
    ensure(last == all, || format!("{last} in place of {all}"))?;
    context.report.set("connections", connections);
    context.report.set("faults", FAULTS.len());
    context.world.mend()
}

/// The device refuses SQD: that they are not safe is shown, and they die.
fn left(context: &mut Context<'_>, starter: &[&str]) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut pair = start(starter, UNPROTECTED_CONNECTIONS)?;
    shown(UNPROTECTED_CONNECTIONS, &[WAITING])?;
    let port = primary_port(Host::A)?;
    context.world.pull(port)?;
    speak(&mut pair)?;
    let status = pair[1].wait(LIMIT)?;
    ensure(!status.success(), || {
        format!(
            "the client on a device without SQD survived: {}",
            pair[1].last_line()
        )
    })?;
    let last = pair[1].last_line();
    context
        .timeline
        .note("drill", format!("without SQD: {last}"));
    drop(pair);
    context.world.mend()?;
    context.world.stop_daemons()
}

impl Fault {
    fn host(self) -> Host {
        match self {
            Self::Cable(host) | Self::Hole(host) => host,
        }
    }
}

/// Starts a server and a client. Each connection has exchanged one message when this returns.
fn start(starter: &[&str], connections: usize) -> Result<[Program; 2], Failure> {
    let count = connections.to_string();
    let words = |role: &[&'static str]| -> Vec<String> {
        let all = ["cm_peers", "-i", "-n", &count];
        let words = [starter, &all, role].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let start = |name, host, role: &[&'static str]| {
        let words = words(role);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Program::start(name, host, &words)
    };
    let mut server = start("server", Host::B, &["10.0.1.2"])?;
    server.wait_for_line("ready", LIMIT, |line| line == "ready")?;
    let mut client = start("client", Host::A, &["-c", "10.0.1.1", "10.0.1.2"])?;
    client.wait_for_line("silent", LIMIT, |line| line == "silent")?;
    Ok([server, client])
}

/// Has the client send one message over each connection.
fn speak(pair: &mut [Program; 2]) -> Result<(), Failure> {
    pair[1].signal(Signal::SIGUSR2)
}

/// The port of a host that most connections' primary paths use. Some may go from port 1 to port 2.
fn primary_port(host: Host) -> Result<Port, Failure> {
    let found = observe::connections(host)?;
    let used = |number: u8| {
        found
            .iter()
            .filter(|one| one.primary.port == number)
            .count()
    };
    let number = (1..=2).max_by_key(|number| used(*number));
    Ok(host.port(number.unwrap_or(1)))
}

/// Waits until both hosts show all connections like one of these.
fn shown(connections: usize, protections: &[&str]) -> Result<(), Failure> {
    for host in [Host::A, Host::B] {
        wait::until(
            &format!("{host} shows {connections} as {}", protections.join(" or ")),
            LIMIT,
            || {
                let found = observe::connections(host)?;
                let is_so = |one: &&Connection| protections.contains(&one.protection.as_str());
                let (so, others): (Vec<_>, Vec<_>) = found.iter().partition(is_so);
                Ok(Seen::when(
                    so.len() == connections && others.is_empty(),
                    || {
                        let other = others.first().map(|other| other.state());
                        format!(
                            "{} are, {} are not, such as {other:?}",
                            so.len(),
                            others.len()
                        )
                    },
                ))
            },
        )?;
    }
    Ok(())
}

/// Waits until no primary path begins or ends at the port any more. The paths may go from port 1 to port 2.
fn has_left(connections: usize, port: Port, lid: u16) -> Result<(), Failure> {
    for host in [Host::A, Host::B] {
        wait::until(&format!("{host} has left {port}"), LIMIT, || {
            let found = observe::connections(host)?;
            let is_on = |one: &&Connection| [one.primary.slid, one.primary.dlid].contains(&lid);
            let left = found.iter().filter(is_on).count();
            Ok(Seen::when(found.len() == connections && left == 0, || {
                format!("{left} of {} have not", found.len())
            }))
        })?;
    }
    Ok(())
}
