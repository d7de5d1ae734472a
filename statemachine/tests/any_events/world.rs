// SPDX-License-Identifier: MIT OR Apache-2.0
//! An engine, what it was told and what it said, checked after every event.

use std::collections::BTreeMap;
use std::time::Duration;

use cm_msgs::association::{Movement, PeerPort, Ports, PrimaryPath, RepData, ReqData, State};
use cm_msgs::cm::{Apr, Drep, Lap, Message, PathFields, Rep, Req, Rtu, Spr};
use cm_msgs::control::{
    Cause, Load, MigrationState, PolicyOverride, QpState, Register, Report, Snapshot,
};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Lid, PKey, Qpn};
use statemachine::view::AssociationState;
use statemachine::{
    Command, Config, ConnId, Engine, Input, MadSource, Notice, Order, Origin, Overlap, Payer,
    PortId, PortStatus, Query, Random, SERVICE_ID, Time, Transmit,
};

use crate::event::{Conn, Event, NODE, Pick, Qp, far, near, path, port};

/// More than this of one kind after one event is without end. (Eight connections, four ports.)
const ENDLESS: usize = 1_000;
/// What the engine said last: more is not remembered.
const REMEMBERED: usize = 64;
/// Within this everything that was closed is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

pub(crate) struct World {
    now: Time,
    engine: Engine,
    ports: BTreeMap<PortId, PortStatus>,
    /// Of connections that are registered: what was last said of the QP.
    told: BTreeMap<Conn, Snapshot>,
    orders: Vec<(Conn, Order)>,
    mads: Vec<Transmit>,
    queries: Vec<Query>,
}

impl Default for World {
    fn default() -> Self {
        let mut engine = Engine::new(Config::default(), Random::new([7; 32]));
        engine.set_trace_level(Some(statemachine::Level::Debug));
        Self {
            now: Time(1),
            engine,
            ports: BTreeMap::new(),
            told: BTreeMap::new(),
            orders: Vec::new(),
            mads: Vec::new(),
            queries: Vec::new(),
        }
    }
}

