// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may go wrong together: several small settings, since all of it at once is too much.

use super::world::{Faults, World};
use crate::guard::Guard;

use std::vec::Vec;

/// Where a search begins, and what may go wrong.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    start: Start,
    faults: Faults,
    /// How many steps a trace may have.
    pub(super) depth: usize,
}

/// Where a search begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    /// Both daemons have just started, both applications have connected.
    Fresh,
    /// Both ends are armed.
    Armed,
    /// Both ends have an alternate, and wait for traffic.
    Idle,
}

/// A number from the environment.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Setting {
    fn new(name: &'static str, start: Start, depth: usize, faults: Faults) -> Self {
        let more = number("MODEL_FAULTS").unwrap_or(0) as u8;
        let add = |bound: u8| if bound == 0 { 0 } else { bound + more };
        Self {
            name,
            start,
            faults: Faults {
                losses: add(faults.losses),
                copies: add(faults.copies),
                ports: add(faults.ports),
                migrations: add(faults.migrations),
                restarts: add(faults.restarts),
                forgeries: add(faults.forgeries),
                timers: add(faults.timers),
                ..faults
            },
            depth: number("MODEL_DEPTH").map_or(depth, |depth| depth as usize),
        }
    }

    pub(super) fn world(&self, removed: Option<Guard>) -> World {
        match self.start {
            Start::Fresh => World::new(self.faults, removed),
            Start::Armed => World::armed(self.faults, removed),
            Start::Idle => World::idle(self.faults, removed),
        }
    }

    pub(super) fn all() -> Vec<Self> {
        let none = Faults::default();
        [
            Self::new(
                "opening",
                Start::Fresh,
                7,
                Faults {
                    losses: 1,
                    copies: 1,
                    timers: 2,
                    ..none
                },
            ),
            Self::new(
                "opening, a port goes",
                Start::Fresh,
                8,
                Faults {
                    ports: 1,
                    timers: 2,
                    ..none
                },
            ),
            Self::new(
                "opening, stranger",
                Start::Fresh,
                7,
                Faults {
                    forgeries: 2,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "opening, slow library",
                Start::Fresh,
                12,
                Faults {
                    migrations: 1,
                    slow_library: true,
                    timers: 2,
                    ..none
                },
            ),
            Self::new(
                "ports",
                Start::Armed,
                5,
                Faults {
                    ports: 2,
                    losses: 1,
                    timers: 2,
                    ..none
                },
            ),
            Self::new(
                "ports, stale SA",
                Start::Armed,
                6,
                Faults {
                    ports: 2,
                    timers: 1,
                    stale_sa: true,
                    ..none
                },
            ),
            Self::new(
                "late copies",
                Start::Armed,
                5,
                Faults {
                    ports: 1,
                    migrations: 1,
                    copies: 1,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "slow library",
                Start::Armed,
                6,
                Faults {
                    ports: 1,
                    migrations: 1,
                    slow_library: true,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "hardware",
                Start::Armed,
                8,
                Faults {
                    migrations: 2,
                    losses: 1,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "restarts",
                Start::Armed,
                5,
                Faults {
                    restarts: 1,
                    ports: 1,
                    timers: 2,
                    ..none
                },
            ),
            Self::new(
                "restarts, late copies",
                Start::Armed,
                20,
                Faults {
                    restarts: 1,
                    copies: 1,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "stranger",
                Start::Armed,
                5,
                Faults {
                    forgeries: 2,
                    ports: 1,
                    timers: 1,
                    ..none
                },
            ),
            Self::new(
                "closing",
                Start::Armed,
                6,
                Faults {
                    closes: 1,
                    losses: 3,
                    timers: 2,
                    migrations: 1,
                    ..none
                },
            ),
            Self::new(
                "idle",
                Start::Idle,
                5,
                Faults {
                    ports: 2,
                    losses: 1,
                    timers: 2,
                    movable: [true; 2],
                    ..none
                },
            ),
            Self::new(
                "idle, slow library",
                Start::Idle,
                7,
                Faults {
                    ports: 1,
                    migrations: 1,
                    slow_library: true,
                    timers: 1,
                    movable: [true; 2],
                    ..none
                },
            ),
            Self::new(
                "idle, restarts",
                Start::Idle,
                6,
                Faults {
                    restarts: 1,
                    ports: 1,
                    timers: 1,
                    movable: [true; 2],
                    ..none
                },
            ),
            Self::new(
                "idle, one end only",
                Start::Idle,
                6,
                Faults {
                    ports: 1,
                    timers: 1,
                    movable: [true, false],
                    ..none
                },
            ),
        ]
        .into()
    }
}
