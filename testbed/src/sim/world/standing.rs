// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that migrate by themselves when a port of their host fails.

use cm_msgs::control::{Cause, QpState, Stand};

use super::{Event, World};
use crate::sim::fabric::PortOf;
use crate::sim::queue::MS;
use crate::sim::verdict::Rule;

/// A library sees a port's loss within this: before its daemon, after it, or while an order is on its
/// way.
const SEEN_WITHIN: u64 = 2 * MS;

impl World<'_> {
    /// Whether the engine may give that, as far as it can know.
    pub(super) fn check_standing_order(&mut self, host: usize, conn: usize, stand: &Stand) {
        let told = self.hosts[host].told.get(&conn);
        let fits = told.is_some_and(|told| {
            told.qp_state == QpState::Rts && told.primary.same_way(&stand.primary)
        });
        if stand.allowed && !fits {
            self.violated(Rule::Legal, || {
                format!("host {host} connection {conn}: standing order for a QP that is elsewhere")
            });
        }
    }

    pub(super) fn take_standing_order(&mut self, conn: usize, side: usize, stand: &Stand) {
        let end = &mut self.connections[conn].ends[side];
        let fits = end.qp.primary.same_way(&stand.primary) && end.qp.loaded().is_some();
        end.standing = (stand.allowed && fits).then_some(stand.primary);
    }

    /// A port's link has gone down.
    pub(super) fn libraries_will_see(&mut self, port: PortOf) {
        let now = self.queue.now();
        let seen = now + u64::from(self.dice.below(SEEN_WITHIN as u32));
        let due = seen.max(self.hosts[port.0].still_until);
        self.queue.at(due, Event::Failed(port));
    }

    /// The libraries of a host see that, whether or not there is a daemon. What counts is how the port
    /// is by then.
    pub(super) fn port_failed(&mut self, (host, port): PortOf) {
        if self.hosts[host].mute > 0 {
            return self.hosts[host].unseen.push(port);
        }
        if self.fabric.link_is_up((host, port)) {
            return;
        }
        for conn in 0..self.connections.len() {
            for side in [0, 1] {
                if self.connections[conn].ends[side].host == host {
                    self.migrate_by_itself(conn, side, port);
                }
            }
        }
    }

    fn migrate_by_itself(&mut self, conn: usize, side: usize, port: u8) {
        let end = &mut self.connections[conn].ends[side];
        let on_it = |primary: &cm_msgs::path::Path| primary.same_way(&end.qp.primary);
        let stands = end.standing.as_ref().is_some_and(on_it);
        if !end.registered || !stands || end.qp.primary.port != port || !end.qp.is_armed() {
            return;
        }
        let host = end.host;
        end.standing = None;
        self.migrates_by_order(conn, side);
        let migrated = self.connections[conn].ends[side].qp.migrate();
        self.outcome.migrations += 1;
        self.tell(|| format!("host {host} connection {conn}: by standing order"));
        if let Err(illegal) = migrated {
            self.violated(Rule::Legal, || {
                format!("host {host} connection {conn}: {illegal}")
            });
        }
        self.report(host, conn, Cause::StandingOrder);
    }
}
