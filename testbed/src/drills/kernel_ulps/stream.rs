// SPDX-License-Identifier: MIT OR Apache-2.0
//! A target on one host, and on the other a client that verifies what it wrote.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;

use super::ulp::Ulp;

/// Bound for either side to come up, and for the client's last look at all blocks.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than any drill: the client is told when it is enough.
const SECONDS: &str = "7200";

/// The two, while they run.
pub(super) struct Stream {
    ulp: &'static Ulp,
    hosts: [Host; 2],
    client: Program,
    server: Program,
}

impl Stream {
    /// Starts the target and, when it is ready, the client, until that has its first data back.
    pub(super) fn start(ulp: &'static Ulp, hosts: [Host; 2]) -> Result<Self, Failure> {
        let [client, server] = hosts;
        let [script, listen, connect] = ulp.script;
        let devices = [
            format!("CLIENT_DEVICE={}", client.device()),
            format!("TARGET_DEVICE={}", server.device()),
        ];
        let start = |side: &str, host: Host, words: &[&str]| {
            let [client, target] = &devices;
            let words = [&["env", client, target, script], words].concat();
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
    pub(super) fn worst_since(&self, since: Moment) -> u64 {
        let lines = self.client.lines();
        let later = lines.iter().filter(|line| line.at >= since);
        later.filter_map(|line| took(&line.text)).max().unwrap_or(0)
    }

    /// Whose it is.
    pub(super) fn ulp(&self) -> &'static Ulp {
        self.ulp
    }

    /// Neither side has ended.
    pub(super) fn ensure_running(&mut self) -> Result<(), Failure> {
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
    pub(super) fn finish(mut self) -> Result<String, Failure> {
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
