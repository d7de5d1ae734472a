// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs and probes on their way.

use cm_msgs::{Lid, cm};
use statemachine::{Answerer, MadSource, Probe, Transmit};

use super::{PASSIVE, Pair, Pending, PlaceTold, Twist, Weather};

impl Pair {
    pub(super) fn send(&mut self, host: usize, mut send: Transmit) {
        if let Some(Twist(twist)) = self.twist.as_mut().filter(|_| host == PASSIVE) {
            twist(&mut send.message);
        }
        let name = send.message.name();
        *self.hosts[host].sent.entry(name).or_default() += 1;
        self.hosts[host].sent_in.insert(send.pkey);
        self.transactions.insert(name, send.transaction_id);
        let from = (host, send.port.port);
        let slid = Lid(self.net.lid(from).0 + u16::from(send.path_bits));
        if let Some(left) = self.lose.get_mut(name).filter(|left| **left > 0) {
            *left -= 1;
            return;
        }
        // The codecs are part of the way.
        let mad = send.message.encode(0x2d, u64::from(send.transaction_id));
        let (_, mut message) = cm::Message::decode(&mad).expect("what was encoded can be decoded");
        assert_eq!(message, send.message);
        tell_place(&mut message, self.net.place_told[host]);
        let Some((to, port)) = self.net.port_at(from, send.lid) else {
            self.to_strangers.push((send.lid, message));
            return;
        };
        if !self.net.passes(from, slid, send.lid) {
            return;
        }
        let receiver = &self.hosts[to];
        // As an HCA has it: by the first key of the port's own that lets the sender's in, or not at all.
        let mut keys = receiver.ports[usize::from(port) - 1].pkeys.iter();
        let Some(&pkey) = keys.find(|key| key.matches(send.pkey)) else {
            return;
        };
        let source = MadSource {
            port: receiver.port_id(port),
            lid: slid,
            qpn: 1,
            sl: send.sl,
            path_bits: (send.lid.0 - self.net.lid((to, port)).0) as u8,
            pkey,
            transaction_id: send.transaction_id,
        };
        if self.record == Some(name) {
            self.recorded.push((to, source, message.clone()));
        }
        let Weather {
            loss,
            duplication,
            delay,
        } = self.net.weather;
        let copies = 1 + u64::from(self.net.random(1000) < duplication);
        for _ in 0..copies {
            if self.net.random(1000) >= loss {
                let delay = 20 + self.net.random(delay);
                self.push(delay, Pending::Mad(to, source, message.clone()));
            }
        }
    }

    /// A probe takes the path that it is about.
    pub(super) fn send_probe(&mut self, host: usize, probe: Probe) {
        self.hosts[host].probes += 1;
        let from = (host, probe.path.port.port);
        if self.net.passes(from, probe.path.slid, probe.path.dlid) && !self.is_lost() {
            let delay = 20 + self.net.random(self.net.weather.delay);
            self.push(delay, Pending::Probe(host, probe));
        }
    }

    /// Where no daemon runs, the kernel answers. A stopped one does not.
    pub(super) fn answer_probe(&mut self, host: usize, probe: Probe) {
        let from = (host, probe.path.port.port);
        let there = self.net.port_at(from, probe.path.dlid);
        let answers = there.is_some_and(|there| {
            !self.hosts[there.0].stopped && self.net.passes(there, probe.path.dlid, probe.path.slid)
        });
        let runs = there.is_some_and(|there| self.hosts[there.0].engine.is_some());
        let by = if runs {
            Answerer::Daemon
        } else {
            Answerer::Kernel
        };
        if answers && !self.is_lost() {
            let delay = 20 + self.net.random(self.net.weather.delay);
            self.push(delay, Pending::ProbeAnswer(host, probe, by));
        }
    }

    pub(super) fn is_lost(&mut self) -> bool {
        self.net.random(1000) < self.net.weather.loss
    }
}

/// Changes what the sender tells of the port that its primary leaves from.
fn tell_place(message: &mut cm::Message, told: PlaceTold) {
    const PLACE: usize = 93;
    let byte = match message {
        cm::Message::Lap(lap)
            if told == PlaceTold::Wrong && lap.alternate.local_port_lid.0 != 0 =>
        {
            return;
        }
        cm::Message::Rep(rep) => &mut rep.private_data.0[PLACE],
        cm::Message::Lap(lap) => &mut lap.private_data.0[PLACE],
        cm::Message::Apr(apr) => &mut apr.private_data.0[PLACE],
        cm::Message::Sap(sap) => &mut sap.private_data.0[PLACE],
        cm::Message::Spr(spr) => &mut spr.private_data.0[PLACE],
        _ => return,
    };
    match told {
        PlaceTold::True => {}
        PlaceTold::Nothing => *byte &= 0x0f,
        // 1 becomes 2, and 2 becomes 1.
        PlaceTold::Wrong => *byte ^= 3 << 5,
    }
}
