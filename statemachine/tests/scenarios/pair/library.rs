// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries, and the traffic of their applications.

use cm_msgs::control::{Cause, MigrationState, QpState, Report, Snapshot};
use cm_msgs::path::Path;
use statemachine::view::PortState;
use statemachine::{ConnId, Input, Order};

use super::qp::Event as QpEvent;
use super::{LOCAL, LibraryFault, MS, Pair, Pending};

/// Between two packets of an application, each way. Retries come as often: with [`qp`]'s number of
/// them, hardware takes half a second to give a path up, as with ACK timeout 14 and 7 retries.
pub(super) const PACKET: u64 = 20 * MS;

impl Pair {
    pub(super) fn order(&mut self, host: usize, id: ConnId, order: Order) {
        let (client, conn) = (self.hosts[host].client, id.conn as usize);
        assert_eq!(id.client, client, "an order to a socket that is gone");
        match &order {
            Order::Event(event, _) => return self.hosts[host].events.push(*event),
            Order::Disconnected => {
                self.hosts[host].disconnected += 1;
                return;
            }
            Order::Refuse(refusal) => {
                self.hosts[host].refused[conn] = Some(*refusal);
                return;
            }
            Order::Load(load) => {
                let port = &self.hosts[host].ports[usize::from(load.alternate.port) - 1];
                let known = self.hosts[host]
                    .engine
                    .as_ref()
                    .expect("it ordered")
                    .ports();
                let known = known
                    .iter()
                    .find(|view| view.id.port == load.alternate.port);
                let up = known.is_some_and(|view| view.state != PortState::Down);
                self.hosts[host].migrating[conn] = false;
                assert!(up, "alternate on a port that is down: {port:?}");
                self.hosts[host].check_order(conn);
            }
            Order::Migrate(_) => {
                self.hosts[host].migrating[conn] = true;
                self.hosts[host].check_migrate(conn);
                self.hosts[host].check_order(conn);
            }
            Order::MoveIdle(_) => {
                self.hosts[host].migrating[conn] = true;
                self.hosts[host].check_move_idle(conn);
                self.hosts[host].check_order(conn);
            }
            Order::Stand(_) => {}
            // What became of an order that is overdue may be asked.
            Order::Query(_) => {
                self.hosts[host].migrating[conn] = false;
                self.hosts[host].waiting.insert(conn, true);
            }
        }
        self.push(LOCAL, Pending::Order(host, client, conn, order));
    }

    /// What a library does with an order.
    pub(super) fn obey(&mut self, host: usize, conn: usize, order: Order) {
        let token = match &order {
            Order::Load(load) => Some(load.token),
            Order::Migrate(migrate) | Order::MoveIdle(migrate) => Some(migrate.token),
            _ => None,
        };
        match (&mut self.hosts[host].fault, token) {
            (Some(LibraryFault::Stopped), _) => {
                self.hosts[host].unread.push((conn, order));
                return;
            }
            (Some(LibraryFault::Fails(errno)), Some(token)) => {
                let cause = Cause::Failed {
                    token,
                    errno: *errno,
                };
                return self.report(host, conn, cause, LOCAL);
            }
            (Some(LibraryFault::Stale(left)), Some(token)) if *left > 0 => {
                *left -= 1;
                return self.report(host, conn, Cause::Stale { token }, LOCAL);
            }
            _ => {}
        }
        let qp = &mut self.hosts[host].qps[conn];
        let cause = match order {
            Order::Stand(stand) => return self.take_standing_order(host, conn, &stand),
            Order::Load(load) => {
                self.hosts[host].standing[conn] = load.standing.then_some(load.primary);
                let token = load.token;
                if qp.state == QpState::Rts && qp.primary.same_way(&load.primary) {
                    qp.load(load.alternate);
                    Cause::Done { token }
                } else {
                    self.hosts[host].standing[conn] = None;
                    Cause::Stale { token }
                }
            }
            Order::Migrate(migrate) | Order::MoveIdle(migrate) => {
                let token = migrate.token;
                let current = qp.state == QpState::Rts && qp.primary.same_way(&migrate.primary);
                match qp.migration {
                    MigrationState::Armed if current => {
                        qp.order_migration();
                        Cause::Done { token }
                    }
                    MigrationState::Rearm if current && matches!(order, Order::MoveIdle(_)) => {
                        qp.move_idle();
                        Cause::Done { token }
                    }
                    _ => Cause::Stale { token },
                }
            }
            Order::Query(token) => Cause::Query { token },
            _ => Cause::Changed,
        };
        self.report(host, conn, cause, LOCAL);
    }

