// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are named to the module, so that it bounds the ACK timeout of connections which begin towards
//! them: a daemon answers there, and this host has a second path. No I/O here.
//!
//! Asked about is who is being connected to, who is connected, and who asks for this daemon: of two
//! hosts the one that accepts hears of the connection by that, before its own end goes to RTS. The first
//! connection of a kernel consumer is faster than that; so whoever has registered with subnet administration
//! is asked beforehand. Who has answered is asked again from time to time ([`Discovery`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cm_msgs::PKey;
use statemachine::{FarPort, PeerQuestion, PortId, PortStatus, Time};

use super::discovery::{Discovery, Due};
use super::orders::TOKENS;
use super::peer_lid::PeerLid;
use super::queue_pairs::CLIENT;
use crate::io::person::Person;
use crate::second_path::has_second_path;

/// How many are known at most; the module takes four times as many.
const MAX: usize = 4096;
/// How many while nobody of this host has to do with them.
const UNUSED_MAX: usize = 3072;

/// How many are gone through before others have their turn.
const TURN: usize = 64;

/// Root's questions, and those of kernel ULPs, which are root's as well, are no matter of shares.
const ROOT: u32 = 0;
/// Whose share of the questions it is when another host asks. No user has this number.
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
    /// The module is to bound ACK timeouts towards it, or (0) not to any more. See
    /// [`Peers::handle_refused`] of the token.
    Bound {
        token: u32,
        peer: PeerLid,
        ack_timeout: u8,
    },
}

/// A question that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    /// Whose share it is of.
    uid: u32,
}

