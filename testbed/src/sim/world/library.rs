// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries: they carry orders out, and report.

use cm_msgs::control::{Cause, MigrationState, QpState, Report};
use statemachine::view::PortState;
use statemachine::{ConnId, Input, Order};

use super::{Event, World};
use crate::sim::host::SentOrder;
use crate::sim::queue::{MS, SECOND};
use crate::sim::verdict::Rule;

/// From a thread to the next on the same host.
const LOCAL: u64 = 200;
/// After this the engine takes an order for lost.
const ORDER_TIMEOUT: u64 = 10 * SECOND;
/// A library does not carry out what waited longer in its socket, as `librdmacm-apm` does not.
const MAX_ORDER_AGE: u64 = SECOND;

impl World<'_> {
    /// When what a library or its daemon says now gets to the other.
    fn local(&mut self, host: usize) -> u64 {
        let host = &mut self.hosts[host];
        let due = self.queue.now().max(host.still_until) + LOCAL;
        host.last_local = due.max(host.last_local + 1);
        host.last_local
    }

    pub(super) fn order(&mut self, host: usize, id: ConnId, order: Order) {
        let conn = id.conn as usize;
        if matches!(
            order,
            Order::Event(..) | Order::Refuse(_) | Order::Disconnected
        ) {
            return;
        }
        self.check(host, conn, &order);
        if let Order::Stand(_) = order {
            return self.send_order(host, id, order);
        }
        let now = self.queue.now();
        let migrate = matches!(order, Order::Migrate(_) | Order::MoveIdle(_));
        if let Some((since, _)) = self.hosts[host].waiting.insert(conn, (now, migrate))
            && now < since + ORDER_TIMEOUT
        {
            self.violated(Rule::OneOrder, || {
                format!("host {host} connection {conn}: {order:?} while one is not answered")
            });
        }
        self.send_order(host, id, order);
    }

    fn send_order(&mut self, host: usize, id: ConnId, order: Order) {
        let at = self.queue.now();
        let due = self.local(host);
        let sent = SentOrder { at, id, order };
        self.queue.at(due, Event::Obey(host, sent));
    }

    /// Whether the engine may order that, as far as it can know.
    fn check(&mut self, host: usize, conn: usize, order: &Order) {
        match order {
            Order::Load(load) => {
                let ports = self.hosts[host].engine.as_ref().map(|e| e.ports());
                let is_up = ports.is_some_and(|ports| {
                    ports.iter().any(|port| {
                        port.id.port == load.alternate.port && port.state != PortState::Down
                    })
                });
                if !is_up || load.alternate.same_way(&load.primary) {
                    self.violated(Rule::Alternate, || {
                        format!("host {host} connection {conn}: {:?}", load.alternate)
                    });
                }
            }
            Order::Stand(stand) => self.check_standing_order(host, conn, stand),
            Order::Migrate(_) => {
                let told = self.hosts[host].told.get(&conn);
                let may = told.is_some_and(|told| {
                    (told.qp_state, told.migration) == (QpState::Rts, MigrationState::Armed)
                });
                if !may {
                    self.violated(Rule::Legal, || {
                        format!("host {host} connection {conn}: migrate, QP not Armed in RTS")
                    });
                }
            }
            Order::MoveIdle(_) => {
                let told = self.hosts[host].told.get(&conn);
                let may = told.is_some_and(|told| {
                    (told.qp_state, told.migration) == (QpState::Rts, MigrationState::Rearm)
                });
                if !may {
                    self.violated(Rule::Legal, || {
                        format!("host {host} connection {conn}: move, QP not in ReArm and RTS")
                    });
                }
            }
            _ => {}
        }
    }

    pub(super) fn obey(&mut self, host: usize, sent: SentOrder) {
        let conn = sent.id.conn as usize;
        let side = self.side_of(host, conn);
        if self.hosts[host].client != sent.id.client {
            return;
        }
        if self.hosts[host].mute > 0 {
            self.hosts[host].unread.push(sent);
            return;
        }
        let order = &sent.order;
        if !self.connections[conn].ends[side].registered {
            return;
        }
        if let Order::Stand(stand) = order {
            return self.take_standing_order(conn, side, stand);
        }
        let qp = &mut self.connections[conn].ends[side].qp;
        let (token, expected) = match order {
            Order::Load(load) => (load.token, &load.primary),
            Order::Migrate(migrate) | Order::MoveIdle(migrate) => (migrate.token, &migrate.primary),
            Order::Query(token) => return self.report(host, conn, Cause::Query { token: *token }),
            _ => return self.report(host, conn, Cause::Changed),
        };
        let armed = qp.is_armed();
        let fresh = self.queue.now() - sent.at <= MAX_ORDER_AGE;
        let fits = fresh && qp.state == QpState::Rts && qp.primary.same_way(expected);
        let modified = match order {
            _ if !fits => None,
            Order::Load(load) => Some(qp.load(load.alternate)),
            Order::MoveIdle(_) if qp.migration == MigrationState::Rearm => {
                self.must_have_a_cause(conn, side);
                Some(self.connections[conn].ends[side].qp.move_idle())
            }
            _ if !armed => None,
            _ => {
                self.migrates_by_order(conn, side);
                self.must_have_a_cause(conn, side);
                Some(self.connections[conn].ends[side].qp.migrate())
            }
        };
        let cause = match modified {
            None => Cause::Stale { token },
            Some(Ok(())) => Cause::Done { token },
            Some(Err(illegal)) => {
                self.violated(Rule::Legal, || {
                    format!("host {host} connection {conn}: {illegal}")
                });
                Cause::Failed { token, errno: 22 }
            }
        };
        if let Order::Load(load) = order {
            let standing = load.standing && matches!(cause, Cause::Done { .. });
            self.connections[conn].ends[side].standing = standing.then_some(load.primary);
        }
        self.note_paths(conn);
        self.report(host, conn, cause);
    }

    pub(super) fn report(&mut self, host: usize, conn: usize, cause: Cause) {
        let side = self.side_of(host, conn);
        let client = self.hosts[host].client;
        let end = &self.connections[conn].ends[side];
        if !end.registered || self.hosts[host].engine.is_none() {
            return;
        }
        let snapshot = end.qp.snapshot();
        let id = ConnId {
            client,
            conn: conn as u32,
        };
        let due = self.local(host);
        let input = Input::Report(id, Report { cause, snapshot });
        self.queue.at(due, Event::Input(host, client, input));
    }

    /// What the libraries of a host said gets to their daemon.
    pub(super) fn hear_library(&mut self, host: usize, client: u32, input: Input) {
        if self.hosts[host].client != client {
            return;
        }
        if let Input::Report(id, report) = &input {
            let conn = id.conn as usize;
            self.hosts[host].told.insert(conn, report.snapshot);
            let migrate = self.hosts[host].waiting.get(&conn);
            let answers = match report.cause {
                Cause::Query { .. }
                | Cause::Done { .. }
                | Cause::Stale { .. }
                | Cause::Failed { .. } => true,
                Cause::StandingOrder => migrate.is_some_and(|&(_, migrate)| migrate),
                _ => false,
            };
            if answers {
                self.hosts[host].waiting.remove(&conn);
            }
        }
        self.input(host, input);
    }

    /// The applications of both sides close, one a moment after the other.
    pub(super) fn close_soon(&mut self, conn: usize) {
        for side in [0, 1] {
            let delay = MS + u64::from(self.dice.below(200_000));
            self.queue.after(delay, Event::Close(conn, side));
        }
    }

    pub(super) fn close(&mut self, conn: usize, side: usize) {
        let connection = &mut self.connections[conn];
        connection.closed = true;
        let end = &mut connection.ends[side];
        end.qp.state = QpState::Reset;
        if !std::mem::take(&mut end.registered) {
            return;
        }
        let host = end.host;
        let client = self.hosts[host].client;
        let id = ConnId {
            client,
            conn: conn as u32,
        };
        let due = self.local(host);
        self.queue
            .at(due, Event::Input(host, client, Input::Close(id)));
        self.hosts[host].waiting.remove(&conn);
    }
}