    /// A stopped process goes on.
    pub(crate) fn resume_library(&mut self, host: usize) {
        self.resume_library_with(host, None);
    }

    /// A stopped process goes on, and does this wrong.
    pub(crate) fn resume_library_with(&mut self, host: usize, fault: Option<LibraryFault>) {
        self.hosts[host].fault = fault;
        for (conn, order) in core::mem::take(&mut self.hosts[host].unread) {
            self.obey(host, conn, order);
        }
    }

    /// A report reaches an engine.
    pub(super) fn arrive(&mut self, host: usize, input: Input) {
        if let Input::Report(id, report) = &input {
            let conn = id.conn as usize;
            self.hosts[host].told.insert(conn, report.snapshot);
            let answers = match report.cause {
                Cause::PathMigrated | Cause::Armed | Cause::Broken => false,
                Cause::StandingOrder => self.hosts[host].migrating[conn],
                _ => true,
            };
            if answers {
                self.hosts[host].waiting.insert(conn, false);
            }
        }
        self.input(host, input);
    }

    /// A library says how its QP is, unasked.
    pub(crate) fn report_changed(&mut self, host: usize) {
        self.report(host, 0, Cause::Changed, LOCAL);
    }

    /// A library says that hardware finds its alternate no good.
    pub(crate) fn report_broken_alternate(&mut self, host: usize) {
        self.report(host, 0, Cause::PathMigrationError, LOCAL);
    }

    pub(super) fn report(&mut self, host: usize, conn: usize, cause: Cause, delay: u64) {
        let snapshot = self.hosts[host].qps[conn].snapshot();
        let (id, client) = (self.id(host, conn), self.hosts[host].client);
        if !self.hosts[host].registered[conn] {
            return;
        }
        let due = (self.now + delay).max(self.hosts[host].last_report + 1);
        self.hosts[host].last_report = due;
        let snapshot = Snapshot {
            primary: hide_gid(snapshot.primary),
            ..snapshot
        };
        let input = Input::Report(id, Report { cause, snapshot });
        self.push(due - self.now, Pending::Input(host, client, input));
    }

    /// An application sends a packet, and the QP waits for its acknowledgement.
    pub(super) fn packet(&mut self, host: usize, conn: usize) {
        if !self.traffic {
            return;
        }
        self.push(PACKET, Pending::Packet(host, conn));
        let sender = self.hosts[host].qps[conn].clone();
        if sender.state != QpState::Rts {
            return;
        }
        let there = self.passes(host, &sender.primary);
        let (taken, event) = if there {
            self.hosts[1 - host].qps[conn].receive(&sender.primary, sender.migreq())
        } else {
            (false, None)
        };
        self.notice(1 - host, conn, event);
        // The acknowledgement goes by the receiver's primary.
        let back = &self.hosts[1 - host].qps[conn];
        let acknowledged = taken && self.passes(1 - host, &back.primary);
        let event = if acknowledged {
            let (path, migreq) = (back.primary, back.migreq());
            let qp = &mut self.hosts[host].qps[conn];
            qp.acknowledged();
            qp.receive(&path, migreq).1
        } else {
            self.hosts[host].qps[conn].not_acknowledged()
        };
        self.notice(host, conn, event);
    }

    /// Whether a host's packets get through by a path of its own.
    fn passes(&self, host: usize, path: &Path) -> bool {
        self.net.passes((host, path.port), path.slid, path.dlid)
    }

    /// A library sees what its QP does.
    pub(super) fn notice(&mut self, host: usize, conn: usize, event: Option<QpEvent>) {
        let Some(event) = event else { return };
        if self.verbose {
            eprintln!("{:>9} us host {host}    QP {event:?}", self.now);
        }
        let cause = match event {
            QpEvent::Migrated => Cause::PathMigrated,
            QpEvent::Armed => Cause::Armed,
            QpEvent::Broken => Cause::Broken,
        };
        self.report(host, conn, cause, MS);
    }
}

/// Without a GRH, a QP's attributes do not show the remote GID.
fn hide_gid(path: Path) -> Path {
    Path {
        dgid: Default::default(),
        ..path
    }
}
