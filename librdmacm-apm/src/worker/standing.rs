// SPDX-License-Identifier: MIT OR Apache-2.0
//! A verbs context has an event: QPs whose port has failed go first.

use cm_msgs::control::Cause;

use super::Worker;
use crate::tracked::Tracked;

impl Worker {
    /// Migrates the QPs of the context that have standing orders and whose primary's port has failed:
    /// first all of them, then each is looked at and reported. An event says that something happened,
    /// but not when, nor to an application that reads late; what counts is how the port is now. So a
    /// port that has come back already moves nobody.
    pub(super) fn carry_out_standing_orders(&mut self, context: usize) {
        let failed = self.failed_ports(context);
        if failed.is_empty() {
            return;
        }
        let mut moved = Vec::new();
        for (&number, tracked) in &mut self.connections {
            if stands_on(tracked, context).is_some_and(|port| failed.contains(&port))
                && tracked.migrate_by_itself()
            {
                moved.push(number);
            }
        }
        crate::log::debug(&format_args!(
            "port {failed:?} has failed: {} connections migrated by standing order",
            moved.len()
        ));
        for number in moved {
            self.look(number, Some(Cause::StandingOrder));
        }
    }

    /// The ports of the context that carry nothing, of those for which there are standing orders.
    fn failed_ports(&self, context: usize) -> Vec<u8> {
        let mut asked: Vec<(u8, bool)> = Vec::new();
        for tracked in self.connections.values() {
            let Some(port) = stands_on(tracked, context) else {
                continue;
            };
            if asked.iter().any(|&(known, _)| known == port) {
                continue;
            }
            // The context is open while a QP of it is held. One that is gone cannot be asked.
            if let Some(Ok(up)) = tracked.connection.with_qp(|qp| qp.is_port_up(port)) {
                asked.push((port, up));
            }
        }
        asked.retain(|&(_, up)| !up);
        asked.into_iter().map(|(port, _)| port).collect()
    }
}

/// The port whose failure moves the connection, if it is on the context and has a standing order.
fn stands_on(tracked: &Tracked, context: usize) -> Option<u8> {
    let here = tracked.connection.context.address == context;
    tracked
        .standing()
        .filter(|_| here)
        .map(|order| order.port())
}
