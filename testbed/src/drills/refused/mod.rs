// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices on which nothing can be protected: RoCE, and one port with one LID. Programs run there under
//! `apmctl run` as they would without, and whoever asks is told why, on the peer's host as well.

mod roce;

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::{self, Connection};
use crate::program::{Line, Program};
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

/// What `apmctl status` ends with where no connection can be protected.
const DEGRADED: i32 = 4;

/// What is said of connections on a device with one port that has one LID.
const ONE_LID: &str = "one port and LMC 0: no second path can exist";

/// Bound for programs to connect, to end, and to be told.
const LIMIT: Duration = Duration::from_secs(60);

/// Lines that an operator may be told in all of a daemon: no more than a few for each connection.
const LINES: usize = 20;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    // With one LID a port these hosts have one path. Whoever comes next wants the fabric's own LMC, and
    // gets it with its world.
    context.world.set_lmc(0)?;
    let shown = roce::prepare().and_then(|()| refused(context));
    let removed = roce::clear();
    shown.and(removed)
}

fn refused(context: &mut Context<'_>) -> Result<(), Failure> {
    roce::add()?;
    let since = Moment::now();
    let with_roce = Policy {
        devices: &[roce::NAME],
        ..Policy::default()
    };
    let [c, d] = Host::ONE_PORT;
    context.world.start_daemon(c, with_roce)?;
    context.world.start_daemon(d, Policy::default())?;
    status_says_why(c)?;
    for subject in [roce(), one_lid()?] {
        subject.runs(context)?;
        subject.is_told(context, since)?;
    }
    for host in [c, d] {
        nothing_is_done(context, host, since)?;
    }
    is_not_held(context, c)?;
    context.world.stop_daemons()?;
    peer_is_told(context)
}

fn status_says_why(host: Host) -> Result<(), Failure> {
    let output = command::attempt(&[host.name(), "apmctl", "status"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure(output.status.code() == Some(DEGRADED), || {
        format!("apmctl status: {}: {text}", output.status)
    })?;
    for why in [
        format!("{}: no InfiniBand port", roce::NAME),
        format!("{}: it has one port only, with one LID", host.device()),
    ] {
        ensure(text.contains(&why), || {
            format!("apmctl status does not say '{why}': {text}")
        })?;
    }
    Ok(())
}

/// The daemon is in nobody's way who removes the RoCE device, and sees that it goes and comes again.
fn is_not_held(context: &mut Context<'_>, host: Host) -> Result<(), Failure> {
    roce::remove()?;
    context
        .world
        .wait_logged(host, &["device gone", roce::NAME])?;
    roce::add()?;
    wait::until("the device is found again", LIMIT, || {
        let log = context.world.log(host);
        let found = |line: &&Line| line.text.contains("device left alone");
        let times = log.iter().filter(found).count();
        Ok(Seen::when(times == 2, || format!("found {times} times")))
    })?;
    context
        .timeline
        .note("drill", format!("{}: goes and comes again", roce::NAME));
    Ok(())
}

/// A host with two ports is told by its peer that the peer has only one path.
fn peer_is_told(context: &mut Context<'_>) -> Result<(), Failure> {
    let [a, d] = [Host::A, Host::ONE_PORT[1]];
    context.world.move_to([a, d])?;
    context.world.start_daemons(Policy::default())?;
    let programs = rstream(a, d)?.start("-I 100000000")?;
    for (host, protection, why) in [
        (d, "refused", ONE_LID),
        (
            a,
            "unprotected",
            "the peer's apmd refuses: the device has one port and one lid",
        ),
    ] {
        wait::until(&format!("{host} says: {why}"), LIMIT, || {
            let conns = observe::connections(host)?;
            let says = |conn: &Connection| {
                conn.protection == protection
                    && conn.reason.as_deref() == Some(why)
                    && conn.alternate.is_none()
            };
            let states: Vec<_> = conns.iter().map(Connection::state).collect();
            let shown = conns.len() == 1 && conns.iter().all(says);
            Ok(Seen::when(shown, || states.join(" | ")))
        })?;
        context.timeline.note(host, why);
    }
    drop(programs);
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
    /// rdma_cm's own, by kernels: nothing of the queue pair is another than without us. The library's is 14.
    ack_timeouts: &'static [u8],
}

fn roce() -> Subject {
    let [c, _] = Host::ONE_PORT;
    Subject {
        device: roce::NAME,
        server: (c, format!("rping -s -a {} -V", roce::ADDRESS)),
        client: (c, format!("rping -c -a {} -V", roce::ADDRESS)),
        short: "-C 100",
        endless: "-C 100000000",
        count: 2,
        why: "the link layer is not infiniband",
        ack_timeouts: &[17, 19],
    }
}

fn one_lid() -> Result<Subject, Failure> {
    let [c, d] = Host::ONE_PORT;
    rstream(c, d)
}

/// rstream from a host's first port to another's; it verifies what arrives.
fn rstream(client: Host, server: Host) -> Result<Subject, Failure> {
    let (from, to) = (client.port(1).gid()?, server.port(1).gid()?);
    Ok(Subject {
        device: client.device(),
        server: (
            server,
            format!("rstream -f gid -b {to} -T b -T v -S 16384 -C 64"),
        ),
        client: (
            client,
            format!("rstream -f gid -b {from} -s {to} -T b -T v -S 16384 -C 64"),
        ),
        short: "-I 4",
        endless: "-I 100000000",
        count: 1,
        why: ONE_LID,
        ack_timeouts: &[19],
    })
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
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
            Ok(match self.connects(&mut client)? {
                true => Seen::Ready(client),
                false => Seen::NotYet(client.last_line()),
            })
        })?;
        Ok([client, server])
    }

    /// Waits until the client is connected, or has ended: well, if it was.
    fn connects(&self, client: &mut Program) -> Result<bool, Failure> {
        wait::until("the client connects, or ends", LIMIT, || {
            if let Some(status) = client.ended()? {
                return Ok(Seen::Ready(status.success()));
            }
            Ok(match observe::connections(self.client.0)?.len() {
                count if count >= self.count => Seen::Ready(true),
                count => Seen::NotYet(format!("{count} connections")),
            })
        })
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
                conn.alternate.is_none() && self.ack_timeouts.contains(&timeout),
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