#[derive(Debug)]
struct Peer {
    /// The one it was last met in.
    partition: u16,
    asked: Option<Asked>,
    /// With which token it was named.
    named: Option<u32>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    /// An exponent; 0: none is named.
    ack_timeout: u8,
    ports: BTreeMap<PortId, PortStatus>,
    all: BTreeMap<PeerLid, Peer>,
    questions: BTreeMap<u64, PeerLid>,
    last_question: u64,
    last_token: u32,
    /// Of which a port has changed.
    changed: BTreeSet<PeerLid>,
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
            last_token: TOKENS,
            changed: BTreeSet::new(),
            discovery: Discovery::default(),
            told: VecDeque::new(),
        }
    }

    /// How many the module knows.
    pub(crate) fn count(&self) -> usize {
        self.all
            .values()
            .filter(|peer| peer.named.is_some())
            .count()
    }

    /// Whether any are named.
    pub(crate) fn is_bounding(&self) -> bool {
        self.ack_timeout > 0
    }

    /// Another bound: all are named anew.
    pub(crate) fn set_ack_timeout(&mut self, ack_timeout: u8) {
        if self.ack_timeout != ack_timeout {
            for id in self.all.keys().copied().collect::<Vec<_>>() {
                let kept = self.kept(id);
                self.forget(id);
                kept.into_iter().for_each(|far| self.discovery.find(far));
            }
            self.ack_timeout = ack_timeout;
        }
    }

    /// The module is gone, and knows none.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            ports: std::mem::take(&mut self.ports),
            // An answer may be under way yet.
            last_question: self.last_question,
            last_token: self.last_token,
            ..Self::new(self.ack_timeout)
        };
    }

    /// What has become of a port. Who is behind which LID, and whether there is a second path, may be
    /// different.
    pub(crate) fn handle_port(&mut self, port: PortId, status: Option<&PortStatus>) {
        let before = match status {
            Some(status) => self.ports.insert(port, status.clone()),
            None => self.ports.remove(&port),
        };
        if before.as_ref() != status {
            let of_device = |id: &&PeerLid| id.0.node_guid == port.node_guid;
            self.changed.extend(self.all.keys().filter(of_device));
        }
    }

    /// Somebody of this host is connected to a peer, or about to be.
    pub(crate) fn expect(&mut self, far: FarPort, payer: Person) {
        self.meet(far, payer.uid(), MAX);
    }

    /// A daemon there asks for ours: it may be about to connect, or has found this one. Where it has just been
    /// silent that is still believed, so it is asked later as well: it may not ask again for minutes.
    pub(crate) fn asked_by(&mut self, far: FarPort) {
        let is_unnamed = self.meet(far, STRANGERS, UNUSED_MAX);
        if is_unnamed && !self.discovery.keeps((far.port, far.lid)) {
            self.find(far);
        }
    }

    /// Asks about a peer that is not named, if there is room for so many: who meets it now pays, whoever has
    /// met it before. Whether it is to be named.
    fn meet(&mut self, far: FarPort, uid: u32, max: usize) -> bool {
        let id = (far.port, far.lid);
        if !self.counts(id) || !self.has_room_for(id, max) {
            return false;
        }
        let peer = self.all.entry(id).or_insert(Peer {
            partition: far.partition,
            asked: None,
            named: None,
        });
        peer.partition = far.partition;
        let is_unnamed = peer.named.is_none();
        if is_unnamed {
            self.ask(id, uid);
        }
        is_unnamed
    }

    fn has_room_for(&self, id: PeerLid, max: usize) -> bool {
        self.all.len() < max || self.all.contains_key(&id)
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
            let far = match due {
                Due::Again(id) => self.kept(id),
                Due::First(far) => Some(far),
            };
            let Some(far) = far.filter(|far| self.is_reachable(far)) else {
                continue;
            };
            let id = (far.port, far.lid);
            if !self.has_room_for(id, UNUSED_MAX) {
                continue;
            }
            self.all.entry(id).or_insert(Peer {
                partition: far.partition,
                asked: None,
                named: None,
            });
            // Who has answered is everybody's: that it does not answer any more has to be its own silence, and
            // never that somebody has used up a share. There are few of these questions, and at a pace.
            let uid = match self.discovery.has_answered(id) {
                true => ROOT,
                false => DISCOVERY,
            };
            self.discovery.asked(id);
            self.ask(id, uid);
        }
    }

    /// Whether there is anything to be gained by a question, and it can be sent.
    fn is_reachable(&self, far: &FarPort) -> bool {
        let is_in = |pkey: &PKey| pkey.partition() == far.partition;
        let port = self.ports.get(&far.port);
        let can_ask = port.is_some_and(|port| port.active && port.pkeys.iter().any(is_in));
        can_ask && self.counts((far.port, far.lid))
    }

    /// Where it is, if it has answered.
    fn kept(&self, id: PeerLid) -> Option<FarPort> {
        let peer = self.all.get(&id).filter(|_| self.discovery.keeps(id))?;
        let (port, lid) = id;
        Some(FarPort {
            port,
            lid,
            partition: peer.partition,
        })
    }

    /// Whether a second path is there, and the way leads to a port, of another host.
    fn counts(&self, (port, lid): PeerLid) -> bool {
        let is_known = self.ports.contains_key(&port);
        let has_second = has_second_path(port, &self.ports);
        let leads_away = lid.is_unicast() && !self.leads_back((port, lid));
        self.ack_timeout > 0 && is_known && has_second && leads_away
    }

    /// Whether it is a LID of an own port in the subnet of the port that it leaves from: other subnets have equal LIDs.
    fn leads_back(&self, (port, lid): PeerLid) -> bool {
        let mut own = self.ports.values().filter(|status| status.has_lid(lid));
        let here = self.ports.get(&port);
        here.is_some_and(|here| own.any(|own| own.may_share_subnet_with(here)))
    }

    fn ask(&mut self, id: PeerLid, uid: u32) {
        // Another's question may yet be refused for want of his share, and root's would be with it.
        let is_enough = |asked: Asked| asked.uid == ROOT || uid != ROOT;
        let is_asked = |peer: &Peer| peer.asked.is_some_and(is_enough);
        let Some(peer) = self.all.get_mut(&id).filter(|peer| !is_asked(peer)) else {
            return;
        };
        self.last_question += 1;
        let asked = Asked {
            number: self.last_question,
            uid,
        };
        if let Some(before) = peer.asked.replace(asked) {
            self.questions.remove(&before.number);
        }
        self.questions.insert(self.last_question, id);
        let (port, lid) = id;
        self.told.push_back(Told::Ask {
            question: PeerQuestion {
                client: CLIENT,
                question: self.last_question,
            },
            uid,
            far: FarPort {
                port,
                lid,
                partition: peer.partition,
            },
        });
    }

    /// Whether a daemon answers where was asked.
    pub(crate) fn handle_answer(&mut self, now: Time, question: PeerQuestion, answers: bool) {
        let Some(id) = self.questions.remove(&question.question) else {
            return;
        };
        if let Some(peer) = self.all.get_mut(&id) {
            peer.asked = None;
        }
        if !self.discovery.handle_answer(now, id, answers) {
            return self.forget(id);
        }
        match answers && self.counts(id) {
            true => self.name(id),
            false => self.unname(id),
        }
    }

    fn name(&mut self, id: PeerLid) {
        let is_named = |peer: &Peer| peer.named.is_some();
        if self.all.get(&id).is_none_or(is_named) {
            return;
        }
        let token = self.tell(id, self.ack_timeout);
        if let Some(peer) = self.all.get_mut(&id) {
            peer.named = Some(token);
        }
    }

    fn unname(&mut self, id: PeerLid) {
        let peer = self.all.get_mut(&id);
        if peer.is_some_and(|peer| peer.named.take().is_some()) {
            self.tell(id, 0);
        }
    }

    /// Has the module told; the token that names this.
    fn tell(&mut self, peer: PeerLid, ack_timeout: u8) -> u32 {
        let token = self.last_token.checked_add(1).unwrap_or(TOKENS);
        self.last_token = token;
        self.told.push_back(Told::Bound {
            token,
            peer,
            ack_timeout,
        });
        token
    }

    /// The module does not take what it was told with this token: who it was, if it was to be named.
    pub(crate) fn handle_refused(&mut self, token: u32) -> Option<PeerLid> {
        let mut all = self.all.iter_mut();
        let (id, peer) = all.find(|(_, peer)| peer.named == Some(token))?;
        peer.named = None;
        Some(*id)
    }

    fn forget(&mut self, id: PeerLid) {
        self.unname(id);
        self.discovery.forget(id);
        let asked = self.all.remove(&id).and_then(|peer| peer.asked);
        if let Some(asked) = asked {
            self.questions.remove(&asked.number);
        }
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(id) = self.changed.pop_first() else {
                break;
            };
            self.review(id);
        }
        self.discover(now);
    }

    /// A port of the way there is another than it was.
    fn review(&mut self, id: PeerLid) {
        if !self.ports.contains_key(&id.0) || self.leads_back(id) {
            return self.forget(id);
        }
        if !self.counts(id) {
            return self.unname(id);
        }
        if let Some(far) = self.kept(id) {
            self.discovery.find(far);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self.changed.is_empty() {
            true => self.discovery.poll_timeout(),
            false => Some(Time(0)),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Told> {
        self.told.pop_front()
    }
}

#[cfg(test)]
mod tests;
