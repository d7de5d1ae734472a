// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hundred programs, and the first connection of each: it has the short ACK timeout, which can be set only before
//! the connection is there, and so depends on how soon its library knows that the peer has a daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

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
    name: "first-hundred",
    about: "a hundred programs' first connections have the short ACK timeout, but for one",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// Programs, one after the other: on two emulated processors, programs that start beside each other wait for the processor
/// longer than a library waits for its daemon's answer.
const LONG: usize = 100;
const SHORT: usize = 20;

/// Of a hundred connections this many may be made too early.
const LATE_OF_A_HUNDRED: usize = 1;

/// The library's, where it is used.
const ACK_TIMEOUT: u8 = 14;

const FIRST_PORT: usize = 7500;

/// Longer than a look at it takes: it is killed then.
const SECONDS: &str = "120";

const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let first = match context.options.short {
        true => SHORT,
        false => LONG,
    };
    context.world.start_daemons(Policy::default())?;
    let mut timeouts = [Timeouts::default(), Timeouts::default()];
    for port in FIRST_PORT..FIRST_PORT + first {
        let pair = start(&port.to_string())?;
        for (host, timeouts) in Host::ALL.into_iter().zip(&mut timeouts) {
            timeouts.add(&registered(host)?);
        }
        drop(pair);
        context.world.wait_for("no connection left", 0, |_| true)?;
    }
    for (host, timeouts) in Host::ALL.into_iter().zip(&timeouts) {
        let short = timeouts.short();
        let text =
            format!("{host}: of {first} first connections {short} have the short ACK timeout");
        context.timeline.note("drill", text);
        context.report.set(host.name(), json!(timeouts.0));
    }
    for (host, timeouts) in Host::ALL.into_iter().zip(&timeouts) {
        let late = first - timeouts.short();
        ensure(late * 100 <= first * LATE_OF_A_HUNDRED, || {
            format!(
                "{host}: {late} of {first} first connections have another ACK timeout than {ACK_TIMEOUT}: {timeouts:?}"
            )
        })?;
    }
    Ok(())
}

/// How many connections have which ACK timeout.
#[derive(Default, Debug)]
struct Timeouts(BTreeMap<u8, usize>);

impl Timeouts {
    fn add(&mut self, connection: &Connection) {
        *self.0.entry(connection.primary.ack_timeout).or_default() += 1;
    }

    fn short(&self) -> usize {
        self.0.get(&ACK_TIMEOUT).copied().unwrap_or_default()
    }
}

/// Starts one that listens and, when it does, one that connects.
fn start(port: &str) -> Result<[Program; 2], Failure> {
    let words = |role: &[&'static str]| -> Vec<&str> {
        let all = ["apmctl", "run", "--", "cm_peers", "-d", SECONDS, "-p", port];
        [&all, role].concat()
    };
    let mut server = Program::start("server", Host::B, &words(&["10.0.1.2"]))?;
    wait::until("the program listens", LIMIT, || {
        server.ensure_running()?;
        let listens = server.lines().iter().any(|line| line.text == "ready");
        Ok(Seen::when(listens, || server.last_line()))
    })?;
    let role = ["-c", "10.0.1.1", "10.0.1.2"];
    let client = Program::start("client", Host::A, &words(&role))?;
    Ok([server, client])
}

/// The program's connection, as its daemon has read it from the queue pair.
fn registered(host: Host) -> Result<Connection, Failure> {
    wait::until("the program's connection is registered", LIMIT, || {
        let found = observe::connections(host)?.pop();
        Ok(match found {
            Some(connection) => Seen::Ready(connection),
            None => Seen::NotYet("none".to_owned()),
        })
    })
}
