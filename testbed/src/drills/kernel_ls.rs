// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel asks apmd for paths: rdma_cm's and IPoIB's, while the subnet manager is cut off.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::ib_acme;
use crate::link::Link;
use crate::observe;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-ls",
    about: "the kernel's path requests served while the SA is cut off: rdma_cm and IPoIB",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// One daemon for all devices: to the kernel, which multicasts its requests to all who listen, the
/// VM is one host. librdmacm, which would ask apmd itself before the kernel does, does not find it:
/// only what ib_acme looks for is linked to.
const CONFIG: &str = "runtime_dir = \"/run/apmd\"\n\
    [acm]\nserve = true\ndirectory = \"/run/drill\"\n[log]\nformat = \"json\"\n";
const CONFIG_PATH: &str = "/run/drill/kernel.toml";
const SOCKET: &str = "/run/drill/ibacm-unix.sock";
const IB_ACMES_SOCKET: &str = "/run/ibacm-unix.sock";

/// Bound for something to be seen.
const LIMIT: Duration = Duration::from_secs(60);

/// The interfaces of rail A, their network namespaces and their addresses.
const ENDS: [(&str, &str, &str); 2] = [("ib0", "end-a", "10.0.9.1"), ("ib2", "end-b", "10.0.9.2")];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let gids = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    command::run_as(Host::A, &["ln", "-s", SOCKET, IB_ACMES_SOCKET])?;
    let shown = part_links().and_then(|()| shown(context, &gids));
    let removed = command::run_as(Host::A, &["rm", IB_ACMES_SOCKET]);
    let restored = restore_links();
    shown.and(removed.map(drop)).and(restored)
}

fn shown(context: &mut Context<'_>, gids: &[String; 2]) -> Result<(), Failure> {
    let mut daemon = start_daemon()?;
    learn(gids)?;
    context.world.pull(Link::SubnetManager)?;
    let shown = served(context, gids).and_then(|()| {
        daemon.signal(Signal::SIGTERM)?;
        daemon.wait(LIMIT)?;
        ensure(!ucmatose(gids)?, || {
            "rdma_cm finds a path without the SA and without apmd".to_owned()
        })
    });
    context.world.restore(Link::SubnetManager)?;
    shown?;
    context
        .timeline
        .note("drill", "without apmd the kernel finds no path");
    context.report.connections += 1;
    Ok(())
}

fn start_daemon() -> Result<Program, Failure> {
    file::write(CONFIG_PATH, CONFIG)?;
    Program::start("apmd", Host::A, &["apmd", "--config", CONFIG_PATH])
}

/// Has apmd learn the paths both ways.
fn learn(gids: &[String; 2]) -> Result<(), Failure> {
    let [a, b] = gids;
    for (from, to) in [(a, b), (b, a)] {
        ib_acme::wait_path(&format!("-f g -s {from} -d {to}"))?;
    }
    Ok(())
}

/// Requests of the kernel that apmd has had.
fn requests() -> Result<u64, Failure> {
    observe::acm_counter(Host::A, "kernel")
}

fn served(context: &mut Context<'_>, gids: &[String; 2]) -> Result<(), Failure> {
    let before = requests()?;
    ensure(ucmatose(gids)?, || "ucmatose does not connect".to_owned())?;
    let by_cm = requests()? - before;
    ensure(by_cm > 0, || "rdma_cm did not ask apmd".to_owned())?;
    context
        .timeline
        .note("drill", "ucmatose has connected: rdma_cm asked apmd");
    ping()?;
    let by_ipoib = requests()? - before - by_cm;
    ensure(by_ipoib > 0, || "IPoIB did not ask apmd".to_owned())?;
    context
        .timeline
        .note("drill", "ping over IPoIB: its paths came from apmd");
    context.report.set("rdma_cm_requests", by_cm);
    context.report.set("ipoib_requests", by_ipoib);
    Ok(())
}

/// Debian's ucmatose by GID, whose path the kernel has to find. Whether it could.
fn ucmatose(gids: &[String; 2]) -> Result<bool, Failure> {
    let [a, b] = gids;
    let server = ["ucmatose", "-f", "gid", "-b", b];
    let mut server = Program::start("ucmatose", Host::B, &server)?;
    std::thread::sleep(Duration::from_secs(1));
    server.ensure_running()?;
    let client = ["ucmatose", "-f", "gid", "-b", a, "-s", b];
    let output = command::attempt(&client)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success() && text.contains("return status 0"))
}

/// iproute2's ip, which is found through the host's command: timeout(1) is busybox's and would call
/// its own.
fn ip(words: &[&str]) -> Result<String, Failure> {
    let mut all = vec!["ip"];
    all.extend(words);
    command::run_as(Host::A, &all)
}

/// Gives the interfaces at both ends of rail A a namespace each, and waits until they have joined
/// their multicast group, for which they need the SA.
fn part_links() -> Result<(), Failure> {
    for (link, end, address) in ENDS {
        let network = format!("{address}/24");
        ip(&["netns", "add", end])?;
        ip(&["link", "set", link, "netns", end])?;
        ip(&["-n", end, "addr", "add", &network, "dev", link])?;
        ip(&["-n", end, "link", "set", link, "up"])?;
    }
    for (link, end, _) in ENDS {
        wait::until(&format!("{link} has joined"), LIMIT, || {
            let state = ip(&["-n", end, "link", "show", link])?;
            Ok(Seen::when(state.contains("LOWER_UP"), || state))
        })?;
    }
    Ok(())
}

/// One end pings the other. The answer to its ARP request is unicast, for which IPoIB needs a path,
/// and so is everything after it.
fn ping() -> Result<(), Failure> {
    let [(_, a, _), (_, _, b)] = ENDS;
    wait::until("ping over IPoIB", LIMIT, || {
        let answer = ip(&["netns", "exec", a, "ping", "-c", "1", "-W", "1", b]);
        Ok(Seen::when(answer.is_ok(), || "no answer".to_owned()))
    })
}

fn restore_links() -> Result<(), Failure> {
    for (link, end, _) in ENDS {
        ip(&["-n", end, "link", "set", link, "netns", "1"])?;
        ip(&["netns", "del", end])?;
        ip(&["link", "set", link, "up"])?;
    }
    Ok(())
}
