// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module `apm`, where it is loaded: every RC queue pair of the host, those of kernel ULPs
//! included, as one more client of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use cm_msgs::control::{NO_TOKEN, QpState};
use cm_msgs::path::Path;
use cm_msgs::{Guid, Qpn};
use mio::{Registry, Waker};
use statemachine::{ConnId, FarPort, Input, Order, PeerQuestion, PortId, PortStatus, Time};

use crate::client::Client;
use crate::config::{self, Config};
use crate::io::apm_module::{ApmModule, Ask, Cookie, Heard, KernelQp, Message};
use crate::io::nldev::QueuePair;
use crate::io::watched;
use crate::kernel::{Output, PeerLid, Peers, Presence, QueuePairs, TOKENS, Told, Unusable};
use crate::parts::device_indexes::DeviceIndexes;
use crate::parts::patrol::{self, Patrol};
use crate::parts::traps::Traps;
use crate::registrations::Room;
use crate::token::Token;

/// Names what nobody waits for: a queue pair that is to be taken up may have gone, and so may a device.
const UNANSWERED: u32 = u32::MAX;

/// Datagrams read before others have their turn.
const TURN: usize = 64;

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
    /// Whether daemons of other hosts are to be found, and to find this one.
    Discover(bool),
}

/// How far the module is with telling of all queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dump {
    Over,
    UnderWay,
    /// Another has to follow it.
    Outdated,
}

