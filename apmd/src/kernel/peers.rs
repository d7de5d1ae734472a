// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are named to the module, so that it bounds the ACK timeout of connections which begin towards
//! them: a daemon answers there, and this host has a second path. No I/O here.
//!
//! Asked about is who is being connected to, who is connected, and who asks for this daemon: of two
//! hosts the one that accepts hears of the connection by that, before its own end goes to RTS.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cm_msgs::Lid;
use statemachine::{FarPort, PeerQuestion, PortId, PortStatus, Time};

use super::CLIENT;

/// How long a peer is named before it is asked about again, if it is connected, or forgotten.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// How many are named at most; the module takes four times as many.
const MAX: usize = 4096;

/// How many are gone through before others have their turn.
const TURN: usize = 64;

/// Whose share of the questions it is when another host asks first. No user has this number.
const STRANGERS: u32 = u32::MAX;

/// A peer's port, as seen from a local one.
pub(crate) type Way = (PortId, Lid);

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
            told: VecDeque::new(),
        }
    }

    /// How many the module knows.
    pub(crate) fn count(&self) -> usize {
        self.all.values().filter(|peer| peer.named).count()
    }

    /// Another bound.
    pub(crate) fn set_ack_timeout(&mut self, ack_timeout: u8) {
        if self.ack_timeout != ack_timeout {
            for way in self.all.keys().copied().collect::<Vec<_>>() {
                self.forget(way);
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
        match status {
            Some(status) => self.ports.insert(port, status.clone()),
            None => self.ports.remove(&port),
        };
        let of_device = |way: &&Way| way.0.node_guid == port.node_guid;
        self.due.extend(self.all.keys().filter(of_device));
    }

    /// Somebody of this host is connected to a peer, or about to be.
    pub(crate) fn expect(&mut self, now: Time, far: FarPort, uid: u32) {
        let way = (far.port, far.lid);
        if self.all.contains_key(&way) || self.all.len() == MAX || !self.counts(way) {
            return;
        }
        let peer = Peer {
            partition: far.partition,
            uid,
            asked: None,
            named: false,
        };
        self.all.insert(way, peer);
        self.round_at.get_or_insert(now + NAMED_FOR);
        self.ask(way);
    }

    /// A daemon there asks for ours: it may be about to connect.
    pub(crate) fn asked_by(&mut self, now: Time, far: FarPort) {
        self.expect(now, far, STRANGERS);
    }

    /// Whether a second path is there, and the way does not lead back to this host.
    fn counts(&self, (port, lid): Way) -> bool {
        let has_second = self.ports.iter().any(|(id, status)| {
            let is_other = *id != port && id.node_guid == port.node_guid;
            let usable = status.infiniband && status.active && status.apm;
            usable && (is_other || (*id == port && status.lmc > 0))
        });
        let leads_back = self.ports.values().any(|status| status.has_lid(lid));
        self.ack_timeout > 0 && self.ports.contains_key(&port) && has_second && !leads_back
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
        if !answers || !self.counts(way) {
            return self.forget(way);
        }
        let ack_timeout = self.ack_timeout;
        if let Some(peer) = self.all.get_mut(&way) {
            peer.asked = None;
            if !peer.named {
                peer.named = true;
                self.told.push_back(Told::Bound { way, ack_timeout });
            }
        }
    }

    fn forget(&mut self, way: Way) {
        let Some(peer) = self.all.remove(&way) else {
            return;
        };
        if let Some(question) = peer.asked {
            self.questions.remove(&question);
        }
        if peer.named {
            let ack_timeout = 0;
            self.told.push_back(Told::Bound { way, ack_timeout });
        }
    }

    /// `connected` says where queue pairs lead.
    pub(crate) fn handle_time(&mut self, now: Time, connected: impl FnOnce() -> BTreeSet<Way>) {
        if self.round_at.is_some_and(|at| at <= now) {
            self.round_at = (!self.all.is_empty()).then(|| now + NAMED_FOR);
            self.due.extend(self.all.keys());
        }
        if self.due.is_empty() {
            return;
        }
        let connected = connected();
        for way in self
            .due
            .drain(..self.due.len().min(TURN))
            .collect::<Vec<_>>()
        {
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
        match self.due.is_empty() {
            true => self.round_at,
            false => Some(Time(0)),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}

#[cfg(test)]
mod tests;
