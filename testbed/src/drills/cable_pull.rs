// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cables are pulled under a connection; the program does not notice.

use statemachine::PortDown;

use crate::clock::Millis;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::stream::{Options, Stall, Streams};
use crate::witness::Witnesses;
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "cable-pull",
    about: "20 pulled cables, both ports of both hosts: not one message lost or repeated",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Unless the command line says another number; in the short form, each port of each host twice.
const ROUNDS: u32 = 20;
const SHORT_ROUNDS: u32 = 8;

/// Rounds more, for those in which the machine itself stood still.
const SPARE_ROUNDS: u32 = 20;

/// A round is repeated if a processor of the VM stood still for this fraction of the stall: the
/// chain of daemon, library and both programs is then slowed down at each of its links.
const EXCUSE: f64 = 0.25;

/// Rounds with a shorter stall are not worth repeating.
const SHORT: Millis = Millis(100.0);

/// A pulled local cable may cost at most this fraction of what the hardware's retries cost: in
/// most rounds, and in the worst one, which on an emulated machine is mostly the machine's doing.
const FRACTION: f64 = 0.25;
const WORST_FRACTION: f64 = 0.5;

/// How long the program stood still for pulled local cables.
#[derive(Clone, Copy)]
struct Stalls {
    median: Millis,
    longest: Millis,
}

impl Stalls {
    /// Of all rounds; one without a noticeable stall counts as zero.
    fn of(mut rounds: Vec<Millis>) -> Self {
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            median: rounds.get(rounds.len() / 2).copied().unwrap_or_default(),
            longest: rounds.last().copied().unwrap_or_default(),
        }
    }
}

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    context.world.wait_disjoint(1)?;

    let stalls = all_rounds(context, &mut streams)?;
    let exhaustion = without_migration(context, &mut streams)?;
    context.world.wait_disjoint(1)?;
    streams.finish(&context.timeline, context.report)?;
    context.report.stalled(stalls.longest);
    compare(context, stalls, exhaustion)
}

/// Pulls cables of both hosts and returns how long the program stood still for them.
fn all_rounds(context: &mut Context<'_>, streams: &mut Streams) -> Result<Stalls, Failure> {
    let witnesses = Witnesses::start();
    let mut stalls = Vec::new();
    let mut longest = Millis::default();
    let rounds = context
        .options
        .pulls
        .unwrap_or(match context.options.short {
            true => SHORT_ROUNDS,
            false => ROUNDS,
        });
    let (mut done, mut spare) = (0, SPARE_ROUNDS);
    while done < rounds {
        // Twice the one host, twice the other: so each port of each host has its turn.
        let host = if done / 2 % 2 == 0 { Host::A } else { Host::B };
        let stall = pull_and_plug(context, streams, host)?;
        done += 1;
        let Some(stall) = stall else {
            context.timeline.note(
                "drill",
                format!("round {done}: stood still for under 20 ms"),
            );
            stalls.push(Millis::default());
            continue;
        };
        let machine = witnesses.stood_still(stall.start, stall.end());
        let text = format!(
            "round {done}: stood still for {}, a processor of the VM for {machine} of these",
            stall.length
        );
        // Then what was measured is the emulator's host as much as the failover.
        let excused = machine.0 > stall.length.0 * EXCUSE && stall.length > longest.max(SHORT);
        if excused && spare > 0 {
            context.timeline.note("drill", format!("{text}: again"));
            done -= 1;
            spare -= 1;
            continue;
        }
        context.timeline.note("drill", text);
        stalls.push(stall.length);
        longest = longest.max(stall.length);
    }
    context.report.set("repeated_rounds", SPARE_ROUNDS - spare);
    Ok(Stalls::of(stalls))
}

/// Pulls the cable of the host's port that carries the connection, waits until the connection is
/// armed over what is left, plugs the cable, and waits until both rails are used again. Returns how
/// the program stood still, if that was noticeable.
fn pull_and_plug(
    context: &mut Context<'_>,
    streams: &mut Streams,
    host: Host,
) -> Result<Option<Stall>, Failure> {
    let world = &mut *context.world;
    let pairs = world.wait_disjoint(1)?;
    let port = pairs[0].active_port(host);
    let qpns = [Host::A, Host::B].map(|host| pairs[0].end(host).qpn);
    let pulled = world.pull(port)?;
    world.wait_moved(1, port)?;
    context.report.migrations += 1;
    world.wait_armed(1)?;
    context.report.rearmed += 1;
    world.plug(port)?;
    let pairs = world.wait_disjoint(1)?;
    streams.ensure_healthy()?;
    ensure(
        qpns == [Host::A, Host::B].map(|host| pairs[0].end(host).qpn),
        || "the connection's QP number changed".to_owned(),
    )?;
    streams.stall_of_pull(pulled)
}

/// One round in which the daemons leave migration to the hardware. Returns how long the program
/// stood still: what the exhaustion of its retries costs.
fn without_migration(context: &mut Context<'_>, streams: &mut Streams) -> Result<Millis, Failure> {
    context
        .timeline
        .note("drill", "one round without migration by the daemons");
    context.world.stop_daemons()?;
    context.world.start_daemons(Policy {
        port_down: PortDown::Wait,
        ..Policy::default()
    })?;
    let stall = pull_and_plug(context, streams, Host::A)?
        .ok_or_else(|| Failure::not_shown("the program did not stand still for a pulled cable"))?
        .length;
    context.timeline.note(
        "drill",
        format!("hardware retry exhaustion: stood still for {stall}"),
    );
    Ok(stall)
}

fn compare(context: &mut Context<'_>, stalls: Stalls, exhaustion: Millis) -> Result<(), Failure> {
    let Stalls { median, longest } = stalls;
    let report = &mut context.report;
    report.set("local_pull_stall_ms", longest.rounded());
    report.set("local_pull_median_stall_ms", median.rounded());
    report.set("retry_exhaustion_ms", exhaustion.rounded());
    let text = format!(
        "stall on a pulled local cable: longest {longest}, median {median}; hardware retry \
         exhaustion {exhaustion}"
    );
    context.timeline.note("drill", text.clone());
    let small = longest.0 <= exhaustion.0 * WORST_FRACTION && median.0 <= exhaustion.0 * FRACTION;
    ensure(small, || format!("{text}: not a small fraction"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_summed_up() {
        let Stalls { median, longest } =
            Stalls::of([30.0, 0.0, 90.0, 20.0, 0.0].map(Millis).into());
        assert_eq!((median.0, longest.0), (20.0, 90.0));
    }
}