/// The module, and the queue pairs that it knows.
#[derive(Debug)]
pub(crate) struct Kernel {
    module: Option<ApmModule>,
    presence: Presence,
    settings: config::Kernel,
    queue_pairs: QueuePairs,
    peers: Peers,
    indexes: DeviceIndexes,
    patrol: Patrol,
    /// Devices of which queue pairs may be older than the module.
    unsearched: BTreeSet<Guid>,
    dump: Dump,
    /// There may be more to read than one turn took.
    unread: bool,
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
            peers: Peers::new(config.kernel.ack_timeout),
            indexes: DeviceIndexes::new(),
            patrol: Patrol::new(),
            unsearched: BTreeSet::new(),
            dump: Dump::Over,
            unread: false,
            discovers: false,
            traps: Traps::new(waker),
        }
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        self.peers.set_ack_timeout(config.kernel.ack_timeout);
        if self.settings != config.kernel {
            self.settings = config.kernel.clone();
            if self.presence == Presence::Present {
                self.set_up();
            }
        }
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
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

    /// What an operator should know of the kernel and of its connections.
    pub(crate) fn warnings(&self) -> Vec<String> {
        if self.presence != Presence::Present {
            return Vec::new();
        }
        let of_kernel = self.traps.unsafe_kernel().map(|why| {
            format!("{why}. Install one of these; `[kernel] strict = true` does without the module until then")
        });
        let of_connections = self.traps.warnings(&self.queue_pairs);
        of_kernel.into_iter().chain(of_connections).collect()
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

    /// The socket is ready.
    pub(crate) fn handle_ready(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(module) = &mut self.module else {
                return;
            };
            match module.receive() {
                Ok(Some(heard)) => {
                    for heard in heard {
                        self.hear(now, heard);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "the kernel module is not listened to any more: restart apmd");
                    self.module = None;
                    self.vanish(now, Presence::Unusable(Unusable::from(&error)));
                    return;
                }
            }
        }
        // Readiness is told once (edge-triggered): nobody tells of what is left.
        self.unread = true;
    }

    fn hear(&mut self, now: Time, heard: Heard) {
        match heard {
            Heard::Appeared => self.appear(),
            Heard::Vanished => {
                tracing::info!("kernel module apm unloaded: queue pairs keep what was loaded");
                self.vanish(now, Presence::Absent);
            }
            Heard::Said(Message::New(queue_pair)) => {
                self.patrol.begin(now);
                if let (Some(snapshot), None) = (&queue_pair.snapshot, queue_pair.left_alone) {
                    let far = far_port(queue_pair.node_guid, &snapshot.primary);
                    self.peers.expect(far, queue_pair.owner.uid);
                }
                if queue_pair.owner.pid.is_none() && queue_pair.left_alone.is_none() {
                    self.traps.look_soon(now);
                }
                self.queue_pairs.handle_new(now, *queue_pair);
            }
            Heard::Said(Message::Connecting {
                node_guid,
                uid,
                primary,
            }) => self.peers.expect(far_port(node_guid, &primary), uid),
            Heard::Said(Message::Gone(cookie)) => self.queue_pairs.handle_gone(now, cookie),
            Heard::Said(Message::Report(report)) => self.queue_pairs.handle_report(now, &report),
            Heard::Said(_) => {}
            Heard::Dumped if self.dump == Dump::Outdated => {
                self.dump = Dump::Over;
                self.dump_again();
            }
            Heard::Dumped => {
                self.dump = Dump::Over;
                self.queue_pairs.end_dump(now);
                self.search(now, self.queue_pairs.known_devices());
            }
            Heard::Refused(NO_TOKEN, error) => {
                // Asked for at the start, a family that is not there is an error, too.
                if self.presence == Presence::Present {
                    self.fail(now, &error);
                }
            }
            Heard::Refused(UNANSWERED, error) => {
                tracing::debug!(%error, "queue pair not taken up by the kernel module");
            }
            Heard::Refused(token @ TOKENS.., error) => {
                if let Some((port, lid)) = self.peers.handle_refused(token) {
                    let port = port.port;
                    tracing::warn!(port, %lid, %error, "ACK timeouts towards a peer are not bounded: the kernel module refuses it");
                }
            }
            Heard::Refused(token, error) => {
                tracing::debug!(token, %error, "order refused by the kernel module");
                let errno = error.raw_os_error().unwrap_or_default();
                self.queue_pairs.handle_refused(token, errno.unsigned_abs());
            }
            Heard::Overrun => self.dump_again(),
        }
    }

    fn appear(&mut self) {
        let Some(module) = &self.module else {
            return;
        };
        if let Some(why) = self.traps.unsafe_kernel() {
            if self.settings.strict {
                let why = format!("[kernel] strict, and {why}");
                tracing::warn!("kernel module apm is not used: {why}");
                self.presence = Presence::Unusable(Unusable::Strict(why));
                return;
            }
            tracing::warn!("{why}");
        }
        self.queue_pairs.begin_dump();
        match module.listen() {
            Ok(()) => {
                self.dump = Dump::UnderWay;
                let (protect, except) = (self.settings.protect, &self.settings.except);
                tracing::info!(%protect, ?except, "kernel module apm is there");
                self.presence = Presence::Present;
                self.set_up();
            }
            Err(error) => {
                tracing::warn!(%error, "kernel module apm is loaded, but cannot be used");
                self.presence = Presence::Unusable(Unusable::from(&error));
            }
        }
    }

    fn fail(&mut self, now: Time, error: &io::Error) {
        tracing::warn!(%error, "kernel module apm is loaded, but cannot be used");
        self.vanish(now, Presence::Unusable(Unusable::from(error)));
    }

    fn vanish(&mut self, now: Time, presence: Presence) {
        self.presence = presence;
        self.dump = Dump::Over;
        self.queue_pairs.handle_vanished(now);
        self.peers.clear();
    }

    /// Says which queue pairs are to be cared for.
    fn set_up(&mut self) {
        let message = Message::Configure {
            protect: self.settings.protect,
            rules: self.settings.rules(),
        };
        if let Some(module) = &self.module
            && let Err(error) = module.order(NO_TOKEN, message)
        {
            tracing::warn!(%error, "settings of the kernel module not changed");
        }
    }

    /// Something was lost: answers to orders, maybe, or a queue pair's end.
    fn dump_again(&mut self) {
        self.queue_pairs.forget_orders();
        if self.dump != Dump::Over {
            // The kernel dumps to a socket once at a time.
            self.dump = Dump::Outdated;
            return;
        }
        let Some(module) = &self.module else {
            return;
        };
        self.queue_pairs.begin_dump();
        match module.dump() {
            Ok(()) => self.dump = Dump::UnderWay,
            Err(error) => tracing::warn!(%error, "queue pairs are not told anew"),
        }
    }

    /// Looks for queue pairs that are older than the module.
    fn search(&mut self, now: Time, devices: BTreeSet<Guid>) {
        if !devices.is_empty() {
            self.unsearched.extend(devices);
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

    /// What a library tells the engine of: a queue pair is looked after by one only. Whether it is told
    /// as it is.
    pub(crate) fn handle_claim(&mut self, now: Time, input: &Input) -> bool {
        match input {
            Input::Register(id, register) => {
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
        if std::mem::take(&mut self.unread) {
            self.handle_ready(now);
        }
        self.queue_pairs.handle_time(now);
        self.peers.handle_time(now);
        self.traps
            .handle_time(now, || self.queue_pairs.known_devices());
        let (all, unsearched) = (&self.queue_pairs, &self.unsearched);
        let devices = || {
            let mut devices: BTreeSet<_> = all.devices().into_iter().collect();
            devices.extend(unsearched);
            devices.into_iter().collect()
        };
        let is_due = self.patrol.poll_timeout().is_some_and(|at| at <= now);
        let found = self.patrol.handle_time(now, devices);
        let is_over = is_due && self.patrol.is_between_rounds();
        if let Some((node_guid, found)) = found {
            // A completion error puts a queue pair into state error, and the module hears nothing of it.
            for qpn in patrol::disconnected(&found) {
                if let Some(id) = self.queue_pairs.registered((node_guid, qpn)) {
                    self.order(id, Order::Query(NO_TOKEN));
                }
            }
            self.adopt(node_guid, &found);
        }
        if is_over {
            self.unsearched.clear();
        }
    }

    /// The thread that looks for traps may be done.
    pub(crate) fn handle_thread(&mut self) {
        self.traps.handle_thread(&self.queue_pairs);
    }

    /// Has the module take up what it does not know. What is being connected just now it will tell of.
    fn adopt(&mut self, node_guid: Guid, found: &[(Qpn, QueuePair)]) {
        if self.presence != Presence::Present || !self.unsearched.contains(&node_guid) {
            return;
        }
        let index = self.indexes.of(node_guid);
        let (Some(module), Some(index)) = (&self.module, index) else {
            return;
        };
        for (qpn, queue_pair) in found {
            let is_connected = queue_pair.reliable && queue_pair.state == Some(QpState::Rts);
            if is_connected && !self.queue_pairs.knows((node_guid, *qpn)) {
                let message = Message::Adopt { index, qpn: *qpn };
                if let Err(error) = module.order(UNANSWERED, message) {
                    tracing::debug!(%node_guid, %qpn, %error, "queue pair not taken up");
                }
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let unread = self.unread.then_some(Time(0));
        let times = [
            unread,
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
            });
        }
    }
}

fn far_port(node_guid: Guid, primary: &Path) -> FarPort {
    FarPort {
        port: PortId::new(node_guid, primary.port),
        lid: primary.dlid,
        partition: primary.pkey.partition(),
    }
}
