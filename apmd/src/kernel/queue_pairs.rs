// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue pairs that the kernel module tells of, and which of them the engine has. No I/O here.

mod dump;
mod libraries;
mod registration;
mod roomless;
mod seen;
mod truth;

pub(crate) use registration::astray;
pub(crate) use seen::{Care, LeftOut, Seen};
pub(crate) use truth::kernels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use cm_msgs::control::{self, QpState, Refusal, Register, Report};
use cm_msgs::{Guid, Lid, Qpn};
use statemachine::{ConnId, Input, Order, PortId, Time, Timers};

use crate::client::Client;
use crate::io::apm_module::{Ask, Cause, Cookie, KernelQp, KernelReport, LeftAlone};
use crate::io::seqpacket::Peer;
use crate::registrations::{Registrations, Room, State};

use super::claims::Claims;
use super::orders::{Answer, Orders};
use super::reports::Place;
use dump::Dump;
use registration::{registration, sharer};
use roomless::Roomless;

/// The client of all connections that are registered here; libraries are counted from 1.
pub(crate) const CLIENT: u32 = 0;

/// Whose a queue pair is to manage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// It is asked whether its program has a library.
    Asked,
    /// Its library may register it.
    Awaited,
    Ours,
    /// Its sharer has too many.
    NoRoom,
    /// The engine does not manage it.
    Refused(Refusal),
}

#[derive(Debug)]
struct Entry {
    qp: KernelQp,
    conn: u32,
    whose: Whose,
    /// As operators are shown it.
    client: Client,
    /// The dump that last told of it.
    told: u32,
}

impl Entry {
    fn id(&self) -> ConnId {
        ConnId {
            client: CLIENT,
            conn: self.conn,
        }
    }

    fn number(&self) -> (Guid, Qpn) {
        (self.qp.node_guid, self.qp.qpn)
    }

    fn astray(&self) -> Option<Lid> {
        self.qp.snapshot.as_ref().and_then(astray)
    }

    /// Whether the engine is to have it as a connection. It also gets those that stay in RTR, and refuses them: so they
    /// are shown, and their peers notified.
    fn is_to_be_registered(&self) -> bool {
        let is_ours = matches!(self.whose, Whose::Ours | Whose::NoRoom | Whose::Refused(_));
        is_ours
            && matches!(self.qp.left_alone, None | Some(LeftAlone::ResponderOnly))
            && self.astray().is_none()
    }

    /// Whether it was refused because it stayed in RTR, and is in RTS now.
    fn sends_after_all(&self, register: &Register) -> bool {
        self.whose == Whose::Refused(Refusal::ReceivesOnly)
            && register.snapshot.qp_state == QpState::Rts
    }
}

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Output {
    Engine(Box<Input>),
    /// Whether a library is connected from this process.
    AskLibrary {
        id: ConnId,
        pid: i32,
    },
    /// What the kernel says of a queue pair that a library has registered. `None`: the module tells
    /// nothing of it.
    Known {
        id: ConnId,
        number: (Guid, Qpn),
        qp: Option<Box<KernelQp>>,
    },
    /// The module is to tell how a queue pair is now.
    Query {
        cookie: Cookie,
        token: u32,
    },
    /// What its connection was need not be known any more.
    Forget(ConnId),
    /// A queue pair waits for a port of this device, of which nothing may be known.
    DeviceUsed(Guid),
}

