// SPDX-License-Identifier: MIT OR Apache-2.0
//! All connections of a host.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::Config;
use crate::input::Input;
use crate::output::Output;
use crate::time::Time;
use crate::view::{ConnectionView, Counters, PortView};

/// All connections of a host, its ports, and what is under way.
///
/// `handle_*` takes what happened; `poll_*` gives what to do; the rest only looks. After every
/// `handle`, drain `poll_output` until it is empty, then wait until `poll_timeout` at most and
/// hand in [`Input::Timeout`].
pub struct Engine {
    config: Config,
    seed: u64,
    now: Time,
    outputs: VecDeque<Output>,
    counters: Counters,
}

impl Engine {
    /// An engine without ports or connections. `seed` must differ from start to start: comm IDs
    /// come of it, and a peer takes an old one for the old association.
    pub fn new(config: Config, seed: u64) -> Self {
        let counters = Counters::default();
        Self {
            config,
            seed,
            now: Time::default(),
            outputs: VecDeque::new(),
            counters,
        }
    }

    /// Other timers and limits from now on; what is running runs out as it was started.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// Takes one thing that happened at `now`.
    pub fn handle(&mut self, now: Time, _input: Input) {
        self.now = self.now.max(now);
        self.seed = self.seed.wrapping_add(1);
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to hand in [`Input::Timeout`] at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The connections, ordered by name.
    pub fn connections(&self, _now: Time) -> impl Iterator<Item = ConnectionView> + '_ {
        core::iter::empty()
    }

    /// The local ports, ordered by name.
    pub fn ports(&self) -> Vec<PortView> {
        Vec::new()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
