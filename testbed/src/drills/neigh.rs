// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's neighbours made by apmd: IPoIB talks without a single ARP request.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file::write;
use crate::host::Host;
use crate::trace::{Event, Trace};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "neigh",
    about: "neighbour entries from a file: ping over IPoIB without ARP, removed with it",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

const HOSTS: &str = "/run/drill/hosts.data";
/// Packets of `ETH_P_ARP`.
const ARP: &[Event<'_>] = &[("net/net_dev_start_xmit", "protocol == 0x0806")];
const LIMIT: Duration = Duration::from_secs(30);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let lines = [line(Host::A)?, line(Host::B)?];
    write(HOSTS, &lines.concat())?;
    for host in Host::ALL {
        command::run_as(host, &["ip", "neigh", "flush", "dev", "ib0"])?;
    }
    context.world.start_daemons(Policy {
        sections: "[neigh]\nfile = \"/run/drill/hosts.data\"\n",
        ..Policy::default()
    })?;
    for host in Host::ALL {
        wait_entry(host, true)?;
    }
    let requests = arp_requests_during(|| {
        let ping = ["ping", "-c", "5", "-i", "0.2", "-W", "2", address(Host::B)];
        command::run_as(Host::A, &ping).map(drop)
    })?;
    context.report.set("arp_packets_during_ping", requests);
    ensure(requests == 0, || {
        format!("{requests} ARP packets during a ping of known neighbours")
    })?;
    context
        .timeline
        .note("drill", "5 pings answered, no ARP packet");
    write(HOSTS, &lines[0])?;
    context.world.reload_daemon(Host::A)?;
    wait_entry(Host::A, false)?;
    context
        .timeline
        .note("drill", "the entry went with its line");
    context.world.stop_daemons()?;
    wait_entry(Host::B, false)
}

fn address(host: Host) -> &'static str {
    match host {
        Host::A => "10.0.1.1",
        Host::B => "10.0.1.2",
        Host::C => "10.0.1.3",
        Host::D => "10.0.1.4",
    }
}

/// The host's line of the file. The queue pair is in the interface's hardware address.
fn line(host: Host) -> Result<String, Failure> {
    let hardware = command::run_as(host, &["cat", "/sys/class/net/ib0/address"])?;
    let bytes: Vec<_> = hardware.trim().split(':').collect();
    let qpn = bytes.get(1..4).unwrap_or_default().concat();
    Ok(format!(
        "{} {} 0x{qpn}\n",
        address(host),
        host.port(1).gid()?
    ))
}

/// Waits until the host has, or no longer has, an entry of apmd's for its peer.
fn wait_entry(host: Host, wanted: bool) -> Result<(), Failure> {
    let peer = address(host.other());
    let what = format!(
        "{host}'s entry for {peer} is {}",
        if wanted { "there" } else { "gone" }
    );
    wait::until(&what, LIMIT, || {
        let entry = command::run_as(host, &["ip", "neigh", "show", peer, "dev", "ib0"])?;
        let ours = entry.contains("extern_learn") && entry.contains("proto 44");
        Ok(Seen::when(ours == wanted, || entry))
    })
}

/// ARP packets that the kernel, of both hosts, hands to its interfaces while `act` acts.
fn arp_requests_during(act: impl FnOnce() -> Result<(), Failure>) -> Result<usize, Failure> {
    let trace = Trace::begin(ARP)?;
    let acted = act();
    let trace = trace.end()?;
    acted?;
    Ok(trace.matches("protocol=0x0806").count())
}
