// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs between daemons, and those that nobody should believe.

use cm_msgs::{Lid, PKey, cm};
use statemachine::{Answerer, Input, MadSource, Probe, Transmit};

use super::{Event, World};
use crate::sim::host::port_id;
use crate::sim::queue::SECOND;
use crate::sim::verdict::Rule;

/// The association's management class.
const CLASS: u8 = 0x2d;
/// MADs that a host may send in a second, for each of its connections: six copies each of REQ, LAP and SAP or
/// DREQ, and as many answers, twice. Probes have a bound of their own.
const TRAFFIC: u32 = 72;
/// Probes that a host may send in a second, however many connections it has.
const PROBES: u32 = 200;
/// MADs that a forger has seen.
const SEEN: usize = 64;

/// What is wrong with MADs and with subnet administration; counts of the faults that hold it so.
#[derive(Default)]
pub(super) struct Weather {
    /// Lost, of a thousand.
    pub(super) loss: u32,
    /// Doubled, of a thousand.
    pub(super) copies: u32,
    /// Microseconds at most.
    pub(super) delay: u32,
    pub(super) sa_delay: u64,
    pub(super) no_sa: u32,
    pub(super) busy_sa: u32,
    pub(super) stale_sa: u32,
    /// MADs that were sent.
    seen: Vec<cm::Message>,
}

impl World<'_> {
    pub(super) fn send(&mut self, host: usize, send: &Transmit) {
        self.count(host);
        self.count_message(host, &send.message, send.transaction_id);
        let from = (host, send.port.port);
        let slid = Lid(self.addresses.lid(from).0 + u16::from(send.path_bits));
        // The codecs are part of the way.
        let message = self.redirected(host, send.transaction_id, send.message.clone());
        let mad = message.encode(CLASS, u64::from(send.transaction_id));
        let Ok((_, message)) = cm::Message::decode(&mad) else {
            return self.violated(Rule::Legal, || format!("host {host}: {:?}", send.message));
        };
        if self.weather.seen.len() < SEEN {
            self.weather.seen.push(message.clone());
        } else {
            let place = self.dice.below(SEEN as u32) as usize;
            self.weather.seen[place] = message.clone();
        }
        let Some((here, there)) = self.addresses.ends_of(from, slid, send.lid) else {
            return;
        };
        let Some((to, port)) = self.fabric.port_at(there) else {
            return;
        };
        if !self.fabric.passes(here, there) {
            return;
        }
        let source = MadSource {
            port: port_id((to, port)),
            lid: slid,
            qpn: 1,
            sl: send.sl,
            path_bits: (send.lid.0 - self.addresses.lid((to, port)).0) as u8,
            pkey: send.pkey,
            transaction_id: send.transaction_id,
        };
        let copies = 1 + u32::from(self.dice.below(1000) < self.weather.copies);
        for _ in 0..copies {
            if !self.is_lost() {
                let delay = self.mad_delay();
                self.queue
                    .after(delay, Event::Mad(to, source, message.clone()));
            }
        }
    }

    /// A probe takes the path that it is about.
    pub(super) fn send_probe(&mut self, host: usize, probe: Probe) {
        self.count_probe(host);
        let ends = self.probe_ends(host, &probe);
        if ends.is_some_and(|(from, to)| self.fabric.passes(from, to)) && !self.is_lost() {
            let event = Event::Probe(host, probe);
            let delay = self.mad_delay();
            self.queue.after(delay, event);
        }
    }

    /// Where no daemon runs, the kernel answers.
    pub(super) fn answer_probe(&mut self, host: usize, probe: Probe) {
        let ends = self.probe_ends(host, &probe);
        if ends.is_some_and(|(from, to)| self.fabric.passes(to, from)) && !self.is_lost() {
            let client = self.hosts[host].client;
            let delay = self.mad_delay();
            let there = ends.and_then(|(_, to)| self.fabric.port_at(to));
            let by = match there {
                Some((to, _)) if self.hosts[to].engine.is_some() => Answerer::Daemon,
                _ => Answerer::Kernel,
            };
            let event = Event::Input(host, client, Input::Probed(probe, by));
            self.queue.after(delay, event);
        }
    }

    fn probe_ends(&self, host: usize, probe: &Probe) -> Option<(Lid, Lid)> {
        let path = &probe.path;
        let from = (host, path.port.port);
        self.addresses.ends_of(from, path.slid, path.dlid)
    }

    fn is_lost(&mut self) -> bool {
        self.dice.below(1000) < self.weather.loss
    }

    fn mad_delay(&mut self) -> u64 {
        20 + u64::from(self.dice.below(100 + self.weather.delay))
    }

    fn count(&mut self, host: usize) {
        let second = self.queue.now() / SECOND;
        let ends = self.connections.iter().flat_map(|conn| &conn.ends);
        let ends = ends.filter(|end| end.host == host).count().max(1) as u32;
        // Each copy of a message may draw an answer of its own.
        let bound = TRAFFIC * ends * (1000 + self.weather.copies) / 1000;
        if self.hosts[host].mads.add(second) > bound {
            self.violated(Rule::Traffic, || {
                format!("host {host} sends more than {bound} MADs in a second")
            });
        }
    }

    fn count_probe(&mut self, host: usize) {
        let second = self.queue.now() / SECOND;
        if self.hosts[host].probes.add(second) > PROBES {
            self.violated(Rule::Traffic, || {
                format!("host {host} sends more than {PROBES} probes in a second")
            });
        }
    }

    /// A host that is not the sender says again what somebody said, or says it to somebody else.
    pub(super) fn forge(&mut self) {
        let hosts = self.hosts.len() as u32;
        if self.weather.seen.is_empty() {
            return;
        }
        let place = self.dice.below(self.weather.seen.len() as u32) as usize;
        let message = self.weather.seen[place].clone();
        let mut port = || {
            (
                self.dice.below(hosts) as usize,
                1 + self.dice.below(2) as u8,
            )
        };
        let (from, to) = (port(), port());
        let source = MadSource {
            port: port_id(to),
            lid: self.addresses.lid(from),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: self.dice.below(u32::MAX),
        };
        self.tell(|| {
            format!(
                "forged: {} from host {} to host {}",
                message.name(),
                from.0,
                to.0
            )
        });
        self.queue.after(20, Event::Mad(to.0, source, message));
    }
}
