// SPDX-License-Identifier: MIT OR Apache-2.0
//! One event and very many connections: who acts first, and how much is in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use cm_msgs::cm::Message;
use cm_msgs::control::{
    Cause, MigrationState, PolicyOverride, QpState, Register, Report, Role, Snapshot,
};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use statemachine::view::{AssociationState, Protection, Transition};
use statemachine::{
    Config, ConnId, ConnectionView, Engine, Input, Order, Payer, PortId, PortStatus, Query, Random,
    Time,
};

const GUID: Guid = Guid(0x1000);
const PEER: Guid = Guid(0x2000);

fn port(port: u8) -> PortId {
    PortId::new(GUID, port)
}

fn gid(guid: Guid, port: u8) -> Gid {
    Gid::new(0xfe80 << 48, Guid(guid.0 + u64::from(port)))
}

fn status(number: u8, active: bool) -> PortStatus {
    PortStatus {
        active,
        lid: Lid(number.into()),
        lmc: 0,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
        gid: gid(GUID, number),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    }
}

fn path(port: u8) -> Path {
    Path {
        port,
        mtu: 4,
        slid: Lid(port.into()),
        dlid: Lid(u16::from(port) + 10),
        pkey: PKey::DEFAULT_FULL,
        sgid: gid(GUID, port),
        dgid: gid(PEER, port),
        ..Path::default()
    }
}

fn id(conn: u32) -> ConnId {
    ConnId { client: 1, conn }
}

/// A host without a peer: what it asks, nobody answers.
struct Lone {
    engine: Engine,
    now: Time,
    orders: Vec<(ConnId, Order)>,
    queries: Vec<Query>,
    /// Requests that left, with the connection's name for itself, and have no answer.
    requests: BTreeSet<(&'static str, u32)>,
}

impl Lone {
    fn new() -> Self {
        let config = Config {
            connection_limit: 100_000,
            verify: Duration::ZERO,
            ..Config::default()
        };
        let mut lone = Self {
            engine: Engine::new(config, Random::new([7; 32])),
            now: Time(1_000_000),
            orders: Vec::new(),
            queries: Vec::new(),
            requests: BTreeSet::new(),
        };
        for number in [1, 2] {
            lone.tell(Input::Port(port(number), Some(status(number, true))));
        }
        lone
    }

    fn tell(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(order) = self.engine.poll_order() {
            self.orders.push(order);
        }
        while let Some(mad) = self.engine.poll_transmit(|_| true) {
            let comm_id = match &mad.message {
                Message::Req(req) => req.local_comm_id,
                Message::Lap(lap) => lap.local_comm_id,
                Message::Dreq(dreq) => dreq.local_comm_id,
                other => panic!("{} to nobody", other.name()),
            };
            self.requests.insert((mad.message.name(), comm_id));
        }
        while let Some(query) = self.engine.poll_query() {
            self.queries.push(query);
        }
        while self.engine.poll_trace().is_some() {}
    }

    /// Acts until nothing is left to do at once.
    fn settle(&mut self) {
        while self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.tell(Input::Timeout);
        }
    }

    /// Lets so much time pass.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.engine.poll_timeout().filter(|&next| next < end) {
            self.now = next.max(self.now);
            self.tell(Input::Timeout);
        }
    }

    /// The owner of an armed queue pair migrates it.
    fn lose_alternate(&mut self, conn: u32) {
        let snapshot = Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: path(1),
            alternate: None,
        };
        let cause = Cause::Changed;
        self.tell(Input::Report(id(conn), Report { cause, snapshot }));
    }

    fn register(&mut self, conn: u32, role: Role, primary: u8, alternate: Option<u8>) {
        let register = Register {
            role,
            opted_in: false,
            node_guid: GUID,
            qpn: Qpn(conn + 100),
            peer_qpn: Qpn(conn + 200_000),
            policy: PolicyOverride::default(),
            snapshot: Snapshot {
                qp_state: QpState::Rts,
                migration: match alternate {
                    Some(_) => MigrationState::Armed,
                    None => MigrationState::Migrated,
                },
                primary: path(primary),
                alternate: alternate.map(path),
            },
        };
        self.tell(Input::Register(id(conn), Payer(1), register));
    }
}

#[test]
fn the_first_migration_is_ordered_before_the_second_connection_is_looked_at() {
    let mut lone = Lone::new();
    for conn in 0..1_000 {
        lone.register(conn, Role::Passive, 1, Some(2));
    }
    // That they may do nothing by themselves.
    lone.orders.clear();
    let migrating = |lone: &Lone| {
        let views = lone.engine.connections(lone.now);
        let is = |protection| protection == Protection::Migrating;
        views.filter(|view| is(view.protection)).count()
    };
    lone.engine
        .handle(lone.now, Input::Port(port(1), Some(status(1, false))));
    assert_eq!(migrating(&lone), 0, "an event only marks");
    for ordered in 1..=1_000 {
        let (conn, order) = lone.engine.poll_order().expect("an order for each");
        assert!(matches!(order, Order::Migrate(_)), "{order:?}");
        assert_eq!(conn, id(ordered as u32 - 1));
        assert_eq!(
            migrating(&lone),
            ordered,
            "each is looked at after the one before"
        );
    }
    lone.settle();
    assert!(lone.orders.is_empty(), "and each is ordered once");
}

