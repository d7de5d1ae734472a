// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection in a partition whose P_Key has another index on each port; then ports leave the
//! partition under it, and come back.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::{Connection, Pair};
use crate::partitions::{self, Partition};
use crate::port::Port;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::unmodified::{self, Running, flows};
use super::{Context, Drill, Part};

/// The drill. In namespaces: rdma_cm reaches a partition by an IPoIB link in it, and no AF_IB program of
/// Debian's lets its P_Key be chosen.
pub(super) const DRILL: Drill = Drill {
    name: "pkey",
    about: "a partition with another P_Key index on each port: rping moves, and keeps to it",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// The partition's P_Key, of a full member.
const DATA: u16 = 0x8005;

/// The IPoIB link in it, and its network.
const LINK: &str = "data0";

/// Bound for that to work.
const LINK_UP: Duration = Duration::from_secs(60);

/// The library's ACK timeout: only where it has heard of the peer's daemon, which it can in the connection's
/// own partition only.
const ACK_TIMEOUT: u8 = 14;

/// A daemon that answers late (20 ms) counts for the next connection only: so many are tried.
const TRIES: u32 = 5;

/// More round trips than there is time for.
const ENDLESS: u64 = 100_000_000;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let shown = in_partition(context);
    // What comes after this drill has the default partition only.
    let links = remove_links();
    let restored = partitions::remove(&context.timeline);
    shown.and(links).and(restored)
}

fn in_partition(context: &mut Context<'_>) -> Result<(), Failure> {
    let [a1, a2, b1, b2] = ports();
    set_members(context, &[a1, a2, b1, b2])?;
    let indexes = indexes(&[a1, a2, b1, b2])?;
    ensure(indexes[0] != indexes[1] && indexes[2] != indexes[3], || {
        format!("P_Key {DATA:#x} has the indexes {indexes:?}: the same on both ports of a host")
    })?;
    context.report.set("indexes", indexes.as_slice());
    Host::ALL.into_iter().try_for_each(add_link)?;
    context.world.start_daemons(Policy::default())?;
    let mut running = heard(context)?;
    over_the_other_index(context, &mut running)?;
    members_change(context, &mut running)?;
    running.server.ensure_running()?;
    running.client.ensure_running()?;
    drop(running);
    context.world.stop_daemons()
}

/// A connection whose ends have both heard that a daemon answers at the other.
fn heard(context: &mut Context<'_>) -> Result<Running, Failure> {
    let mut timeouts = Vec::new();
    for _ in 0..TRIES {
        let running = rping()?;
        context.report.connections += 1;
        let pairs = context.world.wait_disjoint(1)?;
        timeouts = pairs[0]
            .ends
            .iter()
            .map(|end| end.primary.ack_timeout)
            .collect();
        if timeouts == [ACK_TIMEOUT; 2] {
            return Ok(running);
        }
        drop(running);
        context.world.wait_for("no connection", 0, |_| true)?;
    }
    Err(Failure::not_shown(format!(
        "the peer's daemon was not heard in {TRIES} connections: ACK timeouts {timeouts:?}"
    )))
}

fn ports() -> [Port; 4] {
    let [a, b] = Host::ALL;
    [a.port(1), a.port(2), b.port(1), b.port(2)]
}

/// The partition has these members. The second port of host A is in two more, the first of host B in one.
fn set_members(context: &Context<'_>, members: &[Port]) -> Result<(), Failure> {
    let [_, a2, b1, _] = ports();
    let all = [
        Partition::new("one", 0x8001, &[a2]),
        Partition::new("two", 0x8002, &[a2, b1]),
        Partition::new("data", DATA, members),
    ];
    partitions::set(&context.timeline, &all)
}

fn indexes(of: &[Port]) -> Result<Vec<u16>, Failure> {
    let index = |port: &Port| {
        let index = partitions::index(*port, DATA)?;
        index.ok_or_else(|| Failure::not_shown(format!("{port} is not in partition {DATA:#x}")))
    };
    of.iter().map(index).collect()
}

/// The host's IPoIB link in the partition, over its first port.
fn add_link(host: Host) -> Result<(), Failure> {
    let ip = |line: String| {
        let words: Vec<_> = ["ip"].into_iter().chain(line.split(' ')).collect();
        command::run_as(host, &words).map(drop)
    };
    ip(format!(
        "link add link ib0 name {LINK} type ipoib pkey {DATA:#x}"
    ))?;
    ip(format!("address add {}/24 dev {LINK}", address(host)))?;
    ip(format!("link set {LINK} up"))
}

