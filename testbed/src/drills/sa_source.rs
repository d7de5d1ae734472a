// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports with several LIDs: the SA is asked for all paths between two of them, and connections are
//! armed over any.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::ib_acme;
use crate::observe::{self, Pair};
use crate::port::Port;
use crate::saquery::{self, Record};
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part, new_lid};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "sa-source",
    about: "four LIDs a port: all paths from the SA by RMPP, connections armed over any",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// The path records of four LIDs and more do not fit into one segment of an RMPP transfer.
const LMC: u8 = 2;
const LIDS: usize = 1 << LMC;

/// As many that they do not all choose the same LID, of which there are four.
const CONNECTIONS: u32 = 8;

/// Bound for the SA to say what it says in the end.
const LIMIT: Duration = Duration::from_secs(60);

/// Host A's daemon serves ACM.
const WITH_ACM: Policy = Policy {
    sections: "[acm]\nserve = true\n",
    ..Policy::NORMAL
};

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let shown = new_lid::run(context)
        .and_then(|()| lids_change(context))
        .and_then(|()| all_paths(context))
        .and_then(|()| late_port(context))
        .and_then(|()| any_lid(context))
        .and_then(|()| notice(context))
        .and_then(|()| reports(context));
    // The drills that come after this one want one LID a port.
    let restored = context.world.set_lmc(0);
    shown.and(restored)
}

/// Ports get other LIDs, and more of them, under a daemon that serves ACM: what it then answers is
/// what the SA says then. (Stock ibacm goes on to give the old LIDs away, also to the kernel.)
fn lids_change(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemon(Host::A, WITH_ACM)?;
    let (a, b) = (Host::A.port(1), Host::B.port(1));
    let question = format!("-f g -s {} -d {}", a.gid()?, b.gid()?);
    let before = Record::parse(&ib_acme::wait_path(&question)?);
    context.world.set_lmc(LMC)?;
    let of_sa = of_sa(a, b)?;
    ensure(
        !of_sa.iter().any(|one| Some(one) == before.as_ref()),
        || format!("the LIDs are the old ones: {before:?}"),
    )?;
    let after = wait::until("the daemon answers with the new LIDs", LIMIT, || {
        let told = ib_acme::ask(&question)?;
        Ok(match Record::parse(&told) {
            Some(one) if of_sa.contains(&one) => Seen::Ready(one),
            _ => Seen::NotYet(told),
        })
    })?;
    let text = format!("the path was {before:?}, and is {after:?}");
    context.timeline.note(Host::A, text);
    context.world.stop_daemons()
}

/// One question to the daemon that leaves the LIDs open is one to the SA, whose answer has all paths,
/// as many as it has for saquery; the one given away is among them.
fn all_paths(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemon(Host::A, WITH_ACM)?;
    let (a, b) = (Host::A.port(1), Host::B.port(1));
    let of_sa = of_sa(a, b)?;
    let before = sa()?;
    let question = format!("-f g -s {} -d {}", a.gid()?, b.gid()?);
    let told = ib_acme::wait_path(&question)?;
    let after = sa()?;
    let got = after.paths - before.paths;
    let asked = after.answered - before.answered;
    ensure(asked == 1 && got == of_sa.len() as u64, || {
        format!("{asked} answers with {got} paths, saquery gets {of_sa:?}")
    })?;
    ensure(
        Record::parse(&told).is_some_and(|one| of_sa.contains(&one)),
        || format!("saquery gets {of_sa:?}, and not {told}"),
    )?;
    let text = format!("one answer of the SA had {got} paths");
    context.timeline.note(Host::A, text);
    context.report.set("paths_of_one_answer", got);
    context.world.stop_daemons()
}

/// What the SA has for saquery: at least one path for each LID of the ports.
fn of_sa(from: Port, to: Port) -> Result<Vec<Record>, Failure> {
    wait::until(&format!("paths from {from} to {to}"), LIMIT, || {
        Ok(match saquery::paths(from, to) {
            Ok(paths) if paths.len() >= LIDS => Seen::Ready(paths),
            other => Seen::NotYet(format!("{other:?}")),
        })
    })
}

/// The source `sa` of host A's daemon.
fn sa() -> Result<observe::Source, Failure> {
    let sources = observe::sources(Host::A)?;
    let sa = sources.into_iter().find(|source| source.source == "sa");
    sa.ok_or_else(|| Failure::not_shown("the daemon has no source sa"))
}

/// A peer's port that is down when the daemons meet has no LID. When it is back, its daemon tells which
/// it has, and the alternate goes over one of them.
fn late_port(context: &mut Context<'_>) -> Result<(), Failure> {
    let late = Host::B.port(2);
    context.world.pull(late)?;
    context.world.start_daemons(Policy::default())?;
    let streams = Streams::start(&context.timeline, Options::default())?;
    context.world.wait_armed(1)?;
    context.world.plug(late)?;
    let pairs = context.world.wait_disjoint(1)?;
    context.world.wait_logged(Host::A, &["SAP received"])?;
    alternates_are_of_sa(&pairs)?;
    context.finish(streams)
}

