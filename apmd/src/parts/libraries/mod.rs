// SPDX-License-Identifier: MIT OR Apache-2.0
//! The applications' libraries: their socket, and what they register. What comes out as a note has
//! been checked against the kernel.

mod check;
mod clients;
mod gids;
mod pace;
mod rounds;
#[cfg(test)]
mod tests;
mod turns;
mod unregistered;
mod vetting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use cm_msgs::control::{
    DecodeError, Ending, FromDaemon, FromLibrary, MAX_LEN, PeerPort, Refusal, Register, Report,
    Snapshot,
};
use cm_msgs::{Guid, PKey, Qpn};
use statemachine::{ConnId, FarPort, Input, Order, PeerQuestion, PortId, PortStatus, Time, Timers};

use crate::client::Client;
use crate::config::Config;
use crate::counters::LibraryCounters;
use crate::io::nldev::Nldev;
use crate::io::person::Person;
use crate::io::process::Process;
use crate::io::seqpacket::{Peer, Receive};
use crate::registrations::{Registrations, Room, Sharer, State};
use crate::second_path::has_second_path;
use crate::server::{Alive, Server};
use clients::{Clients, Connected};
use gids::GidTables;
use pace::Pace;
use rounds::Rounds;

/// Name of the socket in the runtime directory.
pub(crate) const SOCKET: &str = "apmd.sock";

/// Packets taken from one library before others have their turn.
const TURN: usize = 64;

/// What is wrong where the answer about a peer came too late, and what to do.
const LATE: &str = "made before apmd had answered whether the peer has one: the ACK timeout is rdma_cm's, so that a path \
     that dies in silence stalls for seconds (see library.md); connect again, on a host that is less busy";

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    /// What is new of a library's connections.
    Engine(Box<Input>),
    /// A queue pair is to be registered: what does the kernel module say of it?
    AskKernel { id: ConnId, number: (Guid, Qpn) },
    /// A library asks whether a daemon answers at a peer's port.
    AskPeer {
        question: PeerQuestion,
        uid: u32,
        far: FarPort,
    },
    /// A queue pair is to be registered on a device of which nothing is known.
    UnknownDevice(Guid),
    /// A library is gone, and its questions with it.
    Gone(u32),
}

impl Note {
    fn engine(input: Input) -> Self {
        Self::Engine(Box::new(input))
    }
}

/// How a library violates the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Violation {
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    #[error("control message: {0} bytes, longer than any")]
    TooLong(usize),
    #[error("control message: did not begin with hello")]
    NoHello,
    #[error("control message: connection number {0}, beyond 32 bits")]
    ConnectionNumber(u64),
}

/// The ports of this host.
#[derive(Debug, Default)]
struct KnownPorts {
    status: BTreeMap<PortId, PortStatus>,
    /// Those that send nothing without a GRH.
    of_grh: BTreeSet<PortId>,
}

/// The libraries' socket and registrations.
#[derive(Debug)]
pub(crate) struct Libraries {
    server: Server,
    nldev: Option<Nldev>,
    clients: Clients,
    registrations: Registrations,
    rounds: Rounds,
    ports: KnownPorts,
    gids: GidTables,
    /// Who may have more to read than one turn takes.
    unread: VecDeque<u32>,
    pace: Pace,
    /// Whose user has sent too much, until they are read again.
    paused: Timers<u32>,
    notes: VecDeque<Note>,
    counters: LibraryCounters,
}

impl Libraries {
    /// Serves the clients that `server` admits; `room` limits the connections.
    pub(crate) fn new(server: Server, room: Room) -> Self {
        let nldev = Nldev::open().inspect_err(|error| tracing::warn!(%error, "no rdma netlink"));
        Self {
            server,
            nldev: nldev.ok(),
            clients: Clients::default(),
            registrations: Registrations::new(room),
            rounds: Rounds::new(),
            ports: KnownPorts::default(),
            gids: GidTables::default(),
            unread: VecDeque::new(),
            pace: Pace::default(),
            paused: Timers::default(),
            notes: VecDeque::new(),
            counters: LibraryCounters::default(),
        }
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        self.registrations.set_limit(config.control.max_connections);
    }

    /// Libraries are numbered from here on.
    pub(crate) fn number_from(&mut self, first: u32) {
        self.server.number_from(first);
    }

    /// The number of the next library.
    pub(crate) fn next_number(&self) -> u32 {
        self.server.next_key()
    }

