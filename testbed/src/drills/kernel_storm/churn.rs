// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that connect by rdma_cm, exchange data and disconnect, again and again; some are killed in the midst.

use std::time::Duration;

use crate::clock::Moment;
use crate::failure::Failure;
use crate::host::Host;
use crate::ibsim::Dice;
use crate::program::Program;

use super::killed::{Killed, verify};
use super::running::NICE;

/// Servers with a client each, at any time.
const COUPLES: usize = 6;

/// Each has a port of its own, and the next one of that place the next.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 20_000;

/// cmtime does not say when it listens.
const LISTENS: Duration = Duration::from_millis(700);

/// A server and a client. Those of cmtime make many connections at once and take them down, client after
/// client; those of cm_peers exchange messages over theirs for some seconds.
struct Couple {
    server: Program,
    client: Option<Program>,
    port: String,
    connections: String,
    is_cmtime: bool,
    since: Moment,
    dies: Moment,
}

/// All of them.
#[derive(Default)]
pub(super) struct Churn {
    couples: Vec<Couple>,
    killed: Killed,
    started: u64,
    port: u16,
}

impl Churn {
    /// Programs that were started, and those that were killed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.started, self.killed.count())
    }

    /// What is due now: clients of servers that listen, new ones in the place of the dead, deaths.
    pub(super) fn go_on(&mut self, dice: &mut Dice) -> Result<(), Failure> {
        self.killed.look()?;
        while self.couples.len() < COUPLES {
            let couple = self.begin(dice)?;
            self.couples.push(couple);
        }
        for mut couple in std::mem::take(&mut self.couples) {
            if Moment::now() > couple.dies {
                self.end(couple, dice)?;
            } else if self.advance(&mut couple)? {
                self.couples.push(couple);
            } else {
                self.part(couple);
            }
        }
        Ok(())
    }

    /// Kills all, -9.
    pub(super) fn kill_all(&mut self) -> Result<(), Failure> {
        for couple in std::mem::take(&mut self.couples) {
            self.killed.kill(couple.server)?;
            couple
                .client
                .map_or(Ok(()), |client| self.killed.kill(client))?;
        }
        Ok(())
    }

    /// Looks whether all that were killed have ended.
    pub(super) fn are_gone(&mut self) -> Result<bool, Failure> {
        self.killed.look()?;
        Ok(self.couples.is_empty() && self.killed.is_empty())
    }

    fn begin(&mut self, dice: &mut Dice) -> Result<Couple, Failure> {
        self.port = (self.port + 1) % PORTS;
        self.started += 1;
        let is_cmtime = dice.below(3) == 0;
        let port = (FIRST_PORT + self.port).to_string();
        let connections = match is_cmtime {
            true => 20 + dice.below(40),
            false => 4 + dice.below(12),
        };
        let connections = connections.to_string();
        let words = match is_cmtime {
            true => vec!["cmtime", "-b", B, "-p", &port],
            // Some make their queue pairs by themselves, or have librdmacm by dlopen.
            false => [
                &["cm_peers", "-p", &port, "-n", &connections],
                [&[][..], &["-o"], &["-l"]][dice.below(3)],
                &[B],
            ]
            .concat(),
        };
        let words = [&NICE[..], &words].concat();
        let server = Program::start(&format!("server {port}"), Host::B, &words)?;
        let now = Moment::now();
        Ok(Couple {
            server,
            client: None,
            port,
            connections,
            is_cmtime,
            since: now,
            dies: now + Duration::from_millis(1500 + dice.below(7000) as u64),
        })
    }

    /// False if it is at its end.
    fn advance(&mut self, couple: &mut Couple) -> Result<bool, Failure> {
        if couple.server.ended()?.is_some() {
            return Ok(false);
        }
        let listens = couple.listens();
        match &mut couple.client {
            None => {
                if !listens {
                    return Ok(true);
                }
            }
            Some(client) => {
                if client.ended()?.is_none() {
                    return Ok(true);
                }
                verify(client)?;
                if !couple.is_cmtime {
                    return Ok(false);
                }
            }
        }
        couple.client = Some(couple.connect()?);
        self.started += 1;
        Ok(true)
    }

    /// One of both is killed, or both.
    fn end(&mut self, couple: Couple, dice: &mut Dice) -> Result<(), Failure> {
        let Some(client) = couple.client else {
            return self.killed.kill(couple.server);
        };
        match dice.below(3) {
            0 => {
                self.killed.kill(client)?;
                self.killed.leave_alone(couple.server);
            }
            1 => {
                self.killed.kill(couple.server)?;
                self.killed.leave_alone(client);
            }
            _ => {
                self.killed.kill(client)?;
                self.killed.kill(couple.server)?;
            }
        }
        Ok(())
    }

    /// One of both has ended.
    fn part(&mut self, couple: Couple) {
        self.killed.leave_alone(couple.server);
        if let Some(client) = couple.client {
            self.killed.leave_alone(client);
        }
    }
}

/// Where clients come from, and where servers listen.
const A: &str = "10.0.1.1";
const B: &str = "10.0.1.2";

impl Couple {
    fn listens(&self) -> bool {
        match self.is_cmtime {
            true => Moment::now().since(self.since) > LISTENS,
            false => self.server.lines().iter().any(|line| line.text == "ready"),
        }
    }

    fn connect(&self) -> Result<Program, Failure> {
        let (port, connections) = (self.port.as_str(), self.connections.as_str());
        let words = match self.is_cmtime {
            true => vec!["cmtime", "-b", A, "-s", B, "-p", port, "-c", connections],
            false => vec![
                "cm_peers",
                "-p",
                port,
                "-n",
                connections,
                "-d",
                "3",
                "-c",
                A,
                B,
            ],
        };
        let words = [&NICE[..], &words].concat();
        Program::start(&format!("client {port}"), Host::A, &words)
    }
}
