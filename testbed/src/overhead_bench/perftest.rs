// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program of perftest's, between the two hosts, and the average that it prints.

use std::time::Duration;

use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};

const LIMIT: Duration = Duration::from_secs(120);

/// The address of host B at which the two exchange their queue pairs' numbers; not the fabric's.
const SERVER: &str = "10.0.0.2";

pub(super) struct Perftest {
    words: &'static [&'static str],
    /// Of a message, and first in the line with the figures.
    size: &'static str,
    /// Which column of that is the average.
    column: usize,
}

/// Microseconds of a message one way; whoever waits sleeps.
pub(super) const LATENCY: Perftest = Perftest {
    words: &["ib_send_lat", "-F", "-e", "-s", "8", "-n", "1000"],
    size: "8",
    column: 5,
};

/// MiB a second.
pub(super) const BANDWIDTH: Perftest = Perftest {
    words: &["ib_write_bw", "-F", "-s", "65536", "-n", "300"],
    size: "65536",
    column: 3,
};

impl Perftest {
    /// The average of one run.
    ///
    /// It is "inf" where perftest found the clock too irregular; that is tried again.
    pub(super) fn average(&self) -> Result<f64, Failure> {
        for _ in 0..5 {
            let average = self.once()?;
            if average.is_finite() {
                return Ok(average);
            }
        }
        Err(Failure::not_shown(format!(
            "{}: no figure in five runs",
            self.words[0]
        )))
    }

    fn once(&self) -> Result<f64, Failure> {
        let words = |host: Host| [self.words, &["-d", host.device()]].concat();
        let mut server = Program::start("server", Host::B, &words(Host::B))?;
        wait::until("the server listens", LIMIT, || {
            server.ensure_running()?;
            Ok(Seen::when(listens()?, || "nobody does".to_owned()))
        })?;
        let client = [&words(Host::A)[..], &[SERVER]].concat();
        let mut client = Program::start("client", Host::A, &client)?;
        for program in [&mut client, &mut server] {
            let status = program.wait(LIMIT)?;
            ensure(status.success(), || {
                format!("{} {status}: {}", self.words[0], program.last_line())
            })?;
        }
        let lines = client.lines();
        let figure = lines.iter().find_map(|line| self.figure(&line.text));
        figure.ok_or_else(|| Failure::Output {
            source_name: self.words[0].to_owned(),
            problem: "no line with figures".to_owned(),
        })
    }

    fn figure(&self, line: &str) -> Option<f64> {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.first() == Some(&self.size)).then(|| words.get(self.column)?.parse().ok())?
    }
}

/// Whether somebody listens on perftest's port (`/proc/net/tcp`: the local port, then state LISTEN).
fn listens() -> Result<bool, Failure> {
    let tables = command::run_as(Host::B, &["cat", "/proc/net/tcp", "/proc/net/tcp6"])?;
    let is_it = |line: &str| line.contains(":4853 ") && line.contains(" 0A ");
    Ok(tables.lines().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_found() {
        let line = " 8       1000          24.50          80.00        30.00     	       31.25       	1.00   		40.00  		70.00";
        assert_eq!(LATENCY.figure(line), Some(31.25));
        assert_eq!(LATENCY.figure(" #bytes #iterations    t_min[usec]"), None);
        let line = " 65536      300              120.00             118.75		   0.001900";
        assert_eq!(BANDWIDTH.figure(line), Some(118.75));
    }
}