    /// Libraries connected.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// A library.
    pub(crate) fn client(&self, key: u32) -> Option<&Client> {
        self.clients.get(key).map(|connected| &connected.client)
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = (u32, &Client)> {
        self.clients.iter()
    }

    /// Whether a library is connected from this process.
    pub(crate) fn has_process(&self, pid: i32) -> bool {
        self.clients.has_process(pid)
    }

    fn of(&self, id: ConnId) -> Option<&Connected> {
        self.clients.get(id.client)
    }

    pub(crate) fn counters(&self) -> LibraryCounters {
        LibraryCounters {
            clients_refused: self.server.turned_away(),
            ..self.counters
        }
    }

    /// The listener is ready.
    pub(crate) fn handle_callers(&mut self, now: Time) {
        for key in self.server.accept(now) {
            let (Some(peer), Some(socket)) = (self.server.peer(key), self.server.socket(key))
            else {
                continue;
            };
            match Process::of_peer(socket, peer.pid) {
                Ok(process) => {
                    self.counters.clients += 1;
                    let connected = Connected {
                        client: Client::new(peer),
                        process,
                        payer: Person::of(peer.uid),
                    };
                    self.clients.insert(key, connected);
                }
                Err(error) => {
                    tracing::warn!(uid = peer.uid, pid = peer.pid, %error, "connection refused: its process is not found");
                    self.server.close(key);
                }
            }
        }
    }

    /// A library's socket is ready.
    pub(crate) fn handle_ready(&mut self, now: Time, key: u32) {
        if self.server.flush(now, key) == Alive::No {
            return self.lose(now, key, "connection lost");
        }
        let Some(payer) = self.clients.get(key).map(|connected| connected.payer) else {
            return;
        };
        for _ in 0..TURN {
            // A hello is read at once, or a program would be closed for what others of its user send.
            if self
                .client(key)
                .is_some_and(|client| client.command.is_some())
                && let Err(at) = self.pace.read(
                    now,
                    payer,
                    self.registrations.accepted(&Sharer::User(payer)),
                )
            {
                return self.paused.set(key, at);
            }
            let mut buffer = [0; MAX_LEN];
            let len = match self.server.receive(key, &mut buffer) {
                Receive::Packet(len) => len,
                Receive::Nothing => return,
                Receive::End => return self.lose(now, key, "connection closed"),
            };
            let packet = buffer.get(..len).ok_or(Violation::TooLong(len));
            let said = packet.and_then(|packet| Ok(FromLibrary::decode(packet)?));
            if let Err(violation) = said.and_then(|message| self.hear(now, key, message)) {
                self.counters.malformed_control += 1;
                let client = self.client(key);
                let (uid, pid) = client.map_or((0, 0), |client| (client.peer.uid, client.peer.pid));
                tracing::warn!(client = key, uid, pid, %violation, "library disconnected: protocol violation");
                return self.lose(now, key, "protocol violation");
            }
        }
        // Readiness is told once (edge-triggered): nobody tells of what is left.
        self.unread.push_back(key);
    }

    fn hear(&mut self, now: Time, key: u32, message: FromLibrary) -> Result<(), Violation> {
        let Some(Connected { client, payer, .. }) = self.clients.get_mut(key) else {
            return Ok(());
        };
        let id = |conn| match u32::try_from(conn) {
            Ok(conn) => Ok(ConnId { client: key, conn }),
            Err(_) => Err(Violation::ConnectionNumber(conn)),
        };
        if let FromLibrary::Hello { command } = message {
            client.said_hello(&command);
            self.server.greeted(key);
            self.send(now, key, FromDaemon::MovesIdle);
            self.send(now, key, FromDaemon::CountsLateAnswers);
            self.send(now, key, FromDaemon::AsksPartitions);
            self.send(now, key, FromDaemon::AsksPeers);
            self.send(now, key, FromDaemon::Welcome);
            return Ok(());
        }
        if client.command.is_none() {
            return Err(Violation::NoHello);
        }
        match message {
            FromLibrary::Hello { .. } => {}
            FromLibrary::Register { conn, register } => {
                let payer = *payer;
                self.register(now, id(conn)?, payer, register);
            }
            FromLibrary::MovesIdle => {
                let input = Input::MovesIdle(key);
                self.notes.push_back(Note::engine(input));
            }
            FromLibrary::Report { conn, report } => self.report(now, id(conn)?, report),
            FromLibrary::Close { conn, ending } => {
                let id = id(conn)?;
                if self.registrations.remove(now, id) {
                    let input = match ending {
                        Ending::Gone => Input::Close(id),
                        Ending::Disconnected => Input::Disconnect(id),
                    };
                    self.notes.push_back(Note::engine(input));
                }
            }
            FromLibrary::Policy { conn, policy } => {
                let id = id(conn)?;
                if let Some(registration) = self.registrations.get_mut(id) {
                    registration.register.policy = policy;
                    let input = Input::Policy(id, policy);
                    self.notes.push_back(Note::engine(input));
                }
            }
            FromLibrary::AskPeerIn {
                question,
                peer,
                pkey,
            } => {
                let uid = payer.uid();
                let client = key;
                self.ask_peer(now, PeerQuestion { client, question }, uid, peer, pkey);
            }
            FromLibrary::AnswerCameLate { conn } => {
                let id = id(conn)?;
                if let Some(registration) = self.registrations.get_mut(id)
                    && !registration.answer_came_late
                {
                    registration.answer_came_late = true;
                    self.counters.late_peer_answers += 1;
                }
            }
            FromLibrary::AskPeer { question, peer } => {
                let uid = payer.uid();
                let client = key;
                let pkey = PKey::DEFAULT_FULL;
                self.ask_peer(now, PeerQuestion { client, question }, uid, peer, pkey);
            }
        }
        Ok(())
    }

    fn register(&mut self, now: Time, id: ConnId, payer: Person, register: Register) {
        if self.registrations.remove(now, id) {
            self.notes.push_back(Note::engine(Input::Close(id)));
        }
        if !self
            .registrations
            .add(now, id, Sharer::User(payer), register)
        {
            tracing::warn!(
                uid = payer.uid(),
                "registration refused: the user's share is used up"
            );
            return self.order(now, id, Order::Refuse(Refusal::Full));
        }
        if !register.opted_in {
            self.clients.set_protects_all(id.client);
        }
        self.consider(now, id);
    }

    fn report(&mut self, now: Time, id: ConnId, report: Report) {
        let Some(registration) = self.registrations.get(id) else {
            return;
        };
        let (register, state) = (registration.register, registration.state);
        let device = self.device_of(&register);
        let (is_known, verdict) = (device.is_some(), check::report(&report.snapshot, device));
        match (state, verdict) {
            (State::Accepted(_), Ok(())) => {
                let input = Input::Report(id, report);
                self.notes.push_back(Note::engine(input));
            }
            (State::Accepted(_), Err(objection)) => {
                self.counters.contradicted += 1;
                let uid = self.of(id).map(|connected| connected.client.peer.uid);
                tracing::warn!(uid, qpn = %register.qpn, "report ignored: {objection}");
            }
            // A port that the device does not have is not waited for.
            (State::New | State::Asked | State::Unsettled(_), Err(objection)) if is_known => {
                self.registrations.count_as_short(now, id);
                self.object(now, id, &objection);
            }
            (State::New | State::Asked | State::Unsettled(_), _) => {
                self.take_in(now, id, report.snapshot);
            }
            // The library is asked again before anything counts.
            (State::NoPort | State::Turnover, _) => {}
        }
    }

    /// How the queue pair of a registration is that is not confirmed yet.
    fn take_in(&mut self, now: Time, id: ConnId, snapshot: Snapshot) {
        let Some(registration) = self.registrations.get_mut(id) else {
            return;
        };
        registration.register.snapshot = snapshot;
        match registration.state {
            State::Asked => self.consider(now, id),
            // The kernel has been asked, and its answer is held against this: it waits as if it had been
            // said first.
            _ => {
                self.vet(now, id);
            }
        }
    }

    /// Passes a question on, if the peer can be reached and there is anything to be gained by it: who has
    /// an answer shortens the connection's ACK timeout.
    fn ask_peer(
        &mut self,
        now: Time,
        question: PeerQuestion,
        uid: u32,
        peer: PeerPort,
        pkey: PKey,
    ) {
        let port = PortId::new(peer.node_guid, peer.port);
        let has_way = check::leads_away(port, peer.lid, &self.ports.status)
            && check::is_in_partition(port, pkey, &self.ports.status);
        if !has_way || !has_second_path(port, &self.ports.status) {
            return self.answer_peer(now, question, false);
        }
        let far = FarPort {
            port,
            lid: peer.lid,
            partition: pkey.partition(),
        };
        self.notes.push_back(Note::AskPeer { question, uid, far });
    }

    /// What is to be known of a connection, in words.
    pub(crate) fn warning(&self, id: ConnId) -> Option<String> {
        let registration = self.registrations.get(id)?;
        registration.answer_came_late.then(|| LATE.to_owned())
    }

    /// What is to be known of all connections, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        let late = self.registrations.late_answers();
        (late > 0).then(|| {
            format!(
                "{late} connection{} with the library {LATE}",
                if late == 1 { "" } else { "s" }
            )
        })
    }

