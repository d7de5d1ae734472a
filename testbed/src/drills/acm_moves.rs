// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address moves to its host's other port: other hosts learn it from the owner's apmd, or from the
//! kernel's neighbour table if that is dead, and programs connect. And with ACM at the client only,
//! whatever connects without it connects with it.

use std::fmt;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::clock::{Millis, Moment};
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file::{DIRECTORY, write};
use crate::host::Host;
use crate::ib_acme;
use crate::observe;
use crate::port::Port;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-moves",
    about: "an address moves to the other port: programs find it; ACM at the client only",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// host-b's address, and its name in the VM's `/etc/hosts`.
const ADDRESS: &str = "10.0.1.2";
const NAME: &str = "host-b";

const CLIENT: Policy = Policy {
    sections: "[acm]\nserve = true\nkernel = false\n",
    ..Policy::NORMAL
};
/// The same, with the address of the server from a file, as where the server has no ACM.
const CLIENT_WITH_FILE: Policy = Policy {
    sections: "[acm]\nserve = true\nkernel = false\nmulticast = \"off\"\ndata_dir = \"/run/drill\"\n",
    ..Policy::NORMAL
};
/// host-b's sockets lie where no program of host-a looks.
const OWNER: Policy = Policy {
    sections: "[acm]\nserve = true\nkernel = false\ndirectory = \"/run/drill/owner\"\n",
    ..Policy::NORMAL
};

const OPTIONS_FILE: &str = "/etc/rdma/ibacm_opts.cfg";
/// ibacm with the same file.
const IBACM_OPTIONS: &str = "log_file stdout\naddr_preload acm_hosts\n\
    addr_data_file /run/drill/ibacm_hosts.data\nroute_prot sa\n";

const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    command::run(&["mkdir", "-p", "/run/drill/owner"])?;
    context.world.start_daemon(Host::B, OWNER)?;
    context.world.start_daemon(Host::A, CLIENT)?;
    known_at(Host::B.port(1))?;
    Pair::RDMA_CLIENT.connect(ADDRESS)?;
    for (number, to) in [(1, Host::B.port(2)), (2, Host::B.port(1))] {
        told_by_its_owner(context, to, number)?;
    }
    told_by_the_kernel(context)?;
    at_the_client_only(context)
}

/// Asks until the address is known at this port.
fn known_at(port: Port) -> Result<(), Failure> {
    let lid = port.lid()?;
    let question = format!("-f i -s 10.0.1.1 -d {ADDRESS}");
    wait::until(&format!("{ADDRESS} is found at {port}"), LIMIT, || {
        let told = ib_acme::ask(&question)?;
        let found = ib_acme::is_path(&told) && told.contains(&format!("dlid: {lid}"));
        Ok(Seen::when(found, || told))
    })
}

/// What host-a's apmd knows of the address.
fn entry() -> Result<Option<Value>, Failure> {
    let acm = observe::acm(Host::A)?;
    let known = acm["destinations"].as_array().into_iter().flatten();
    let mut known = known.filter(|known| known["address"] == ADDRESS);
    Ok(known.next().cloned())
}

/// Whether the port with this LID is the one that host-a's apmd gives away.
fn leads_to(entry: Option<&Value>, lid: u16) -> bool {
    entry.is_some_and(|known| known["dlid"] == lid && known["state"] == "known")
}

/// Takes the address from one of host-b's interfaces to the other one.
fn move_to(port: Port) -> Result<(), Failure> {
    let [from, to] = match port.number {
        1 => ["ib1", "ib0"],
        _ => ["ib0", "ib1"],
    };
    let subnet = format!("{ADDRESS}/24");
    command::run_as(Host::B, &["ip", "address", "del", &subnet, "dev", from])?;
    command::run_as(Host::B, &["ip", "address", "add", &subnet, "dev", to])?;
    Ok(())
}

/// The address moves, host-b's apmd tells the group, and host-a knows it without being asked. Then a
/// program connects by AF_IB.
fn told_by_its_owner(context: &mut Context<'_>, to: Port, number: u64) -> Result<(), Failure> {
    let lid = to.lid()?;
    let start = Moment::now();
    move_to(to)?;
    wait::until(&format!("host-a knows {ADDRESS} at {to}"), LIMIT, || {
        let entry = entry()?;
        Ok(Seen::when(leads_to(entry.as_ref(), lid), || {
            format!("{entry:?}")
        }))
    })?;
    let took = Millis::from(Moment::now().since(start));
    context
        .timeline
        .note(Host::A, format!("{ADDRESS} found at {to} after {took}"));
    context.report.set(&format!("moved_{number}_ms"), took.0);
    let moved = observe::acm_counter(Host::A, "moved")?;
    ensure(moved == number, || {
        format!("{moved} addresses moved, not {number}")
    })?;
    Pair::RDMA_CLIENT.connect(ADDRESS)?;
    context.report.connections += 1;
    Ok(())
}

