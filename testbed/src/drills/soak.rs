// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hundred connections and one fault after the other, for ten minutes: nothing is lost, nothing grows, and
//! the log stays readable.

use std::thread;
use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::ibsim::Dice;
use crate::memory::resident_kib;
use crate::narration::Narration;
use crate::port::Port;
use crate::stream::{Options, Streams};
use crate::timeline::Timeline;
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "soak",
    about: "200 connections, ten minutes of random faults: nothing is lost, nothing grows",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

const CONNECTIONS: u32 = 200;

/// Between two messages of a connection, each way: the VM is emulated.
const INTERVAL_US: u32 = 200_000;

/// How long there are faults, and how many before memory is looked at for the first time: allocators keep
/// what they once had.
struct Length {
    time: Duration,
    warm_up: u32,
}

const LONG: Length = Length {
    time: Duration::from_secs(600),
    warm_up: 3,
};
const SHORT: Length = Length {
    time: Duration::from_secs(10),
    warm_up: 1,
};

/// How much any process may have grown since: what an allocator's next page or two are.
const GROWTH_KIB: u64 = 1024;

/// Lines of level INFO and above that a daemon may write, a second on average: some of each fault, and not
/// one for each connection.
const LINES_A_SECOND: f64 = 3.0;

/// At the end nothing happens for so long, and the log says nothing.
const CALM: Duration = Duration::from_secs(6);

/// The faults are the same in every run.
const SEED: u64 = 20_261_123;

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A cable is pulled.
    Pull(Port),
    /// A cable carries nothing.
    Hole(Port),
    /// The subnet manager is killed and started again.
    SubnetManager,
}

impl Fault {
    fn any(dice: &mut Dice) -> Self {
        let host = Host::ALL[dice.below(2)];
        let port = host.port(1 + dice.below(2) as u8);
        match dice.below(5) {
            0 | 1 => Self::Hole(port),
            2 | 3 => Self::Pull(port),
            _ => Self::SubnetManager,
        }
    }
}

/// Processes that may grow.
struct Processes([(&'static str, u32); 4]);

impl Processes {
    fn of(context: &Context<'_>, streams: &Streams) -> Result<Self, Failure> {
        let daemon = |host| Ok::<_, Failure>(context.world.rights(host)?.0);
        let [client, server] = streams.pids();
        Ok(Self([
            ("apmd on host-a", daemon(Host::A)?),
            ("apmd on host-b", daemon(Host::B)?),
            ("the client", client),
            ("the server", server),
        ]))
    }

    fn resident_kib(&self) -> Result<Vec<u64>, Failure> {
        self.0.iter().map(|&(_, pid)| resident_kib(pid)).collect()
    }
}

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let length = match context.options.short {
        true => SHORT,
        false => LONG,
    };
    context.world.start_daemons(Policy {
        log: "info",
        ..Policy::default()
    })?;
    let options = Options {
        connections: CONNECTIONS,
        interval_us: INTERVAL_US,
        ..Options::default()
    };
    // What 400 ends are told would fill the timeline.
    let mut streams = Streams::start(&Timeline::new(Narration::SILENT), options)?;
    let mut dice = Dice::new(SEED);
    for _ in 0..length.warm_up {
        one(context, &mut streams, &mut dice)?;
    }
    let processes = Processes::of(context, &streams)?;
    let (before, began) = (processes.resident_kib()?, Moment::now());
    let mut faults = 0_u64;
    while Moment::now().since(began) < length.time {
        one(context, &mut streams, &mut dice)?;
        faults += 1;
    }
    context.world.wait_disjoint(CONNECTIONS as usize)?;
    // What was limited meanwhile is counted, and protected again is said.
    thread::sleep(CALM);
    let calm = Moment::now();
    thread::sleep(CALM);
    let took = Millis::from(Moment::now().since(began)).0 / 1000.0;
    context.report.set("faults", faults);
    let text = format!("{faults} faults in {took:.0} s");
    context.timeline.note("drill", text);
    ensure(faults > 0, || "no fault in all the time".to_owned())?;

    let after = processes.resident_kib()?;
    for ((name, _), (before, after)) in processes.0.iter().zip(before.into_iter().zip(after)) {
        let text = format!("{name}: {before} KiB before, {after} KiB after");
        context.timeline.note("drill", text.clone());
        ensure(after <= before + GROWTH_KIB, || text)?;
    }
    for host in Host::ALL {
        let told = context.world.told_since(host, began);
        let rate = told.len() as f64 / took;
        let text = format!("{rate:.2} log lines a second on {host}");
        context.timeline.note("drill", text.clone());
        ensure(rate <= LINES_A_SECOND, || text)?;
        let told = told.iter().find(|line| line.at >= calm);
        ensure(told.is_none(), || {
            format!(
                "said while nothing happened: {}",
                told.map_or("", |line| &line.text)
            )
        })?;
    }
    context.finish(streams)
}

/// One fault while all are armed, and its end.
fn one(context: &mut Context<'_>, streams: &mut Streams, dice: &mut Dice) -> Result<(), Failure> {
    let all = CONNECTIONS as usize;
    let world = &mut *context.world;
    world.wait_disjoint(all)?;
    match Fault::any(dice) {
        Fault::Pull(port) => {
            world.pull(port)?;
            world.wait_moved(all, port)?;
            world.wait_armed(all)?;
            world.plug(port)?;
        }
        Fault::Hole(port) => {
            world.blackhole(port)?;
            world.wait_moved(all, port)?;
            world.wait_armed(all)?;
            world.heal(port)?;
        }
        Fault::SubnetManager => {
            world.stop_subnet_manager()?;
            thread::sleep(Duration::from_millis(500));
            world.start_subnet_manager()?;
        }
    }
    streams.ensure_healthy()
}