/// Those that are to be considered again though nothing is told of them.
#[derive(Debug, Default)]
struct Later {
    /// Their libraries may register them until then.
    awaited: Timers<Cookie>,
    roomless: Roomless,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct QueuePairs {
    all: BTreeMap<Cookie, Entry>,
    by_number: BTreeMap<(Guid, Qpn), Cookie>,
    by_conn: BTreeMap<u32, Cookie>,
    /// What those were that have just been closed.
    left: BTreeMap<ConnId, Client>,
    next_conn: u32,
    registrations: Registrations,
    /// With their LMC.
    ports: BTreeMap<PortId, u8>,
    /// Registered by libraries.
    claims: Claims,
    later: Later,
    orders: Orders,
    dump: Dump,
    outputs: VecDeque<Output>,
}

impl QueuePairs {
    /// As many are managed as there is room for.
    pub(crate) fn new(room: Room) -> Self {
        Self {
            all: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            left: BTreeMap::new(),
            next_conn: 1,
            registrations: Registrations::new(room),
            ports: BTreeMap::new(),
            claims: Claims::default(),
            later: Later::default(),
            orders: Orders::default(),
            dump: Dump::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Numbers of connections begin with this one.
    pub(crate) fn number_from(&mut self, first: u32) {
        self.next_conn = first;
    }

    /// The number of the next connection.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_conn
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whose connection it is, or was until just now: as the kernel has it, of a library's as well.
    pub(crate) fn client(&self, id: ConnId) -> Option<&Client> {
        let cookie = match (id.client, self.claims.get(id)) {
            (CLIENT, _) => self.by_conn.get(&id.conn),
            (_, claim) => claim.and_then(|claim| self.by_number.get(&claim.number)),
        };
        let entry = cookie.and_then(|cookie| self.all.get(cookie));
        entry
            .map(|entry| &entry.client)
            .or_else(|| self.left.get(&id))
    }

    pub(crate) fn forget(&mut self, id: ConnId) {
        self.left.remove(&id);
    }

    /// How many the engine has.
    pub(crate) fn connections(&self) -> usize {
        self.registrations.accepted_in_all()
    }

    /// How many are known, and how many of these the module leaves alone.
    pub(crate) fn count(&self) -> (usize, usize) {
        let left_alone = |entry: &&Entry| entry.qp.left_alone.is_some();
        (self.all.len(), self.all.values().filter(left_alone).count())
    }

    /// One, by the connection that it is.
    pub(crate) fn queue_pair(&self, id: ConnId) -> Option<&KernelQp> {
        let cookie = self.by_conn.get(&id.conn).filter(|_| id.client == CLIENT)?;
        self.all.get(cookie).map(|entry| &entry.qp)
    }

    /// Those of kernel ULPs.
    pub(crate) fn of_kernel(&self) -> impl Iterator<Item = &KernelQp> {
        let all = self.all.values().map(|entry| &entry.qp);
        all.filter(|qp| qp.owner.pid.is_none())
    }

    /// Devices with queue pairs that the engine has.
    pub(crate) fn devices(&self) -> VecDeque<Guid> {
        self.registrations.devices()
    }

    /// Devices with ports that are managed.
    pub(crate) fn known_devices(&self) -> BTreeSet<Guid> {
        self.ports.keys().map(|port| port.node_guid).collect()
    }

    pub(crate) fn knows(&self, number: (Guid, Qpn)) -> bool {
        self.by_number.contains_key(&number)
    }

    /// A queue pair of the engine's.
    pub(crate) fn registered(&self, number: (Guid, Qpn)) -> Option<ConnId> {
        self.registrations.holder(number)
    }

    /// One is there, or is now another.
    pub(crate) fn handle_new(&mut self, now: Time, qp: KernelQp) {
        let (cookie, number) = (qp.cookie, (qp.node_guid, qp.qpn));
        if self.dump.has_ended(cookie) {
            return;
        }
        if let Some(before) = self.by_number.get(&number).filter(|it| **it != cookie) {
            // Its end was not heard of.
            self.handle_gone(now, *before);
        }
        match self.all.get_mut(&cookie) {
            Some(entry) => {
                entry.told = self.dump.number;
                entry.qp = qp;
                self.tell(cookie, control::Cause::Changed);
            }
            None => self.add(qp),
        }
        self.consider(now, cookie);
    }

    fn add(&mut self, qp: KernelQp) {
        let (cookie, number) = (qp.cookie, (qp.node_guid, qp.qpn));
        let conn = self.next_conn;
        self.next_conn = conn.checked_add(1).unwrap_or(1);
        self.by_number.insert(number, cookie);
        self.by_conn.insert(conn, cookie);
        let client = Client {
            peer: Peer {
                pid: qp.owner.pid.unwrap_or(0),
                uid: qp.owner.uid,
            },
            command: Some(qp.owner.name.clone()),
        };
        let whose = match qp.owner.pid {
            Some(pid) => {
                let id = ConnId {
                    client: CLIENT,
                    conn,
                };
                self.outputs.push_back(Output::AskLibrary { id, pid });
                Whose::Asked
            }
            None => Whose::Ours,
        };
        let entry = Entry {
            qp,
            conn,
            whose,
            client,
            told: self.dump.number,
        };
        self.all.insert(cookie, entry);
        self.meet(cookie, number);
    }

    pub(crate) fn handle_gone(&mut self, now: Time, cookie: Cookie) {
        self.dump.handle_gone(cookie);
        let Some(entry) = self.all.remove(&cookie) else {
            return;
        };
        let id = entry.id();
        self.by_conn.remove(&id.conn);
        self.by_number.remove(&entry.number());
        self.later.roomless.remove(cookie);
        self.later.awaited.cancel(&cookie);
        for answer in self.orders.forget(cookie) {
            if let Answer::Registration(id) = answer {
                self.tell_registrant(id, entry.number());
            }
        }
        if self.registrations.remove(now, id) {
            self.left.insert(id, entry.client);
            self.outputs
                .push_back(Output::Engine(Box::new(Input::Close(id))));
            self.outputs.push_back(Output::Forget(id));
        }
    }

    /// The module takes orders to move queue pairs that wait for traffic. It may be said again.
    pub(crate) fn handle_moves_idle(&mut self) {
        let moves = Output::Engine(Box::new(Input::MovesIdle(CLIENT)));
        self.outputs.push_back(moves);
    }

    /// The module is gone, and all that it knew.
    pub(crate) fn handle_vanished(&mut self, now: Time) {
        self.believe_libraries();
        self.all.clear();
        self.by_number.clear();
        self.by_conn.clear();
        self.later.roomless.clear();
        self.later.awaited = Timers::default();
        self.dump.end();
        self.registrations.remove_client(now, CLIENT);
        let gone = Output::Engine(Box::new(Input::ClientGone(CLIENT)));
        self.outputs.push_back(gone);
    }

    /// All will be told again.
    pub(crate) fn begin_dump(&mut self) {
        self.dump.begin();
    }

    /// What was not told any more is gone.
    pub(crate) fn end_dump(&mut self, now: Time) {
        let number = self.dump.number;
        let old = self.all.iter().filter(|(_, it)| it.told != number);
        for cookie in old.map(|(cookie, _)| *cookie).collect::<Vec<_>>() {
            self.handle_gone(now, cookie);
        }
        self.dump.end();
    }

    /// Answers to orders may have been lost: the engine asks how queue pairs are. What was a question already is asked
    /// again, since nobody else would.
    pub(crate) fn forget_orders(&mut self) {
        for (cookie, answer) in self.orders.clear() {
            if let Answer::Query(_) | Answer::Registration(_) | Answer::Report(..) = answer {
                self.query(cookie, answer);
            }
        }
    }

    pub(crate) fn handle_report(&mut self, now: Time, report: &KernelReport) {
        let cookie = report.cookie;
        let answers = report
            .token
            .and_then(|token| self.orders.take(cookie, token));
        let Some(entry) = self.all.get_mut(&cookie) else {
            return;
        };
        if let Some(snapshot) = report.snapshot {
            entry.qp.snapshot = Some(snapshot);
        }
        self.answer_library(cookie, answers);
        self.tell(cookie, cause(report.cause, report.errno, answers));
        self.consider(now, cookie);
    }

    /// Where a queue pair's reports wait; `None`: it is not known.
    pub(crate) fn place(&self, cookie: Cookie) -> Option<Place> {
        let qp = &self.all.get(&cookie)?.qp;
        let far = qp.snapshot.map_or(Lid(0), |qp| qp.primary.dlid);
        let payer = qp.owner.payer;
        Some(Place { payer, far })
    }

    /// The queue pair that was given the order with this token.
    pub(crate) fn with_token(&self, token: u32) -> Option<Cookie> {
        self.orders.with_token(token)
    }

    /// What was asked with this token cannot be done.
    pub(crate) fn handle_refused(&mut self, token: u32, errno: u32) {
        if let Some(cookie) = self.orders.with_token(token) {
            let answers = self.orders.take(cookie, token);
            self.answer_library(cookie, answers);
            self.tell(cookie, cause(Cause::Failed, errno, answers));
        }
    }

    /// Tells the engine of one that it has.
    fn tell(&mut self, cookie: Cookie, cause: control::Cause) {
        let Some(entry) = self.all.get(&cookie) else {
            return;
        };
        let id = entry.id();
        let is_registered = self
            .registrations
            .get(id)
            .is_some_and(|found| matches!(found.state, State::Accepted(_)));
        // One that has gone astray is closed instead.
        let counts = is_registered && entry.astray().is_none();
        if let (true, Some(snapshot)) = (counts, entry.qp.snapshot) {
            let input = Input::Report(id, Report { cause, snapshot });
            self.outputs.push_back(Output::Engine(Box::new(input)));
        }
    }

    /// Has the engine manage it, or no more.
    fn consider(&mut self, now: Time, cookie: Cookie) {
        let Some(entry) = self.all.get_mut(&cookie) else {
            return;
        };
        let id = entry.id();
        let is_ours = entry.is_to_be_registered() && self.claims.of(entry.number()).is_none();
        let state = self.registrations.get(id).map(|found| found.state);
        let register = registration(&entry.qp).filter(|_| is_ours);
        let Some(register) = register else {
            // One that has left RTS stays until it is gone: it is shown as broken.
            if !is_ours && self.registrations.remove(now, id) {
                self.outputs
                    .push_back(Output::Engine(Box::new(Input::Close(id))));
            }
            return;
        };
        match state {
            Some(State::Accepted(_)) if entry.sends_after_all(&register) => {
                entry.whose = Whose::Ours;
            }
            Some(State::Accepted(_)) => return,
            Some(_) => {}
            None => {
                let sharer = sharer(&entry.qp, &register, &self.ports);
                let lid = sharer.peer().map(|peer| peer.lid.0);
                if !self.registrations.add(now, id, sharer, register) {
                    if entry.whose != Whose::NoRoom {
                        let (owner, uid, qpn) =
                            (&entry.qp.owner.name, entry.qp.owner.uid, entry.qp.qpn);
                        tracing::warn!(owner, uid, lid, %qpn, "queue pair not managed: its share of max_connections is used up");
                    }
                    entry.whose = Whose::NoRoom;
                    self.later.roomless.insert(cookie);
                    return;
                }
                entry.whose = Whose::Ours;
                self.later.roomless.remove(cookie);
            }
        }
        let port = PortId::new(register.node_guid, register.snapshot.primary.port);
        if !self.ports.contains_key(&port) {
            if let Some(waiting) = self.registrations.get_mut(id) {
                waiting.state = State::NoPort;
            }
            if state != Some(State::NoPort) {
                let used = Output::DeviceUsed(port.node_guid);
                self.outputs.push_back(used);
            }
            return;
        }
        let Some(payer) = self.registrations.payer(id) else {
            return;
        };
        if self.registrations.is_its_turn(now, id) {
            self.registrations.accept(now, id, register);
            let input = Input::Register(id, payer, register);
            self.outputs.push_back(Output::Engine(Box::new(input)));
        }
    }

    /// A port is there. Whether it was not known before.
    pub(crate) fn handle_port(&mut self, now: Time, port: PortId, lmc: u8) -> bool {
        let is_new = self.ports.insert(port, lmc).is_none();
        if is_new {
            for id in self.registrations.without_port(port.node_guid) {
                self.consider_conn(now, id);
            }
        }
        is_new
    }

    pub(crate) fn handle_port_gone(&mut self, port: PortId) {
        self.ports.remove(&port);
    }

    fn consider_conn(&mut self, now: Time, id: ConnId) {
        if let Some(&cookie) = self.by_conn.get(&id.conn) {
            self.consider(now, cookie);
        }
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        for cookie in iter::from_fn(|| self.later.awaited.expired(now)).collect::<Vec<_>>() {
            if let Some(entry) = self.all.get_mut(&cookie) {
                entry.whose = Whose::Ours;
                self.consider(now, cookie);
            }
        }
        for id in self.registrations.due(now) {
            self.consider_conn(now, id);
        }
        let changes = self.registrations.room_changes();
        for cookie in self.later.roomless.due(now, changes) {
            self.consider(now, cookie);
        }
        for (id, number) in self.claims.unmet(now) {
            self.tell_registrant(id, number);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let times = [
            self.later.awaited.next(),
            self.registrations.poll_timeout(),
            self.claims.poll_timeout(),
            self.later
                .roomless
                .poll_timeout(self.registrations.room_changes()),
        ];
        times.into_iter().flatten().min()
    }

    /// The module loads no alternate with a GRH, however often it is asked: the connection is shown as
    /// refused, and its peer told.
    fn refuse_global_route(&mut self, cookie: Cookie) {
        let Some(entry) = self.all.get_mut(&cookie) else {
            return;
        };
        let why = Refusal::GlobalRoute;
        entry.whose = Whose::Refused(why);
        let id = entry.id();
        if let (Some(register), Some(payer)) =
            (registration(&entry.qp), self.registrations.payer(id))
        {
            let input = Input::Refused(id, payer, register, why);
            self.outputs.push_back(Output::Engine(Box::new(input)));
        }
    }

    /// What the module is to be asked because of an order, and with which token.
    pub(crate) fn order(&mut self, id: ConnId, order: Order) -> Option<(Cookie, u32, Ask)> {
        let cookie = *self.by_conn.get(&id.conn)?;
        let (answer, ask) = match order {
            Order::Load(load) if load.alternate.global => {
                self.refuse_global_route(cookie);
                return None;
            }
            Order::Load(load) => (
                Answer::Order(load.token),
                Ask::Load {
                    primary: load.primary,
                    alternate: load.alternate,
                    standing: load.standing,
                },
            ),
            Order::Migrate(migrate) => {
                let primary = migrate.primary;
                (Answer::Order(migrate.token), Ask::Migrate { primary })
            }
            Order::MoveIdle(migrate) => {
                let primary = migrate.primary;
                (Answer::Order(migrate.token), Ask::MoveIdle { primary })
            }
            Order::Stand(stand) => {
                let (primary, allowed) = (stand.primary, stand.allowed);
                (Answer::None, Ask::Stand { primary, allowed })
            }
            Order::Query(token) => (Answer::Query(token), Ask::Query),
            Order::Refuse(refusal) => {
                self.all.get_mut(&cookie)?.whose = Whose::Refused(refusal);
                return None;
            }
            // Nobody there asks for events, and nobody but its owner can end a kernel ULP's
            // connection.
            Order::Event(..) | Order::Disconnected => return None,
        };
        let token = self.orders.add(cookie, answer);
        Some((cookie, token, ask))
    }
}

fn cause(cause: Cause, errno: u32, answers: Option<Answer>) -> control::Cause {
    let errno = u8::try_from(errno).unwrap_or(u8::MAX);
    match (cause, answers) {
        (Cause::Done | Cause::Failed, Some(Answer::Query(token))) => {
            control::Cause::Query { token }
        }
        (Cause::Done, Some(Answer::Order(token))) => control::Cause::Done { token },
        (Cause::Stale, Some(Answer::Order(token))) => control::Cause::Stale { token },
        (Cause::Failed, Some(Answer::Order(token))) => control::Cause::Failed { token, errno },
        (Cause::Armed, _) => control::Cause::Armed,
        (Cause::PathMigrated, _) => control::Cause::PathMigrated,
        (Cause::PathMigrationError, _) => control::Cause::PathMigrationError,
        (Cause::Broken, _) => control::Cause::Broken,
        _ => control::Cause::Changed,
    }
}

#[cfg(test)]
mod tests;