#[test]
fn a_port_that_is_back_before_its_connections_are_looked_at_moves_none() {
    let mut lone = Lone::new();
    for conn in 0..1_000 {
        lone.register(conn, Role::Passive, 1, Some(2));
    }
    // That they may do nothing by themselves.
    lone.orders.clear();
    let mut flap = |active| {
        let status = Some(status(1, active));
        lone.engine.handle(lone.now, Input::Port(port(1), status));
    };
    flap(false);
    flap(true);
    lone.settle();
    assert_eq!(lone.orders, []);
    let armed = |protection| protection == Protection::Armed;
    let mut views = lone.engine.connections(lone.now);
    assert!(views.all(|view| armed(view.protection)));
}

#[test]
fn of_a_thousand_first_requests_44_are_in_flight_and_silent_peers_give_way() {
    let mut lone = Lone::new();
    for conn in 0..1_000 {
        lone.register(conn, Role::Active, 1, None);
        lone.settle();
    }
    let opened = lone.requests.len();
    assert_eq!(
        opened, 44,
        "one REQ each, and no more than there is room for"
    );
    // Nobody answers: those who are silent give way, and everybody's first REQ goes out.
    lone.run(Duration::from_secs(30));
    let sent = lone.requests.len();
    assert!(sent >= 1_000, "REQs of {sent} connections");
}

/// Any user can arm a queue pair of his own, and undo it.
#[test]
fn connections_that_were_armed_without_their_peer_come_before_nobody() {
    let mut lone = Lone::new();
    for conn in 0..200 {
        lone.register(conn, Role::Active, 1, Some(2));
        let armed = lone.engine.connections_in(lone.now, id(conn)..);
        let rearms = armed.map(|view| view.counters.rearms).next();
        assert_eq!(rearms, Some(1));
        lone.lose_alternate(conn);
    }
    // What has left stays charged to the class that it left in.
    let sent = lone.requests.len();
    assert!(sent <= 64, "REQs of {sent} connections, without an answer");
    // Those that wait are in the class that they are in now, and there is room for them: silent peers give way.
    lone.run(Duration::from_secs(2));
    let sent = lone.requests.len();
    assert!(sent >= 200, "REQs of {sent} connections");
}

/// There is no room for more requests of those that are armed. Each class always has room for a few of its own.
#[test]
fn one_that_loses_its_alternate_while_it_waits_with_its_request_comes_before_those_that_are_armed()
{
    let mut lone = Lone::new();
    for conn in 0..50 {
        lone.register(conn, Role::Active, 1, Some(2));
        lone.settle();
    }
    let sent = lone.requests.len();
    assert!(sent < 50, "some wait");
    lone.lose_alternate(49);
    lone.settle();
    assert_eq!(lone.requests.len(), sent + 1);
}

/// Packets to the old LID are lost, and the link is up: nothing else tells.
#[test]
fn a_port_with_another_lid_is_left_before_other_connections_look_at_it() {
    let mut lone = Lone::new();
    for conn in 0..200 {
        lone.register(conn, Role::Passive, 2, Some(1));
    }
    for conn in 200..400 {
        lone.register(conn, Role::Passive, 1, Some(2));
    }
    lone.orders.clear();
    let relabelled = PortStatus {
        lid: Lid(8),
        ..status(1, true)
    };
    lone.engine
        .handle(lone.now, Input::Port(port(1), Some(relabelled)));
    for conn in 200..400 {
        let (ordered, order) = lone.engine.poll_order().expect("an order for each");
        assert!(matches!(order, Order::Migrate(_)), "{order:?}");
        assert_eq!(ordered, id(conn));
    }
}

/// Those on the same port that have no alternate come after it, however many they are.
#[test]
fn what_must_migrate_does_not_wait_for_what_cannot() {
    let mut lone = Lone::new();
    for conn in 0..200 {
        lone.register(conn, Role::Passive, 1, None);
    }
    lone.register(200, Role::Passive, 1, Some(2));
    lone.orders.clear();
    lone.engine
        .handle(lone.now, Input::Port(port(1), Some(status(1, false))));
    let (conn, order) = lone.engine.poll_order().expect("an order");
    assert!(matches!(order, Order::Migrate(_)), "{order:?}");
    assert_eq!(conn, id(200));
    let looked = |lone: &Lone| {
        let views = lone.engine.connections(lone.now);
        let lost = |view: &ConnectionView| {
            let mut history = view.history.iter();
            history.any(|past| past.what == Transition::PrimaryLost)
        };
        views.filter(lost).count()
    };
    assert_eq!(looked(&lone), 0);
    lone.settle();
    assert_eq!(looked(&lone), 200);
}

/// After a pause between its REQs it asks again with every event.
#[test]
fn of_an_event_those_without_protection_hear_before_those_that_are_armed() {
    let mut lone = Lone::new();
    lone.register(0, Role::Active, 1, None);
    let is_pausing = |lone: &Lone| {
        let mut views = lone.engine.connections(lone.now);
        views.any(|view| view.association.state == AssociationState::Pausing)
    };
    for _ in 0..200 {
        if is_pausing(&lone) {
            break;
        }
        lone.now = lone.engine.poll_timeout().expect("a timer").max(lone.now);
        lone.tell(Input::Timeout);
    }
    assert!(is_pausing(&lone));
    for conn in 1..=200 {
        lone.register(conn, Role::Passive, 1, Some(2));
    }
    lone.settle();
    lone.requests.clear();
    lone.tell(Input::Port(port(3), Some(status(3, true))));
    assert_eq!(lone.requests.len(), 1, "after no more than the first looks");
}
