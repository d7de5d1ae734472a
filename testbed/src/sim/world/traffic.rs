// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications' packets, and what queue pairs make of them.

use cm_msgs::control::{Cause, QpState};

use super::{Event, World};
use crate::sim::qp;
use crate::sim::queue::MS;

/// Between two packets of a side, and between two tries of one.
pub(super) const PACKET: u64 = 20 * MS;

impl World<'_> {
    pub(super) fn packet(&mut self, conn: usize, side: usize) {
        if self.connections[conn].closed {
            return;
        }
        self.queue
            .after(self.packet_every, Event::Packet(conn, side));
        let ends = &mut self.connections[conn].ends;
        if ends[side].qp.state != QpState::Rts {
            return;
        }
        let sent = (ends[side].qp.primary, ends[side].qp.migreq());
        let there = self.fabric.passes(sent.0.slid, sent.0.dlid);
        let peer = &mut ends[1 - side].qp;
        let (taken, event) = match there {
            true => peer.receive(&sent.0, sent.1),
            false => (false, None),
        };
        // The acknowledgement goes by the receiver's primary.
        let (back, migreq) = (peer.primary, peer.migreq());
        self.notice(conn, 1 - side, event);
        if taken && self.fabric.passes(back.slid, back.dlid) {
            self.judge.acknowledged(conn, side);
            let qp = &mut self.connections[conn].ends[side].qp;
            qp.acknowledged();
            let (_, event) = qp.receive(&back, migreq);
            self.notice(conn, side, event);
        } else {
            self.lost(conn, side);
            let event = self.connections[conn].ends[side].qp.not_acknowledged();
            self.notice(conn, side, event);
        }
        self.must_be_reversed(conn);
        self.note_paths(conn);
    }

    /// A library sees what its QP does.
    fn notice(&mut self, conn: usize, side: usize, event: Option<qp::Event>) {
        let Some(event) = event else { return };
        let host = self.connections[conn].ends[side].host;
        self.tell(|| format!("host {host} connection {conn}: QP {event:?}"));
        let cause = match event {
            qp::Event::Migrated => {
                self.outcome.migrations += 1;
                self.uek_migrated(side);
                Cause::PathMigrated
            }
            qp::Event::Armed => Cause::Armed,
            qp::Event::Broken => {
                self.died(conn, side);
                Cause::Broken
            }
        };
        self.report(host, conn, cause);
    }
}
