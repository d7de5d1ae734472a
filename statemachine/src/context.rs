// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every part of the engine works with: ports, timers, names, and the way out.

use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::control::NO_TOKEN;
use cm_msgs::path::Path;
use cm_msgs::{Lid, cm};

use crate::admission::Admission;
use crate::backoff::Backoff;
use crate::config::Config;
use crate::id::{ConnId, PortId};
use crate::input::MadSource;
use crate::outbox::Outbox;
use crate::output::{Order, PathQuery, Query, Transmit};
use crate::overlap::{Assess, PathEnds};
use crate::port::{PathCounts, Ports};
use crate::questions::{Questions, Urgency};
use crate::random::Random;
use crate::time::Time;
use crate::timers::Timers;
use crate::trace::{Drop, Trace, What};
use crate::view::Counters;

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Alarm {
    /// A port's hold-off is over.
    Port(PortId),
    /// The next connections look at the changed fabric.
    Sweep,
    /// A connection that waits for that may have its association opened.
    Admission,
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
    Negotiation,
    /// Passive: nobody has asked for the connection.
    Unasked,
    /// No answer to an announcement, or a pause before the next is over.
    Announcement,
    /// Active: ReArm has lasted long.
    Rearm,
    /// Active: a path is no longer suspect.
    Suspect,
    /// It has been unprotected for so long that an operator should know.
    Unprotected,
}

impl ConnAlarm {
    pub(crate) const ALL: [Self; 9] = [
        Self::Association,
        Self::Order,
        Self::MigrateHold,
        Self::Negotiation,
        Self::Unasked,
        Self::Announcement,
        Self::Rearm,
        Self::Suspect,
        Self::Unprotected,
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
    pub(crate) path_counts: PathCounts,
    pub(crate) timers: Timers<Alarm>,
    pub(crate) counters: Counters,
    pub(crate) comm_ids: BTreeMap<u32, Owner>,
    pub(crate) outbox: Outbox,
    pub(crate) admission: Admission,
    pub(crate) questions: Questions,
    pub(crate) random: Random,
    token: u32,
}

impl Context {
    pub(crate) fn new(config: Config, random: Random) -> Self {
        Self {
            config,
            now: Time::default(),
            ports: Ports::default(),
            path_counts: PathCounts::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            comm_ids: BTreeMap::new(),
            outbox: Outbox::default(),
            admission: Admission::default(),
            questions: Questions::default(),
            random,
            token: 0,
        }
    }

    pub(crate) fn trace(&mut self, conn: ConnId, what: What) {
        self.outbox.trace(Trace {
            conn: Some(conn),
            port: None,
            what,
        });
    }

    pub(crate) fn trace_port(&mut self, port: PortId, what: What) {
        self.outbox.trace(Trace {
            conn: None,
            port: Some(port),
            what,
        });
    }

    pub(crate) fn order(&mut self, conn: ConnId, order: Order) {
        if !matches!(order, Order::Event(..)) {
            self.counters.orders += 1;
        }
        self.outbox.order(conn, order);
    }

    /// Sends a message that nobody asked for.
    pub(crate) fn send(&mut self, to: Route, transaction: u32, message: impl Into<cm::Message>) {
        self.outbox.send(to.transmit(transaction, message));
    }

    /// Answers a message. `to` is where it came from, as a rule.
    pub(crate) fn reply(&mut self, to: Route, transaction: u32, message: impl Into<cm::Message>) {
        self.outbox.reply(to.transmit(transaction, message));
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
    pub(crate) fn ask(
        &mut self,
        conn: ConnId,
        urgency: Urgency,
        question: impl FnOnce(u32) -> PathQuery,
    ) -> u32 {
        self.counters.queries += 1;
        let query = |number| Query::Paths(question(number));
        self.questions.paths(conn, urgency, query)
    }

    /// Asks what paths share with a primary; the number of the question.
    pub(crate) fn assess(&mut self, conn: ConnId, primary: Path, paths: Vec<PathEnds>) -> u32 {
        self.questions.assess(conn, |query| {
            Query::Assess(Assess {
                query,
                primary,
                paths,
            })
        })
    }

    /// The next question to put. From here on its answer is waited for.
    pub(crate) fn poll_query(&mut self) -> Option<Query> {
        let (conn, query) = self.questions.poll()?;
        let timeout = match query {
            Query::Paths(_) => self.config.query_timeout,
            Query::Assess(_) => self.config.assess_timeout,
        };
        self.set(conn, ConnAlarm::Negotiation, timeout);
        Some(query)
    }

    /// A number for an order.
    pub(crate) fn token(&mut self) -> u32 {
        // Counting is enough: a token goes to one process, which could fool nobody but itself.
        self.token = self.token.wrapping_add(1).max(NO_TOKEN + 1);
        self.token
    }

    pub(crate) fn transaction(&mut self) -> u32 {
        self.random.nonzero_u32()
    }

    /// A communication ID that is not in use.
    pub(crate) fn comm_id(&mut self, owner: Owner) -> u32 {
        loop {
            // Never counted: whoever can name an association's IDs could speak for it.
            let id = self.random.nonzero_u32();
            if let Entry::Vacant(free) = self.comm_ids.entry(id) {
                free.insert(owner);
                return id;
            }
        }
    }

    /// How long to pause after the failure number `failures` (from 0) in a row.
    pub(crate) fn backoff_delay(&mut self, failures: u32) -> Duration {
        let backoff = Backoff::new(self.config.backoff_first, self.config.backoff_max);
        self.jitter(backoff.after(failures))
    }

    pub(crate) fn jitter(&mut self, span: Duration) -> Duration {
        self.random.jitter(span, self.config.jitter_percent)
    }

    pub(crate) fn set(&mut self, conn: ConnId, alarm: ConnAlarm, after: Duration) {
        self.timers.set(Alarm::Conn(conn, alarm), self.now + after);
    }

    pub(crate) fn stop(&mut self, conn: ConnId, alarm: ConnAlarm) {
        self.timers.cancel(&Alarm::Conn(conn, alarm));
    }

    pub(crate) fn is_set(&self, conn: ConnId, alarm: ConnAlarm) -> bool {
        self.timers.is_set(&Alarm::Conn(conn, alarm))
    }
}

/// How a MAD goes: from a local port to a port of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) port: PortId,
    pub(crate) lid: Lid,
}

impl Route {
    fn transmit(self, transaction_id: u32, message: impl Into<cm::Message>) -> Transmit {
        let Self { port, lid } = self;
        Transmit {
            port,
            lid,
            transaction_id,
            message: message.into(),
        }
    }
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