/// The owner's apmd is dead when the address moves: who speaks to it learns that from the kernel, and
/// nobody answers for what was known.
fn told_by_the_kernel(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.kill_daemon(Host::B)?;
    let lid = Host::B.port(1).lid()?;
    ensure(leads_to(entry()?.as_ref(), lid), || {
        "not known before the move".to_owned()
    })?;
    move_to(Host::B.port(2))?;
    command::run_as(Host::A, &["ip", "neigh", "flush", "all"])?;
    command::run_as(Host::A, &["ping", "-c", "1", "-W", "10", ADDRESS])?;
    wait::until("host-a's apmd forgets where the address was", LIMIT, || {
        let entry = entry()?;
        Ok(Seen::when(!leads_to(entry.as_ref(), lid), || {
            format!("{entry:?}")
        }))
    })?;
    Pair::RDMA_CLIENT.connect(ADDRESS)?;
    context
        .timeline
        .note(Host::A, "the neighbour table tells of the move");
    context.report.connections += 1;
    move_to(Host::B.port(1))?;
    command::run_as(Host::A, &["ip", "neigh", "flush", "all"])?;
    Ok(())
}

/// Two programs that connect, by their server's name or address: what the server is called with, and what
/// the client, before that.
struct Pair {
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
}

impl Pair {
    const RDMA_CLIENT: Self = Self {
        name: "rdma_client",
        server: &["rdma_server", "-p", "7471"],
        client: &["rdma_client", "-p", "7471", "-s"],
    };

    const ALL: [Self; 4] = [
        Self::RDMA_CLIENT,
        Self {
            name: "ucmatose",
            server: &["ucmatose", "-p", "7472"],
            client: &["ucmatose", "-p", "7472", "-s"],
        },
        Self {
            name: "rping",
            server: &["rping", "-s", "-p", "7473", "-C", "5"],
            client: &["rping", "-c", "-p", "7473", "-C", "5", "-a"],
        },
        Self {
            name: "fi_pingpong",
            server: &[
                "fi_pingpong",
                "-p",
                "verbs",
                "-e",
                "msg",
                "-S",
                "4096",
                "-I",
                "5",
            ],
            client: &[
                "fi_pingpong",
                "-p",
                "verbs",
                "-e",
                "msg",
                "-S",
                "4096",
                "-I",
                "5",
            ],
        },
    ];

    /// They connect, and both end well.
    fn connect(&self, to: &str) -> Result<(), Failure> {
        let mut server = Program::start(&format!("{self}'s server"), Host::B, self.server)?;
        thread::sleep(Duration::from_secs(1));
        server.ensure_running()?;
        let words = [self.client, &[to]].concat();
        let mut client = Program::start(&format!("{self} to {to}"), Host::A, &words)?;
        for end in [&mut client, &mut server] {
            let status = end.wait(LIMIT)?;
            ensure(status.success(), || {
                let told: Vec<_> = end.lines().into_iter().map(|line| line.text).collect();
                format!("{} ended with {status}: {}", end.name(), told.join("; "))
            })?;
        }
        Ok(())
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// host-a alone is served: by nobody, by apmd, by ibacm (in the short form by apmd). Whatever connects does so each time,
/// by name and by address.
fn at_the_client_only(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.stop_daemons()?;
    let hosts = format!("{ADDRESS} {}\n", Host::B.port(1).gid()?);
    write(format!("{DIRECTORY}/ibacm_hosts.data"), &hosts)?;
    let mut connected = 0;
    if !context.options.short {
        connected += all_connect("nobody")?;
    }
    connected += with_apmd(context)?;
    if !context.options.short {
        connected += with_ibacm()?;
    }
    context.report.connections += connected;
    context
        .report
        .set("connected_with_acm_at_the_client_only", connected);
    Ok(())
}

/// The programs that use `rdma_getaddrinfo` ask apmd; rping does not.
fn with_apmd(context: &mut Context<'_>) -> Result<u64, Failure> {
    context.world.start_daemon(Host::A, CLIENT_WITH_FILE)?;
    known_at(Host::B.port(1))?;
    let before = observe::acm_counter(Host::A, "resolve")?;
    let connected = all_connect("apmd")?;
    let asked = observe::acm_counter(Host::A, "resolve")? - before;
    ensure(asked >= connected - 2, || {
        format!("{connected} programs connected, and apmd was asked {asked} times")
    })?;
    context.world.stop_daemons()?;
    Ok(connected)
}

fn with_ibacm() -> Result<u64, Failure> {
    write(OPTIONS_FILE, IBACM_OPTIONS)?;
    let connected = beside_ibacm();
    // The next drill's ibacm has the defaults.
    command::run(&["rm", OPTIONS_FILE])?;
    connected
}

fn beside_ibacm() -> Result<u64, Failure> {
    let mut ibacm = Program::start("ibacm", Host::A, &["ibacm", "-P"])?;
    known_at(Host::B.port(1))?;
    let connected = all_connect("ibacm")?;
    ibacm.signal(Signal::SIGKILL)?;
    ibacm.wait(LIMIT)?;
    Ok(connected)
}

fn all_connect(served_by: &str) -> Result<u64, Failure> {
    let mut connected = 0;
    for pair in Pair::ALL {
        for to in [ADDRESS, NAME] {
            pair.connect(to).map_err(|failure| {
                Failure::not_shown(format!(
                    "host-a served by {served_by}: {pair} to {to}: {failure}"
                ))
            })?;
            connected += 1;
        }
    }
    Ok(connected)
}
