// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet socket and its callers: what the library's and the operator's sockets have in common.
//! Places and memory are shared fairly among users, and who is silent or does not read is closed.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use statemachine::{FairShare, Time, Timers};

use crate::config;
use crate::io::peer_groups;
use crate::io::person::Person;
use crate::io::seqpacket::{ListenError, Listener, NotGiven, Packets, Peer, Receive};
use crate::io::watched;
use crate::token::Token;

/// What a caller that has just connected has for its first packet.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// A caller for which packets wait has to read one in this time.
const READING_TIME: Duration = Duration::from_secs(30);
/// Retry delay after resource exhaustion.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Callers taken in before others have their turn.
const TURN: usize = 64;
/// What a packet that waits costs besides its bytes.
const OVERHEAD: usize = 64;

/// What a server may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Callers at the same time.
    pub(crate) callers: usize,
    /// Further places that only root gets.
    pub(crate) root_callers: usize,
    /// Bytes that wait for callers that do not read.
    pub(crate) bytes: usize,
    /// Of these, for one caller.
    pub(crate) caller_bytes: usize,
    /// Kernel memory for packets on their way to a caller; `None` is the system's default.
    pub(crate) send_buffer: Option<usize>,
}

#[derive(Debug)]
struct Caller {
    packets: Packets,
    peer: Peer,
    /// The user who is charged for it.
    payer: Person,
    queue: VecDeque<Box<[u8]>>,
    queued: usize,
    closing: bool,
}

/// Whether a caller is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Alive {
    /// It is.
    Yes,
    /// It is gone, or is to go: close it.
    No,
}

/// What became of a packet that need not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Offered {
    /// It is sent.
    Taken,
    /// The caller has not read enough: it is not.
    Full,
    /// The caller is gone: close it.
    Gone,
}

/// A listening socket and its callers.
#[derive(Debug)]
pub(crate) struct Server {
    listener: Listener,
    registry: Registry,
    token: fn(u32) -> Token,
    budget: Budget,
    callers: BTreeMap<u32, Caller>,
    next_key: u32,
    /// By the user who is charged.
    places: FairShare<Person>,
    /// By the user who is charged.
    bytes: FairShare<Person>,
    deadlines: Timers<u32>,
    accept_at: Option<Time>,
    turned_away: u64,
}

