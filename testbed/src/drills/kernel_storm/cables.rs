// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cables that flap at random: pulled and plugged, or nothing passes for a while. One at a time, and only where
//! the verified stream has another path at the moment.

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::ibsim::Dice;
use crate::link::Link;
use crate::observe::{self, Connection, Pair};
use crate::port::Port;
use crate::world::World;

/// A fault lasts so long at most, and the pause after it.
const LASTS_MS: usize = 800;
const PAUSE_MS: usize = 1500;

struct Fault {
    port: Port,
    is_hole: bool,
    ends: Moment,
}

/// The fault of the moment.
pub(super) struct Cables {
    fault: Option<Fault>,
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
    pub(super) fn go_on(&mut self, world: &World, dice: &mut Dice) -> Result<(), Failure> {
        let now = Moment::now();
        match &self.fault {
            Some(fault) if now > fault.ends => {
                self.heal(world)?;
                self.next = now + random_ms(dice, PAUSE_MS);
            }
            None if now > self.next => {
                self.next = now + random_ms(dice, PAUSE_MS);
                self.spoil(world, dice)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the fault.
    pub(super) fn heal(&mut self, world: &World) -> Result<(), Failure> {
        match self.fault.take() {
            Some(fault) if fault.is_hole => world.heal(fault.port),
            Some(fault) => world.restore(Link::Port(fault.port)),
            None => Ok(()),
        }
    }

    fn spoil(&mut self, world: &World, dice: &mut Dice) -> Result<(), Failure> {
        let port = Host::ALL[dice.below(2)].port(1 + dice.below(2) as u8);
        let (is_hole, lasts) = (dice.below(4) == 0, random_ms(dice, LASTS_MS));
        let Some(pair) = self.pair()? else {
            return Ok(());
        };
        let carries = pair.active_port(port.host) == port;
        // Where both ends are not on one path yet, any port may be the stream's.
        if !pair.is_on_one_path() || (carries && !pair.is_disjoint()) {
            return Ok(());
        }
        match is_hole {
            true => world.blackhole(port)?,
            false => world.pull(port)?,
        };
        self.flaps += 1;
        self.under_the_stream += u64::from(carries);
        let ends = Moment::now() + lasts;
        self.fault = Some(Fault {
            port,
            is_hole,
            ends,
        });
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

fn random_ms(dice: &mut Dice, most: usize) -> Duration {
    Duration::from_millis(50 + dice.below(most) as u64)
}
