// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module `apm`, where it is loaded: every RC queue pair of the host, those of kernel ULPs
//! included, as one more client of the engine.

mod hearing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cm_msgs::control::{NO_TOKEN, QpState};
use cm_msgs::{Guid, Qpn};
use mio::{Registry, Waker};
use statemachine::{ConnId, FarPort, Input, Order, PeerQuestion, PortId, PortStatus, Time};

use crate::client::Client;
use crate::config::{self, Config};
use crate::io::apm_module::{ApmModule, Ask, Cookie, KernelQp, Message, Request};
use crate::io::nldev::QueuePair;
use crate::io::watched;
use crate::kernel::{Output, PeerLid, Peers, Presence, QueuePairs, Resync, Search, Told};
use crate::parts::device_indexes::DeviceIndexes;
use crate::parts::patrol::{self, Patrol, Step};
use crate::parts::traps::Traps;
use crate::registrations::Room;
use crate::token::Token;

use self::hearing::Unheard;

/// Names what nobody waits for: a queue pair that is to be taken up may have gone, and so may a device.
const UNANSWERED: u32 = u32::MAX;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    Engine(Box<Input>),
    /// Whether a library is connected from this process.
    AskLibrary {
        id: ConnId,
        pid: i32,
    },
    /// What the module says of a queue pair that a library has registered, if it says anything.
    Known {
        id: ConnId,
        number: (Guid, Qpn),
        qp: Option<Box<KernelQp>>,
    },
    /// Whether a daemon answers there.
    AskPeer {
        question: PeerQuestion,
        uid: u32,
        far: FarPort,
    },
    /// See [`Kernel::forget`].
    Forget(ConnId),
    /// A queue pair waits for a port of this device, of which nothing may be known.
    DeviceUsed(Guid),
    /// Whether daemons of other hosts are to be found, and to find this one.
    Discover(bool),
}

/// The module, and the queue pairs that it knows.
#[derive(Debug)]
pub(crate) struct Kernel {
    module: Option<ApmModule>,
    presence: Presence,
    settings: config::Kernel,
    queue_pairs: QueuePairs,
    unheard: Unheard,
    peers: Peers,
    indexes: DeviceIndexes,
    patrol: Patrol,
    /// For queue pairs that are older than the module.
    older: Search,
    resync: Resync,
    /// What was said last.
    discovers: bool,
    traps: Traps,
}

impl Kernel {
    pub(crate) fn new(config: &Config, room: Room, registry: &Registry, waker: Arc<Waker>) -> Self {
        let opened = ApmModule::open().and_then(|module| watched(module, registry, Token::Kernel));
        let module = opened.inspect_err(|error| tracing::warn!(%error, "no generic netlink"));
        Self {
            module: module.ok(),
            presence: Presence::Absent,
            settings: config.kernel.clone(),
            queue_pairs: QueuePairs::new(room),
            unheard: Unheard::default(),
            peers: Peers::new(config.kernel.ack_timeout),
            indexes: DeviceIndexes::new(),
            patrol: Patrol::new(),
            older: Search::new(),
            resync: Resync::new(),
            discovers: false,
            traps: Traps::new(waker),
        }
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        self.peers.set_ack_timeout(config.kernel.ack_timeout);
        if self.settings != config.kernel {
            self.settings = config.kernel.clone();
            if self.presence == Presence::Present {
                self.resync.want(now, Request::Settings);
            }
        }
    }

    /// Queue pairs are numbered from here on.
    pub(crate) fn number_from(&mut self, first: u32) {
        self.queue_pairs.number_from(first);
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Whether the module is there and knows this queue pair.
    pub(crate) fn protects(&self, number: (Guid, Qpn)) -> bool {
        self.presence == Presence::Present && self.queue_pairs.knows(number)
    }

    pub(crate) fn queue_pairs(&self) -> &QueuePairs {
        &self.queue_pairs
    }

    /// How many peers are named to the module.
    pub(crate) fn named_peers(&self) -> usize {
        self.peers.count()
    }

    /// What undoes a connection's protection though it is armed.
    pub(crate) fn traps(&self, id: ConnId) -> Vec<String> {
        self.traps.of(&self.queue_pairs, id)
    }

    /// What keeps the module from protecting what it should.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.traps.health().problems()
    }

    /// What an operator should know of the kernel and of its connections.
    pub(crate) fn warnings(&self) -> Vec<String> {
        if self.presence != Presence::Present {
            return Vec::new();
        }
        let of_kernel = self.traps.unsafe_kernel().map(|why| {
            format!("{why}; install one of these kernels (the module is used because of `[kernel] allow_unfixed = true`)")
        });
        let of_connections = self.traps.warnings(&self.queue_pairs);
        let of_ib_core = self.traps.foreign_ib_core();
        let of_all = of_kernel.into_iter().chain(of_ib_core);
        let of_all = of_all.chain(self.traps.health().warnings());
        of_all.chain(of_connections).collect()
    }

