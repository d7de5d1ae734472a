// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every part of the engine works with: ports, timers, names, and the way out.

use alloc::collections::BTreeSet;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::control::NO_TOKEN;
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Lid, PKey, cm};

use crate::admission::Admission;
use crate::assessment::Assessment;
use crate::backoff::Backoff;
use crate::config::Config;
use crate::failback::Failbacks;
use crate::id::{ConnId, Payer, PortId};
use crate::input::MadSource;
use crate::outbox::Outbox;
use crate::output::{Order, PathQuery, Query, Transmit};
use crate::overlap::{Assess, PathEnds};
use crate::path_index::PathIndex;
use crate::port::Ports;
use crate::port_hosts::PortHosts;
use crate::probe::{Finding, ProbePath, Probes};
use crate::proven_ports::ProvenPorts;
use crate::questions::{Questions, Urgency};
use crate::random::Random;
use crate::schedule::Schedule;
use crate::shared_values::SharedValues;
use crate::time::Time;
use crate::timers::Timers;
use crate::token_bucket::TokenBucket;
use crate::trace::{Drop, PathLids, Trace, What};
use crate::verifications::Verifications;
use crate::view::Counters;

/// What a timer is for that is no connection's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Alarm {
    /// A port's hold-off is over.
    Port(PortId),
    /// What subnet administration reported is looked at.
    Notices,
    /// A connection that waits for that may have its association opened.
    Admission,
    /// A parked REQ has waited long enough.
    Parked(u64),
    /// A DREQ has no answer yet.
    Closing(u32),
    /// A path query has no answer.
    Query(u32),
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
    /// A standing order was withdrawn, and is not given again yet.
    StandHold,
    /// The peer is asked again whether its end is armed, so that a primary that works can be left; or the operator's
    /// order to leave it has expired.
    Departure,
    /// Active: no answer to a question or LAP, or a pause is over.
    Negotiation,
    /// Passive: no REQ has come, or, while the association is open, no alternate was proposed.
    Unasked,
    /// No answer to an announcement, or a pause before the next is over.
    Announcement,
    /// Active: ReArm has lasted long.
    Rearm,
    /// Active: a path is no longer suspect.
    Suspect,
    /// It has been unprotected for so long that an operator should know.
    Unprotected,
    /// It may go to where it belongs, or has not got there.
    Failback,
    /// The peer's wish where the alternate should end is over.
    Steered,
}

impl ConnAlarm {
    pub(crate) const ALL: [Self; 13] = [
        Self::Association,
        Self::Order,
        Self::MigrateHold,
        Self::StandHold,
        Self::Departure,
        Self::Negotiation,
        Self::Unasked,
        Self::Announcement,
        Self::Rearm,
        Self::Suspect,
        Self::Unprotected,
        Self::Failback,
        Self::Steered,
    ];
}

/// Who goes by a communication ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// An association of this connection.
    Conn(ConnId),
    /// An association that this connection's end gave up, and its peer may take for open.
    GivenUp(ConnId),
    /// An association that is being closed.
    Closing,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) ports: Ports,
    /// Changes of the fabric so far; wraps.
    pub(crate) fabric_changes: u32,
    pub(crate) path_index: PathIndex,
    /// The ports of each peer, as connections know them.
    pub(crate) peer_ports: SharedValues<Vec<PortAddress>>,
    /// What was said of paths to each peer.
    pub(crate) assessments: SharedValues<Assessment>,
    pub(crate) proven_ports: ProvenPorts,
    pub(crate) port_hosts: PortHosts,
    pub(crate) schedule: Schedule,
    pub(crate) timers: Timers<Alarm>,
    /// Apart, since their names are half as long, and they are many.
    pub(crate) conn_timers: Timers<(ConnId, ConnAlarm)>,
    pub(crate) verifications: Verifications,
    pub(crate) counters: Counters,
    pub(crate) comm_ids: BTreeMap<u32, Owner>,
    pub(crate) outbox: Outbox,
    pub(crate) admission: Admission,
    pub(crate) failbacks: Failbacks,
    pub(crate) questions: Questions,
    pub(crate) probes: Probes,
    /// The clients that can give an idle QP another primary path.
    pub(crate) movers: BTreeSet<u32>,
    /// Limits the refusals that are sent to addresses which are not known to be the peer's, of all connections.
    pub(crate) refusals_elsewhere: TokenBucket<16, 100_000>,
    pub(crate) random: Random,
    token: u32,
}

impl Context {
    pub(crate) fn new(config: Config, mut random: Random) -> Self {
        let probes = Probes::new(random.split());
        Self {
            config,
            now: Time::default(),
            ports: Ports::default(),
            fabric_changes: 0,
            path_index: PathIndex::default(),
            peer_ports: SharedValues::default(),
            assessments: SharedValues::default(),
            proven_ports: ProvenPorts::default(),
            port_hosts: PortHosts::default(),
            schedule: Schedule::default(),
            timers: Timers::default(),
            conn_timers: Timers::default(),
            verifications: Verifications::default(),
            counters: Counters::default(),
            comm_ids: BTreeMap::new(),
            outbox: Outbox::default(),
            admission: Admission::default(),
            failbacks: Failbacks::default(),
            questions: Questions::default(),
            probes,
            movers: BTreeSet::new(),
            refusals_elsewhere: TokenBucket::default(),
            random,
            token: 0,
        }
    }

