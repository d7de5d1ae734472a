// SPDX-License-Identifier: MIT OR Apache-2.0
//! A busy connection of apm_stream's whose local cable is pulled.

use super::ack_timeout::AckTimeout;
use crate::clock::{Millis, Moment};
use crate::failure::Failure;
use crate::host::Host;
use crate::narration::Narration;
use crate::observe::{Connection, Pair};
use crate::report::Report;
use crate::stream::{Armed, Options, Stall, Streams};
use crate::timeline::Timeline;
use crate::wait::{self, Seen};
use crate::world::{self, World};

/// A stall that is shorter is not noted by the programs: it counts as this.
pub(super) const SHORTEST: Millis = Millis(20.0);

/// One connection whose local cable is pulled again and again, each time once it is armed and is what the row
/// says.
pub(super) fn protected(
    world: &World,
    options: Options,
    repetitions: u32,
    is_it: impl Fn(&Connection) -> Result<(), Failure>,
) -> Result<Vec<Millis>, Failure> {
    let timeline = Timeline::new(Narration::SILENT);
    let mut streams = Streams::start(&timeline, options)?;
    let mut stalls = Vec::new();
    for _ in 0..repetitions {
        let pairs = wait_until_it_is(|| world.wait_disjoint(1), &is_it)?;
        let port = pairs[0].active_port(Host::A);
        let pulled = world.pull(port)?;
        world.wait_moved(1, port)?;
        streams.wait_flowing()?;
        stalls.push(length(streams.longest_stall(pulled, Moment::now())));
        world.plug(port)?;
    }
    streams.finish(&timeline, &mut Report::default())?;
    Ok(stalls)
}

/// Waits for armed connections, and until the first is what the row says: one that has just been armed again may have
/// its standing order a moment later, when its alternate is verified.
pub(super) fn wait_until_it_is(
    armed: impl Fn() -> Result<Vec<Pair>, Failure>,
    is_it: impl Fn(&Connection) -> Result<(), Failure>,
) -> Result<Vec<Pair>, Failure> {
    wait::until("armed as the row says", world::LIMIT, || {
        let pairs = armed()?;
        Ok(match is_it(pairs[0].end(Host::A)) {
            Ok(()) => Seen::Ready(pairs),
            Err(other) => Seen::NotYet(other.to_string()),
        })
    })
}

/// A new connection each time: nobody arms it again.
pub(super) fn by_hand(
    world: &World,
    timeout: AckTimeout,
    repetitions: u32,
) -> Result<Vec<Millis>, Failure> {
    (0..repetitions).map(|_| once(world, timeout)).collect()
}

fn once(world: &World, timeout: AckTimeout) -> Result<Millis, Failure> {
    let options = Options {
        ack_timeout: timeout.option(),
        armed: Armed::ByHand,
        ..Options::default()
    };
    let timeline = Timeline::new(Narration::SILENT);
    let mut streams = Streams::start(&timeline, options)?;
    let port = Host::A.port(1);
    let pulled = world.pull(port)?;
    streams.wait_flowing()?;
    let stall = length(streams.longest_stall(pulled, Moment::now()));
    world.plug(port)?;
    streams.finish(&timeline, &mut Report::default())?;
    Ok(stall)
}

fn length(stall: Option<Stall>) -> Millis {
    stall.map_or(SHORTEST, |stall| stall.length)
}
