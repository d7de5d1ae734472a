// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subnet manager dies while daemons ask it for paths: the next one is asked at once.

use std::time::Duration;

use serde_json::Value;

use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::port::Port;
use crate::program::Line;
use crate::stream::{Options, Streams};
use crate::subnet_manager::{self, Standby};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "sm-failover",
    about: "the subnet manager dies while it is asked for paths: the next is asked at once",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Bound for the change back to the first subnet manager.
const LIMIT: Duration = Duration::from_secs(60);

/// The daemons read the fabric as well, and subscribe to reports.
const POLICY: Policy = Policy {
    sections: "[ssa]\nlive = true\n",
    ..Policy::NORMAL
};

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(POLICY)?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    let port = context.world.wait_disjoint(1)?[0].active_port(Host::A);
    let first = port.sm_lid()?;
    let mut standby = Standby::start(&context.timeline)?;
    let failed_over = fail_over(context, &mut standby, port);
    // The drills that come after this one want the VM's own subnet manager.
    subnet_manager::start(&context.timeline)?;
    failed_over?;
    hand_back(context, first, standby)?;
    streams.ensure_healthy()?;
    context.finish(streams)
}

/// The cable is pulled of a subnet without a manager: the daemons ask in vain for a way to arm
/// again, until the second one takes over. Requests that are under way then go to it at once.
fn fail_over(context: &mut Context<'_>, standby: &mut Standby, port: Port) -> Result<(), Failure> {
    let watched = port.other();
    let old = watched.sm_lid()?;
    let killed = subnet_manager::kill(&context.timeline)?;
    context.world.pull(port)?;
    context.report.migrations += 1;
    let master = standby.wait_master()?;
    context.world.wait_moved(1, port)?;
    context.world.wait_armed(1)?;
    context.report.rearmed += 1;
    ensure(watched.sm_lid()? != old, || {
        format!("the subnet manager of {watched} is still LID {old}")
    })?;
    let (changed, queries) = repeated(context).ok_or_else(|| {
        Failure::not_shown("no path query was under way when the subnet manager changed")
    })?;
    let armed = armed_after(context, changed).ok_or_else(|| {
        Failure::not_shown("no connection was armed after the subnet manager changed")
    })?;
    context.report.set("queries_repeated", queries);
    for (key, from, to) in [
        ("takeover_ms", killed, master),
        ("rearmed_after_sm_change_ms", changed, armed),
    ] {
        let duration = Millis::from(to.since(from));
        context.report.set(key, duration.rounded());
    }
    context.world.plug(port)?;
    context.world.wait_disjoint(1).map(drop)
}

/// The first subnet manager is back and, for it has the lesser GUID, the master again.
fn hand_back(context: &mut Context<'_>, first: u16, standby: Standby) -> Result<(), Failure> {
    wait::until("the first subnet manager is back", LIMIT, || {
        let lid = Host::A.port(1).sm_lid()?;
        Ok(Seen::when(lid == first, || format!("LID {lid}")))
    })?;
    standby.stop()?;
    context.world.wait_disjoint(1).map(drop)
}

/// When the daemon of host A, which asks for the paths, first repeated path queries because of
/// another subnet manager, and how many.
fn repeated(context: &Context<'_>) -> Option<(Moment, u64)> {
    let repeated = |(at, fields): (Moment, Value)| {
        let paths = fields["paths"].as_u64()?;
        let changed = fields["message"] == "subnet manager changed; requests repeated";
        (changed && paths > 0).then_some((at, paths))
    };
    log(context).into_iter().find_map(repeated)
}

/// When it next had a connection armed.
fn armed_after(context: &Context<'_>, changed: Moment) -> Option<Moment> {
    let armed =
        |(at, fields): (Moment, Value)| (at > changed && fields["to"] == "armed").then_some(at);
    log(context).into_iter().find_map(armed)
}

/// The log of host A's daemon.
fn log(context: &Context<'_>) -> Vec<(Moment, Value)> {
    let event = |line: Line| {
        let mut event: Value = serde_json::from_str(&line.text).ok()?;
        Some((line.at, event["fields"].take()))
    };
    let lines = context.world.log(Host::A);
    lines.into_iter().filter_map(event).collect()
}
