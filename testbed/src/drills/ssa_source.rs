// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as data is the only path source: read live, it arms what is connected after the
//! subnet manager has gone; it follows what happens in the fabric; its snapshot outlives a daemon.

use std::time::Duration;

use serde_json::Value;

use crate::clock::Moment;
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::link::Link;
use crate::observe::{Overlap, Pair};
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "ssa-source",
    about: "paths from the fabric as data, live and from a snapshot, without the SM",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Bound for a change to be seen.
const LIMIT: Duration = Duration::from_secs(60);

fn snapshot(host: Host) -> &'static str {
    match host {
        Host::A => "/run/drill/host-a.fabric",
        _ => "/run/drill/host-b.fabric",
    }
}

macro_rules! sections {
    ($snapshot:literal) => {
        concat!(
            "[source]\norder = [\"ssa\"]\n[ssa]\nlive = true\nsnapshot = \"",
            $snapshot,
            "\"\n"
        )
    };
}

fn start_daemons(context: &mut Context<'_>) -> Result<(), Failure> {
    for host in Host::ALL {
        let policy = Policy {
            sections: match host {
                Host::A => sections!("/run/drill/host-a.fabric"),
                _ => sections!("/run/drill/host-b.fabric"),
            },
            ..Policy::default()
        };
        context.world.start_daemon(host, policy)?;
    }
    Ok(())
}

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    for host in Host::ALL {
        command::run(&["rm", "-f", snapshot(host)])?;
    }
    start_daemons(context)?;
    let whole = |fabric: &Fabric| fabric.from == "live" && fabric.links == 7;
    let links = wait_fabrics(context, "read live, with all links", whole)?;
    let route = Some([Host::A.port(1).lid()?, Host::B.port(1).lid()?]);

    without_subnet_manager(context, route)?;
    follow_the_fabric(context, links)?;
    from_the_snapshot(context, route)
}

/// What is connected when there is no subnet manager is armed, survives a pulled cable, and is
/// armed again.
fn without_subnet_manager(
    context: &mut Context<'_>,
    route: Option<[u16; 2]>,
) -> Result<(), Failure> {
    context.world.stop_subnet_manager()?;
    let mut streams = connect(context, route)?;
    let pairs = context.world.wait_disjoint(1)?;
    disjoint_by_ssa(&pairs[0])?;
    let port = pairs[0].active_port(Host::A);
    context.world.pull(port)?;
    context.world.wait_moved(1, port)?;
    context.report.migrations += 1;
    // Over one port, which it would avoid if it knew of the other: nobody tells it now.
    from_ssa(&context.world.wait_armed(1)?[0])?;
    context.report.rearmed += 1;
    streams.ensure_healthy()?;
    context.world.start_subnet_manager()?;
    context.world.plug(port)?;
    context.world.wait_disjoint(1)?;
    context.finish(streams)
}

/// The cable between the switches is pulled: the report of a switch makes the daemons read the
/// fabric again, and the engine look again at what paths share. The subnet manager, on rail A, then
/// sees nothing of rail B, and so does its administration; traffic does not care.
fn follow_the_fabric(context: &mut Context<'_>, before: [Fabric; 2]) -> Result<(), Failure> {
    let whole = |fabric: &Fabric| fabric.links == 7 && fabric.links_down == 0;
    wait_fabrics(context, "whole again", whole)?;
    let streams = connect(context, None)?;
    context.world.wait_disjoint(1)?;
    let pulled = context.world.pull(Link::InterSwitch)?;
    let cut = |fabric: &Fabric| fabric.links - fabric.links_down == 3;
    let after = wait_fabrics(context, "seen without rail B", cut)?;
    let took = Moment::now().since(pulled).as_millis() as u64;
    context.report.set("pulled_link_seen_ms", took);
    for (before, after) in before.iter().zip(&after) {
        ensure(after.epoch > before.epoch, || {
            format!("the epoch stayed {}", after.epoch)
        })?;
    }
    // Host A chooses the alternates, so only there it matters.
    context
        .world
        .wait_logged(Host::A, &["another fabric", "\"matters\":true"])?;
    context.world.wait_disjoint(1)?;
    context.world.restore(Link::InterSwitch)?;
    wait_fabrics(context, "whole again", whole)?;
    context
        .world
        .wait_for("armed, and known to share nothing", 1, |pair| {
            pair.is_disjoint() && disjoint_by_ssa(pair).is_ok()
        })?;
    context.finish(streams)
}

