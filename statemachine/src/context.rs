// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every part of the engine works with: ports, timers, names, and the way out.

use alloc::collections::VecDeque;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::path::Path;
use cm_msgs::{Lid, cm};

use crate::config::Config;
use crate::input::{ConnId, MadSource, PortId};
use crate::output::{Order, Output, PathQuery, Send};
use crate::overlap::{Assess, Way};
use crate::port::Ports;
use crate::random::Random;
use crate::time::Time;
use crate::timer::Timers;
use crate::trace::{Drop, Trace, What};
use crate::view::Counters;

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Alarm {
    /// A port's hold-off is over.
    Port(PortId),
    /// The next connections look at the changed fabric.
    Sweep,
    /// A parked REQ has waited long enough.
    Parked(u64),
    /// A DREQ has no answer yet.
    Closing(u32),
    /// A connection's.
    Conn(ConnId, ConnAlarm),
}

/// What a connection's timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ConnAlarm {
    /// REQ or REP has no answer yet, or a pause before the next REQ is over.
    Association,
    /// The library has not answered an order.
    Order,
    /// A migration that failed may be tried again.
    MigrateHold,
    /// Active: no answer to a question or LAP, or a pause is over.
    Work,
    /// Active: ReArm has lasted long.
    Rearm,
    /// Active: a path is no longer suspect.
    Suspect,
}

impl ConnAlarm {
    pub(crate) const ALL: [Self; 6] = [
        Self::Association,
        Self::Order,
        Self::MigrateHold,
        Self::Work,
        Self::Rearm,
        Self::Suspect,
    ];
}

/// Who goes by a communication ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// An association of this connection.
    Conn(ConnId),
    /// An association that is being closed.
    Closing,
}

pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) ports: Ports,
    pub(crate) timers: Timers<Alarm>,
    pub(crate) counters: Counters,
    pub(crate) comm_ids: BTreeMap<u32, Owner>,
    pub(crate) queries: BTreeMap<u32, ConnId>,
    pub(crate) assessments: BTreeMap<u32, ConnId>,
    pub(crate) outputs: VecDeque<Output>,
    random: Random,
    transaction: u32,
    query: u32,
    token: u32,
}

