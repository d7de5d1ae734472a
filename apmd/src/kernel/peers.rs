// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are named to the module, so that it bounds the ACK timeout of connections which begin towards
//! them: a daemon answers there, and this host has a second path. No I/O here.
//!
//! Asked about is who is being connected to, who is connected, and who asks for this daemon: of two
//! hosts the one that accepts hears of the connection by that, before its own end goes to RTS. The first
//! connection of a kernel consumer is faster than that; so whoever has registered with subnet administration
//! is asked beforehand ([`Discovery`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cm_msgs::Lid;
use statemachine::{FarPort, PeerQuestion, PortId, PortStatus, Time};

use super::discovery::{Discovery, Due};
use super::queue_pairs::CLIENT;
use super::way::Way;

/// How long a peer is named before it is asked about again, if it is connected, or forgotten.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// How many are named at most; the module takes four times as many.
const MAX: usize = 4096;

/// How many are gone through before others have their turn.
const TURN: usize = 64;

/// Whose share of the questions it is when another host asks first. No user has this number.
const STRANGERS: u32 = u32::MAX;
/// And when subnet administration has named it.
const DISCOVERY: u32 = u32::MAX - 1;

/// What concerns others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Whether a daemon answers there.
    Ask {
        question: PeerQuestion,
        uid: u32,
        far: FarPort,
    },
    /// The module is to bound ACK timeouts towards it, or (0) not to any more.
    Bound { way: Way, ack_timeout: u8 },
}

#[derive(Debug)]
struct Peer {
    /// The one it was last met in.
    partition: u16,
    /// Who was interested first.
    uid: u32,
    /// Under which number it is being asked.
    asked: Option<u64>,
    named: bool,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    /// An exponent; 0: none is named.
    ack_timeout: u8,
    ports: BTreeMap<PortId, PortStatus>,
    all: BTreeMap<Way, Peer>,
    questions: BTreeMap<u64, Way>,
    last_question: u64,
    /// To be gone through.
    due: VecDeque<Way>,
    round_at: Option<Time>,
    /// Those that stay without anybody being connected to them.
    discovery: Discovery,
    told: VecDeque<Told>,
}

impl Peers {
    /// `ack_timeout`: the bound, an exponent; with 0 none is named.
    pub(crate) fn new(ack_timeout: u8) -> Self {
        Self {
            ack_timeout,
            ports: BTreeMap::new(),
            all: BTreeMap::new(),
            questions: BTreeMap::new(),
            last_question: 0,
            due: VecDeque::new(),
            round_at: None,
            discovery: Discovery::default(),
            told: VecDeque::new(),
        }
    }

    /// How many the module knows.
    pub(crate) fn count(&self) -> usize {
        self.all.values().filter(|peer| peer.named).count()
    }

    /// Whether any are named.
    pub(crate) fn is_bounding(&self) -> bool {
        self.ack_timeout > 0
    }

    /// Another bound.
    pub(crate) fn set_ack_timeout(&mut self, ack_timeout: u8) {
        if self.ack_timeout != ack_timeout {
            for way in self.all.keys().copied().collect::<Vec<_>>() {
                let kept = self.kept(way);
                self.forget(way);
                kept.into_iter().for_each(|far| self.discovery.find(far));
            }
            self.ack_timeout = ack_timeout;
        }
    }

    /// The module is gone, and knows none.
    pub(crate) fn clear(&mut self) {
        let (ack_timeout, last) = (self.ack_timeout, self.last_question);
        let ports = std::mem::take(&mut self.ports);
        *self = Self {
            ports,
            // An answer may be under way yet.
            last_question: last,
            ..Self::new(ack_timeout)
        };
    }

    /// What has become of a port. Who is behind which LID, and whether there is a second path, may be
    /// different.
    pub(crate) fn handle_port(&mut self, port: PortId, status: Option<&PortStatus>) {
        let before = match status {
            Some(status) => self.ports.insert(port, status.clone()),
            None => self.ports.remove(&port),
        };
        let is_same = before.as_ref() == status;
        let is_due = |way: &&Way| {
            way.0.node_guid == port.node_guid && !(is_same && self.discovery.keeps(**way))
        };
        self.due.extend(self.all.keys().filter(is_due));
    }

    /// Somebody of this host is connected to a peer, or about to be.
    pub(crate) fn expect(&mut self, now: Time, far: FarPort, uid: u32) {
        let way = (far.port, far.lid);
        if !self.counts(way) {
            return;
        }
        match self.all.get(&way) {
            Some(peer) if peer.named => return,
            Some(_) => {}
            None if self.all.len() == MAX => return,
            None => {
                let peer = Peer {
                    partition: far.partition,
                    uid,
                    asked: None,
                    named: false,
                };
                self.all.insert(way, peer);
            }
        }
        self.round_at.get_or_insert(now + NAMED_FOR);
        self.ask(way);
    }

    /// A daemon there asks for ours: it may be about to connect, or has found this one.
    pub(crate) fn asked_by(&mut self, now: Time, far: FarPort) {
        self.expect(now, far, STRANGERS);
        let way = (far.port, far.lid);
        match self.all.get(&way) {
            Some(peer) if peer.named => self.discovery.keep(now, way),
            Some(_) => self.discovery.called(now, way),
            None => {}
        }
    }

    /// Subnet administration says that a daemon answers there. Anybody may have told it so.
    pub(crate) fn find(&mut self, far: FarPort) {
        if let Some(status) = self.ports.get(&far.port) {
            self.discovery.begin_behind(status.lid, far.port);
            self.discovery.find(far);
        }
    }

