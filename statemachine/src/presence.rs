// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a daemon answers at a peer's port: asked by Get(ClassPortInfo), and remembered.
//!
//! Local programs decide what is asked, and anybody in the fabric may answer. So each user has a share
//! of the places, and only the port that was asked is believed, with the transaction ID that it was
//! asked with, which comes out of [`Random`].

mod quota;
mod replies;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::{Lid, Presence};
use serde::{Deserialize, Serialize};

use self::quota::{Peers, Strangers};
use self::replies::Replies;
use crate::fair_share::FairShare;
use crate::id::PortId;
use crate::random::Random;
use crate::sender::Sender;
use crate::time::Time;
use crate::timers::Timers;

/// How long each copy of a question waits for its answer. Programs wait for the first two.
const WAITS: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(85),
];

/// How long a daemon that answered is taken to be there.
const ANSWERING_FOR: Duration = Duration::from_secs(120);
/// And one that did not to be absent: it may just have been started.
const SILENT_FOR: Duration = Duration::from_secs(3);

/// Far ports that are known or asked.
const KNOWN_MAX: usize = 4096;
/// Far ports that are being asked or were silent: each has cost all copies, so that, with what root has
/// besides, no more than 200 a second come of it, whatever programs ask.
const UNANSWERED_MAX: usize = 176;
/// Questions of programs that wait for an answer.
const WAITING_MAX: usize = 1024;
/// Of each, what root has besides.
const RESERVE: usize = 16;

/// A peer's port, as seen from a local one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FarPort {
    /// The local port.
    pub port: PortId,
    /// The peer port's LID.
    pub lid: Lid,
    /// The partition that it is asked in: a P_Key's lower 15 bits. Ports of other partitions do not hear
    /// each other.
    pub partition: u16,
}

/// How a MAD goes between two ports, besides their LIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MadWay {
    /// The low bits of the local LID.
    pub path_bits: u8,
    /// Service level.
    pub sl: u8,
    /// Index in the local port's P_Key table; `None`: the place of the partition that it goes to, the
    /// default one where none is named.
    pub pkey_index: Option<u16>,
}

/// A question, as its program names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PeerQuestion {
    /// The client; never used twice by one daemon.
    pub client: u32,
    /// The client's number for the question.
    pub question: u64,
}

/// A MAD about presence, to QP1 of a peer's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PresenceTransmit {
    /// Where it goes.
    pub to: FarPort,
    /// An answer goes back as its question came: from the LID that was asked, with the same service
    /// level and P_Key. It may be about that very path.
    pub way: MadWay,
    /// Transaction ID; of a question, the lower half counts.
    pub transaction_id: u64,
    /// Question or answer.
    pub message: Presence,
}

/// What happened so far, under the names by which it stands among other counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PresenceCounters {
    /// Questions sent to peers, with their copies.
    #[serde(rename = "peers_asked")]
    pub asked: u64,
    /// Peers' questions answered.
    #[serde(rename = "peers_answered")]
    pub answered: u64,
    /// Answers that nobody had asked for.
    #[serde(rename = "peer_answers_unasked")]
    pub from_strangers: u64,
    /// Questions of programs that were refused, because their user's share was used up.
    #[serde(rename = "peer_questions_refused")]
    pub refused: u64,
    /// Questions of peers that were not answered, because the peer's port or all together asked too often, or too many
    /// answers wait already.
    #[serde(rename = "peer_questions_discarded")]
    pub discarded: u64,
}

#[derive(Debug)]
enum State {
    /// Sent as often as there are numbers; each copy has its own, for umad refuses a second one
    /// with the same.
    Asked(Vec<u32>),
    Known(Found),
}

/// What came of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// A daemon answers.
    Daemon,
    /// Something else does.
    Nobody,
    /// Nothing.
    Silence,
}

/// Whose questions are no matter of shares.
const ROOT: u32 = 0;

#[derive(Debug)]
struct Entry {
    /// Of whose share it is: see [`PeerPresence::charge`].
    user: u32,
    state: State,
    /// Who waits, with his user.
    waiting: Vec<(PeerQuestion, u32)>,
}

/// Which peers' daemons answer. To be used as the [`Engine`](crate::Engine) is: tell what happened,
/// then poll until there is nothing more.
pub struct PeerPresence {
    random: Random,
    entries: BTreeMap<FarPort, Entry>,
    transactions: BTreeMap<u32, FarPort>,
    /// When a copy has waited long enough, or what is known has grown old.
    timers: Timers<FarPort>,
    known_share: FairShare<u32>,
    unanswered_share: FairShare<u32>,
    waiting_share: FairShare<u32>,
    /// Questions to peers.
    out: VecDeque<PresenceTransmit>,
    replies: Replies,
    verdicts: VecDeque<(PeerQuestion, bool)>,
    counters: PresenceCounters,
    strangers: Strangers,
    peers: Peers,
}

