// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links stay up and nothing passes: no port event tells anybody, and it takes the hardware's retries
//! half a second to run out, or 17 s with the ACK timeout that rdma_cm gives.

use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::link::Link;
use crate::observe::Pair;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::{Kind, World};

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "blackhole",
    about: "links stay up, nothing passes: probes tell, and the daemons order the migration",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Holes in a run.
const HOLES: u64 = 3;

/// Bound for the logs to say what the daemons show.
const LIMIT: Duration = Duration::from_secs(10);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    // 0 leaves rdma_cm's, 19: long before hardware gives up, the daemons have to. With 14 whoever is
    // first does.
    for (ack_timeout, port) in [(0, 7480), (14, 7481)] {
        let options = Options {
            ack_timeout,
            port,
            ..Options::default()
        };
        let (timeout, worst) = holes(context, options)?;
        let report = &mut *context.report;
        report.set(
            &format!("left_ms_at_timeout_{timeout}"),
            worst.left.0 as u64,
        );
        report.set(
            &format!("stall_ms_at_timeout_{timeout}"),
            worst.stall.0 as u64,
        );
        report.set(
            &format!("rearmed_ms_at_timeout_{timeout}"),
            worst.rearmed.0 as u64,
        );
    }
    Ok(())
}

/// What a black hole cost.
#[derive(Clone, Copy)]
struct Cost {
    /// Until both ends had left it, by their daemons' logs.
    left: Millis,
    /// How long the program stood still. What was sent into the hole is sent again one ACK timeout later,
    /// whoever had the connection migrate.
    stall: Millis,
    /// Until both ends were armed again, over ports that work, by the same.
    rearmed: Millis,
}

/// Black holes under a connection, one after the other. Its ACK timeout, and the most that they cost.
fn holes(context: &mut Context<'_>, options: Options) -> Result<(u8, Cost), Failure> {
    let mut streams = Streams::start(&context.timeline, options)?;
    let pairs = context.world.wait_disjoint(1)?;
    // The library leaves rdma_cm's where the peer's daemon does not say within 20 ms that it is there, as
    // on a machine with much to do.
    let timeout = pairs[0].end(Host::A).primary.ack_timeout;
    ensure(timeout == 19 || timeout == options.ack_timeout, || {
        format!("ACK timeout {timeout}, want 19 or {}", options.ack_timeout)
    })?;
    let before = by_order(&pairs);

    // The connection begins on rail A, so that the switch's turn comes while it is on rail B: the
    // subnet manager is on rail A and has no part in this.
    let (first, _) = one_hole(context, &mut streams, |pair| {
        pair.active_port(Host::A).into()
    })?;
    let (second, _) = one_hole(context, &mut streams, |pair| {
        Link::Switch(pair.active_port(Host::A).number - 1)
    })?;
    let (third, pairs) = one_hole(context, &mut streams, |pair| {
        pair.active_port(Host::B).into()
    })?;

    let ordered = by_order(&pairs) - before;
    let all = [first, second, third];
    let most = |of: fn(&Cost) -> Millis| all.iter().map(of).fold(Millis::default(), Millis::max);
    let worst = Cost {
        left: most(|cost| cost.left),
        stall: most(|cost| cost.stall),
        rearmed: most(|cost| cost.rearmed),
    };
    let Cost {
        left,
        stall,
        rearmed,
    } = worst;
    let text = format!(
        "left within {left}, stood still for {stall}, armed again after {rearmed}; {ordered} by order"
    );
    context.timeline.note("drill", text);
    if timeout == 19 {
        ensure(ordered >= HOLES, || {
            format!("of {HOLES} black holes, {ordered} were left by order")
        })?;
    }
    streams.finish(&context.timeline, context.report)?;
    Ok((timeout, worst))
}

/// Makes a black hole under the connection, waits until it has left it and is armed again, and
/// heals it.
fn one_hole(
    context: &mut Context<'_>,
    streams: &mut Streams,
    link: impl Fn(&Pair) -> Link,
) -> Result<(Cost, Vec<Pair>), Failure> {
    let world = &mut *context.world;
    let pairs = world.wait_disjoint(1)?;
    let port = pairs[0].active_port(Host::A);
    let link = link(&pairs[0]);
    let made: Moment = world.blackhole(link)?;
    world.wait_moved(1, port)?;
    let left = until_logged(world, made, "migrated ")?;
    context.report.migrations += 1;
    streams.wait_flowing()?;
    let stall = streams.stall_of_pull(made)?;
    let mut rearmed = Millis::default();
    if let Link::Port(_) = link {
        // Three of the four ports still work.
        world.wait_armed(1)?;
        rearmed = until_logged(world, made, r#""to":"armed""#)?;
    }
    world.heal(link)?;
    let pairs = world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    streams.ensure_healthy()?;
    let stall = stall.map_or(Millis::default(), |stall| stall.length);
    let cost = Cost {
        left,
        stall,
        rearmed,
    };
    Ok((cost, pairs))
}

/// How long it took until the logs of both daemons said this.
fn until_logged(world: &World, made: Moment, what: &str) -> Result<Millis, Failure> {
    let said = |host| {
        let log = world.log(host);
        let mut later = log.iter().filter(|line| line.at >= made);
        let line = later.find(|line| line.text.contains(what))?;
        Some(Millis::from(line.at.since(made)))
    };
    wait::until(&format!("both logs say {what}"), LIMIT, || {
        let [a, b] = Host::ALL.map(said);
        Ok(match a.zip(b) {
            Some((a, b)) => Seen::Ready(a.max(b)),
            None => Seen::NotYet(format!("after {a:?} and {b:?}")),
        })
    })
}

/// Migrations of either end that a daemon ordered.
fn by_order(pairs: &[Pair]) -> u64 {
    let ends = pairs.iter().flat_map(|pair| &pair.ends);
    ends.map(|end| end.counters.ordered_migrations).sum()
}