impl Context {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            config,
            now: Time::default(),
            ports: Ports::default(),
            timers: Timers::new(),
            counters: Counters::default(),
            comm_ids: BTreeMap::new(),
            queries: BTreeMap::new(),
            assessments: BTreeMap::new(),
            outputs: VecDeque::new(),
            transaction: random.name(),
            random,
            query: 0,
            token: 0,
        }
    }

    pub(crate) fn trace(&mut self, conn: ConnId, what: What) {
        self.outputs.push_back(Output::Trace(Trace {
            conn: Some(conn),
            port: None,
            what,
        }));
    }

    pub(crate) fn trace_port(&mut self, port: PortId, what: What) {
        self.outputs.push_back(Output::Trace(Trace {
            conn: None,
            port: Some(port),
            what,
        }));
    }

    pub(crate) fn order(&mut self, conn: ConnId, order: Order) {
        if !matches!(order, Order::Event(..)) {
            self.counters.orders += 1;
        }
        self.outputs.push_back(Output::Order(conn, order));
    }

    pub(crate) fn send(&mut self, to: Route, transaction_id: u32, message: impl Into<cm::Message>) {
        self.counters.mads_sent += 1;
        let Route { port, lid } = to;
        let message = message.into();
        self.outputs.push_back(Output::Send(Send {
            port,
            lid,
            transaction_id,
            message,
        }));
    }

    /// Counts a MAD that is not acted upon.
    pub(crate) fn drop_mad(&mut self, source: &MadSource, message: &'static str, why: Drop) {
        let counter = match why {
            Drop::Stranger => &mut self.counters.mads_from_strangers,
            Drop::OutOfPlace => &mut self.counters.mads_out_of_place,
            Drop::Malformed => &mut self.counters.mads_malformed,
            Drop::Overflow => &mut self.counters.parked_overflow,
        };
        *counter += 1;
        self.trace_port(
            source.port,
            What::Dropped {
                message,
                lid: source.lid,
                why,
            },
        );
    }

    /// Asks the path sources; the number of the question.
    pub(crate) fn ask(&mut self, conn: ConnId, question: impl FnOnce(u32) -> PathQuery) -> u32 {
        let query = self.question();
        self.counters.queries += 1;
        self.queries.insert(query, conn);
        self.outputs.push_back(Output::Query(question(query)));
        query
    }

    /// Asks what ways share with a primary; the number of the question.
    pub(crate) fn assess(&mut self, conn: ConnId, primary: Path, ways: Vec<Way>) -> u32 {
        let query = self.question();
        self.assessments.insert(query, conn);
        self.outputs.push_back(Output::Assess(Assess {
            query,
            primary,
            ways,
        }));
        query
    }

    fn question(&mut self) -> u32 {
        self.query = self.query.wrapping_add(1);
        self.query
    }

    /// A number for an order.
    pub(crate) fn token(&mut self) -> u32 {
        self.token = self.token.wrapping_add(1);
        self.token
    }

    /// A transaction ID; each is greater than the one before it (modulo 2^32).
    pub(crate) fn transaction(&mut self) -> u32 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    /// A communication ID that is not in use.
    pub(crate) fn comm_id(&mut self, owner: Owner) -> u32 {
        loop {
            let id = self.random.name();
            if let Entry::Vacant(free) = self.comm_ids.entry(id) {
                free.insert(owner);
                return id;
            }
        }
    }

    /// How long to wait for an answer to copy number `tries` (from 1) of a MAD.
    pub(crate) fn retry_wait(&mut self, tries: u8) -> Duration {
        let doublings = u32::from(tries.saturating_sub(1)).min(16);
        self.jitter(self.config.retry_first.saturating_mul(1 << doublings))
    }

    /// How long to pause after the failure number `failures` (from 0) in a row.
    pub(crate) fn pause(&mut self, failures: u32) -> Duration {
        let pause = self
            .config
            .backoff_first
            .saturating_mul(1 << failures.min(16));
        self.jitter(pause.min(self.config.backoff_max))
    }

    fn jitter(&mut self, span: Duration) -> Duration {
        let percent = u64::from(self.config.jitter_percent.min(99));
        let spread = 100 - percent + self.random.next() % (2 * percent + 1);
        span.saturating_mul(spread as u32) / 100
    }

    pub(crate) fn set(&mut self, conn: ConnId, alarm: ConnAlarm, after: Duration) {
        self.timers.set(Alarm::Conn(conn, alarm), self.now + after);
    }

    pub(crate) fn stop(&mut self, conn: ConnId, alarm: ConnAlarm) {
        self.timers.stop(Alarm::Conn(conn, alarm));
    }

    pub(crate) fn is_set(&self, conn: ConnId, alarm: ConnAlarm) -> bool {
        self.timers.is_set(Alarm::Conn(conn, alarm))
    }
}

/// One way for a MAD: from a local port to a port of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) port: PortId,
    pub(crate) lid: Lid,
}

impl From<&MadSource> for Route {
    /// The way back.
    fn from(source: &MadSource) -> Self {
        Self {
            port: source.port,
            lid: source.lid,
        }
    }
}

/// A MAD that is repeated, each time another way, until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub(crate) transaction: u32,
    tries: u8,
    route: usize,
}

impl Exchange {
    pub(crate) fn new(transaction: u32, first_route: usize) -> Self {
        Self {
            transaction,
            tries: 0,
            route: first_route,
        }
    }

    /// Sends the next copy over the next of `routes` (if there is one now) and says how long to
    /// wait for an answer. `None`: there were enough copies.
    pub(crate) fn next(
        &mut self,
        cx: &mut Context,
        routes: &[Route],
        message: impl FnOnce() -> cm::Message,
    ) -> Option<Duration> {
        if self.tries >= cx.config.tries {
            return None;
        }
        if self.tries > 0 {
            cx.counters.mads_resent += 1;
        }
        self.tries += 1;
        if let Some(&route) = routes.get(self.route % routes.len().max(1)) {
            cx.send(route, self.transaction, message());
        }
        self.route = self.route.wrapping_add(1);
        Some(cx.retry_wait(self.tries))
    }

    /// Where the next exchange should begin.
    pub(crate) fn next_route(&self) -> usize {
        self.route
    }
}