impl World {
    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Wait(ms) => self.wait(Duration::from_millis(ms)),
            Event::Port(id, status) => {
                match &status {
                    Some(status) => self.ports.insert(id, status.clone()),
                    None => self.ports.remove(&id),
                };
                self.tell(Input::Port(id, status));
            }
            Event::Register(conn, role, qp) => {
                self.told.insert(conn, snapshot(&qp));
                let register = Register {
                    role,
                    opted_in: conn.conn == 1,
                    node_guid: NODE,
                    qpn: qpn(conn),
                    peer_qpn: Qpn(qpn(conn).0 + 0x1000),
                    policy: PolicyOverride::default(),
                    snapshot: snapshot(&qp),
                };
                let payer = Payer(conn.client.into());
                if conn.client % 2 == 0 {
                    self.tell(Input::MovesIdle(conn.client));
                }
                self.tell(Input::Register(id(conn), payer, register));
            }
            Event::Report(conn, cause, qp) => self.report(conn, cause, snapshot(&qp)),
            Event::Obey(pick) => self.obey(pick),
            Event::Close(conn) => {
                self.told.remove(&conn);
                self.tell(Input::Close(id(conn)));
            }
            Event::ClientGone(client) => {
                self.told.retain(|conn, _| conn.client != client);
                self.tell(Input::ClientGone(client));
            }
            Event::Answer(pick) => self.answer(pick),
            Event::Request(conn, pick) => self.mad((1, 1), request(conn, pick).into()),
            Event::Propose(pick, to) => self.propose(pick, to),
            Event::Mad { mad, known, from } => self.any_mad(mad, known, from),
            Event::Paths(pick, result) => self.paths(pick, result),
            Event::AnyPaths(query, record, origin) => self.tell(Input::Paths {
                query,
                result: Ok(vec![PathRecord::decode(&record)]),
                origin,
            }),
            Event::Assessed(pick, all) => self.assessed(pick, &all),
            Event::FabricChanged => self.tell(Input::FabricChanged),
            Event::Notice(port, kind, of) => self.tell(Input::Notice(port, notice(kind, of))),
            Event::Policy(conn, policy) => self.tell(Input::Policy(id(conn), policy)),
            Event::Default(policy) => {
                let config = Config::default();
                self.engine.set_config(Config {
                    policy: policy.over(config.policy),
                    ..config
                });
                self.tell(Input::Timeout);
            }
            Event::Command(conn, within) => {
                let command = within.map(Duration::from_millis);
                let command = command.map_or(Command::Rearm, |within| Command::Migrate { within });
                self.tell(Input::Command(id(conn), command));
            }
            Event::Drain(port, drained) => self.tell(Input::Drain(port, drained)),
        }
    }

    /// All programs end: in the end nothing is left of them.
    pub(crate) fn end(mut self) {
        for client in [1, 2] {
            self.happen(Event::ClientGone(client));
        }
        assert_eq!(self.engine.connections(self.now).count(), 0);
        self.wait(FORGOTTEN);
        self.mads.clear();
        self.wait(FORGOTTEN);
        assert!(self.mads.is_empty(), "of nobody's: {:?}", self.mads);
        assert_eq!(self.engine.poll_timeout(), None, "nothing to wait for");
    }

    pub(crate) fn established(&self) -> usize {
        let views = self.engine.connections(self.now);
        let states = views.map(|view| view.association.state);
        states
            .filter(|&state| state == AssociationState::Established)
            .count()
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        while let Some(next) = self.engine.poll_timeout().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.tell(Input::Timeout);
            steps += 1;
            assert!(steps < 200_000, "timers without end");
        }
        self.now = end;
        self.tell(Input::Timeout);
    }

    fn report(&mut self, conn: Conn, cause: Cause, snapshot: Snapshot) {
        if let Some(told) = self.told.get_mut(&conn) {
            *told = snapshot;
        }
        self.tell(Input::Report(id(conn), Report { cause, snapshot }));
    }

    fn tell(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.take_orders();
        self.take_mads();
        self.take_queries();
        for _ in 0..ENDLESS {
            match self.engine.poll_trace() {
                Some(trace) => assert!(!trace.to_string().is_empty()),
                None => break,
            }
        }
        assert!(self.engine.poll_trace().is_none(), "traces without end");
        let next = self.engine.poll_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "a timer that does not run out"
        );
        let seen = self.engine.connections(self.now).count();
        assert!(
            seen <= self.told.len(),
            "connections that nobody registered"
        );
        assert_eq!(self.engine.ports().len(), self.ports.len());
    }

    fn take_orders(&mut self) {
        for _ in 0..ENDLESS {
            let Some((id, order)) = self.engine.poll_order() else {
                return remember(&mut self.orders);
            };
            let ConnId { client, conn } = id;
            let conn = Conn { client, conn };
            let told = self.told.get(&conn).expect("an order to who is registered");
            match &order {
                Order::Load(load) => self.check_load(load),
                Order::Migrate(_) => assert_eq!(
                    (told.qp_state, told.migration),
                    (QpState::Rts, MigrationState::Armed)
                ),
                Order::MoveIdle(_) => assert_eq!(
                    (told.qp_state, told.migration),
                    (QpState::Rts, MigrationState::Rearm)
                ),
                // Its primary is the QP's, which in RTS has or gets an alternate.
                Order::Stand(stand) => {
                    assert!(stand.primary.same_way(&told.primary), "{stand:?}");
                    assert!(!stand.allowed || told.qp_state == QpState::Rts, "{stand:?}");
                }
                Order::Query(_) | Order::Refuse(_) | Order::Event(..) | Order::Disconnected => {}
            }
            self.orders.push((conn, order));
        }
        panic!("orders without end");
    }

    /// An alternate is never the primary, and never on a port that is known to be down.
    fn check_load(&self, load: &Load) {
        assert!(!load.alternate.same_way(&load.primary), "{load:?}");
        let port = self.ports.get(&port(load.alternate.port));
        assert!(port.is_some_and(|port| port.active), "{load:?}");
    }

    fn take_mads(&mut self) {
        for _ in 0..ENDLESS {
            let Some(mad) = self.engine.poll_transmit(|_| true) else {
                return remember(&mut self.mads);
            };
            // What a library says may be too wide for its field.
            let bytes = mad.message.encode(0x2d, 1);
            let read = Message::decode(&bytes).expect("what is sent can be read");
            assert_eq!(read.1.encode(0x2d, 1), bytes);
            self.mads.push(mad);
        }
        panic!("messages without end");
    }

    fn take_queries(&mut self) {
        for _ in 0..ENDLESS {
            let Some(query) = self.engine.poll_query() else {
                return remember(&mut self.queries);
            };
            self.queries.push(query);
        }
        panic!("questions without end");
    }

    fn obey(&mut self, pick: Pick) {
        let Some(&(conn, order)) = picked(&self.orders, pick) else {
            return;
        };
        let Some(&told) = self.told.get(&conn) else {
            return;
        };
        let (cause, snapshot) = match order {
            Order::Load(load) => {
                let token = load.token;
                let migration = match pick % 3 {
                    0 => MigrationState::Rearm,
                    _ => MigrationState::Armed,
                };
                let alternate = Some(load.alternate);
                (
                    Cause::Done { token },
                    Snapshot {
                        migration,
                        alternate,
                        ..told
                    },
                )
            }
            Order::Migrate(migrate) => {
                let (token, primary) = (migrate.token, told.alternate.unwrap_or(told.primary));
                let migration = MigrationState::Migrated;
                let alternate = None;
                (
                    Cause::Done { token },
                    Snapshot {
                        migration,
                        primary,
                        alternate,
                        ..told
                    },
                )
            }
            Order::MoveIdle(migrate) => {
                let primary = told.alternate.unwrap_or(told.primary);
                let moved = Snapshot { primary, ..told };
                let token = migrate.token;
                (Cause::Done { token }, moved)
            }
            Order::Stand(stand) if stand.allowed => {
                let primary = told.alternate.unwrap_or(told.primary);
                let (migration, alternate) = (MigrationState::Migrated, None);
                let moved = Snapshot {
                    migration,
                    primary,
                    alternate,
                    ..told
                };
                (Cause::StandingOrder, moved)
            }
            Order::Query(token) => (Cause::Query { token }, told),
            _ => (Cause::Changed, told),
        };
        self.report(conn, cause, snapshot);
    }

    fn answer(&mut self, pick: Pick) {
        let Some(sent) = picked(&self.mads, pick).cloned() else {
            return;
        };
        let peer_id = 0x7000 + (pick % 4) as u32;
        let answer = match sent.message {
            Message::Req(req) => Some(accept(&req, peer_id)),
            Message::Rep(rep) => Some(
                Rtu {
                    local_comm_id: rep.remote_comm_id,
                    remote_comm_id: rep.local_comm_id,
                    ..Rtu::default()
                }
                .into(),
            ),
            Message::Lap(lap) => Some(
                Apr {
                    local_comm_id: lap.remote_comm_id,
                    remote_comm_id: lap.local_comm_id,
                    ar_status: (pick % 16 / 12) as u8,
                    private_data: state(pick).encode(),
                    ..Apr::default()
                }
                .into(),
            ),
            Message::Sap(sap) => Some(
                Spr {
                    local_comm_id: sap.remote_comm_id,
                    remote_comm_id: sap.local_comm_id,
                    sp_status: (pick % 8) as u8,
                    private_data: state(pick).encode(),
                    ..Spr::default()
                }
                .into(),
            ),
            Message::Dreq(dreq) => Some(
                Drep {
                    local_comm_id: dreq.remote_comm_id,
                    remote_comm_id: dreq.local_comm_id,
                    ..Drep::default()
                }
                .into(),
            ),
            _ => None,
        };
        if let Some(message) = answer {
            let source = source(sent.port, sent.lid, sent.transaction_id);
            self.tell(Input::Mad(source, message));
        }
    }

    fn propose(&mut self, pick: Pick, (from, to): (u8, u8)) {
        let Some((ours, theirs)) = self.ids(pick) else {
            return;
        };
        let alternate = PathFields {
            local_port_lid: far(to).lid,
            remote_port_lid: near(from).lid,
            local_port_gid: far(to).gid,
            remote_port_gid: near(from).gid,
            packet_rate: 7,
            subnet_local: true,
            local_ack_timeout: 14,
            ..PathFields::default()
        };
        let lap = Lap {
            local_comm_id: theirs,
            remote_comm_id: ours,
            alternate,
            private_data: state(pick).encode(),
            ..Lap::default()
        };
        self.mad((1, 1), lap.into());
    }

    /// The IDs in a message of the engine's: its own and the peer's.
    fn ids(&self, pick: Pick) -> Option<(u32, u32)> {
        let sent = picked(&self.mads, pick)?;
        let mad = sent.message.encode(0x2d, 0);
        let id = |at: usize| u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]);
        Some((id(24), id(28)))
    }

    fn any_mad(&mut self, mut mad: Vec<u8>, known: Option<Pick>, from: (u8, u8)) {
        if let Some((ours, theirs)) = known.and_then(|pick| self.ids(pick)) {
            mad[24..28].copy_from_slice(&theirs.to_be_bytes());
            mad[28..32].copy_from_slice(&ours.to_be_bytes());
        }
        let (_, message) = Message::decode(&mad).expect("a CM message");
        self.mad(from, message);
    }

    fn mad(&mut self, (by, from): (u8, u8), message: Message) {
        let source = source(port(by), far(from).lid, 5);
        self.tell(Input::Mad(source, message));
    }

    fn paths(&mut self, pick: Pick, result: Result<Vec<(u8, u8)>, statemachine::QueryError>) {
        let asked = self.queries.iter().filter_map(|query| match query {
            Query::Paths(asked) => Some(asked.query),
            Query::Assess(_) | Query::Withdraw(_) => None,
        });
        let asked: Vec<u32> = asked.collect();
        let Some(&query) = picked(&asked, pick) else {
            return;
        };
        let record = |(from, to): (u8, u8)| {
            let path = path(from, to);
            PathRecord {
                dgid: path.dgid,
                sgid: path.sgid,
                dlid: path.dlid,
                slid: path.slid,
                reversible: true,
                pkey: path.pkey,
                mtu: path.mtu,
                rate: path.rate,
                packet_life_time: 10,
                ..PathRecord::default()
            }
        };
        self.tell(Input::Paths {
            query,
            result: result.map(|pairs| pairs.into_iter().map(record).collect()),
            origin: Some(Origin::Sa),
        });
    }

    fn assessed(&mut self, pick: Pick, all: &[Option<(u8, u8)>]) {
        let asked = self.queries.iter().filter_map(|query| match query {
            Query::Assess(asked) => Some(asked.query),
            Query::Paths(_) | Query::Withdraw(_) => None,
        });
        let asked: Vec<u32> = asked.collect();
        let query = picked(&asked, pick).copied().unwrap_or(pick as u32);
        let overlap = |(switches, links)| Overlap { switches, links };
        let overlaps = all.iter().map(|known| known.map(overlap)).collect();
        self.tell(Input::Assessed { query, overlaps });
    }
}