    /// Asks who is due without anybody being connected to them.
    fn discover(&mut self, now: Time) {
        while let Some(due) = self.discovery.poll(now) {
            let (way, partition) = match due {
                Due::Again(way) => (way, None),
                Due::First(far) => ((far.port, far.lid), Some(far.partition)),
            };
            let is_active = self.ports.get(&way.0).is_some_and(|it| it.active);
            if !self.counts(way) || !is_active {
                // It may have a second path later, of which its port's change tells.
                if self.discovery.keeps(way) {
                    self.unname(way);
                }
                continue;
            }
            if partition.is_some_and(|partition| !self.is_in(way.0, partition)) {
                continue;
            }
            if let (Some(partition), false) = (partition, self.all.contains_key(&way)) {
                if self.all.len() == MAX {
                    continue;
                }
                let peer = Peer {
                    partition,
                    uid: DISCOVERY,
                    asked: None,
                    named: false,
                };
                self.all.insert(way, peer);
                self.round_at.get_or_insert(now + NAMED_FOR);
            }
            self.discovery.asked(now, way);
            self.ask(way);
        }
    }

    /// Whether a port is in the partition.
    fn is_in(&self, port: PortId, partition: u16) -> bool {
        let mut pkeys = self.ports.get(&port).into_iter().flat_map(|it| &it.pkeys);
        pkeys.any(|pkey| pkey.partition() == partition)
    }

    /// Where it is, if it stays without anybody being connected to it.
    fn kept(&self, (port, lid): Way) -> Option<FarPort> {
        let peer = self.all.get(&(port, lid));
        let peer = peer.filter(|_| self.discovery.keeps((port, lid)))?;
        Some(FarPort {
            port,
            lid,
            partition: peer.partition,
        })
    }

    /// Whether a second path is there, and the way does not lead back to this host.
    fn counts(&self, (port, lid): Way) -> bool {
        let has_second = self.ports.iter().any(|(id, status)| {
            let is_other = *id != port && id.node_guid == port.node_guid;
            let usable = status.infiniband && status.active && status.apm;
            usable && (is_other || (*id == port && status.lmc > 0))
        });
        let is_known = self.ports.contains_key(&port);
        self.ack_timeout > 0 && is_known && has_second && !self.leads_back(lid)
    }

    fn leads_back(&self, lid: Lid) -> bool {
        self.ports.values().any(|status| status.has_lid(lid))
    }

    fn ask(&mut self, way: Way) {
        let Some(peer) = self.all.get_mut(&way).filter(|it| it.asked.is_none()) else {
            return;
        };
        self.last_question += 1;
        peer.asked = Some(self.last_question);
        self.questions.insert(self.last_question, way);
        let (port, lid) = way;
        self.told.push_back(Told::Ask {
            question: PeerQuestion {
                client: CLIENT,
                question: self.last_question,
            },
            uid: peer.uid,
            far: FarPort {
                port,
                lid,
                partition: peer.partition,
            },
        });
    }

    /// Whether a daemon answers where was asked.
    pub(crate) fn handle_answer(&mut self, question: PeerQuestion, answers: bool) {
        let Some(way) = self.questions.remove(&question.question) else {
            return;
        };
        let counts = self.counts(way);
        if !self.discovery.handle_answer(way, answers) {
            return self.forget(way);
        }
        let ack_timeout = self.ack_timeout;
        let Some(peer) = self.all.get_mut(&way) else {
            return;
        };
        peer.asked = None;
        match answers && counts {
            false if self.discovery.keeps(way) => self.unname(way),
            false => self.forget(way),
            true if peer.named => {}
            true => {
                peer.named = true;
                self.told.push_back(Told::Bound { way, ack_timeout });
            }
        }
    }

    fn unname(&mut self, way: Way) {
        if let Some(peer) = self.all.get_mut(&way)
            && std::mem::take(&mut peer.named)
        {
            let ack_timeout = 0;
            self.told.push_back(Told::Bound { way, ack_timeout });
        }
    }

    fn forget(&mut self, way: Way) {
        self.unname(way);
        self.discovery.forget(way);
        let asked = self.all.remove(&way).and_then(|peer| peer.asked);
        if let Some(question) = asked {
            self.questions.remove(&question);
        }
    }

    /// `connected` says where queue pairs lead.
    pub(crate) fn handle_time(&mut self, now: Time, connected: impl FnOnce() -> BTreeSet<Way>) {
        if self.round_at.is_some_and(|at| at <= now) {
            self.round_at = (!self.all.is_empty()).then(|| now + NAMED_FOR);
            let others = self.all.keys().filter(|way| !self.discovery.keeps(**way));
            self.due.extend(others);
        }
        if !self.due.is_empty() {
            self.review(&connected());
        }
        self.discover(now);
    }

    fn review(&mut self, connected: &BTreeSet<Way>) {
        for way in self
            .due
            .drain(..self.due.len().min(TURN))
            .collect::<Vec<_>>()
        {
            if let Some(far) = self.kept(way) {
                match self.ports.contains_key(&way.0) && !self.leads_back(way.1) {
                    true => self.discovery.find(far),
                    false => self.forget(way),
                }
                continue;
            }
            let is_needed = connected.contains(&way) || self.is_asked(way);
            match is_needed && self.counts(way) {
                true => self.ask(way),
                false => self.forget(way),
            }
        }
    }

    fn is_asked(&self, way: Way) -> bool {
        self.all.get(&way).is_some_and(|peer| peer.asked.is_some())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if !self.due.is_empty() {
            return Some(Time(0));
        }
        let discovery = self.discovery.poll_timeout();
        self.round_at.into_iter().chain(discovery).min()
    }

    pub(crate) fn poll(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}

#[cfg(test)]
mod tests;
