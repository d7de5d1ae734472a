// SPDX-License-Identifier: MIT OR Apache-2.0
//! With the kernel module loaded, daemons find each other by subnet administration before anybody connects,
//! so that a kernel consumer's first connection has a bounded ACK timeout.

use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::kernel_ulp::{self, stream::Stream};
use crate::observe::Pair;
use crate::saquery;
use crate::wait::{self, Seen};
use crate::wakeups::Watch;
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-discovery",
    about: "with the module apm daemons know each other before anybody connects",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// `[kernel] ack_timeout`, as it is if nobody says.
const BOUND: u8 = 14;

const LIMIT: Duration = Duration::from_secs(60);

/// So long nothing wakes up of those that have nothing to do: longer than the pause between any two looks that
/// a daemon takes while there are connections.
const STILL: Duration = Duration::from_secs(15);

/// How often the module is loaded again: who registers and reads first is chance.
const RELOADS: u32 = 4;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    let shown = discovered(context, module);
    context.world.stop_daemons()?;
    let gone = registered(&[]);
    let module = shown?;
    gone?;
    module.unload()
}

fn discovered(
    context: &mut Context<'_>,
    mut module: KernelModule,
) -> Result<KernelModule, Failure> {
    context.world.start_daemon(Host::A, Policy::default())?;
    registered(&[Host::A])?;
    context.world.wait_named(Host::A, 0)?;
    context.world.start_daemon(Host::B, Policy::default())?;
    registered(&Host::ALL)?;
    context.world.wait_acquainted()?;
    let pairs = context.world.pairs()?;
    ensure(pairs.is_empty(), || "somebody is connected".to_owned())?;
    asleep(context)?;
    for _ in 0..RELOADS {
        module = reloaded(context, module)?;
    }
    // The subnet manager starts without a record.
    context.world.stop_subnet_manager()?;
    context.world.start_subnet_manager()?;
    registered(&Host::ALL)?;
    // One that was killed leaves its records, and finds the other when it comes again.
    context.world.kill_daemon(Host::B)?;
    registered(&Host::ALL)?;
    context.world.start_daemon(Host::B, Policy::default())?;
    context.world.wait_acquainted()?;
    first_connection(context)?;
    Ok(module)
}

/// A module that is loaded again knows nobody. The daemons, which have known each other all the time, find each
/// other anew.
fn reloaded(context: &Context<'_>, module: KernelModule) -> Result<KernelModule, Failure> {
    module.unload()?;
    registered(&[])?;
    let module = KernelModule::load()?;
    registered(&Host::ALL)?;
    context.world.wait_acquainted()?;
    Ok(module)
}

/// Daemons and module that have nothing to do sleep: no timer runs.
fn asleep(context: &mut Context<'_>) -> Result<(), Failure> {
    let pids = daemons(context)?;
    let what = format!("nothing wakes up for {} s", STILL.as_secs());
    wait::until(&what, LIMIT, || {
        let watch = Watch::begin(&pids)?;
        thread::sleep(STILL);
        let seen = watch.end()?;
        Ok(Seen::when(seen.is_none(), || format!("{seen:?}")))
    })?;
    context.timeline.note("drill", what);
    Ok(())
}

fn daemons(context: &Context<'_>) -> Result<Vec<u32>, Failure> {
    let pid = |host| context.world.rights(host).map(|(pid, _)| pid);
    Host::ALL.into_iter().map(pid).collect()
}

/// A kernel consumer's first connection has a bounded ACK timeout, at either end. Whatever has slept wakes up
/// for it, or nobody would have seen it awake before.
fn first_connection(context: &mut Context<'_>) -> Result<(), Failure> {
    let pids = daemons(context)?;
    let watch = Watch::begin(&pids)?;
    let stream = Stream::start(&kernel_ulp::SRP, context.world.hosts())?;
    let pairs = stream.wait_for(context.world, Pair::is_armed)?;
    let seen = watch.end()?;
    ensure(seen.is_of_all(), || format!("not seen awake: {seen:?}"))?;
    for end in pairs.iter().flat_map(|pair| &pair.ends) {
        let (id, timeout) = (&end.id, end.primary.ack_timeout);
        ensure(timeout == BOUND, || {
            format!("{id}: ACK timeout {timeout}, not {BOUND}")
        })?;
    }
    stream.finish().map(drop)
}

/// Waits until subnet administration has the ports of these hosts and no others.
fn registered(hosts: &[Host]) -> Result<(), Failure> {
    let ports = hosts.iter().flat_map(|host| host.ports());
    let gids: Result<Vec<_>, _> = ports.map(|port| port.gid()).collect();
    let mut wanted: Vec<Ipv6Addr> = gids?.iter().filter_map(|gid| gid.parse().ok()).collect();
    wanted.sort_unstable();
    let what = format!("services of {} ports are registered", wanted.len());
    wait::until(&what, LIMIT, || {
        Ok(match saquery::services(Host::A, "apmd") {
            Ok(services) if services == wanted => Seen::Ready(()),
            other => Seen::NotYet(format!("{other:?}")),
        })
    })
}
