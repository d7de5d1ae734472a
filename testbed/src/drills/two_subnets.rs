// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rails with a subnet manager each, so that a LID names two ports: nothing migrates without a fault, and every
//! pulled cable is survived. One connection is protected by the library and one by the kernel module.

use std::thread;
use std::time::Duration;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::observe::{Connection, Pair};
use crate::port::Port;
use crate::stream::{Armed, Options, Streams};
use crate::subnets::Numbering;
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "two-subnets",
    about: "equal or crossed LIDs on two rails: no fault, no migration; cables are survived",
    parts: &[Part {
        world: Kind::TwoSubnets,
        run,
    }],
};

/// The numberings of the short form.
const SHORT: &[Numbering] = &[Numbering::Equal, Numbering::OtherPrefix, Numbering::Crossed];

/// How long both connections carry traffic without a fault. A connection that follows a wrong report of its peer
/// migrates ten times a second.
const QUIET: Duration = Duration::from_secs(20);
const SHORT_QUIET: Duration = Duration::from_secs(3);

/// The connection of the library, and that of the module.
const CONNECTIONS: usize = 2;

/// The TCP-like port of the module's server; the library's has the default one.
const MODULE_PORT: u16 = 7481;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let numberings = match context.options.short {
        true => SHORT,
        false => &Numbering::ALL,
    };
    for numbering in numberings {
        context.world.number_subnets(*numbering)?;
        protected(context)?;
    }
    Ok(())
}

/// Both connections, with the numbers that the ports have now.
fn protected(context: &mut Context<'_>) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    context.world.start_daemons(Policy::default())?;
    let of_module = Options {
        armed: Armed::ByModule,
        port: MODULE_PORT,
        ..Options::default()
    };
    let mut streams = [
        Streams::start(&context.timeline, Options::default())?,
        Streams::start(&context.timeline, of_module)?,
    ];
    let pairs = armed(context)?;
    one_of_each(&pairs)?;
    quiet(context, &mut streams)?;
    for port in cables(context, &pairs) {
        lose(context, port)?;
        for stream in &mut streams {
            stream.wait_flowing()?;
        }
    }
    quiet(context, &mut streams)?;
    for stream in streams {
        context.finish(stream)?;
    }
    context.world.stop_daemons()?;
    module.unload()
}

/// The cables to pull. The first two lead the connections to the other rail and back, by a cable at either host;
/// with all four, each cable is also pulled where nothing is on its rail but alternates.
fn cables(context: &Context<'_>, pairs: &[Pair]) -> Vec<Port> {
    let first = pairs[0].active_port(Host::A);
    let peer = Host::B.port(first.number);
    let mut ports = vec![first, peer.other()];
    if !context.options.short {
        ports.extend([first.other(), peer]);
    }
    ports
}

/// Waits until both connections are armed, with both ends on one rail and their alternates on the other.
fn armed(context: &Context<'_>) -> Result<Vec<Pair>, Failure> {
    let what = "armed on both ends, a rail for each path";
    let pairs = context.world.wait_for(what, CONNECTIONS, is_armed)?;
    context.timeline.note("drill", what);
    Ok(pairs)
}

fn is_armed(pair: &Pair) -> bool {
    let rail_of_alternate = |end: &Connection| end.alternate.as_ref().map(|path| path.port);
    let [a, b] = &pair.ends;
    pair.is_disjoint() && rail(pair).is_some() && rail_of_alternate(a) == rail_of_alternate(b)
}

/// The rail that both ends see a connection on. Its LIDs do not tell.
fn rail(pair: &Pair) -> Option<u8> {
    let [a, b] = &pair.ends;
    let number = a.primary.port;
    (number == b.primary.port && pair.is_on_one_path()).then_some(number)
}

fn one_of_each(pairs: &[Pair]) -> Result<(), Failure> {
    let mut by: Vec<_> = pairs.iter().map(|pair| pair.ends[0].by.as_str()).collect();
    by.sort_unstable();
    ensure(by == ["kernel", "library"], || {
        format!("connections are protected by {by:?}, not by library and module")
    })
}

/// Nothing fails, so nothing migrates.
fn quiet(context: &Context<'_>, streams: &mut [Streams]) -> Result<(), Failure> {
    let time = match context.options.short {
        true => SHORT_QUIET,
        false => QUIET,
    };
    let before = armed(context)?;
    thread::sleep(time);
    for stream in streams {
        stream.wait_flowing()?;
    }
    let after = armed(context)?;
    migrated(&before, &after, |_| 0)?;
    let text = format!("no migration for {} s", time.as_secs());
    context.timeline.note("drill", text);
    Ok(())
}

/// Pulls the cable of a port. The connections on its rail go to the other one, once; those on the other one stay.
/// Meanwhile nothing is protected, and both daemons say why. Then the cable is plugged.
fn lose(context: &mut Context<'_>, port: Port) -> Result<(), Failure> {
    let before = armed(context)?;
    let left = port.number;
    context.world.pull(port)?;
    let what = format!("not on the rail of {port}, and unprotected for a stated reason");
    let is_unprotected = |end: &Connection| !end.is_armed() && end.reason.is_some();
    context.world.wait_for(&what, CONNECTIONS, |pair| {
        rail(pair).is_some_and(|rail| rail != left) && pair.ends.iter().all(is_unprotected)
    })?;
    context.world.plug(port)?;
    let after = armed(context)?;
    let moves = |pair: &Pair| u64::from(rail(pair) == Some(left));
    migrated(&before, &after, moves)?;
    context.report.migrations += before.iter().map(moves).sum::<u64>();
    context.report.rearmed += before.len() as u64;
    Ok(())
}

/// Each connection migrated as often as `expected` says of it as it was before, seen from both its ends.
fn migrated(
    before: &[Pair],
    after: &[Pair],
    expected: impl Fn(&Pair) -> u64,
) -> Result<(), Failure> {
    for then in before {
        let is_it = |pair: &&Pair| pair.ends[0].qpn == then.ends[0].qpn;
        let now = after.iter().find(is_it).ok_or_else(|| {
            Failure::not_shown(format!("queue pair {} has disappeared", then.ends[0].qpn))
        })?;
        let counts = [0, 1].map(|end: usize| {
            let count = |pair: &Pair| pair.ends[end].counters.migrations;
            count(now) - count(then)
        });
        let wanted = expected(then);
        ensure(counts == [wanted, wanted], || {
            let (by, paths) = (&then.ends[0].by, now.paths());
            format!(
                "{by}: migrated {counts:?} times, not {wanted}; was {}, is {paths}",
                then.paths()
            )
        })?;
    }
    Ok(())
}
