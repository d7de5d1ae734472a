// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row's client and server while they run.

use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::clock::Moment;
use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::program::Program;

use super::flow::Flow;
use super::row::{Column, Data, End, Row};

/// Bound for a client to find its server.
const START: Duration = Duration::from_secs(30);

/// What a server is given to listen.
const SERVER: Duration = Duration::from_secs(1);

/// Bound for traffic to flow.
const TRAFFIC: Duration = Duration::from_secs(60);

/// Bound for the end of a program that goes on, beyond the time that it is meant to take.
const END: Duration = Duration::from_secs(120);

/// What a side is given to end after the other has.
const GRACE: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(100);

/// A client and a server.
pub(super) struct Running {
    pub(super) row: &'static Row,
    hosts: [Host; 2],
    client: Program,
    server: Option<Program>,
    pub(super) flow: Flow,
    started: Moment,
}

/// What a program is seen to do.
pub(super) enum State {
    Flows,
    Ended,
    Nothing,
}

impl Running {
    /// Starts both; `Err` in the result is why they do not come to run.
    ///
    /// Nothing shows that a stock server listens, and before that its client is refused; and one that
    /// has seen a connection fail may wait for ever. So both are started again until it goes well.
    pub(super) fn start(
        row: &'static Row,
        column: Column,
        amount: u64,
        hosts: [Host; 2],
    ) -> Result<Result<Self, String>, Failure> {
        let began = Moment::now();
        loop {
            let mut running = Self::attempt(row, column, amount, hosts)?;
            if running.has_begun()? {
                return Ok(Ok(running));
            }
            if Moment::now().since(began) > START {
                return Ok(Err(running.fates()?));
            }
        }
    }

    fn attempt(
        row: &'static Row,
        column: Column,
        amount: u64,
        hosts: [Host; 2],
    ) -> Result<Self, Failure> {
        let [client_host, server_host] = hosts;
        let flow = Flow::watch(hosts)?;
        if let Some(before) = row.before {
            command::run_as(server_host, &["sh", "-c", before])?;
        }
        let start = |side: &str, host, line| {
            let words = column.words(line, amount, hosts);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Program::start(&format!("{} {side}", row.name), host, &words)
        };
        let mut server = match row.server {
            "" => None,
            line => Some(start("server", server_host, line)?),
        };
        if let (Some(server), Some(words)) = (&mut server, row.ready) {
            server.wait_for_line(words, START, |line| line.contains(words))?;
        }
        thread::sleep(SERVER);
        Ok(Self {
            row,
            hosts,
            started: Moment::now(),
            client: start("client", client_host, row.client)?,
            server,
            flow,
        })
    }

    /// Waits until the client is seen to work, or to be refused.
    fn has_begun(&mut self) -> Result<bool, Failure> {
        let deadline = self.started + START;
        while Moment::now() < deadline && !self.flow.is_steady(self.started) {
            if let Some(status) = self.client.ended()? {
                return Ok(status.success());
            }
            thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Waits until it moves data all the time, or has ended.
    pub(super) fn wait_steady(&mut self) -> Result<State, Failure> {
        let since = Moment::now();
        while Moment::now().since(since) < TRAFFIC {
            if self.has_ended()? {
                return Ok(State::Ended);
            }
            if self.flow.is_steady(since) {
                return Ok(State::Flows);
            }
            thread::sleep(LOOK);
        }
        Ok(State::Nothing)
    }

    /// Whether the client has ended, or the server although it should not.
    pub(super) fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.client.ended()?.is_some() || ended(&mut self.server)?.is_some())
    }

    /// Has it end, if it can be told to.
    pub(super) fn tell_to_end(&mut self) -> Result<(), Failure> {
        self.signal_client(Signal::SIGTERM)
    }