fn address(host: Host) -> String {
    format!("10.0.5.{}", host.number())
}

fn remove_links() -> Result<(), Failure> {
    for host in Host::ALL {
        // A drill that failed early has made none.
        if command::run_as(host, &["ip", "link", "show", "dev", LINK]).is_ok() {
            command::run_as(host, &["ip", "link", "delete", "dev", LINK])?;
        }
    }
    Ok(())
}

/// Debian's rping, which compares what comes back.
fn rping() -> Result<Running, Failure> {
    let [from, to] = Host::ALL.map(address);
    // The first packets of a new IPoIB link may be lost.
    wait::until("ping in the partition", LINK_UP, || {
        let answer = command::run_as(Host::A, &["ping", "-c", "1", "-W", "1", &to]);
        Ok(Seen::when(answer.is_ok(), || format!("{answer:?}")))
    })?;
    unmodified::start(&unmodified::rping_between(&from, &to), ENDLESS, true)
}

/// Armed over the other ports, where the P_Key's index is another; each end's cable is pulled in turn. A QP
/// with the wrong index would send in another partition: nothing of that would be let in.
fn over_the_other_index(context: &mut Context<'_>, running: &mut Running) -> Result<(), Failure> {
    for host in Host::ALL {
        let pairs = context.world.wait_disjoint(1)?;
        stays_inside(&pairs)?;
        let left = pairs[0].active_port(host);
        context.world.pull(left)?;
        context.world.wait_moved(1, left)?;
        context.report.migrations += 1;
        let on = context.world.pairs()?;
        let on = on
            .first()
            .map_or(left.other(), |pair| pair.active_port(Host::A));
        flows_over(on, running)?;
        context.world.plug(left)?;
        stays_inside(&context.world.wait_disjoint(1)?)?;
        context.report.rearmed += 1;
    }
    Ok(())
}

fn flows_over(port: Port, running: &mut Running) -> Result<(), Failure> {
    ensure(flows(port, running)?, || "rping ended".to_owned())
}

/// Both paths are in the partition.
fn stays_inside(pairs: &[Pair]) -> Result<(), Failure> {
    let ends = pairs.iter().flat_map(|pair| &pair.ends);
    let keys: Vec<_> = ends
        .flat_map(|end| [Some(&end.primary), end.alternate.as_ref()])
        .flatten()
        .map(|path| path.pkey)
        .collect();
    ensure(keys.iter().all(|&key| key == DATA), || {
        format!("the paths have the P_Keys {keys:x?}, and not {DATA:#x}")
    })
}

/// The ports of the alternate leave the partition while it is loaded, first the peer's, then ours: what is
/// left is taken, what is outside never, and the reason is told. When they come back it is armed as before.
fn members_change(context: &mut Context<'_>, running: &mut Running) -> Result<(), Failure> {
    let pairs = context.world.wait_disjoint(1)?;
    let [a, b] = Host::ALL.map(|host| pairs[0].active_port(host));
    let (far, near) = (b.other(), a.other());

    set_members(context, &[a, near, b])?;
    let what = format!("armed without {far}, which has left the partition");
    let keeps_off = |end: &Connection, port: Port| {
        let alternate = end.alternate.as_ref();
        end.primary.port != port.number && alternate.is_none_or(|path| path.port != port.number)
    };
    let pairs = context.world.wait_for(&what, 1, |pair| {
        pair.is_armed() && keeps_off(pair.end(far.host), far)
    })?;
    stays_inside(&pairs)?;
    context
        .timeline
        .note("drill", format!("{what}: {}", pairs[0].paths()));

    set_members(context, &[a, b])?;
    let reason = format!(
        "port {} is not in the connection's partition, P_Key {DATA:#06x}",
        near.number
    );
    let what = format!("unprotected on {}, because {reason}", near.host);
    context.world.wait_for(&what, 1, |pair| {
        let end = pair.end(near.host);
        let told = end
            .reason
            .as_ref()
            .is_some_and(|why| why.starts_with(&reason));
        told && end.protection == "unprotected" && pair.is_on_one_path()
    })?;
    context.timeline.note("drill", what);
    flows_over(a, running)?;

    set_members(context, &ports())?;
    stays_inside(&context.world.wait_disjoint(1)?)?;
    context.report.rearmed += 1;
    flows_over(a, running)
}