    /// Tells a library whether a daemon answers where it asked.
    pub(crate) fn answer_peer(&mut self, now: Time, question: PeerQuestion, answers: bool) {
        let PeerQuestion { client, question } = question;
        self.send(now, client, FromDaemon::Peer { question, answers });
    }

    /// A port of the device that is registered on; of one that is not managed, none.
    fn device_of(&self, register: &Register) -> Option<&PortStatus> {
        let mut ports = self
            .ports
            .status
            .range(PortId::of_device(register.node_guid));
        ports.next().map(|(_, status)| status)
    }

    /// What the engine is told of a port, it is told here first.
    pub(crate) fn handle_port(&mut self, now: Time, id: PortId, status: &PortStatus) {
        if self.ports.status.insert(id, status.clone()).is_none() {
            for waiting in self.registrations.without_port(id.node_guid) {
                self.ask(now, waiting);
            }
        }
    }

    /// Whether a port sends nothing without a GRH.
    pub(crate) fn set_grh_required(&mut self, id: PortId, is_required: bool) {
        match is_required {
            true => self.ports.of_grh.insert(id),
            false => self.ports.of_grh.remove(&id),
        };
    }

    pub(crate) fn handle_port_gone(&mut self, id: PortId) {
        self.ports.of_grh.remove(&id);
        self.ports.status.remove(&id);
        self.gids.forget(id);
        self.rounds.unregistered.remove_device(id.node_guid);
    }