    pub(crate) fn handle_bonds(&mut self, bonds: BTreeMap<IpAddr, String>) {
        self.traps.handle_bonds(bonds, &self.queue_pairs);
    }

    /// Whose queue pair a connection is; of one that has just been closed, until it is forgotten.
    pub(crate) fn client(&self, id: ConnId) -> Option<&Client> {
        self.queue_pairs.client(id)
    }

    /// A closed connection has been told of.
    pub(crate) fn forget(&mut self, id: ConnId) {
        self.queue_pairs.forget(id);
    }

    /// Looks for queue pairs that are older than the module.
    fn search(&mut self, now: Time, devices: BTreeSet<Guid>) {
        if !devices.is_empty() {
            self.older.begin(devices);
            self.patrol.begin_now(now);
        }
    }

    /// Whether its program has a library.
    pub(crate) fn handle_library(&mut self, now: Time, id: ConnId, has_library: bool) {
        self.queue_pairs.handle_library(now, id, has_library);
    }

    /// A library wants to register a queue pair: what the module says of it is told as [`Note::Known`].
    pub(crate) fn ask(&mut self, now: Time, id: ConnId, number: (Guid, Qpn)) {
        match self.presence {
            Presence::Present => self.queue_pairs.ask(now, id, number),
            _ => self.queue_pairs.tell_registrant(id, number),
        }
    }

    /// A library's message to the engine, which may claim or release a queue pair: only one party manages it. Returns whether
    /// the engine gets the message unchanged.
    pub(crate) fn handle_claim(&mut self, now: Time, input: &Input) -> bool {
        match input {
            Input::Register(id, _, register) => {
                let number = (register.node_guid, register.qpn);
                self.queue_pairs.claim(now, number, *id);
            }
            Input::Close(id) | Input::Disconnect(id) => self.queue_pairs.release(now, *id),
            Input::ClientGone(client) => self.queue_pairs.release_client(now, *client),
            Input::Report(id, report) => return self.queue_pairs.believes(*id, *report),
            _ => {}
        }
        true
    }

    /// A daemon at this port asks for ours.
    pub(crate) fn handle_peer_asks(&mut self, far: FarPort) {
        if self.presence == Presence::Present {
            self.peers.asked_by(far);
        }
    }

    /// Subnet administration says that daemons answer there.
    pub(crate) fn handle_found(&mut self, found: Vec<FarPort>) {
        if self.presence == Presence::Present {
            found.into_iter().for_each(|far| self.peers.find(far));
        }
    }

    /// Whether a daemon answers where was asked.
    pub(crate) fn handle_peer(&mut self, now: Time, question: PeerQuestion, answers: bool) {
        self.peers.handle_answer(now, question, answers);
    }

    pub(crate) fn handle_port(&mut self, now: Time, port: PortId, status: &PortStatus) {
        self.peers.handle_port(port, Some(status));
        let is_new = self.queue_pairs.handle_port(now, port, status.lmc);
        if is_new && self.presence == Presence::Present {
            self.search(now, BTreeSet::from([port.node_guid]));
        }
    }

    pub(crate) fn handle_port_gone(&mut self, port: PortId) {
        self.queue_pairs.handle_port_gone(port);
        self.peers.handle_port(port, None);
        self.indexes.forget(port.node_guid);
    }

    /// Gives a queue pair an order.
    pub(crate) fn order(&mut self, id: ConnId, order: Order) {
        if let Some((cookie, token, ask)) = self.queue_pairs.order(id, order) {
            self.send(cookie, token, ask);
        }
    }

    fn send(&mut self, cookie: Cookie, token: u32, ask: Ask) {
        let Some(module) = &self.module else {
            return;
        };
        let message = Message::Order { cookie, token, ask };
        if let Err(error) = module.order(token, message) {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.queue_pairs.handle_refused(token, errno.unsigned_abs());
        }
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        let asks = self.resync.poll_timeout().is_some_and(|at| at <= now);
        if std::mem::take(&mut self.unheard.is_left) || asks {
            self.handle_ready(now);
        }
        self.queue_pairs.handle_time(now);
        self.peers.handle_time(now);
        self.traps
            .handle_time(now, || self.queue_pairs.known_devices());
        self.go_on_round(now);
    }

