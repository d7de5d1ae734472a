// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stock program's connection goes back to the port that an operator prefers, and loses nothing.

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::Pair;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::unmodified::{END, Running, armed_port, flows, measure, rstream, start};
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "policy",
    about: "apmctl conn set: a stock rstream goes back to its port, by either side's wish",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// The port that is preferred.
const HOME: u8 = 1;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let gids = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    let subject = rstream(&gids);
    // Twice what going there and back takes from either side.
    let count = measure(context, &subject)? / 2;
    let mut running = start(&subject, count, true)?;
    for host in [Host::A, Host::B] {
        there_and_back(context, &mut running, host)?;
    }
    let client = running.client.wait(END)?;
    let server = running.server.wait(END)?;
    ensure(client.success() && server.success(), || {
        format!("rstream: client {client}, server {server}: data were lost or altered")
    })?;
    context.report.connections += 1;
    Ok(())
}

/// The host prefers the port; its cable is pulled, and plugged again; the connection is back by
/// itself. Then the host prefers nothing, so that the other one may.
fn there_and_back(
    context: &mut Context<'_>,
    running: &mut Running,
    host: Host,
) -> Result<(), Failure> {
    let home = host.port(HOME);
    let ended = || Failure::not_shown("rstream ended before its connection was back".to_owned());
    armed_port(context, running)?.ok_or_else(ended)?;
    set(context, host, "failback prefer 1 hold-down 2")?;
    back(context, running, host)?;
    context.world.pull(home)?;
    context.world.wait_moved(1, home)?;
    context.report.migrations += 1;
    ensure(flows(home.other(), running)?, || {
        "rstream ended while its cable was pulled".to_owned()
    })?;
    context.world.plug(home)?;
    back(context, running, host)?;
    context.report.rearmed += 1;
    ensure(flows(home, running)?, || {
        "rstream ended before it was seen to be back".to_owned()
    })?;
    set(context, host, "failback stay")
}

/// What an operator of the host says of its one connection.
fn set(context: &mut Context<'_>, host: Host, policy: &str) -> Result<(), Failure> {
    let pairs = context.world.wait_for("one connection", 1, |_| true)?;
    let id = pairs[0].end(host).id.clone();
    let mut words = vec!["apmctl", "conn", "set", &id];
    words.extend(policy.split(' '));
    let said = command::run_as(host, &words)?;
    context.timeline.note("drill", said.trim_end().to_owned());
    ensure(
        said.contains(policy.split(" hold").next().unwrap_or(policy)),
        || format!("{policy} was set, and what is shown is {said}"),
    )
}

/// Waits until the connection is on its port, and armed.
fn back(context: &mut Context<'_>, running: &mut Running, host: Host) -> Result<(), Failure> {
    let home = host.port(HOME);
    wait::until(&format!("back on {home} and armed"), END, || {
        ensure(running.client.ended()?.is_none(), || {
            "rstream ended before its connection was back".to_owned()
        })?;
        let pairs = context.world.pairs()?;
        Ok(match pairs.as_slice() {
            [pair] if pair.active_port(host) == home && Pair::is_armed(pair) => Seen::Ready(()),
            [pair] => Seen::NotYet(format!("{}, {}", pair.paths(), pair.state())),
            _ => Seen::NotYet(format!("{} connections on both hosts", pairs.len())),
        })
    })?;
    let text = format!("on {home} and armed");
    context.timeline.note("drill", text);
    Ok(())
}
