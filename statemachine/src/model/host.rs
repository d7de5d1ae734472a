// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host: an engine with a clock of its own, a library, a QP, and what the rules have to remember.

use std::collections::VecDeque;
use std::vec::Vec;

use cm_msgs::control::{
    Cause, MigrationState, PolicyOverride, QpState, Register, Report, Role, Snapshot,
};
use cm_msgs::path::Path;

use super::network::{self, first_path};
use super::qp::Qp;
use crate::config::Config;
use crate::engine::Engine;
use crate::id::ConnId;
use crate::output::Order;
use crate::random::Random;
use crate::time::Time;

/// A MAD that is repeated until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) transaction: u32,
    pub(super) copies: u8,
    /// Something has happened since the last copy that may have ended it. A further copy says that it has not.
    pub(super) may_be_over: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) number: usize,
    pub(super) engine: Engine,
    /// What its clock says. Hosts do not share one: nothing holds between the times of two.
    pub(super) now: Time,
    pub(super) qp: Qp,
    /// Number of the library's present socket; another one for every start of the daemon.
    pub(super) client: u32,
    pub(super) registered: bool,
    /// Orders that the library has not carried out, and reports that the daemon has not read.
    pub(super) orders: VecDeque<Order>,
    pub(super) reports: VecDeque<Report>,
    /// How the daemon was told last that the QP is.
    pub(super) told: Snapshot,
    /// The order, not a query, of which the daemon has not heard.
    pub(super) unanswered: Option<u32>,
    /// The peer's QP has been on this one's alternate since that was told.
    pub(super) peer_was_there: bool,
    /// The last LAP and the last SAP.
    pub(super) lap: Option<Sent>,
    pub(super) sap: Option<Sent>,
    /// Communication IDs that it has given itself.
    pub(super) issued: Vec<u32>,
}

fn config() -> Config {
    Config {
        jitter_percent: 0,
        // Path probes are none of what is looked at here.
        verify: core::time::Duration::ZERO,
        // Only says something; it would be one more timer.
        unprotected_after: core::time::Duration::from_secs(1_000_000),
        ..Config::default()
    }
}

fn engine(host: usize, client: u32) -> Engine {
    let mut seed = [host as u8; 32];
    seed[0] = client as u8;
    let mut engine = Engine::new(config(), Random::new(seed));
    engine.set_trace_level(None);
    engine
}

impl Host {
    pub(super) fn new(number: usize) -> Self {
        let qp = Qp::new(first_path(number));
        Self {
            number,
            engine: engine(number, 1),
            now: Time(1_000_000),
            told: qp.snapshot(),
            qp,
            client: 1,
            registered: false,
            orders: VecDeque::new(),
            reports: VecDeque::new(),
            unanswered: None,
            peer_was_there: false,
            lap: None,
            sap: None,
            issued: Vec::new(),
        }
    }

    /// Its daemon is killed, and another is started.
    pub(super) fn restart(&mut self) {
        self.client += 1;
        self.engine = engine(self.number, self.client);
        self.orders.clear();
        self.reports.clear();
        self.unanswered = None;
        self.lap = None;
        self.sap = None;
    }

    pub(super) fn id(&self) -> ConnId {
        let client = self.client;
        ConnId { client, conn: 1 }
    }

    /// The library registers the connection.
    pub(super) fn register(&mut self) -> Register {
        self.registered = true;
        self.told = self.qp.snapshot();
        Register {
            role: match self.number {
                network::ACTIVE => Role::Active,
                _ => Role::Passive,
            },
            opted_in: false,
            node_guid: network::node(self.number),
            qpn: network::qpn(self.number),
            peer_qpn: network::qpn(1 - self.number),
            policy: PolicyOverride::default(),
            snapshot: self.told,
        }
    }

    /// The library tells how the QP is now.
    pub(super) fn report(&mut self, cause: Cause) {
        let snapshot = self.qp.snapshot();
        // As `ibv_query_qp` has it where there is no GRH.
        let primary = Path {
            dgid: Default::default(),
            ..snapshot.primary
        };
        let snapshot = Snapshot {
            primary,
            ..snapshot
        };
        self.reports.push_back(Report { cause, snapshot });
    }

    /// The library does what it is ordered.
    pub(super) fn obey(&mut self, order: Order) {
        let qp = &mut self.qp;
        let rts = qp.state == QpState::Rts;
        let cause = match order {
            Order::Load(load) => {
                let token = load.token;
                if rts && qp.primary.same_way(&load.primary) {
                    qp.load(load.alternate);
                    Cause::Done { token }
                } else {
                    Cause::Stale { token }
                }
            }
            Order::Migrate(migrate) => {
                let token = migrate.token;
                let armed = rts && qp.migration == MigrationState::Armed;
                if armed && qp.primary.same_way(&migrate.primary) {
                    qp.order_migration();
                    Cause::Done { token }
                } else {
                    Cause::Stale { token }
                }
            }
            Order::MoveIdle(migrate) => {
                let token = migrate.token;
                let current = rts && qp.primary.same_way(&migrate.primary);
                match qp.migration {
                    MigrationState::Armed if current => {
                        qp.order_migration();
                        Cause::Done { token }
                    }
                    MigrationState::Rearm if current => {
                        qp.move_idle();
                        Cause::Done { token }
                    }
                    _ => Cause::Stale { token },
                }
            }
            Order::Query(token) => Cause::Query { token },
            Order::Refuse(_) | Order::Event(..) | Order::Stand(_) | Order::Disconnected => {
                return;
            }
        };
        self.report(cause);
    }

    pub(super) fn is_armed(&self) -> bool {
        (self.qp.state, self.qp.migration) == (QpState::Rts, MigrationState::Armed)
    }

    /// The alternate that the daemon knows the QP to have.
    pub(super) fn told_alternate(&self) -> Option<Path> {
        self.told
            .alternate
            .filter(|_| self.told.migration != MigrationState::Migrated)
    }
}
