// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices on which nothing can be protected: RoCE, and one port with one LID. Programs run there under
//! `apmctl run` as they would without, and whoever asks is told why.

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::{self, Connection};
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "refused",
    about: "RoCE, and one port with one LID: programs run unprotected, and are told why",
    parts: &[Part {
        world: Kind::LeafSpine,
        run,
    }],
};

/// A software RoCE device over one end of a virtual Ethernet cable. Both ends of a connection are on it:
/// packets between two of one network namespace's addresses would not go over the cable.
const ROCE: &str = "rxe0";
const ADDRESS: &str = "10.9.0.1";
const CABLE: [&str; 2] = ["roce0", "roce1"];

/// By its whole name: busybox has a smaller one, which its timeout(1) prefers.
const IP: &str = "/usr/bin/ip";

/// rdma_cm's own ACK timeout: nothing of the QP is another than without us.
const OWN_ACK_TIMEOUT: u8 = 19;

/// Bound for programs to connect, to end, and to be told.
const LIMIT: Duration = Duration::from_secs(60);

/// Lines that an operator may be told in all of a daemon: no more than a few for each connection.
const LINES: usize = 20;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    // With one LID a port these hosts have one path. Whoever comes next wants the fabric's own LMC, and
    // gets it with its world.
    context.world.set_lmc(0)?;
    let shown = make_roce().and_then(|()| refused(context));
    let removed = remove_roce();
    shown.and(removed)
}

fn make_roce() -> Result<(), Failure> {
    let [near, far] = CABLE;
    command::run(&["modprobe", "-a", "crc32_generic", "rdma_rxe"])?;
    for line in [
        format!("{IP} link add {near} type veth peer name {far}"),
        format!("{IP} link set {far} up"),
        format!("{IP} address add {ADDRESS}/24 dev {near}"),
        format!("{IP} link set {near} up"),
        format!("rdma link add {ROCE} type rxe netdev {near}"),
    ] {
        command::run(&words(&line))?;
    }
    Ok(())
}