    /// Whether a QP with its primary on this port can be given another in SQD: its device has shown that it can, and
    /// its library takes the order.
    pub(crate) fn moves_idle(&self, port: PortId, client: u32) -> bool {
        let port = self.ports.get(port);
        port.is_some_and(|port| port.status.moves_idle) && self.movers.contains(&client)
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

    /// Says once, and not for every connection, what became of a path.
    pub(crate) fn trace_finding(&mut self, of: &ProbePath, finding: Finding, connections: usize) {
        let path = PathLids {
            port: of.port.port,
            slid: of.slid,
            dlid: of.dlid,
        };
        match finding {
            Finding::Suspect => {
                self.counters.paths_suspected += 1;
                self.trace_port(of.port, What::PathSuspect { path, connections });
            }
            Finding::Answer { was_suspect: true } => {
                self.trace_port(of.port, What::PathAnswers { path, connections });
            }
            Finding::Answer { was_suspect: false } | Finding::Loss | Finding::StillSuspect => {}
        }
    }

    pub(crate) fn order(&mut self, conn: ConnId, order: Order) {
        if !matches!(order, Order::Event(..) | Order::Disconnected) {
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
            Drop::Partition => &mut self.counters.mads_of_other_partitions,
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
        payer: Payer,
        urgency: Urgency,
        question: impl FnOnce(u32) -> PathQuery,
    ) -> u32 {
        let (number, new) = self
            .questions
            .paths(self.now, conn, payer, urgency, question(0));
        self.counters.queries += u64::from(new);
        number
    }

    /// The answer to this question contradicts the peer: see [`Questions::disbelieve`].
    pub(crate) fn disbelieve(&mut self, query: PathQuery) {
        self.questions.disbelieve(self.now, query);
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

    /// A connection does not wait for the answer to its question any more.
    pub(crate) fn withdraw(&mut self, conn: ConnId, number: u32) {
        if !self.questions.leave(conn, number) {
            self.timers.cancel(&Alarm::Query(number));
        }
    }

    /// The next question to put. From here on its answer is waited for.
    pub(crate) fn poll_query(&mut self) -> Option<Query> {
        if let Some((conn, query)) = self.questions.poll_assessment() {
            self.set(conn, ConnAlarm::Negotiation, self.config.assess_timeout);
            return Some(query);
        }
        if let Some(number) = self.questions.poll_withdrawn() {
            return Some(Query::Withdraw(number));
        }
        let query = self.questions.poll_paths()?;
        let end = self.now + self.config.query_timeout;
        self.timers.set(Alarm::Query(query.query), end);
        Some(Query::Paths(query))
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
        self.conn_timers.set((conn, alarm), self.now + after);
    }

    pub(crate) fn stop(&mut self, conn: ConnId, alarm: ConnAlarm) {
        self.conn_timers.cancel(&(conn, alarm));
    }

    pub(crate) fn is_set(&self, conn: ConnId, alarm: ConnAlarm) -> bool {
        self.conn_timers.is_set(&(conn, alarm))
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let verification = self.verifications.next();
        let times = [self.timers.next(), self.conn_timers.next(), verification];
        times.into_iter().flatten().min()
    }
}

/// How a MAD goes: from a local port to a port of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) port: PortId,
    pub(crate) lid: Lid,
    pub(crate) sl: u8,
    /// The low bits of the local LID.
    pub(crate) path_bits: u8,
    /// The partition that it goes in.
    pub(crate) pkey: PKey,
}

impl Route {
    fn transmit(self, transaction_id: u32, message: impl Into<cm::Message>) -> Transmit {
        let Self {
            port,
            lid,
            sl,
            path_bits,
            pkey,
        } = self;
        Transmit {
            port,
            lid,
            sl,
            path_bits,
            pkey,
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
            sl: source.sl,
            path_bits: source.path_bits,
            pkey: source.pkey,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::{Gid, Guid};

    const ONE: ConnId = ConnId { client: 1, conn: 1 };
    const OTHER: ConnId = ConnId { client: 1, conn: 2 };

    fn context() -> Context {
        Context::new(Config::default(), Random::new([1; 32]))
    }

    fn ask(cx: &mut Context, conn: ConnId) -> u32 {
        cx.ask(conn, Payer(1), Urgency::Initial, |query| PathQuery {
            query,
            port: PortId::new(Guid(1), 1),
            sgid: Gid::default(),
            dgid: Gid::default(),
            slid: None,
            dlid: None,
            pkey: PKey::DEFAULT_FULL,
        })
    }

    #[test]
    fn a_query_is_waited_for_while_a_connection_wants_its_answer() {
        let mut cx = context();
        let number = ask(&mut cx, ONE);
        assert_eq!(ask(&mut cx, OTHER), number);
        assert_eq!(cx.counters.queries, 1, "of both");
        assert!(cx.poll_query().is_some());
        let due = Some(cx.now + cx.config.query_timeout);
        assert_eq!(cx.next_timer(), due);
        cx.withdraw(ONE, number);
        assert_eq!(cx.next_timer(), due, "the other still wants it");
        cx.withdraw(OTHER, number);
        assert_eq!(cx.next_timer(), None);
    }

    #[test]
    fn a_query_that_is_withdrawn_before_its_turn_is_not_put() {
        let mut cx = context();
        let number = ask(&mut cx, ONE);
        cx.withdraw(ONE, number);
        assert!(cx.poll_query().is_none());
    }

    #[test]
    fn orders_have_different_numbers_and_none_has_that_of_no_order() {
        let mut cx = context();
        let [first, second] = [(); 2].map(|()| cx.token());
        assert_ne!(first, second);
        cx.token = u32::MAX - 1;
        let numbers = [(); 3].map(|()| cx.token());
        assert_eq!(numbers, [u32::MAX, NO_TOKEN + 1, NO_TOKEN + 2]);
    }
}
