// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cables that flap at random: pulled and plugged, or nothing passes for a while. One at a time, and only where
//! the verified stream has another path at the moment.

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::ibsim::Dice;
use crate::observe::{self, Connection, Pair};
use crate::program::Program;
use crate::timeline::Timeline;

/// A fault lasts so long at most, and the pause after it.
const LASTS_MS: usize = 800;
const PAUSE_MS: usize = 1500;

/// How one begins and ends; most are the first.
const FAULTS: [[&str; 2]; 2] = [["pull", "plug"], ["blackhole", "heal"]];

/// The fault of the moment.
pub(super) struct Cables {
    fault: Option<Program>,
    next: Moment,
    /// The processes of the stream.
    stream: [u32; 2],
    flaps: u64,
    under_the_stream: u64,
}

impl Cables {
    pub(super) fn new(stream: [u32; 2]) -> Self {
        Self {
            fault: None,
            next: Moment::now(),
            stream,
            flaps: 0,
            under_the_stream: 0,
        }
    }

    /// Faults so far, and those of them that were where the stream was.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.flaps, self.under_the_stream)
    }

    /// What is due now.
    pub(super) fn go_on(&mut self, timeline: &Timeline, dice: &mut Dice) -> Result<(), Failure> {
        if self.is_calm()? && Moment::now() > self.next {
            self.spoil(timeline, dice)?;
            let pause = LASTS_MS + 50 + dice.below(PAUSE_MS);
            self.next = Moment::now() + Duration::from_millis(pause as u64);
        }
        Ok(())
    }

    /// Whether there is no fault at the moment.
    pub(super) fn is_calm(&mut self) -> Result<bool, Failure> {
        if let Some(fault) = &mut self.fault {
            let Some(status) = fault.ended()? else {
                return Ok(false);
            };
            ensure(status.success(), || {
                format!("cable: {status}: {}", fault.last_line())
            })?;
            self.fault = None;
        }
        Ok(true)
    }

    fn spoil(&mut self, timeline: &Timeline, dice: &mut Dice) -> Result<(), Failure> {
        let port = Host::ALL[dice.below(2)].port(1 + dice.below(2) as u8);
        let [begin, end] = FAULTS[usize::from(dice.below(4) == 0)];
        let ms = 50 + dice.below(LASTS_MS);
        let Some(pair) = self.pair()? else {
            return Ok(());
        };
        let carries = pair.active_port(port.host) == port;
        // Where both ends are not on one path yet, any port may be the stream's.
        if !pair.is_on_one_path() || (carries && !pair.is_disjoint()) {
            return Ok(());
        }
        // By a process of its own: nothing here makes it longer.
        let (device, number) = (port.host.device(), port.number);
        let line = format!(
            "cable {begin} {device} {number} && sleep {}.{:03} && cable {end} {device} {number}",
            ms / 1000,
            ms % 1000
        );
        timeline.note("cable", format!("{begin} {port} for {ms} ms"));
        self.fault = Some(Program::start("cable", port.host, &["sh", "-c", &line])?);
        self.flaps += 1;
        self.under_the_stream += u64::from(carries);
        Ok(())
    }

    /// The stream's connection, as both daemons know it.
    pub(super) fn pair(&self) -> Result<Option<Pair>, Failure> {
        let [a, b] = [0, 1].map(|end| of_process(Host::ALL[end], self.stream[end]));
        Ok(Pair::join(Host::ALL, &a?, &b?).pop())
    }
}

fn of_process(host: Host, pid: u32) -> Result<Vec<Connection>, Failure> {
    let pid = pid.to_string();
    let words = ["apmctl", "-j", "conn", "show", "pid", &pid];
    observe::parse_connections(&command::run_as(host, &words)?)
}