/// Connections are spread over all LIDs; they work.
fn any_lid(context: &mut Context<'_>) -> Result<(), Failure> {
    let options = Options {
        connections: CONNECTIONS,
        interval_us: 20_000,
        ..Options::default()
    };
    let count = CONNECTIONS as usize;
    let mut streams = Streams::start(&context.timeline, options)?;
    let pairs = context.world.wait_disjoint(count)?;
    let offsets = alternates_are_of_sa(&pairs)?;
    ensure(offsets.len() > 1, || {
        format!("all alternates have the same LIDs: {offsets:?}")
    })?;
    context
        .report
        .set("offsets", offsets.into_iter().collect::<Vec<_>>());
    let port = pairs[0].active_port(Host::A);
    context.world.pull(port)?;
    context.world.wait_moved(count, port)?;
    context.report.migrations += u64::from(CONNECTIONS);
    streams.wait_flowing()?;
    context.world.plug(port)?;
    let pairs = context.world.wait_disjoint(count)?;
    alternates_are_of_sa(&pairs)?;
    context.report.rearmed += u64::from(CONNECTIONS);
    context.finish(streams)?;
    context.world.stop_daemons()
}

/// The far port of the alternate goes while the peer has no daemon that could tell. Subnet administration
/// does, and the active end looks for another.
fn notice(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let streams = Streams::start(&context.timeline, Options::default())?;
    let pairs = context.world.wait_disjoint(1)?;
    let alternate = pairs[0].end(Host::B).alternate.as_ref();
    let far = alternate.ok_or_else(|| Failure::not_shown("host b shows no alternate"))?;
    let far = Host::B.port(far.port);
    context.world.kill_daemon(Host::B)?;
    let before = notices()?;
    let pulled = context.world.pull(far)?;
    wait::until(
        "a notice, and the search for another alternate",
        LIMIT,
        || {
            let (notices, log) = (notices()?, context.world.log(Host::A));
            let mut later = log.iter().filter(|line| line.at >= pulled);
            let asked = later.any(|line| line.text.contains("asking for a path"));
            let state = observe::connections(Host::A)?;
            let state = state.first().map(observe::Connection::state);
            Ok(Seen::when(notices > before && asked, || {
                format!("{} notices, asked: {asked}, {state:?}", notices - before)
            }))
        },
    )?;
    context.world.start_daemon(Host::B, Policy::default())?;
    context.world.plug(far)?;
    context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    context.finish(streams)?;
    context.world.stop_daemons()
}

/// Notices that host A's engine was told.
fn notices() -> Result<u64, Failure> {
    let counters = observe::counters(Host::A)?;
    let notices = counters["engine"]["notices"].as_u64();
    notices.ok_or_else(|| Failure::not_shown("the daemon does not count notices"))
}

/// A daemon has the SA tell each port of what happens in the fabric, and ends that when it ends.
fn reports(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemon(Host::A, Policy::default())?;
    told_of(&[64, 65, 128, 144])?;
    context.world.stop_daemons()?;
    told_of(&[])
}

/// Waits until the SA tells host A's ports of these traps and no others.
fn told_of(wanted: &[u16]) -> Result<(), Failure> {
    let what = format!("the ports are told of traps {wanted:?}");
    wait::until(&what, LIMIT, || {
        let traps: Result<Vec<_>, _> = Host::A.ports().map(saquery::traps).collect();
        let traps = traps?;
        let done = traps.iter().all(|traps| traps == wanted);
        Ok(if done {
            Seen::Ready(())
        } else {
            Seen::NotYet(format!("{traps:?}"))
        })
    })
}

/// The alternates' LIDs are those of paths that saquery gets, too; by how much they are above the
/// ports' first.
fn alternates_are_of_sa(pairs: &[Pair]) -> Result<BTreeSet<u16>, Failure> {
    let mut used = BTreeMap::<[u8; 2], BTreeSet<[u16; 2]>>::new();
    for pair in pairs {
        let [a, b] = Host::ALL.map(|host| pair.end(host).alternate.clone());
        let (Some(a), Some(b)) = (a, b) else {
            return Err(Failure::not_shown(format!(
                "no alternate: {}",
                pair.state()
            )));
        };
        let lids = used.entry([a.port, b.port]).or_default();
        lids.insert([a.slid, a.dlid]);
    }
    let mut offsets = BTreeSet::new();
    for ([a, b], used) in used {
        let (from, to) = (Host::A.port(a), Host::B.port(b));
        let of_sa: BTreeSet<_> = of_sa(from, to)?
            .iter()
            .map(|one| [one.slid, one.dlid])
            .collect();
        ensure(used.is_subset(&of_sa), || {
            format!("alternates from {from} to {to} are {used:?}, saquery gets {of_sa:?}")
        })?;
        let base = from.lid()?;
        offsets.extend(used.iter().map(|[slid, _]| slid - base));
    }
    Ok(offsets)
}
