// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon says.

use std::time::{Duration, Instant};

use cm_msgs::control::{Cause, FromDaemon, FromLibrary, Report};

use super::{Asks, FIRST_RETRY, Uplink, Worker};
use crate::commit::Delivery;
use crate::link::Received;
use crate::order;
use crate::tracked::Tracked;

/// Messages taken from the daemon before others have their turn.
const TURN: usize = 16;

impl Worker {
    /// The daemon's socket is ready. What one turn does not take is still there at the next, since its
    /// readiness is told again.
    pub(super) fn socket_ready(&mut self) {
        self.send_queued();
        for _ in 0..TURN {
            let Uplink::Up(link) = &mut self.uplink else {
                return;
            };
            match link.receive() {
                Received::Message(message, waited) => self.message(message, waited),
                Received::Garbage(error) => crate::log::debug(&error),
                Received::Nothing => return,
                Received::Closed => return self.down(),
            }
        }
    }

    /// Does what a message asks for that was in the socket for this time.
    fn message(&mut self, message: FromDaemon, waited: Duration) {
        let is_late = waited > self.commit.max_order_age;
        match message {
            FromDaemon::Load { conn, load } if is_late => {
                self.carry_out(conn, |tracked, now| tracked.load_late(now, &load));
            }
            FromDaemon::Migrate { conn, migrate } | FromDaemon::MoveIdle { conn, migrate }
                if is_late =>
            {
                let token = migrate.token;
                self.carry_out(conn, |tracked, now| {
                    tracked.carry_out(now, token, |qp, gids| order::late(qp, gids, token))
                });
            }
            FromDaemon::CountsLateAnswers => {
                self.counts_late = true;
                // It may have had their registrations before this was known.
                for number in self.connections.keys().copied().collect::<Vec<_>>() {
                    self.say_late(number);
                }
            }
            FromDaemon::MovesIdle => self.say(FromLibrary::MovesIdle),
            FromDaemon::AsksPartitions => self.asks(Asks::Yes { partitions: true }),
            FromDaemon::AsksPeers => {
                if let Asks::Unknown(_) = self.asks {
                    self.asks(Asks::Yes { partitions: false });
                }
            }
            FromDaemon::Welcome => {
                self.wait = FIRST_RETRY;
                if let Asks::Unknown(_) = self.asks {
                    self.asks(Asks::No);
                }
            }
            FromDaemon::Peer { question, answers } => {
                self.commit.peers.answered(question, answers);
            }
            FromDaemon::Load { conn, load } => {
                self.carry_out(conn, |tracked, now| tracked.load(now, &load));
            }
            FromDaemon::Migrate { conn, migrate } => {
                self.carry_out(conn, |tracked, now| {
                    let token = migrate.token;
                    tracked.carry_out(now, token, |qp, gids| order::migrate(qp, gids, &migrate))
                });
            }
            FromDaemon::MoveIdle { conn, migrate } => {
                self.carry_out(conn, |tracked, now| tracked.move_idle(now, &migrate));
            }
            FromDaemon::Stand { conn, stand } => {
                self.carry_out(conn, |tracked, _| {
                    tracked.stand(&stand);
                    None
                });
            }
            FromDaemon::Query { conn, token } => {
                self.carry_out(conn, |tracked, now| {
                    // Whatever is new is in the snapshot; what the daemon waits for is the token.
                    tracked.look(now, None);
                    Some(Report {
                        cause: Cause::Query { token },
                        snapshot: *tracked.last(),
                    })
                });
            }
            FromDaemon::Refuse { conn, refusal } => {
                if let Some(tracked) = self.connections.get_mut(&conn) {
                    crate::log::debug(&format_args!("connection {conn} refused: {refusal}"));
                    tracked.refuse();
                }
                self.judge(conn);
            }
            FromDaemon::Event {
                conn,
                event,
                status,
            } => {
                if let Some(tracked) = self.connections.get(&conn)
                    && tracked.connection.opted_in()
                {
                    let primary = &tracked.last().primary;
                    let connection = &tracked.connection;
                    (self.deliver)(Delivery::Event(connection, event, status, primary));
                }
            }
            FromDaemon::Disconnected { conn } => self.disconnected(conn),
        }
    }

    /// The other end of a connection is disconnected: the peer's, or ours as the peer sees it. The
    /// application hears of it from us only where the CM's messages go another way than its data.
    fn disconnected(&mut self, number: u64) {
        // Whether it has migrated should be as true as it can be.
        self.look(number, None);
        match self.connections.get(&number) {
            Some(tracked) if tracked.connection.has_moved() => {
                crate::log::debug(&format_args!("connection {number}: the peer disconnected"));
                let primary = &tracked.last().primary;
                (self.deliver)(Delivery::Disconnected(&tracked.connection, primary));
            }
            Some(_) => {}
            None => (self.deliver)(Delivery::Left(number)),
        }
    }

    /// Runs an order and reports. An order for a connection that is gone needs no answer: the
    /// daemon is told of the closing.
    fn carry_out(
        &mut self,
        number: u64,
        order: impl FnOnce(&mut Tracked, Instant) -> Option<Report>,
    ) {
        let report = self.connections.get_mut(&number).and_then(|tracked| {
            // Who orders has thought better of an earlier refusal.
            tracked.refused = false;
            order(tracked, Instant::now())
        });
        self.judge(number);
        if let Some(report) = report {
            self.report(number, report);
        }
    }
}
