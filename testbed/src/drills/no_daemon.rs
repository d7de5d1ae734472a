// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons that are absent, late, killed and restarted; the program never suffers.

use std::thread;
use std::time::Duration;

use statemachine::PortDown;

use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "no-daemon",
    about: "daemons absent, late, killed -9, on one host only: programs never suffer",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Bound for a daemon to show a connection.
const LIMIT: Duration = Duration::from_secs(60);

/// How long after a pull a daemon is killed: while it orders, negotiates, loads, waits for traffic.
const DELAYS_MS: [u64; 6] = [0, 20, 60, 150, 300, 600];

/// Those of the short form.
const FEW_DELAYS_MS: [u64; 4] = [0, 20, 150, 600];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    daemons_come_late(context)?;
    daemons_are_killed(context)?;
    standing_orders_outlive_daemons(context)?;
    timeouts_want_both_daemons(context)
}

/// The ACK timeout that the library gives a connection whose peer's daemon answers.
const LOWERED: u8 = 14;

/// Programs that are started until both ends of one have the lowered timeout: an answer that comes
/// later than 20 ms counts for the next program only, and a VM may be as slow as that.
const PROGRAMS: u32 = 8;

/// A connection keeps its own ACK timeout while the peer has no daemon, whose alternate would let it
/// end early; with daemons on both hosts it gets the lower one on both ends.
fn timeouts_want_both_daemons(context: &mut Context<'_>) -> Result<(), Failure> {
    for host in Host::ALL {
        context.world.kill_daemon(host)?;
    }
    context.world.start_daemon(Host::A, Policy::default())?;
    let streams = Streams::start(&context.timeline, Options::default())?;
    let own = wait::until("the daemon on a shows the connection", LIMIT, || {
        let shown = observe::connections(Host::A)?;
        Ok(match shown.first() {
            Some(end) => Seen::Ready(end.primary.ack_timeout),
            None => Seen::NotYet("no connection".to_owned()),
        })
    })?;
    context.finish(streams)?;
    ensure(own > LOWERED, || {
        format!("the ACK timeout is {own} though host b has no daemon")
    })?;
    context.world.start_daemon(Host::B, Policy::default())?;
    let mut seen = Vec::new();
    for _ in 0..PROGRAMS {
        let streams = Streams::start(&context.timeline, Options::default())?;
        let pairs = context.world.wait_armed(1)?;
        let timeouts = Host::ALL.map(|host| pairs[0].end(host).primary.ack_timeout);
        context.finish(streams)?;
        context.timeline.note(
            "drill",
            format!("ACK timeouts {timeouts:?}; with one daemon {own}"),
        );
        if timeouts == [LOWERED; 2] {
            return Ok(());
        }
        seen.push(timeouts);
    }
    Err(Failure::not_shown(format!(
        "both hosts have a daemon, and the ACK timeouts are {seen:?}"
    )))
}

/// A connection that was made before there was a daemon is armed when daemons come, and survives a
/// pulled cable.
fn daemons_come_late(context: &mut Context<'_>) -> Result<(), Failure> {
    context.timeline.note("drill", "no daemon on either host");
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    streams.wait_flowing()?;
    // One that is alone can protect nothing, and tells its operator what to do.
    context.world.start_daemon(Host::A, Policy::default())?;
    let alone = [
        "WARN",
        "connection unprotected for 5 s",
        "start apmd on the peer's host",
    ];
    context.world.wait_logged(Host::A, &alone)?;
    context.world.start_daemon(Host::B, Policy::default())?;
    let port = context.world.wait_disjoint(1)?[0].active_port(Host::A);
    context
        .world
        .wait_logged(Host::A, &["INFO", "connection protected again"])?;
    context.world.pull(port)?;
    context.world.wait_moved(1, port)?;
    context.report.migrations += 1;
    context.world.plug(port)?;
    context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    context.finish(streams)
}

/// A connection goes on whenever daemons are killed, and is armed again when they are restarted.
fn daemons_are_killed(context: &mut Context<'_>) -> Result<(), Failure> {
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    context.world.wait_disjoint(1)?;
    pull_without_daemons(context, &mut streams)?;
    let delays: &[u64] = match context.options.short {
        true => &FEW_DELAYS_MS,
        false => &DELAYS_MS,
    };
    for (turn, delay) in delays.iter().enumerate() {
        let host = Host::ALL[turn % 2];
        kill_while_rearming(context, &mut streams, host, Duration::from_millis(*delay))?;
    }
    context.finish(streams)
}