impl PeerPresence {
    /// Nothing is known. Transaction IDs come out of `random`.
    pub fn new(random: Random) -> Self {
        Self {
            random,
            entries: BTreeMap::new(),
            transactions: BTreeMap::new(),
            timers: Timers::default(),
            known_share: FairShare::new(KNOWN_MAX, RESERVE),
            unanswered_share: FairShare::new(UNANSWERED_MAX, RESERVE),
            waiting_share: FairShare::new(WAITING_MAX, RESERVE),
            out: VecDeque::new(),
            replies: Replies::default(),
            verdicts: VecDeque::new(),
            counters: PresenceCounters::default(),
            strangers: Strangers::default(),
            peers: Peers::default(),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> PresenceCounters {
        self.counters
    }

    /// A program of `user` (0 is root) asks. Every question gets one verdict, unless its client goes.
    pub fn ask(&mut self, now: Time, question: PeerQuestion, user: u32, far: FarPort) {
        match self.entries.get(&far).map(|entry| &entry.state) {
            Some(&State::Known(found)) => {
                self.verdicts.push_back((question, found == Found::Daemon));
                self.charge(user, far);
            }
            Some(State::Asked(_)) => self.wait(question, user, far),
            None => self.ask_first(now, question, user, far),
        }
    }

    /// What is known of a port is of the share of who asked last, if that has room; root's stays root's. So
    /// nobody pays for what others use. Silence is too soon forgotten for that.
    fn charge(&mut self, user: u32, far: FarPort) {
        let Some(entry) = self.entries.get_mut(&far) else {
            return;
        };
        let is_silent = matches!(entry.state, State::Known(Found::Silence));
        if is_silent || [user, ROOT].contains(&entry.user) {
            return;
        }
        let root = user == ROOT;
        if self.known_share.hand_over(entry.user, user, 1, root) {
            entry.user = user;
        }
    }

    fn ask_first(&mut self, now: Time, question: PeerQuestion, user: u32, far: FarPort) {
        let root = user == ROOT;
        if !self.known_share.take(user, 1, root) {
            return self.refuse(question);
        }
        if !self.unanswered_share.take(user, 1, root) {
            self.known_share.give_back(user, 1);
            return self.refuse(question);
        }
        let entry = Entry {
            user,
            state: State::Asked(Vec::new()),
            waiting: Vec::new(),
        };
        self.entries.insert(far, entry);
        self.wait(question, user, far);
        self.send(now, far);
    }

    fn wait(&mut self, question: PeerQuestion, user: u32, far: FarPort) {
        if !self.waiting_share.take(user, 1, user == ROOT) {
            return self.refuse(question);
        }
        if let Some(entry) = self.entries.get_mut(&far) {
            entry.waiting.push((question, user));
        }
    }

    /// Not known is told as absent: the program keeps what it chose.
    fn refuse(&mut self, question: PeerQuestion) {
        self.counters.refused += 1;
        self.verdicts.push_back((question, false));
    }

    /// Sends the next copy of a question, or settles it.
    fn send(&mut self, now: Time, far: FarPort) {
        let Some(Entry {
            state: State::Asked(transactions),
            ..
        }) = self.entries.get_mut(&far)
        else {
            return;
        };
        let Some(&wait) = WAITS.get(transactions.len()) else {
            return self.settle(now, far, Found::Silence);
        };
        let mut transaction = self.random.nonzero_u32();
        while self.transactions.contains_key(&transaction) {
            transaction = self.random.nonzero_u32();
        }
        transactions.push(transaction);
        self.transactions.insert(transaction, far);
        self.timers.set(far, now + wait);
        self.counters.asked += 1;
        self.take_back(far);
        self.out.push_back(PresenceTransmit {
            to: far,
            way: MadWay::default(),
            transaction_id: transaction.into(),
            message: Presence::Get,
        });
    }

    /// A copy that still waits for its port is not sent any more.
    fn take_back(&mut self, far: FarPort) {
        self.out.retain(|mad| mad.to != far);
    }

    fn settle(&mut self, now: Time, far: FarPort, found: Found) {
        self.take_back(far);
        let Some(entry) = self.entries.get_mut(&far) else {
            return;
        };
        let State::Asked(transactions) = &entry.state else {
            return;
        };
        for transaction in transactions {
            self.transactions.remove(transaction);
        }
        entry.state = State::Known(found);
        if found != Found::Silence {
            self.unanswered_share.give_back(entry.user, 1);
        }
        let answers = found == Found::Daemon;
        for (question, user) in core::mem::take(&mut entry.waiting) {
            self.waiting_share.give_back(user, 1);
            self.verdicts.push_back((question, answers));
        }
        let fresh = if answers { ANSWERING_FOR } else { SILENT_FOR };
        self.timers.set(far, now + fresh);
    }

    /// Forgets what is known of a port.
    fn forget(&mut self, far: FarPort) {
        if let Some(entry) = self.entries.remove(&far) {
            self.known_share.give_back(entry.user, 1);
            if let State::Known(Found::Silence) = entry.state {
                self.unanswered_share.give_back(entry.user, 1);
            }
        }
        self.timers.cancel(&far);
    }

    /// Whether the question of a port is to be answered. Ports that connections lead to (`is_peer`) have a quota of
    /// their own, which no stranger uses, and which is more than their daemons ask.
    pub fn admits(&mut self, now: Time, sender: Sender, is_peer: bool) -> bool {
        let admitted = match is_peer {
            true => self.peers.admits(now, sender),
            false => self.strangers.admits(now, sender),
        };
        self.counters.discarded += u64::from(!admitted);
        admitted
    }

    /// A MAD about presence came in from QP1 of a peer's port, this way; `sender` is that port.
    pub fn handle(
        &mut self,
        now: Time,
        from: FarPort,
        sender: Sender,
        way: MadWay,
        transaction_id: u64,
        message: &Presence,
    ) {
        match message {
            Presence::Get => self.answer(from, sender, way, transaction_id),
            Presence::Answer { .. } => {
                if self.transactions.get(&(transaction_id as u32)) != Some(&from) {
                    self.counters.from_strangers += 1;
                    return;
                }
                let found = match message.is_here() {
                    true => Found::Daemon,
                    false => Found::Nobody,
                };
                self.settle(now, from, found);
            }
        }
    }

    fn answer(&mut self, to: FarPort, sender: Sender, way: MadWay, transaction_id: u64) {
        let answer = PresenceTransmit {
            to,
            way,
            transaction_id,
            message: Presence::here(),
        };
        match self.replies.push(sender, answer) {
            true => self.counters.answered += 1,
            false => self.counters.discarded += 1,
        }
    }

    /// A client is gone, and its questions with it.
    pub fn client_gone(&mut self, client: u32) {
        // Only what is being asked has somebody waiting.
        for far in self.transactions.values() {
            let Some(entry) = self.entries.get_mut(far) else {
                continue;
            };
            let share = &mut self.waiting_share;
            entry.waiting.retain(|&(question, user)| {
                let stays = question.client != client;
                if !stays {
                    share.give_back(user, 1);
                }
                stays
            });
        }
        self.verdicts
            .retain(|(question, _)| question.client != client);
    }

    /// A local port is another than before, or gone: who is behind which LID may be, too.
    pub fn port_changed(&mut self, now: Time, port: PortId) {
        let first = FarPort {
            port,
            lid: Lid(0),
            partition: 0,
        };
        let last = FarPort {
            port,
            lid: Lid(u16::MAX),
            partition: u16::MAX,
        };
        let of_port = self.entries.range(first..=last);
        let all: Vec<FarPort> = of_port.map(|(&far, _)| far).collect();
        for far in all {
            // Who waits has to hear something; the next one asks anew.
            self.settle(now, far, Found::Nobody);
            self.forget(far);
        }
        self.replies.drop_port(port);
        self.out.retain(|mad| mad.to.port != port);
    }

    /// Forgets what is known of all peers: whoever is asked about next is sent a question, and hears of this host
    /// by it.
    pub fn forget_known(&mut self) {
        let is_known = |entry: &Entry| matches!(entry.state, State::Known(_));
        let known = self.entries.iter().filter(|(_, entry)| is_known(entry));
        let known: Vec<FarPort> = known.map(|(&far, _)| far).collect();
        for far in known {
            self.forget(far);
        }
    }

    /// The next MAD to send through a port that `has_room`.
    pub fn poll_transmit(
        &mut self,
        mut has_room: impl FnMut(PortId) -> bool,
    ) -> Option<PresenceTransmit> {
        // Questions are few, and a program waits for each.
        match self.out.iter().position(|mad| has_room(mad.to.port)) {
            Some(place) => self.out.remove(place),
            None => self.replies.pop(has_room),
        }
    }

    /// The next verdict: whether a daemon answers where the program asked for.
    pub fn poll_verdict(&mut self) -> Option<(PeerQuestion, bool)> {
        self.verdicts.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The moment that [`Self::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(far) = self.timers.expired(now) {
            match self.entries.get(&far).map(|entry| &entry.state) {
                Some(State::Asked(_)) => self.send(now, far),
                Some(State::Known(_)) => self.forget(far),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
