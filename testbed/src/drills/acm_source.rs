// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alternates from the stock ibacm and from a file, while the subnet manager is cut off.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::ib_acme;
use crate::link::Link;
use crate::observe::{self, Source};
use crate::port::Port;
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-source",
    about: "SA cut off: alternates from the stock ibacm, and from a file when that is killed",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// The file of paths.
const FILE: &str = "/run/drill/paths.toml";

/// What the daemons are told of sources.
const SECTIONS: &str = "[source]\norder = [\"sa\", \"acm\", \"static\"]\n\
    [static]\nfile = \"/run/drill/paths.toml\"\n";

/// Bound for ibacm to come up, and for the daemons to see that the SA is back.
const LIMIT: Duration = Duration::from_secs(90);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let mut ibacm = Program::start("ibacm", Host::A, &["ibacm", "-P"])?;
    warm_cache(context, &mut ibacm)?;
    write_paths()?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    streams.wait_flowing()?;
    context.world.pull(Link::SubnetManager)?;
    armed_by_acm(context)?;

    ibacm.signal(Signal::SIGKILL)?;
    ibacm.wait(LIMIT)?;
    context.timeline.note("drill", "ibacm killed with -9");
    let first = survive(context, &mut streams, Host::A)?;
    rearmed_by_file(context)?;
    let second = survive(context, &mut streams, Host::B)?;

    context.world.restore(Link::SubnetManager)?;
    context.world.plug(first)?;
    context.world.plug(second)?;
    taken_back(context)?;
    context.finish(streams)
}

/// Every pair of a port of host A and one of host B.
fn pairs() -> impl Iterator<Item = (Port, Port)> {
    Host::A
        .ports()
        .flat_map(|a| Host::B.ports().map(move |b| (a, b)))
}

/// Has ibacm ask the SA for every path, and checks its answers; from then on it knows them by heart.
fn warm_cache(context: &Context<'_>, ibacm: &mut Program) -> Result<(), Failure> {
    for (a, b) in pairs().flat_map(|(a, b)| [(a, b), (b, a)]) {
        let (from, to) = (a.gid()?, b.gid()?);
        ibacm.ensure_running()?;
        let path = ib_acme::wait_path(&format!("-f g -s {from} -d {to}"))?;
        for (key, port) in [("slid", a), ("dlid", b)] {
            let want = format!("{key}: {}", port.lid()?);
            ensure(path.lines().any(|line| line.trim() == want), || {
                format!("ib_acme from {a} to {b} does not say {want}: {path}")
            })?;
        }
    }
    context.timeline.note("drill", "ibacm knows all paths");
    Ok(())
}

/// Writes the file of paths, for both hosts.
fn write_paths() -> Result<(), Failure> {
    let mut text = String::new();
    for (a, b) in pairs() {
        text += &format!(
            "[[path]]\nsgid = \"{}\"\ndgid = \"{}\"\nslid = {}\ndlid = {}\nmtu = 4096\nrate = 40\n",
            a.gid()?,
            b.gid()?,
            a.lid()?,
            b.lid()?
        );
    }
    file::write(FILE, &text)
}

/// The daemons, which have never seen the SA, arm the connection with a path of ibacm's.
fn armed_by_acm(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy {
        sections: SECTIONS,
        ..Policy::default()
    })?;
    context.world.wait_disjoint(1)?;
    ensure_origin(context, "acm")?;
    let sources = sources(context)?;
    ensure(sources[0].state == "failing", || {
        format!("the SA is cut off and counts as {}", sources[0].state)
    })?;
    ensure(sources[1].state == "healthy", || {
        format!("ibacm answers and counts as {}", sources[1].state)
    })
}

/// The path of the active end comes from this source.
fn ensure_origin(context: &mut Context<'_>, want: &str) -> Result<(), Failure> {
    let pairs = context.world.pairs()?;
    let alternate = pairs
        .first()
        .and_then(|pair| pair.end(Host::A).alternate.clone());
    let origin = alternate.and_then(|path| path.origin);
    context
        .timeline
        .note("drill", format!("alternate from {want}"));
    ensure(origin.as_deref() == Some(want), || {
        format!("the alternate is from {origin:?}, want {want}")
    })
}

fn sources(context: &mut Context<'_>) -> Result<Vec<Source>, Failure> {
    let sources = observe::sources(Host::A)?;
    let states = sources
        .iter()
        .map(|source| format!("{} {}", source.source, source.state));
    let states: Vec<_> = states.collect();
    context.timeline.note(Host::A, states.join(", "));
    let names: Vec<_> = sources
        .iter()
        .map(|source| source.source.as_str())
        .collect();
    ensure(names == ["sa", "acm", "static"], || {
        format!("the sources are {names:?}")
    })?;
    Ok(sources)
}

/// The cable in use at a host is pulled: traffic goes on over the alternate.
fn survive(context: &mut Context<'_>, streams: &mut Streams, host: Host) -> Result<Port, Failure> {
    let port = context.world.wait_armed(1)?[0].active_port(host);
    context.world.pull(port)?;
    context.world.wait_moved(1, port)?;
    streams.wait_flowing()?;
    context.report.migrations += 1;
    Ok(port)
}

/// Without ibacm the next source's path arms it again, and ibacm counts as failing.
fn rearmed_by_file(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.wait_armed(1)?;
    context.report.rearmed += 1;
    ensure_origin(context, "static")?;
    let sources = sources(context)?;
    ensure(sources[1].state == "failing", || {
        format!("ibacm is dead and counts as {}", sources[1].state)
    })?;
    ensure(sources[2].answered > 0, || {
        "the file has not answered".to_owned()
    })?;
    let answered = sources.iter().map(|source| {
        let answered = source.answered;
        (source.source.clone(), json!(answered))
    });
    context
        .report
        .set("answered", answered.collect::<serde_json::Map<_, _>>());
    Ok(())
}

/// The SA is back: it is taken back as the first source, and the connection armed on disjoint ports.
fn taken_back(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    wait::until("the SA is taken back", LIMIT, || {
        let sources = observe::sources(Host::A)?;
        let state = sources.first().map(|source| source.state.clone());
        let healthy = state.as_deref() == Some("healthy");
        Ok(Seen::when(healthy, || format!("it is {state:?}")))
    })
}