impl Server {
    /// Listens on `path`. `listening` is the listener's token and `token` makes the callers'.
    ///
    /// # Errors
    /// Somebody listens there already, or the system says no.
    pub(crate) fn listen(
        path: &Path,
        config: &config::Control,
        budget: Budget,
        registry: &Registry,
        listening: Token,
        token: fn(u32) -> Token,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(path, config.mode(), &config.group)?;
        let registered = registry.try_clone().and_then(|registry| {
            watched(listener.as_raw_fd(), &registry, listening)?;
            Ok(registry)
        });
        let registry = registered.map_err(|error| ListenError::Io {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self {
            listener,
            registry,
            token,
            budget,
            callers: BTreeMap::new(),
            next_key: 1,
            places: FairShare::new(budget.callers, budget.root_callers),
            bytes: FairShare::new(budget.bytes, budget.bytes),
            deadlines: Timers::default(),
            accept_at: None,
            turned_away: 0,
        })
    }

    /// Keys of callers begin with this one.
    pub(crate) fn number_from(&mut self, first: u32) {
        self.next_key = first;
    }

    /// The key of the next caller.
    pub(crate) fn next_key(&self) -> u32 {
        self.next_key
    }

    /// Who was to be let in, and is not.
    pub(crate) fn not_given(&self) -> Option<&NotGiven> {
        self.listener.not_given()
    }

    /// Takes in who waits; the keys of the new callers.
    pub(crate) fn accept(&mut self, now: Time) -> Vec<u32> {
        self.accept_at = None;
        let mut keys = Vec::new();
        for _ in 0..TURN {
            let (packets, peer) = match self.listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return keys,
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?RETRY_DELAY, "connection not accepted");
                    self.accept_at = Some(now + RETRY_DELAY);
                    return keys;
                }
            };
            keys.extend(self.take_in(now, packets, peer));
        }
        self.accept_at = Some(now);
        keys
    }

    /// `None`: there is no place for it, and its socket is closed.
    fn take_in(&mut self, now: Time, packets: Packets, peer: Peer) -> Option<u32> {
        let Peer { uid, pid } = peer;
        let payer = Person::of(uid);
        if !self.places.take(payer, 1, uid == 0) {
            self.turned_away += 1;
            let (used, of) = (self.places.total(), self.budget.callers);
            tracing::warn!(
                uid,
                pid,
                used,
                of,
                "connection refused: the user's share is used up"
            );
            return None;
        }
        let key = self.next_key;
        if let Err(error) = self.watch(key, &packets) {
            self.places.give_back(payer, 1);
            tracing::warn!(uid, pid, %error, "connection not accepted");
            return None;
        }
        // 0 is nobody's: the kernel module's queue pairs have it as their client.
        self.next_key = self.next_key.checked_add(1).unwrap_or(1);
        let caller = Caller {
            packets,
            peer,
            payer,
            queue: VecDeque::new(),
            queued: 0,
            closing: false,
        };
        self.callers.insert(key, caller);
        self.deadlines.set(key, now + GREETING_TIME);
        Some(key)
    }

    fn watch(&self, key: u32, packets: &Packets) -> std::io::Result<()> {
        // The kernel's memory counts, too: what is not read fills that first.
        if let Some(bytes) = self.budget.send_buffer {
            packets.set_send_buffer(bytes)?;
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = (self.token)(key).into();
        self.registry
            .register(&mut SourceFd(&packets.as_raw_fd()), token, interest)
    }

    /// A caller has said what it is expected to begin with.
    pub(crate) fn greeted(&mut self, key: u32) {
        self.deadlines.cancel(&key);
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self, key: u32) -> Option<Peer> {
        self.callers.get(&key).map(|caller| caller.peer)
    }

    /// Whether a caller may change things, not only look: root, the daemon's own user, and the group
    /// of the socket, also where its mode lets others in.
    pub(crate) fn may_change(&self, key: u32) -> bool {
        let Some(caller) = self.callers.get(&key) else {
            return false;
        };
        let own = nix::unistd::geteuid().as_raw();
        let is_member = || {
            let socket = std::os::fd::AsFd::as_fd(&caller.packets);
            peer_groups::is_member(socket, self.listener.group()).unwrap_or(false)
        };
        caller.peer.uid == 0 || caller.peer.uid == own || is_member()
    }

    /// A caller's socket.
    pub(crate) fn socket(&self, key: u32) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.callers.get(&key).map(|caller| caller.packets.as_fd())
    }

    /// Callers turned away for want of a place.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// The next packet of a caller, in `buffer`. Who does not read what it is sent is not read
    /// either, so that nobody makes answers pile up.
    pub(crate) fn receive(&self, key: u32, buffer: &mut [u8]) -> Receive {
        match self.callers.get(&key) {
            Some(caller) if caller.closing || !caller.queue.is_empty() => Receive::Nothing,
            Some(caller) => caller.packets.receive(buffer).unwrap_or(Receive::End),
            None => Receive::End,
        }
    }

    /// Sends a packet, or keeps it until there is room.
    pub(crate) fn send(&mut self, now: Time, key: u32, packet: &[u8]) -> Alive {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Alive::No;
        };
        if caller.queue.is_empty() {
            match caller.packets.send(packet) {
                Ok(true) => return Alive::Yes,
                Ok(false) => {}
                Err(_) => return Alive::No,
            }
        }
        // Counted in bytes, not packets, and for each user: many that read nothing cost no more
        // than one (500 had cost 93 MB).
        let cost = packet.len() + OVERHEAD;
        let is_root = caller.peer.uid == 0;
        if caller.queued + cost > self.budget.caller_bytes
            || !self.bytes.take(caller.payer, cost, is_root)
        {
            return Alive::No;
        }
        caller.queued += cost;
        caller.queue.push_back(packet.into());
        if !self.deadlines.is_set(&key) {
            self.deadlines.set(key, now + READING_TIME);
        }
        Alive::Yes
    }

    /// Sends a packet if there is room for it now.
    pub(crate) fn offer(&mut self, key: u32, packet: &[u8]) -> Offered {
        match self.callers.get(&key) {
            Some(caller) if !caller.queue.is_empty() => Offered::Full,
            Some(caller) => match caller.packets.send(packet) {
                Ok(true) => Offered::Taken,
                Ok(false) => Offered::Full,
                Err(_) => Offered::Gone,
            },
            None => Offered::Gone,
        }
    }

    /// Sends what was kept, as far as there is room.
    pub(crate) fn flush(&mut self, now: Time, key: u32) -> Alive {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Alive::No;
        };
        let before = caller.queued;
        while let Some(packet) = caller.queue.front() {
            match caller.packets.send(packet) {
                Ok(true) => caller.queued -= packet.len() + OVERHEAD,
                Ok(false) => break,
                Err(_) => return Alive::No,
            }
            caller.queue.pop_front();
        }
        let (sent, done) = (before - caller.queued, caller.queue.is_empty());
        let closing = caller.closing;
        self.bytes.give_back(caller.payer, sent);
        // Who reads slowly keeps its place; who stops reading loses it.
        if done && sent > 0 {
            self.deadlines.cancel(&key);
        } else if sent > 0 {
            self.deadlines.set(key, now + READING_TIME);
        }
        match closing && done {
            true => Alive::No,
            false => Alive::Yes,
        }
    }

    /// Sends what was kept and is done with the caller then.
    pub(crate) fn finish(&mut self, now: Time, key: u32) -> Alive {
        if let Some(caller) = self.callers.get_mut(&key) {
            caller.closing = true;
        }
        self.flush(now, key)
    }

    /// Closes a caller's socket. Whether there was one.
    pub(crate) fn close(&mut self, key: u32) -> bool {
        self.deadlines.cancel(&key);
        let Some(caller) = self.callers.remove(&key) else {
            return false;
        };
        self.places.give_back(caller.payer, 1);
        self.bytes.give_back(caller.payer, caller.queued);
        true
    }

    /// When to call [`Self::expired`] and, if it is due, [`Self::accept`] again.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.deadlines
            .next()
            .into_iter()
            .chain(self.accept_at)
            .min()
    }

    /// Whether callers are to be accepted again.
    pub(crate) fn accept_is_due(&self, now: Time) -> bool {
        self.accept_at.is_some_and(|at| at <= now)
    }

    /// A caller that has been silent for too long: close it.
    pub(crate) fn expired(&mut self, now: Time) -> Option<u32> {
        self.deadlines.expired(now)
    }
}
