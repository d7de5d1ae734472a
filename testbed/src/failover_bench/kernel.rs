// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections in the care of the kernel module: a program's that knows nothing of it, and the kernel's own.

use super::ack_timeout::AckTimeout;
use super::pulls::{SHORTEST, protected, wait_until_it_is};
use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::kernel_ulp::Ulp;
use crate::kernel_ulp::stream::{self, Stream};
use crate::observe::Connection;
use crate::stream::{Armed, Options};
use crate::world::World;

/// The same program as in the other rows, which does not opt in.
pub(super) fn program(
    world: &mut World,
    timeout: AckTimeout,
    repetitions: u32,
) -> Result<Vec<Millis>, Failure> {
    let module = KernelModule::load()?;
    world.start_daemons(Policy::default())?;
    let options = Options {
        ack_timeout: timeout.option(),
        armed: Armed::ByModule,
        ..Options::default()
    };
    let stalls = protected(world, options, repetitions, is_modules)?;
    world.stop_daemons()?;
    module.unload()?;
    Ok(stalls)
}

fn is_modules(connection: &Connection) -> Result<(), Failure> {
    ensure(
        connection.by == "kernel" && connection.standing_order,
        || {
            format!(
                "by {}, with a standing order: {}",
                connection.by, connection.standing_order
            )
        },
    )
}

/// A kernel ULP whose client's cable is pulled so many times: its longest operation of each time, and the ACK
/// timeout that the connection has.
pub(super) fn ulp(
    world: &mut World,
    ulp: &'static Ulp,
    repetitions: u32,
) -> Result<(AckTimeout, Vec<Millis>), Failure> {
    let module = KernelModule::load()?;
    world.start_daemons(Policy::default())?;
    let mut stream = Stream::start(ulp, world.hosts())?;
    let mut pulls = Vec::new();
    let mut timeout = AckTimeout::Default;
    for _ in 0..repetitions {
        let pairs = wait_until_it_is(|| stream.wait_armed(world), is_modules)?;
        timeout = AckTimeout::Found(pairs[0].end(Host::A).primary.ack_timeout);
        let port = pairs[0].active_port(Host::A);
        pulls.push(world.pull(port)?);
        stream::wait_moved(world, &pairs, port)?;
        world.plug(port)?;
    }
    stream.wait_armed(world)?;
    stream.ensure_running()?;
    // An operation is told of when it ends, which is before the next pull.
    let ends = pulls.iter().skip(1).copied().chain([Moment::now()]);
    let worst = |(pulled, end): (&Moment, Moment)| {
        let worst = Millis(stream.worst_between(*pulled, end) as f64);
        worst.max(SHORTEST)
    };
    let stalls = pulls.iter().zip(ends).map(worst).collect();
    stream.finish()?;
    world.stop_daemons()?;
    module.unload()?;
    Ok((timeout, stalls))
}