/// What the library says when it migrates by itself.
const BY_ITSELF: &str = "migrated by standing order";

/// Daemons are killed, then a cable is pulled. With standing orders the library moves the connection;
/// without them, hardware does when its retries are used up. That the first is no worse than the
/// second can be said by the library only: how long things take here is the machine's doing, too.
fn standing_orders_outlive_daemons(context: &mut Context<'_>) -> Result<(), Failure> {
    let options = Options {
        told_of: true,
        ..Options::default()
    };
    let mut streams = Streams::start(&context.timeline, options)?;
    let by_library = pull_after_kill(context, &mut streams, true)?;
    context.world.stop_daemons()?;
    context.world.start_daemons(Policy {
        port_down: PortDown::Wait,
        ..Policy::default()
    })?;
    let by_hardware = pull_after_kill(context, &mut streams, false)?;
    let text = format!(
        "without daemons a pulled local cable stops the program for {by_library} with a standing \
         order, for {by_hardware} without"
    );
    context.timeline.note("drill", text);
    let report = &mut context.report;
    report.set("standing_order_stall_ms", by_library.rounded());
    report.set("no_standing_order_stall_ms", by_hardware.rounded());
    context.finish(streams)
}

/// Kills both daemons once the active end's library is told whether it may migrate by itself, pulls
/// the cable there, and sees that it was the library who left it, or was not. Returns how long the
/// program stood still.
fn pull_after_kill(
    context: &mut Context<'_>,
    streams: &mut Streams,
    standing: bool,
) -> Result<Millis, Failure> {
    let world = &mut *context.world;
    world.wait_disjoint(1)?;
    let what = format!("standing orders: {standing}");
    let pairs = world.wait_for(&what, 1, |pair| {
        pair.is_disjoint()
            && Host::ALL
                .iter()
                .all(|&host| pair.end(host).standing_order == standing)
    })?;
    let port = pairs[0].active_port(Host::A);
    for host in Host::ALL {
        world.kill_daemon(host)?;
    }
    streams.wait_flowing()?;
    let pulled = world.pull(port)?;
    if standing {
        streams.wait_library_says(BY_ITSELF, pulled)?;
    }
    streams.wait_flowing()?;
    let stall = streams.longest_stall(pulled, Moment::now());
    let stall = stall.map_or(Millis::default(), |stall| stall.length);
    ensure(streams.library_said(BY_ITSELF, pulled) == standing, || {
        "the library migrated by itself though it may not".to_owned()
    })?;
    world.start_daemons(Policy::default())?;
    world.wait_moved(1, port)?;
    context.report.migrations += 1;
    world.plug(port)?;
    world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    Ok(stall)
}

/// Both daemons are killed; the connection stays armed, and moves when a cable is pulled. Restarted
/// daemons arm it again.
fn pull_without_daemons(context: &mut Context<'_>, streams: &mut Streams) -> Result<(), Failure> {
    let world = &mut *context.world;
    let port = world.wait_disjoint(1)?[0].active_port(Host::A);
    for host in Host::ALL {
        world.kill_daemon(host)?;
    }
    streams.wait_flowing()?;
    world.pull(port)?;
    streams.wait_flowing()?;
    world.start_daemons(Policy::default())?;
    let pairs = world.wait_armed(1)?;
    ensure(pairs[0].active_port(Host::A) != port, || {
        format!("the connection is on {port}, whose cable is pulled")
    })?;
    context.report.migrations += 1;
    context.report.rearmed += 1;
    world.plug(port)?;
    world.wait_disjoint(1)?;
    Ok(())
}

/// A cable is pulled and, a moment later, the daemon next to it killed; restarted, it arms the
/// connection again.
fn kill_while_rearming(
    context: &mut Context<'_>,
    streams: &mut Streams,
    host: Host,
    delay: Duration,
) -> Result<(), Failure> {
    let world = &mut *context.world;
    let port = world.wait_disjoint(1)?[0].active_port(host);
    world.pull(port)?;
    thread::sleep(delay);
    world.kill_daemon(host)?;
    streams.wait_flowing()?;
    world.start_daemon(host, Policy::default())?;
    world.wait_moved(1, port)?;
    context.report.migrations += 1;
    world.plug(port)?;
    world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    streams.ensure_healthy()
}
