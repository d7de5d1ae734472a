// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that goes and comes a hundred times is left once, and nothing is lost.

use std::thread;
use std::time::Duration;

use crate::clock::Moment;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::port::Port;
use crate::stream::{Options, Streams};
use crate::world::{Kind, World};

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "flap-storm",
    about: "a port goes and comes 100 times: its connection leaves it once and loses nothing",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// So often the cable is pulled and plugged; in the short form only so often.
const FLAPS: usize = 100;
const FEW_FLAPS: usize = 20;

/// How long it is out, and in: the subnet manager has the port active in some of these.
const OUT: Duration = Duration::from_millis(20);
const IN: Duration = Duration::from_millis(80);

/// What an operator's log may have of a flap: down, settling, and as much for all else.
const LINES: usize = 4;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    // First where the connection is, then where its alternate is.
    for (side, moves) in [(Side::Primary, 1), (Side::Alternate, 0)] {
        storm(context, side, moves)?;
        streams.ensure_healthy()?;
    }
    streams.finish(&context.timeline, context.report)?;
    Ok(())
}

/// Which of the connection's two ports flaps.
#[derive(Clone, Copy)]
enum Side {
    Primary,
    Alternate,
}

fn storm(context: &mut Context<'_>, side: Side, moves: usize) -> Result<(), Failure> {
    let pairs = context.world.wait_disjoint(1)?;
    let active = pairs[0].active_port(Host::A);
    let (port, name) = match side {
        Side::Primary => (active, "primary"),
        Side::Alternate => (active.other(), "alternate"),
    };
    let began = Moment::now();
    let flaps = match context.options.short {
        true => FEW_FLAPS,
        false => FLAPS,
    };
    let seen_active = flap(context.world, port, flaps)?;
    context.world.plug(port)?;
    let pairs = context.world.wait_disjoint(1)?;
    let told = context.world.told_since(Host::A, began);
    let moved = told
        .iter()
        .filter(|line| line.text.contains("migrated"))
        .count();
    context.report.migrations += moved as u64;
    context.report.rearmed += 1;
    let text = format!(
        "{flaps} flaps of the {name} port {port}, active in {seen_active}: moved {moved} times, {} lines in \
         the log, and on {} afterwards",
        told.len(),
        pairs[0].active_port(Host::A)
    );
    context.timeline.note("drill", text.clone());
    ensure(seen_active > 0, || format!("{text}: no storm"))?;
    ensure(moved == moves, || format!("{text}: {moves} expected"))?;
    ensure(told.len() <= LINES * flaps, || {
        format!("{text}: more than {LINES} lines a flap")
    })
}

/// In how many flaps the port became active.
fn flap(world: &World, port: Port, flaps: usize) -> Result<usize, Failure> {
    let mut active = 0;
    for _ in 0..flaps {
        world.pull(port)?;
        thread::sleep(OUT);
        world.restore(port.into())?;
        thread::sleep(IN);
        active += usize::from(port.is_active()?);
    }
    Ok(active)
}
