// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crowds at the libraries' socket: clients that say nothing, and such that do not listen.

use std::thread;
use std::time::Duration;

use super::Context;
use super::attacker::{self, Attacker, SOCKET};
use super::scene::Scene;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::memory;
use crate::stream::{Options, Streams};

/// Users that crowd together.
const USERS: u32 = 4;

/// How many connections each tries to have: together all descriptors that the unit gives apmd.
const SILENT: u32 = 4096;
const DEAF: u32 = 125;

/// How long a crowd is let grow.
const TIME: Duration = Duration::from_secs(10);

/// By how much the daemon may grow because 500 clients do not read.
const GROWTH_KIB: u64 = 16 << 10;

/// Clients that register and do not read the answers cost the daemon little memory.
pub(super) fn deaf(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let before = resident_kib(context)?;
    let attackers = crowd("deaf", DEAF, &[])?;
    thread::sleep(TIME);
    let (held, sent) = (
        attacker::sum(&attackers, "held"),
        attacker::sum(&attackers, "sent"),
    );
    let growth = resident_kib(context)?.saturating_sub(before);
    context.report.set("deaf_messages", sent);
    context.report.set("deaf_rss_growth_kib", growth);
    let text = format!("{held} clients that do not read have sent {sent}: {growth} KiB more");
    context.timeline.note("drill", text.clone());
    ensure(growth <= GROWTH_KIB, || text)?;
    scene.rearm(context).map(drop)
}

/// Clients that say nothing do not lock out operators and programs.
pub(super) fn silent(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let mut attackers = crowd("silent", SILENT, &[])?;
    attackers.extend(crowd("silent", SILENT, &["--hello"])?);
    thread::sleep(TIME);
    let held = attacker::sum(&attackers, "held");
    context.report.set("silent_held", held);
    let text = format!("silent clients hold {held} connections");
    context.timeline.note("drill", text);
    command::run_as(Host::A, &["apmctl", "conn", "show"])?;
    context.timeline.note("drill", "apmctl is answered");
    let options = Options {
        port: 7482,
        ..Options::default()
    };
    let streams = Streams::start(&context.timeline, options)?;
    context.world.wait_disjoint(2)?;
    context.finish(streams)?;
    context.world.wait_disjoint(1)?;
    scene.rearm(context).map(drop)
}

fn crowd(how: &str, count: u32, more: &[&str]) -> Result<Vec<Attacker>, Failure> {
    let count = count.to_string();
    let words = [&["apm-abuse", how, SOCKET, &count], more].concat();
    let start = |number| Attacker::start(number, &words);
    let mut attackers = (0..USERS).map(start).collect::<Result<Vec<_>, _>>()?;
    for attacker in &mut attackers {
        attacker.wait_for(&["STATS"])?;
    }
    Ok(attackers)
}

/// Memory of host A's daemon.
fn resident_kib(context: &Context<'_>) -> Result<u64, Failure> {
    let (pid, _) = context.world.rights(Host::A)?;
    memory::resident_kib(pid)
}