fn remember<T>(all: &mut Vec<T>) {
    all.drain(..all.len().saturating_sub(REMEMBERED));
}

/// `usize::MAX`: the last one.
fn picked<T>(all: &[T], pick: Pick) -> Option<&T> {
    match pick {
        Pick::MAX => all.last(),
        _ => all.get(pick.checked_rem(all.len())?),
    }
}

fn id(conn: Conn) -> ConnId {
    let Conn { client, conn } = conn;
    ConnId { client, conn }
}

fn qpn(conn: Conn) -> Qpn {
    Qpn(0x100 + 0x10 * conn.client + conn.conn)
}

fn snapshot(qp: &Qp) -> Snapshot {
    Snapshot {
        qp_state: qp.state,
        migration: qp.migration,
        primary: qp.primary,
        alternate: qp.alternate,
    }
}

fn notice(kind: u8, of: u8) -> Notice {
    match kind {
        0 => Notice::InService(far(of).gid),
        1 => Notice::OutOfService(far(of).gid),
        2 => Notice::LinkState,
        3 => Notice::PortChange(far(of).lid),
        _ => Notice::OutOfService(near(of).gid),
    }
}

fn source(port: PortId, lid: Lid, transaction_id: u32) -> MadSource {
    MadSource {
        port,
        lid,
        qpn: 1,
        sl: 0,
        path_bits: 0,
        // Now and then another partition.
        pkey: PKey(0xffff - u16::from(transaction_id % 7 == 6)),
        transaction_id,
    }
}

