// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications' packets, and what queue pairs make of them.

use cm_msgs::control::{Cause, QpState};
use cm_msgs::path::Path;

use super::{Event, World};
use crate::sim::qp;
use crate::sim::queue::{MS, SECOND};

/// Between two packets of a side, and between two tries of one.
pub(super) const PACKET: u64 = 20 * MS;

/// For as long and up to twice as long a connection is silent that is quiet.
const SILENCE: u64 = 8 * SECOND;

impl World<'_> {
    pub(super) fn packet(&mut self, conn: usize, side: usize) {
        if self.connections[conn].closed {
            return;
        }
        let ends = &mut self.connections[conn].ends;
        if ends[side].qp.state != QpState::Rts {
            self.queue
                .after(self.packet_every, Event::Packet(conn, side));
            return;
        }
        let sent = (ends[side].qp.primary, ends[side].qp.migreq());
        let [here, there] = [side, 1 - side].map(|side| ends[side].host);
        let port = self.arrives(here, there, &sent.0);
        let peer = &mut self.connections[conn].ends[1 - side].qp;
        let (taken, event) = match port {
            Some(port) => peer.receive(port, &sent.0, sent.1),
            None => (false, None),
        };
        // The acknowledgement goes by the receiver's primary.
        let (back, migreq) = (peer.primary, peer.migreq());
        self.notice(conn, 1 - side, event);
        let port = self.arrives(there, here, &back).filter(|_| taken);
        let pause = self.pause(conn, port.is_some());
        self.queue.after(pause, Event::Packet(conn, side));
        if let Some(port) = port {
            self.judge.acknowledged(conn, side);
            self.holes.acknowledged(conn, side);
            let qp = &mut self.connections[conn].ends[side].qp;
            qp.acknowledged();
            let (_, event) = qp.receive(port, &back, migreq);
            self.notice(conn, side, event);
        } else {
            self.lost(conn, side);
            self.lost_after_order(conn, side);
            let event = self.connections[conn].ends[side].qp.not_acknowledged();
            self.notice(conn, side, event);
        }
        self.must_be_reversed(conn);
        self.note_paths(conn);
        self.note_alternate(conn, side);
    }

    /// How long a side sends nothing after a packet that was acknowledged or not. One that is quiet sends once in a while,
    /// until it is acknowledged.
    fn pause(&mut self, conn: usize, acknowledged: bool) -> u64 {
        let is_quiet = self.plan.quiet[conn] && self.queue.now() < self.plan.calm_from();
        match is_quiet && acknowledged {
            true => SILENCE + u64::from(self.dice.below(SILENCE as u32)),
            false => self.packet_every,
        }
    }

    /// The port of the other host by which a packet comes in, if it gets there: queue pair numbers are a host's own.
    fn arrives(&self, host: usize, other: usize, path: &Path) -> Option<u8> {
        let (from, to) = self.addresses.ends(host, path)?;
        let port = self.fabric.port_at(to).filter(|port| port.0 == other)?;
        self.fabric.passes(from, to).then_some(port.1)
    }

    /// A library sees what its QP does.
    fn notice(&mut self, conn: usize, side: usize, event: Option<qp::Event>) {
        let Some(event) = event else { return };
        let host = self.connections[conn].ends[side].host;
        self.tell(|| format!("host {host} connection {conn}: QP {event:?}"));
        let cause = match event {
            qp::Event::Migrated => {
                self.outcome.migrations += 1;
                self.must_have_a_cause(conn, side);
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
