// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links stay up and nothing passes: no port event tells anybody, and the hardware's retries run
//! out.

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::link::Link;
use crate::observe::Pair;
use crate::stream::{Options, Streams};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "blackhole",
    about: "links stay up, nothing passes: hardware migrates, the daemons re-arm",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Made one after the other.
const HOLES: u64 = 3;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    let pairs = context.world.wait_disjoint(1)?;
    let before = by_hardware(&pairs);

    // The connection begins on rail A, so that the switch's turn comes while it is on rail B: the
    // subnet manager is on rail A and has no part in this.
    one_hole(context, &mut streams, |pair| {
        pair.active_port(Host::A).into()
    })?;
    one_hole(context, &mut streams, |pair| {
        Link::Switch(pair.active_port(Host::A).number - 1)
    })?;
    let pairs = one_hole(context, &mut streams, |pair| {
        pair.active_port(Host::B).into()
    })?;

    // Nothing but an HCA's retries notices a black hole; the other end may follow by order.
    let left = by_hardware(&pairs) - before;
    ensure(left >= HOLES, || {
        format!("of {HOLES} black holes, {left} were left by hardware: a daemon ordered the others")
    })?;
    context.finish(streams)
}

/// Makes a black hole under the connection, waits until it has left it and is armed again, and
/// heals it.
fn one_hole(
    context: &mut Context<'_>,
    streams: &mut Streams,
    link: impl Fn(&Pair) -> Link,
) -> Result<Vec<Pair>, Failure> {
    let world = &mut *context.world;
    let pairs = world.wait_disjoint(1)?;
    let port = pairs[0].active_port(Host::A);
    let link = link(&pairs[0]);
    world.blackhole(link)?;
    world.wait_moved(1, port)?;
    context.report.migrations += 1;
    streams.wait_flowing()?;
    if let Link::Port(_) = link {
        // Three of the four ports still work.
        world.wait_armed(1)?;
    }
    world.heal(link)?;
    let pairs = world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    streams.ensure_healthy()?;
    Ok(pairs)
}

/// Migrations of either end that no daemon ordered.
fn by_hardware(pairs: &[Pair]) -> u64 {
    pairs
        .iter()
        .flat_map(|pair| &pair.ends)
        .map(|end| end.counters.migrations - end.counters.ordered_migrations)
        .sum()
}