/// Daemons that start when there is no subnet manager have the snapshot.
fn from_the_snapshot(context: &mut Context<'_>, route: Option<[u16; 2]>) -> Result<(), Failure> {
    context.world.stop_daemons()?;
    context.world.stop_subnet_manager()?;
    start_daemons(context)?;
    let kept = |fabric: &Fabric| fabric.from == "snapshot" && fabric.links == 7;
    wait_fabrics(context, "loaded from the snapshot", kept)?;
    let streams = connect(context, route)?;
    disjoint_by_ssa(&context.world.wait_disjoint(1)?[0])?;
    context.report.rearmed += 1;
    names_are_real()?;
    context.finish(streams)?;
    context.world.start_subnet_manager()
}

/// The operator's tools read the daemon's snapshot.
fn names_are_real() -> Result<(), Failure> {
    let file = snapshot(Host::A);
    let [a, b] = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    let words = ["apmctl", "path", "show", &a, &b, "--fabric", file];
    let shown = command::run_as(Host::A, &words)?;
    ensure(shown.contains("switch"), || {
        format!("apmctl path show names no switch: {shown}")
    })?;
    let words = ["apmctl", "fabric", "show", "--fabric", file];
    command::run_as(Host::A, &words).map(drop)
}

fn connect(context: &Context<'_>, route: Option<[u16; 2]>) -> Result<Streams, Failure> {
    let options = Options {
        route,
        ..Options::default()
    };
    Streams::start(&context.timeline, options)
}

/// The side that proposed the alternate has it from the fabric.
fn from_ssa(pair: &Pair) -> Result<(), Failure> {
    let alternates = pair.ends.iter().filter_map(|end| end.alternate.as_ref());
    let origins: Vec<_> = alternates.map(|path| path.origin.as_deref()).collect();
    ensure(origins.contains(&Some("ssa")), || {
        format!("no alternate is from ssa, but {origins:?}")
    })
}

/// And it knows that the alternate shares nothing that could be avoided.
fn disjoint_by_ssa(pair: &Pair) -> Result<(), Failure> {
    let nothing = Overlap {
        switches: 0,
        links: 0,
    };
    let alternates = pair.ends.iter().filter_map(|end| end.alternate.as_ref());
    let overlaps: Vec<_> = alternates.map(|path| path.overlap).collect();
    ensure(overlaps.contains(&Some(nothing)), || {
        format!("avoidable overlap, or none known: {overlaps:?}")
    })?;
    from_ssa(pair)
}

/// What a daemon says of its fabric.
#[derive(Clone, Debug, serde::Deserialize)]
struct Fabric {
    from: String,
    epoch: u64,
    links: u64,
    links_down: u64,
}

/// What a host's daemon knows of the fabric, and what it says of it in words.
fn fabric(host: Host) -> Result<(Option<Fabric>, String), Failure> {
    let words = ["apmctl", "-j", "source", "show", "ssa"];
    let json = command::run_as(host, &words)?;
    let malformed = |problem: String| Failure::Output {
        source_name: words.join(" "),
        problem,
    };
    let list: Value = serde_json::from_str(&json).map_err(|error| malformed(error.to_string()))?;
    let fabric = serde_json::from_value(list[0]["fabric"].clone());
    let fabric = fabric.map_err(|error| malformed(error.to_string()))?;
    Ok((fabric, list[0]["detail"].to_string()))
}

/// Waits until both daemons know a fabric as it is wanted.
fn wait_fabrics(
    context: &Context<'_>,
    what: &str,
    wanted: impl Fn(&Fabric) -> bool,
) -> Result<[Fabric; 2], Failure> {
    let one = |host: Host| {
        let what = format!("fabric on {host} {what}");
        let (fabric, words) = wait::until(&what, LIMIT, || {
            let (fabric, words) = fabric(host)?;
            Ok(match fabric.filter(&wanted) {
                Some(fabric) => Seen::Ready((fabric, words)),
                None => Seen::NotYet(words),
            })
        })?;
        context.timeline.note(host, format!("fabric: {words}"));
        Ok(fabric)
    };
    Ok([one(Host::A)?, one(Host::B)?])
}
