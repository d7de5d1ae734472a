// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a stream, one thing after the other, and what each costs.

use std::thread;
use std::time::Duration;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_ulp::Ulp;
use crate::kernel_ulp::stream::{self, Stream};
use crate::link::Link;
use crate::observe::Pair;
use crate::report::Report;

use super::super::{Context, spine};

/// How long the plain run's cable is out, and how long it is looked at afterwards.
const OUT: Duration = Duration::from_secs(30);

/// What a fault is given to show itself where no daemon tells.
const SHOWS: Duration = Duration::from_secs(3);

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The cable of the client's port that it uses.
    Local,
    /// The same at the target.
    Peer,
    /// The client's port is up, and nothing passes.
    BlackHole,
    /// Both daemons are killed, then the client's cable goes; then the daemons come again.
    NoDaemon,
}

impl Fault {
    /// Local comes twice: once for each port.
    const ALL: [Self; 5] = [
        Self::Local,
        Self::Local,
        Self::Peer,
        Self::BlackHole,
        Self::NoDaemon,
    ];
    const SHORT: [Self; 2] = [Self::NoDaemon, Self::BlackHole];

    pub(super) fn of_run(short: bool) -> &'static [Self] {
        if short { &Self::SHORT } else { &Self::ALL }
    }

    /// The longest that an operation may take, where the drill is no short one: what was lost with the port
    /// is sent again after an ACK timeout or two, and a black hole is left by order when probes tell. Without
    /// daemons nobody tells the peer; if it is the one who sends, it leaves when its retries are used up, some
    /// 0.6 s at ACK timeout 14.
    fn goal_ms(self) -> Option<u64> {
        match self {
            Self::Local => Some(300),
            Self::BlackHole | Self::NoDaemon => Some(1000),
            Self::Peer => None,
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Local => "worst_ms_local_cable",
            Self::Peer => "worst_ms_peer_cable",
            Self::BlackHole => "worst_ms_black_hole",
            Self::NoDaemon => "worst_ms_no_daemon",
        }
    }
}

/// One fault and its end: the stream goes on, on another port, and is armed again.
pub(super) fn protected(
    context: &mut Context<'_>,
    stream: &mut Stream,
    fault: Fault,
) -> Result<(), Failure> {
    let world = &mut *context.world;
    let pairs = stream.wait_armed(world)?;
    let host = world.hosts()[usize::from(fault == Fault::Peer)];
    let port = pairs[0].active_port(host);
    if fault == Fault::NoDaemon {
        for host in Host::ALL {
            world.kill_daemon(host)?;
        }
    }
    let since = if fault == Fault::BlackHole {
        world.blackhole(port)?
    } else {
        world.pull(port)?
    };
    if fault == Fault::NoDaemon {
        thread::sleep(SHOWS);
        stream.ensure_running()?;
        world.start_daemons(Policy::NORMAL)?;
    }
    stream::wait_moved(world, &pairs, port)?;
    stream.ensure_running()?;
    if fault == Fault::BlackHole {
        world.heal(port)?;
    } else {
        world.plug(port)?;
    }
    stream.wait_armed(world)?;
    stream.ensure_running()?;
    let worst = stream.worst_since(since);
    let report = &mut *context.report;
    report.migrations += pairs.len() as u64;
    report.rearmed += stream.ulp().busy as u64;
    let before = worst_ms(report, fault);
    report.set(fault.key(), worst.max(before.unwrap_or(0)));
    context
        .timeline
        .note("drill", format!("{fault:?}: worst operation {worst} ms"));
    Ok(())
}

/// Whether the goals of all faults that there were are met.
pub(super) fn judge(report: &Report) -> Result<(), Failure> {
    let judged = [Fault::Local, Fault::NoDaemon, Fault::BlackHole];
    let missed = judged.into_iter().filter_map(|fault| {
        let (goal, worst) = (fault.goal_ms()?, worst_ms(report, fault)?);
        let key = fault.key();
        (worst > goal).then(|| format!("{key} is {worst}, and the goal is {goal}"))
    });
    let missed: Vec<_> = missed.collect();
    ensure(missed.is_empty(), || missed.join("; "))
}

fn worst_ms(report: &Report, fault: Fault) -> Option<u64> {
    let worst = report.more.get(fault.key())?;
    worst.as_u64()
}

/// A spine swallows everything while nobody reroutes the fabric; both hosts have one port.
pub(super) fn spine(context: &mut Context<'_>, stream: &mut Stream) -> Result<(), Failure> {
    let world = &mut *context.world;
    let pairs = stream.wait_for(world, Pair::shares_nothing)?;
    let primary = &pairs[0].ends[0].primary;
    let lost = spine::one_spine(&spine::both_ways(primary)?)?;
    world.stop_subnet_manager()?;
    let since = world.blackhole(lost)?;
    let has_left = |pair: &Pair| pair.ends[0].primary.dlid != primary.dlid && pair.is_on_one_path();
    stream::wait_left(
        world,
        &pairs[..1],
        &format!("moved away from {lost}"),
        has_left,
    )?;
    stream.ensure_running()?;
    world.heal(lost)?;
    world.start_subnet_manager()?;
    stream.wait_for(world, Pair::shares_nothing)?;
    let worst = stream.worst_since(since);
    context.report.migrations += 1;
    context.report.rearmed += 1;
    let name = stream.ulp().name;
    context.report.set(&format!("worst_ms_{name}"), worst);
    context.timeline.note(
        "drill",
        format!("{name}, {lost}: worst operation {worst} ms"),
    );
    Ok(())
}

/// The same consumer with nothing that protects it: what a cable costs. Nothing is asked of it.
pub(super) fn plain(context: &mut Context<'_>, ulp: &'static Ulp) -> Result<(), Failure> {
    let mut stream = Stream::start(ulp, context.world.hosts())?;
    thread::sleep(SHOWS);
    stream.ensure_running()?;
    let port = context.world.hosts()[0].port(1);
    let since = context.world.pull(Link::Port(port))?;
    thread::sleep(OUT);
    context.world.plug(port)?;
    thread::sleep(OUT * 2);
    let text = match stream.ensure_running() {
        Ok(()) => {
            let worst = stream.worst_since(since);
            context.report.set("plain_worst_ms", worst);
            format!(
                "plain: worst operation {worst} ms, cable out for {} s",
                OUT.as_secs()
            )
        }
        Err(failure) => {
            context.report.set("plain_worst_ms", "lost");
            format!("plain: lost: {failure}")
        }
    };
    context.timeline.note("drill", text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missed_goal_is_named() {
        let mut report = Report::default();
        assert_eq!(judge(&report).map_err(|why| why.to_string()), Ok(()));
        report.set(Fault::Local.key(), 300);
        report.set(Fault::Peer.key(), 9000);
        assert_eq!(judge(&report).map_err(|why| why.to_string()), Ok(()));
        report.set(Fault::NoDaemon.key(), 1001);
        report.set(Fault::BlackHole.key(), 1001);
        let why = judge(&report).map_err(|why| why.to_string());
        let expected = "worst_ms_no_daemon is 1001, and the goal is 1000; \
                        worst_ms_black_hole is 1001, and the goal is 1000";
        assert_eq!(why, Err(expected.to_owned()));
    }
}