/// The peer on its first port, now and then with one port less, or on the second.
fn state(pick: Pick) -> State {
    let port = |number: u8| PeerPort {
        gid: far(number).gid,
        lid: far(number).lid,
        lmc: 0,
        up: pick % 5 != usize::from(number),
        drained: pick % 3 == usize::from(number),
    };
    let on = if pick.is_multiple_of(7) { 2 } else { 1 };
    let migrations = [
        MigrationState::Migrated,
        MigrationState::Rearm,
        MigrationState::Armed,
    ];
    let movements = [Movement::None, Movement::Leaves, Movement::Left];
    State {
        sequence: pick as u32 % 0x1_0000,
        primary: PrimaryPath {
            port: on,
            local: far(on).lid,
            remote: near(on).lid,
        },
        // Now and then not told, or of no port.
        place: (pick / 5 % 4) as u8,
        ports: Ports::new([port(1), port(2)]),
        migration: migrations[pick % 3],
        movement: movements[pick / 3 % 3],
        moves_idle: pick / 9 % 2 == 1,
    }
}

/// The peer's REQ for a connection.
fn request(conn: Conn, pick: Pick) -> Req {
    let data = ReqData {
        peer_qpn: qpn(conn),
        state: state(pick),
    };
    Req {
        local_comm_id: 0x7100 + (pick % 4) as u32,
        service_id: SERVICE_ID,
        local_qpn: Qpn(qpn(conn).0 + 0x1000),
        partition_key: PKey::DEFAULT_FULL,
        primary: PathFields {
            local_port_lid: far(1).lid,
            remote_port_lid: near(1).lid,
            local_port_gid: far(1).gid,
            remote_port_gid: near(1).gid,
            ..PathFields::default()
        },
        sap_supported: true,
        private_data: data.encode(),
        ..Req::default()
    }
}

/// The peer's REP.
fn accept(req: &Req, peer_id: u32) -> Message {
    let data = RepData {
        state: state(3),
        refusal: None,
    };
    let rep = Rep {
        local_comm_id: peer_id,
        remote_comm_id: req.local_comm_id,
        private_data: data.encode(),
        ..Rep::default()
    };
    rep.into()
}