    /// The round over the queue pairs of all devices goes on, if it is time.
    fn go_on_round(&mut self, now: Time) {
        let (all, older) = (&self.queue_pairs, &self.older);
        let devices = || {
            let devices = all.devices().into_iter().chain(older.devices());
            let devices: BTreeSet<_> = devices.collect();
            devices.into_iter().collect()
        };
        let is_due = self.patrol.poll_timeout().is_some_and(|at| at <= now);
        match self.patrol.handle_time(now, devices) {
            Some(Step::Found(node_guid, found)) => {
                // A completion error puts a queue pair into state error, and the module hears nothing of it.
                for qpn in patrol::disconnected(&found) {
                    if let Some(id) = self.queue_pairs.registered((node_guid, qpn)) {
                        self.order(id, Order::Query(NO_TOKEN));
                    }
                }
                self.adopt(node_guid, &found);
            }
            Some(Step::Read(node_guid)) => self.older.handle_read(node_guid),
            Some(Step::Failed(node_guid)) => self.older.handle_missed(node_guid),
            None => {}
        }
        if is_due
            && self.patrol.is_between_rounds()
            && let Some(pause) = self.older.handle_round_over()
        {
            self.patrol.begin_at(now + pause);
        }
    }

    /// The thread that looks for traps may be done.
    pub(crate) fn handle_thread(&mut self) {
        self.traps.handle_thread(&self.queue_pairs);
    }

    /// Has the module take up what it does not know. What it knows, but has not told of because it is being
    /// connected just now, it leaves as it is.
    fn adopt(&mut self, node_guid: Guid, found: &[(Qpn, QueuePair)]) {
        if self.presence != Presence::Present || !self.older.wants(node_guid) {
            return;
        }
        let index = self.indexes.of(node_guid);
        let (Some(module), Some(index)) = (&self.module, index) else {
            self.older.handle_missed(node_guid);
            return;
        };
        for (qpn, queue_pair) in found {
            if !is_connected_or_will_be(queue_pair) || self.queue_pairs.knows((node_guid, *qpn)) {
                continue;
            }
            let message = Message::Adopt { index, qpn: *qpn };
            if let Err(error) = module.order(UNANSWERED, message) {
                tracing::debug!(%node_guid, %qpn, %error, "queue pair not taken up");
                self.older.handle_missed(node_guid);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let unread = self.unheard.is_left.then_some(Time(0));
        let times = [
            unread,
            self.resync.poll_timeout(),
            self.queue_pairs.poll_timeout(),
            self.peers.poll_timeout(),
            self.patrol.poll_timeout(),
            self.traps.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// Has the module bound ACK timeouts towards a peer, or no more.
    fn bound(&mut self, token: u32, (port, dlid): PeerLid, ack_timeout: u8) {
        let index = self.indexes.of(port.node_guid);
        let (Some(module), Some(index)) = (&self.module, index) else {
            self.peers.handle_refused(token);
            return;
        };
        let message = Message::Peer {
            index,
            port: port.port,
            dlid,
            ack_timeout,
        };
        if let Err(error) = module.order(token, message) {
            self.peers.handle_refused(token);
            tracing::debug!(port = port.port, %dlid, %error, "peer not named to the kernel module");
        }
    }

    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        let discovers = self.presence == Presence::Present && self.peers.is_bounding();
        if std::mem::replace(&mut self.discovers, discovers) != discovers {
            return Some(Note::Discover(discovers));
        }
        while let Some(told) = self.peers.poll() {
            match told {
                Told::Ask { question, uid, far } => {
                    return Some(Note::AskPeer { question, uid, far });
                }
                Told::Bound {
                    token,
                    peer,
                    ack_timeout,
                } => self.bound(token, peer, ack_timeout),
            }
        }
        loop {
            return Some(match self.queue_pairs.poll_output()? {
                Output::Engine(input) => Note::Engine(input),
                Output::AskLibrary { id, pid } => Note::AskLibrary { id, pid },
                Output::Known { id, number, qp } => Note::Known { id, number, qp },
                Output::Query { cookie, token } => {
                    self.send(cookie, token, Ask::Query);
                    continue;
                }
                Output::Forget(id) => Note::Forget(id),
                Output::DeviceUsed(node_guid) => Note::DeviceUsed(node_guid),
            });
        }
    }
}

/// One that is on its way when the module comes has to be taken up as well: what makes the module know a
/// queue pair, its way to INIT, is behind it.
fn is_connected_or_will_be(queue_pair: &QueuePair) -> bool {
    let state = queue_pair.state;
    queue_pair.reliable
        && state.is_some_and(|it| matches!(it, QpState::Init | QpState::Rtr | QpState::Rts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::nldev::Maker;

    #[test]
    fn who_is_on_the_way_is_taken_up_as_well() {
        let taken_up = |reliable, state| {
            is_connected_or_will_be(&QueuePair {
                maker: Maker::Kernel,
                reliable,
                state,
                migration: None,
                peer_qpn: None,
            })
        };
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            assert!(taken_up(true, Some(state)));
            assert!(!taken_up(false, Some(state)), "a datagram's");
        }
        for state in [QpState::Reset, QpState::Error] {
            assert!(!taken_up(true, Some(state)), "it leads nowhere");
        }
        assert!(!taken_up(true, None));
    }
}