fn remove_roce() -> Result<(), Failure> {
    if command::run(&["rdma", "link", "show", &format!("{ROCE}/1")]).is_ok() {
        command::run(&["rdma", "link", "delete", ROCE])?;
    }
    command::run(&[IP, "link", "delete", CABLE[0]]).map(drop)
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn refused(context: &mut Context<'_>) -> Result<(), Failure> {
    let [c, d] = Host::ONE_PORT;
    let since = Moment::now();
    let with_roce = Policy {
        devices: &[ROCE],
        ..Policy::default()
    };
    context.world.start_daemon(c, with_roce)?;
    context.world.start_daemon(d, Policy::default())?;
    let status = command::run_as(c, &["apmctl", "status"])?;
    for why in [
        format!("{ROCE}: no InfiniBand port"),
        format!("{}: it has one port only, with one LID", c.device()),
    ] {
        ensure(status.contains(&why), || {
            format!("apmctl status does not say '{why}': {status}")
        })?;
    }
    for subject in [roce(), one_lid()?] {
        subject.runs(context)?;
        subject.is_told(context, since)?;
    }
    for host in [c, d] {
        nothing_is_done(context, host, since)?;
    }
    context.world.stop_daemons()
}

/// Debian's programs on a device, and what is said of their connections.
struct Subject {
    device: &'static str,
    client: (Host, String),
    server: (Host, String),
    /// What makes them end soon, and not at all.
    short: &'static str,
    endless: &'static str,
    /// Connections of host C's daemon: two, if it has both ends.
    count: usize,
    why: &'static str,
}

fn roce() -> Subject {
    let [c, _] = Host::ONE_PORT;
    Subject {
        device: ROCE,
        server: (c, format!("rping -s -a {ADDRESS} -V")),
        client: (c, format!("rping -c -a {ADDRESS} -V")),
        short: "-C 100",
        endless: "-C 100000000",
        count: 2,
        why: "the link layer is not infiniband",
    }
}

fn one_lid() -> Result<Subject, Failure> {
    let [c, d] = Host::ONE_PORT;
    let (from, to) = (c.port(1).gid()?, d.port(1).gid()?);
    Ok(Subject {
        device: c.device(),
        server: (
            d,
            format!("rstream -f gid -b {to} -T b -T v -S 16384 -C 64"),
        ),
        client: (
            c,
            format!("rstream -f gid -b {from} -s {to} -T b -T v -S 16384 -C 64"),
        ),
        short: "-I 4",
        endless: "-I 100000000",
        count: 1,
        why: "one port and LMC 0: no second path can exist",
    })
}

impl Subject {
    fn start(&self, amount: &str) -> Result<[Program; 2], Failure> {
        let one = |side: &str, (host, line): &(Host, String)| {
            let line = format!("apmctl run -- {line} {amount}");
            Program::start(&format!("{side} on {}", self.device), *host, &words(&line))
        };
        let mut server = one("server", &self.server)?;
        // Nothing shows that a stock server listens; before that its client is rejected at once.
        let client = wait::until(&format!("a connection on {}", self.device), LIMIT, || {
            server.ensure_running()?;
            let mut client = one("client", &self.client)?;
            std::thread::sleep(Duration::from_secs(1));
            Ok(match client.ended()? {
                Some(status) if !status.success() => Seen::NotYet(client.last_line()),
                _ => Seen::Ready(client),
            })
        })?;
        Ok([client, server])
    }

    /// They transfer what they should, and end well: both compare what arrives.
    fn runs(&self, context: &mut Context<'_>) -> Result<(), Failure> {
        for mut program in self.start(self.short)? {
            let status = program.wait(LIMIT)?;
            ensure(status.success(), || {
                format!("{}: {status}: {}", program.name(), program.last_line())
            })?;
        }
        context.report.connections += 1;
        context
            .timeline
            .note("drill", format!("{}: runs", self.device));
        Ok(())
    }

    /// While they run `conn show` and the log say why they are not protected, and they stay as they are.
    fn is_told(&self, context: &mut Context<'_>, since: Moment) -> Result<(), Failure> {
        let host = self.client.0;
        let mut programs = self.start(self.endless)?;
        let of_us = |conn: &Connection| conn.protection == "refused";
        let what = format!("connections on {} are shown as refused", self.device);
        let conns = wait::until(&what, LIMIT, || {
            let conns = observe::connections(host)?;
            let refused = conns.iter().filter(|conn| of_us(conn)).count();
            let states: Vec<_> = conns.iter().map(Connection::state).collect();
            Ok(match refused == self.count && conns.len() == refused {
                true => Seen::Ready(conns),
                false => Seen::NotYet(states.join(" | ")),
            })
        })?;
        for conn in &conns {
            ensure(conn.reason.as_deref() == Some(self.why), || {
                format!("{}: {}, and not '{}'", self.device, conn.state(), self.why)
            })?;
            let timeout = conn.primary.ack_timeout;
            ensure(
                conn.alternate.is_none() && timeout == OWN_ACK_TIMEOUT,
                || format!("{}: changed: ACK timeout {timeout}", self.device),
            )?;
        }
        wait::until("an operator is told", LIMIT, || {
            let told = context.world.told_since(host, since);
            let said = told.iter().any(|line| line.text.contains(self.why));
            Ok(Seen::when(said, || format!("{} lines", told.len())))
        })?;
        programs.iter_mut().try_for_each(Program::ensure_running)?;
        let text = format!("{}: refused: {}", self.device, self.why);
        context.timeline.note("drill", text);
        drop(programs);
        wait::until("their connections are forgotten", LIMIT, || {
            let left = observe::connections(host)?.len();
            Ok(Seen::when(left == 0, || format!("{left} connections")))
        })
    }
}

/// Nothing was loaded or proposed, and the daemon has said little.
fn nothing_is_done(context: &mut Context<'_>, host: Host, since: Moment) -> Result<(), Failure> {
    let log = context.world.log(host);
    for word in ["loading alternate", "LAP sent", "asking for a path"] {
        let done = log.iter().find(|line| line.text.contains(word));
        ensure(done.is_none(), || format!("{host}: {done:?}"))?;
    }
    let told = context.world.told_since(host, since).len();
    context.report.set(&format!("lines_of_{host}"), told);
    ensure(told <= LINES, || {
        format!("{host}: an operator was told {told} lines")
    })
}
