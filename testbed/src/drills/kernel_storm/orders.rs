// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders to the module without regard to what its queue pairs do, and messages that are none.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;
use crate::report::Report;

use super::running::{NICE, SECONDS};

const LIMIT: Duration = Duration::from_secs(120);

/// Messages of apm_fuzz that hardly are orders.
const MESSAGES: &str = "2000";

/// Whose connections are left alone: a good order to leave for a port that is down ends any connection.
const SPARED: &str = "apm_stream";

/// What apm_hammer counts, by the word that stands before it.
const WORDS: [&str; 8] = [
    "orders: ",
    "done ",
    "stale ",
    "failed ",
    "nonsense: ",
    "refused: ",
    "ended: ",
    "moved idle: ",
];

/// How many of each there were so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally([u64; WORDS.len()]);

impl Tally {
    fn add(&mut self, line: &str) -> Option<()> {
        for (sum, word) in self.0.iter_mut().zip(WORDS) {
            *sum += number_after(line, word)?;
        }
        Some(())
    }

    /// Moves of queue pairs that waited for traffic.
    pub(super) fn moved_idle(&self) -> u64 {
        self.0[7]
    }

    /// Queue pairs whose end was told.
    pub(super) fn ended(&self) -> u64 {
        self.0[6]
    }

    pub(super) fn report(&self, report: &mut Report) {
        let keys = [
            "orders",
            "done",
            "stale",
            "failed",
            "nonsense",
            "refused",
            "qps",
            "moved_idle",
        ];
        for (key, count) in keys.into_iter().zip(self.0) {
            report.set(key, count);
        }
    }
}

fn number_after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Queue pairs that wait for traffic all the time.
const IDLE: &str = "64";

/// apm_hammer, and for a while apm_fuzz and a program with idle queue pairs beside it.
pub(super) struct Orders {
    hammer: Program,
    fuzz: Program,
    idle: Program,
}

impl Orders {
    /// Starts both; the module is loaded.
    pub(super) fn start(seed: u64) -> Result<Self, Failure> {
        let seed = seed.to_string();
        let mut words = [&NICE[..], &["apm_hammer", "-x", SPARED, SECONDS, &seed]].concat();
        let lids = [lids(Host::A)?, lids(Host::B)?];
        words.extend(lids.iter().map(String::as_str));
        let hammer = Program::start("apm_hammer", Host::A, &words)?;
        let fuzz = [&NICE[..], &["apm_fuzz", MESSAGES, &seed]].concat();
        let fuzz = Program::start("apm_fuzz", Host::A, &fuzz)?;
        let far = Host::B.port(1).lid()?.to_string();
        let idle = ["hold_qp", "-n", IDLE, "1", Host::A.device(), "1", &far];
        let idle = Program::start("hold_qp", Host::A, &idle)?;
        Ok(Self { hammer, fuzz, idle })
    }

    /// Ends the program with idle queue pairs, and waits for the end of what changes settings. The module is still there.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        self.idle.signal(Signal::SIGKILL)?;
        let status = self.fuzz.wait(LIMIT)?;
        ensure(status.success(), || {
            format!("apm_fuzz: {status}: {}", self.fuzz.last_line())
        })
    }

    /// Ends them, and adds up what was ordered. Whether that was enough is for the end of all.
    pub(super) fn finish(mut self, tally: &mut Tally) -> Result<(), Failure> {
        self.hammer.signal(Signal::SIGTERM)?;
        let status = self.hammer.wait(LIMIT)?;
        let line = self.hammer.last_line();
        ensure(tally.add(&line).is_some(), || {
            format!("apm_hammer: {status}: {line}")
        })
    }
}

/// As apm_hammer wants them.
fn lids(host: Host) -> Result<String, Failure> {
    Ok(format!("{}:{}", host.port(1).lid()?, host.port(2).lid()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hammers_line_is_added_up() {
        let line = "orders: 12 (done 3, stale 4, failed 5), nonsense: 6, refused: 7, ended: 8, moved idle: 9";
        let mut tally = Tally::default();
        assert_eq!(tally.add(line).and_then(|()| tally.add(line)), Some(()));
        assert_eq!(tally.0, [24, 6, 8, 10, 12, 14, 16, 18]);
        assert_eq!(tally.add("apm_hammer: recv: no"), None);
    }
}
