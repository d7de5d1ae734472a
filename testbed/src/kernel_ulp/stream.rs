// SPDX-License-Identifier: MIT OR Apache-2.0
//! A target on one host, and on the other a client that verifies what it wrote.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::Pair;
use crate::port::Port;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::{self, World};

use super::Ulp;

/// Bound for either side to come up, and for the client's last look at all blocks.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than any drill: the client is told when it is enough.
const SECONDS: &str = "7200";

/// The two, while they run.
pub struct Stream {
    ulp: &'static Ulp,
    hosts: [Host; 2],
    client: Program,
    server: Program,
}

impl Stream {
    /// Starts the target and, when it is ready, the client, until that has its first data back.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start(ulp: &'static Ulp, hosts: [Host; 2]) -> Result<Self, Failure> {
        let [client, server] = hosts;
        let [script, listen, connect] = ulp.script;
        let ends = [
            format!("CLIENT_DEVICE={}", client.device()),
            format!("TARGET_DEVICE={}", server.device()),
            format!("CLIENT_ADDRESS=10.0.1.{}", client.number()),
            format!("TARGET_ADDRESS=10.0.1.{}", server.number()),
        ];
        let start = |side: &str, host: Host, words: &[&str]| {
            let mut line = vec!["env"];
            line.extend(ends.iter().map(String::as_str));
            line.push(script);
            let words = [&line, words].concat();
            Program::start(&format!("{} {side}", ulp.name), host, &words)
        };
        let mut server = start("target", server, &[listen])?;
        server.wait_for_line("ready", LIMIT, |line| line.contains("ready"))?;
        let mut client = start("client", client, &[connect, SECONDS])?;
        client.wait_for_line("begun", LIMIT, |line| line == "begun")?;
        Ok(Self {
            ulp,
            hosts,
            client,
            server,
        })
    }

    /// The longest operation, in ms, of those that ended since then and were slow; 0 if none was.
    pub fn worst_since(&self, since: Moment) -> u64 {
        self.worst_between(since, Moment::now())
    }

    /// The same, of those that ended between the two moments.
    pub fn worst_between(&self, from: Moment, to: Moment) -> u64 {
        let lines = self.client.lines();
        let ended = lines.iter().filter(|line| line.at >= from && line.at < to);
        ended.filter_map(|line| took(&line.text)).max().unwrap_or(0)
    }

    /// Waits until all its connections are known, and those that carry it are armed over paths without a
    /// common port; which are.
    ///
    /// # Errors
    /// [`Failure::Timeout`] with what is instead.
    pub fn wait_armed(&self, world: &World) -> Result<Vec<Pair>, Failure> {
        self.wait_for(world, Pair::is_disjoint)
    }

    /// The same, as `armed` means it.
    ///
    /// # Errors
    /// As [`Self::wait_armed`].
    pub fn wait_for(
        &self,
        world: &World,
        armed: impl Fn(&Pair) -> bool,
    ) -> Result<Vec<Pair>, Failure> {
        let ulp = self.ulp;
        let what = "all known, and armed that carry the stream";
        wait::until(what, world::LIMIT, || {
            let mut pairs = world.pairs()?;
            let all = pairs.len();
            pairs.retain(&armed);
            if all == ulp.connections && pairs.len() >= ulp.busy {
                return Ok(Seen::Ready(pairs));
            }
            Ok(Seen::NotYet(format!("{} armed of {all}", pairs.len())))
        })
    }

    /// Whose it is.
    pub fn ulp(&self) -> &'static Ulp {
        self.ulp
    }

    /// Neither side has ended.
    ///
    /// # Errors
    /// What the one that has ended said.
    pub fn ensure_running(&mut self) -> Result<(), Failure> {
        self.client.ensure_running()?;
        self.server.ensure_running()
    }

    /// Signals the program that verifies.
    fn signal_client(&mut self, signal: Signal) -> Result<(), Failure> {
        let Some(name) = self.ulp.verifier else {
            return self.client.signal(signal);
        };
        let line = format!("kill -{} $(pidof {name})", signal as i32);
        command::run(&["sh", "-c", &line]).map(drop)
    }

    /// Has the client end with a last look at all that it wrote; what it says.
    ///
    /// # Errors
    /// If it does not come to its end, or a block is not what was written.
    pub fn finish(mut self) -> Result<String, Failure> {
        self.ensure_running()?;
        self.signal_client(Signal::SIGTERM)?;
        let status = self.client.wait(LIMIT)?;
        let said = self.client.last_line();
        ensure(status.success(), || {
            format!("the client ended with {status}: {said}")
        })?;
        Ok(said)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What it leaves is seen when the module does not go.
        drop(self.signal_client(Signal::SIGKILL));
        drop(self.client.wait(Duration::from_secs(5)));
        drop(self.server.signal(Signal::SIGKILL));
        drop(self.server.wait(Duration::from_secs(5)));
        if !self.ulp.forget.is_empty() {
            drop(command::run_as(
                self.hosts[1],
                &[self.ulp.script[0], self.ulp.forget],
            ));
        }
    }
}

/// Waits until these do not use the port any more, seen from both ends.
///
/// # Errors
/// [`Failure::Timeout`] with how many have left it.
pub fn wait_moved(world: &World, pairs: &[Pair], port: Port) -> Result<(), Failure> {
    let has_left = |pair: &Pair| pair.active_port(port.host) != port && pair.is_on_one_path();
    wait_left(world, pairs, &format!("moved away from {port}"), has_left)
}

/// Waits until these have left, as `has_left` means it.
///
/// # Errors
/// [`Failure::Timeout`] with how many have.
pub fn wait_left(
    world: &World,
    pairs: &[Pair],
    what: &str,
    has_left: impl Fn(&Pair) -> bool,
) -> Result<(), Failure> {
    let is_one = |pair: &Pair, of: &Pair| pair.ends[0].qpn == of.ends[0].qpn;
    wait::until(what, world::LIMIT, || {
        let now = world.pairs()?;
        let left = |of: &&Pair| now.iter().any(|pair| is_one(pair, of) && has_left(pair));
        let count = pairs.iter().filter(left).count();
        Ok(Seen::when(count == pairs.len(), || {
            format!("{count} of {}", pairs.len())
        }))
    })
}

/// Of a line that says how long an operation took, the ms.
fn took(line: &str) -> Option<u64> {
    let seconds = line.strip_prefix("operation took ")?.strip_suffix(" s")?;
    let seconds: f64 = seconds.parse().ok()?;
    Some((seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_in_ms() {
        assert_eq!(took("operation took 0.345 s"), Some(345));
        assert_eq!(took("10 blocks right, longest operation 0.345 s"), None);
    }
}