    /// Gives a library an order.
    pub(crate) fn order(&mut self, now: Time, id: ConnId, order: Order) {
        self.send(now, id.client, message(id.conn.into(), order));
    }

    fn send(&mut self, now: Time, key: u32, message: FromDaemon) {
        if self.server.send(now, key, message.encode().as_ref()) == Alive::No {
            self.lose(now, key, "does not read");
        }
    }

    fn lose(&mut self, now: Time, key: u32, why: &str) {
        self.server.close(key);
        self.paused.cancel(&key);
        let Some(Connected { client, .. }) = self.clients.remove(key) else {
            return;
        };
        self.counters.clients_gone += 1;
        let Peer { uid, pid } = client.peer;
        if !self.clients.has_process(pid) {
            self.rounds.unregistered.remove_process(pid);
        }
        tracing::debug!(
            client = key,
            uid,
            pid,
            command = client.command,
            "library disconnected: {why}"
        );
        self.registrations.remove_client(now, key);
        self.notes.push_back(Note::engine(Input::ClientGone(key)));
        self.notes.push_back(Note::Gone(key));
    }

    /// What is due, and what is left over from earlier turns. `is_protected`: a queue pair, by others than libraries.
    pub(crate) fn handle_time(&mut self, now: Time, is_protected: impl Fn((Guid, Qpn)) -> bool) {
        if self.server.accept_is_due(now) {
            self.handle_callers(now);
        }
        while let Some(key) = self.server.expired(now) {
            let why = match self.client(key).and_then(|client| client.command.as_ref()) {
                Some(_) => "does not read",
                None => "no hello",
            };
            self.lose(now, key, why);
        }
        for id in self.registrations.due(now) {
            self.ask(now, id);
        }
        while let Some(id) = self.gids.poll_waited(now) {
            self.settle(now, id);
        }
        self.go_on_round(now, is_protected);
        for key in std::mem::take(&mut self.unread) {
            self.handle_ready(now, key);
        }
        let due: Vec<_> = iter::from_fn(|| self.paused.expired(now)).collect();
        for key in due {
            self.handle_ready(now, key);
        }
        self.pace.forget(now);
    }

    /// When to call [`Self::handle_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let unread = (!self.unread.is_empty()).then_some(Time(0));
        let times = [
            unread,
            self.server.poll_timeout(),
            self.paused.next(),
            self.registrations.poll_timeout(),
            self.gids.poll_timeout(),
            self.rounds.patrol.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// What is new, in order.
    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }
}

fn primary_port(register: &Register) -> PortId {
    PortId::new(register.node_guid, register.snapshot.primary.port)
}

fn message(conn: u64, order: Order) -> FromDaemon {
    match order {
        Order::Load(load) => FromDaemon::Load { conn, load },
        Order::Migrate(migrate) => FromDaemon::Migrate { conn, migrate },
        Order::MoveIdle(migrate) => FromDaemon::MoveIdle { conn, migrate },
        Order::Stand(stand) => FromDaemon::Stand { conn, stand },
        Order::Query(token) => FromDaemon::Query { conn, token },
        Order::Refuse(refusal) => FromDaemon::Refuse { conn, refusal },
        Order::Event(event, status) => FromDaemon::Event {
            conn,
            event,
            status,
        },
        Order::Disconnected => FromDaemon::Disconnected { conn },
    }
}