    /// Signals the client's program that can be told to end, if there is one and it runs.
    fn signal_client(&mut self, signal: Signal) -> Result<(), Failure> {
        match self.row.end {
            End::OfItself => Ok(()),
            End::Told => self.client.signal(signal),
            End::ToldTo(name) => {
                let line = format!("kill -{} $(pidof {name})", signal as i32);
                command::attempt(&["sh", "-c", &line]).map(drop)
            }
        }
    }

    /// Waits for the end; `Err` in the result is what is wrong with it.
    pub(super) fn finish(&mut self, seconds: Duration) -> Result<Result<(), String>, Failure> {
        let deadline = self.started + seconds + END;
        while self.client.ended()?.is_none() && Moment::now() < deadline {
            if let Some(status) = ended(&mut self.server)?
                && !status.success()
            {
                break;
            }
            thread::sleep(LOOK);
        }
        self.give_grace()?;
        let client = self.client.ended()?;
        if client.is_none_or(|status| !status.success()) || !self.has_said() {
            return Ok(Err(self.fates()?));
        }
        if self.server_should_end() {
            let server = ended(&mut self.server)?;
            if server.is_none_or(|status| !status.success()) {
                return Ok(Err(self.fates()?));
            }
        }
        Ok(compare(self.row.data, self.hosts[1]))
    }

    /// Waits a while for the side that has not ended yet.
    fn give_grace(&mut self) -> Result<(), Failure> {
        let deadline = Moment::now() + GRACE;
        while self.server_should_end() && Moment::now() < deadline {
            if self.client.ended()?.is_some() && ended(&mut self.server)?.is_some() {
                break;
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn server_should_end(&self) -> bool {
        self.row.server_ends && self.server.is_some()
    }

    fn has_said(&self) -> bool {
        self.row.says.is_none_or(|words| {
            let lines = self.client.lines();
            lines.iter().any(|line| line.text.contains(words))
        })
    }

    /// How long the client took.
    pub(super) fn took(&self) -> Duration {
        Moment::now().since(self.started)
    }

    /// Whether an RC QP is in error, on either host.
    pub(super) fn a_qp_is_in_error(&self) -> Result<bool, Failure> {
        for host in self.hosts {
            let shown = command::run_as(host, &["rdma", "res", "show", "qp"])?;
            let broken = |line: &str| line.contains("type RC") && line.contains("state ERR");
            if shown.lines().any(broken) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How both sides are, in words.
    pub(super) fn fates(&mut self) -> Result<String, Failure> {
        fates(&mut self.client, &mut self.server)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(after) = self.row.after {
            // What it leaves is seen when the next run does not start, or the module does not go.
            drop(self.signal_client(Signal::SIGKILL));
            for program in self.server.iter_mut().chain([&mut self.client]) {
                drop(program.signal(Signal::SIGKILL));
                drop(program.wait(GRACE));
            }
            drop(command::run_as(self.hosts[1], &["sh", "-c", after]));
        }
    }
}

fn ended(server: &mut Option<Program>) -> Result<Option<ExitStatus>, Failure> {
    server.as_mut().map_or(Ok(None), Program::ended)
}

fn fates(client: &mut Program, server: &mut Option<Program>) -> Result<String, Failure> {
    let client = fate(client)?;
    Ok(match server {
        Some(server) => format!("client {client}, server {}", fate(server)?),
        None => client,
    })
}

fn compare(data: Data, host: Host) -> Result<(), String> {
    let Data::Compared(line) = data else {
        return Ok(());
    };
    let ended = Program::start("comparison", host, &["sh", "-c", line])
        .and_then(|mut comparison| comparison.wait(END));
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the data is not right: {line}: {status}")),
        Err(failure) => Err(format!("the data is not compared: {failure}")),
    }
}

fn fate(program: &mut Program) -> Result<String, Failure> {
    Ok(match program.ended()? {
        Some(status) => format!("{status} ({})", program.last_line().trim()),
        None => "hangs".to_owned(),
    })
}
