// SPDX-License-Identifier: MIT OR Apache-2.0
//! What libraries do by themselves.

use cm_msgs::control::{Cause, Stand};

use super::{LOCAL, Pair};

impl Pair {
    pub(super) fn take_standing_order(&mut self, host: usize, conn: usize, stand: &Stand) {
        let host = &mut self.hosts[host];
        host.stands_told.push(stand.allowed);
        let fits = host.qps[conn].primary.same_way(&stand.primary);
        host.standing[conn] = (stand.allowed && fits).then_some(stand.primary);
    }

    /// Whether the first connection's library may leave the QP's primary by itself.
    pub(crate) fn may_stand(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        host.standing[0].is_some_and(|primary| primary.same_way(&host.qps[0].primary))
    }

    /// The libraries of a host see that a port has failed. How many migrate.
    pub(crate) fn libraries_see_loss(&mut self, host: usize, port: u8) -> usize {
        let mut moved = 0;
        for conn in 0..self.hosts[host].qps.len() {
            let here = &mut self.hosts[host];
            let qp = &mut here.qps[conn];
            let stands = here.standing[conn].is_some_and(|primary| primary.same_way(&qp.primary));
            if !stands || qp.primary.port != port || !qp.is_armed() {
                continue;
            }
            qp.order_migration();
            here.standing[conn] = None;
            moved += 1;
            if here.engine.is_some() {
                self.report(host, conn, Cause::StandingOrder, LOCAL);
            }
        }
        moved
    }
}
