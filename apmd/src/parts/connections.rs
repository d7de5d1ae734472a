// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine with all connections.

use statemachine::view::Grade;
use statemachine::{
    Answerer, ConnId, Engine, Input, Level, Order, PortId, Probe, Query, Random, Time, Trace,
    Transmit,
};

use crate::config::Config;
use crate::peer_daemons::PeerDaemons;
use crate::redundancy::Redundancy;

/// What the engine wants done.
#[derive(Debug)]
pub(crate) enum Note {
    Order(ConnId, Order),
    Send(Transmit),
    Probe(Probe),
    Ask(Query),
    /// What happened, for the log and for who watches.
    Happened(Trace),
}

pub(crate) struct Connections {
    engine: Engine,
    redundancy: Redundancy,
    peer_daemons: PeerDaemons,
}

impl Connections {
    pub(crate) fn new(config: &Config, random: Random) -> Self {
        Self {
            engine: Engine::new(config.engine(), random),
            redundancy: Redundancy::default(),
            peer_daemons: PeerDaemons::default(),
        }
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        self.engine.set_config(config.engine());
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input) {
        if let Input::Port(port, _) = &input {
            self.peer_daemons.forget(*port);
        }
        self.engine.handle(now, input);
    }

    /// A probe has come back: from the peer's daemon, or from its kernel.
    pub(crate) fn handle_probed(&mut self, now: Time, answer: Probe, by_daemon: bool) {
        let path = &answer.path;
        self.peer_daemons
            .answered(now, path.port, path.dlid, by_daemon);
        let by = match by_daemon {
            true => Answerer::Daemon,
            false => Answerer::Kernel,
        };
        self.engine.handle(now, Input::Probed(answer, by));
    }

    /// Whether peers' daemons answer.
    pub(crate) fn peer_daemons(&self) -> &PeerDaemons {
        &self.peer_daemons
    }

    /// Connections that have been armed on one port for a minute.
    pub(crate) fn without_redundancy(&self, now: Time) -> usize {
        self.redundancy.lost(now)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let look = (!self.engine.is_empty()).then(|| self.redundancy.poll_timeout());
        self.engine.poll_timeout().into_iter().chain(look).min()
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle(now, Input::Timeout);
        }
        let engine = &self.engine;
        self.redundancy.handle_time(now, |range| {
            let grades = engine.grades_in(now, range);
            grades.map(|(id, grade)| (id, grade == Some(Grade::SamePort)))
        });
    }

    /// `has_room`: whether a port takes another MAD now. What it does not take waits in the engine.
    /// `watched`: whether somebody is to be told what happens.
    pub(crate) fn poll_note(
        &mut self,
        has_room: impl Fn(PortId) -> bool,
        watched: bool,
    ) -> Option<Note> {
        if let Some((conn, order)) = self.engine.poll_order() {
            return Some(Note::Order(conn, order));
        }
        if let Some(mad) = self.engine.poll_transmit(&has_room) {
            return Some(Note::Send(mad));
        }
        if let Some(probe) = self.engine.poll_probe(&has_room) {
            return Some(Note::Probe(probe));
        }
        if let Some(query) = self.engine.poll_query() {
            return Some(Note::Ask(query));
        }
        // The level may be another since the configuration was read again.
        self.engine.set_trace_level(match watched {
            true => Some(Level::Debug),
            false => logged_level(),
        });
        self.engine.poll_trace().map(Note::Happened)
    }
}

/// The least level of the engine's traces that the log shows at present.
fn logged_level() -> Option<Level> {
    if tracing::enabled!(target: "apmd::engine", tracing::Level::DEBUG) {
        Some(Level::Debug)
    } else if tracing::enabled!(target: "apmd::engine", tracing::Level::INFO) {
        Some(Level::Info)
    } else if tracing::enabled!(target: "apmd::engine", tracing::Level::WARN) {
        Some(Level::Warn)
    } else {
        None
    }
}
