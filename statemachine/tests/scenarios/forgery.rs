// SPDX-License-Identifier: MIT OR Apache-2.0
//! A third host that knows all that can be seen from outside (QPNs, LIDs, GIDs) and forges messages.
//! It cannot send from another port's LID, and it does not hear what is sent to others.

use cm_msgs::association::{self, PeerPort, Ports, PrimaryPath, ReqData, State};
use cm_msgs::cm::{self, Apr, Dreq, Lap, PathFields, Rej, Rep, Req, Rtu, Sap};
use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use statemachine::view::Reason;
use statemachine::{MadSource, SERVICE_ID};

use super::association::assert_open;
use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid, guid};

const FORGER: Lid = Lid(0x99);

fn forger_gid() -> Gid {
    Gid::new(0xfe80_0000_0000_0000, Guid(0x666))
}

fn source(pair: &Pair, host: usize, transaction_id: u32) -> MadSource {
    MadSource {
        port: pair.hosts[host].port_id(1 + (transaction_id % 2) as u8),
        lid: FORGER,
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id,
    }
}

fn port(gid: Gid, lid: Lid) -> PeerPort {
    PeerPort {
        gid,
        lid,
        lmc: 0,
        up: true,
        drained: false,
    }
}

fn fields(path: &Path) -> PathFields {
    PathFields {
        local_port_lid: path.slid,
        remote_port_lid: path.dlid,
        local_port_gid: path.sgid,
        remote_port_gid: path.dgid,
        subnet_local: true,
        ..PathFields::default()
    }
}

/// The peer of `host` as the forger would have it: with the forger's port among its own, the true
/// ones out of service, and moved to the alternate.
fn state(pair: &Pair, host: usize) -> State {
    let peer = pair.qp(1 - host);
    let path = peer.alternate.unwrap_or(peer.primary);
    let dead = |number| PeerPort {
        up: false,
        ..port(gid((1 - host, number)), Lid(0))
    };
    State {
        sequence: 0x7fff_0000,
        primary: PrimaryPath {
            port: path.port,
            local: path.slid,
            remote: path.dlid,
        },
        migration: MigrationState::Migrated,
        ports: Ports::new([port(forger_gid(), FORGER), dead(1), dead(2)]),
        ..State::default()
    }
}

fn req(pair: &Pair, host: usize, local_comm_id: u32) -> Req {
    Req {
        local_comm_id,
        service_id: SERVICE_ID,
        local_ca_guid: guid(1 - host),
        local_qpn: pair.hosts[1 - host].qpn(0),
        primary: fields(&pair.qp(1 - host).primary),
        sap_supported: true,
        private_data: ReqData {
            peer_qpn: pair.hosts[host].qpn(0),
            state: state(pair, host),
        }
        .encode(),
        ..Req::default()
    }
}

/// One of each message, with names that are guessed.
fn messages(pair: &Pair, host: usize, guess: u32) -> Vec<cm::Message> {
    let (local_comm_id, remote_comm_id) = (guess, guess.rotate_left(16) ^ 0x5a5a_5a5a);
    let state = state(pair, host);
    let alternate = PathFields {
        local_port_lid: FORGER,
        remote_port_lid: pair.qp(host).primary.slid,
        local_port_gid: forger_gid(),
        remote_port_gid: pair.qp(host).primary.sgid,
        ..PathFields::default()
    };
    let rep_data = association::RepData {
        state,
        refusal: None,
    };
    vec![
        req(pair, host, guess).into(),
        Rep {
            local_comm_id,
            remote_comm_id,
            private_data: rep_data.encode(),
            ..Rep::default()
        }
        .into(),
        Rtu {
            local_comm_id,
            remote_comm_id,
            ..Rtu::default()
        }
        .into(),
        Lap {
            local_comm_id,
            remote_comm_id,
            alternate,
            private_data: state.encode(),
            ..Lap::default()
        }
        .into(),
        Sap {
            local_comm_id,
            remote_comm_id,
            alternate_local_port_gid: forger_gid(),
            alternate_local_port_lid: FORGER,
            private_data: state.encode(),
            ..Sap::default()
        }
        .into(),
        Apr {
            local_comm_id,
            remote_comm_id,
            private_data: state.encode(),
            ..Apr::default()
        }
        .into(),
        Rej {
            local_comm_id,
            remote_comm_id,
            reason: 6,
            ..Rej::default()
        }
        .into(),
        Dreq {
            local_comm_id,
            remote_comm_id,
            ..Dreq::default()
        }
        .into(),
    ]
}

/// Forges one of each a millisecond for so long.
fn attack(pair: &mut Pair, ms: u32) {
    for number in 0..ms {
        for host in [ACTIVE, PASSIVE] {
            for message in messages(pair, host, 0x1000_0000 + number) {
                let from = source(pair, host, number);
                pair.forge(host, from, message);
            }
        }
        pair.run(1);
    }
}

fn names(pair: &Pair) -> [Option<u32>; 4] {
    let [active, passive] = [ACTIVE, PASSIVE].map(|host| pair.view(host).association);
    [
        active.local_comm_id,
        active.remote_comm_id,
        passive.local_comm_id,
        passive.remote_comm_id,
    ]
}

/// The forger has heard nothing that names an association, and nobody goes by a port of its.
fn assert_heard_nothing(pair: &Pair) {
    let names = names(pair);
    for (lid, message) in &pair.to_strangers {
        assert_eq!(*lid, FORGER);
        let ids = match message {
            cm::Message::Rej(rej) => [rej.local_comm_id, rej.remote_comm_id],
            cm::Message::Drep(drep) => [drep.local_comm_id, drep.remote_comm_id],
            cm::Message::Mra(mra) => [mra.local_comm_id, mra.remote_comm_id],
            other => panic!("{} to the forger", other.name()),
        };
        for id in ids {
            assert!(!names.contains(&Some(id)), "{}", message.name());
        }
    }
    for host in [ACTIVE, PASSIVE] {
        let qp = pair.qp(host);
        let paths = [Some(qp.primary), qp.alternate];
        assert!(paths.into_iter().flatten().all(|path| path.dlid != FORGER));
        let ports = pair.view(host).association.peer_ports;
        assert!(ports.iter().all(|port| port.gid != forger_gid()));
    }
}

#[test]
fn an_open_association_is_not_taken_over() {
    let mut pair = Pair::armed(1);
    let before = names(&pair);
    let paths = [ACTIVE, PASSIVE].map(|host| pair.qp(host).primary);
    let sent = [ACTIVE, PASSIVE].map(|host| pair.hosts[host].sent.clone());
    attack(&mut pair, 1_000);
    assert_eq!(names(&pair), before);
    assert_open(&pair);
    pair.assert_armed();
    let now = [ACTIVE, PASSIVE].map(|host| pair.qp(host).primary);
    assert_eq!(now, paths, "nobody has moved");
    for host in [ACTIVE, PASSIVE] {
        let reps = pair.hosts[host].sent("REP") - sent[host].get("REP").copied().unwrap_or(0);
        assert!(reps <= 2, "{reps} REPs in a second");
        for name in ["LAP", "SAP", "REQ"] {
            let before = sent[host].get(name).copied().unwrap_or(0);
            assert_eq!(pair.hosts[host].sent(name), before, "{name} of host {host}");
        }
    }
    assert_heard_nothing(&pair);
    // And later failures are survived.
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    pair.plug(ACTIVE, 1);
    pair.run(5_000);
    pair.assert_armed();
    attack(&mut pair, 100);
    pair.pull(PASSIVE, 2);
    attack(&mut pair, 2_000);
    pair.plug(PASSIVE, 2);
    pair.run(5_000);
    pair.assert_armed();
    assert_heard_nothing(&pair);
}

#[test]
fn an_association_is_opened_and_armed_under_attack() {
    let mut pair = Pair::running(2);
    attack(&mut pair, 1_000);
    assert_open(&pair);
    pair.assert_armed();
    assert_heard_nothing(&pair);
}

/// The passive application has not registered yet.
fn half_registered(seed: u64, lmc: u8) -> Pair {
    let mut pair = Pair::with(seed, lmc, 1);
    for host in [ACTIVE, PASSIVE] {
        pair.start(host);
    }
    pair.register(ACTIVE);
    pair
}

#[test]
fn a_parked_req_of_the_peer_finds_its_place_among_forged_ones() {
    let mut pair = half_registered(3, 2);
    for number in 0..2_000 {
        let forged = Req {
            local_qpn: Qpn(0x70_0000 + number),
            ..req(&pair, PASSIVE, number + 1)
        };
        // By all four LIDs of its port.
        let from = MadSource {
            lid: Lid(FORGER.0 & !3 | number as u16 & 3),
            ..source(&pair, PASSIVE, number)
        };
        pair.forge(PASSIVE, from, forged.into());
    }
    pair.set_traffic(true);
    pair.run(2_000);
    pair.register(PASSIVE);
    pair.run(500);
    assert_open(&pair);
    pair.assert_armed();
}

/// It can name the very connection of a parked REQ, but not send from where the peer does.
#[test]
fn a_parked_req_is_not_replaced_by_a_forged_one_for_the_same_connection() {
    let mut pair = half_registered(5, 0);
    pair.run(1_000);
    for number in 0..100 {
        let forged = req(&pair, PASSIVE, number + 1);
        let from = source(&pair, PASSIVE, number);
        pair.forge(PASSIVE, from, forged.into());
    }
    pair.set_traffic(true);
    pair.run(1_000);
    pair.register(PASSIVE);
    pair.run(500);
    assert_open(&pair);
    pair.assert_armed();
}

/// Its LID is the peer's, in the subnet of another local port.
#[test]
fn the_peers_lid_in_another_subnet_is_a_stranger() {
    let mut pair = Pair::new(6);
    let second = &mut pair.hosts[PASSIVE].ports[1];
    second.gid = Gid::new(0xfec0_0000_0000_0000, Guid(0x1));
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.run(100);
    let reps = |number, pair: &mut Pair| {
        let before = pair.hosts[PASSIVE].sent("REP");
        for id in 1..=10 {
            let from = MadSource {
                port: pair.hosts[PASSIVE].port_id(number),
                lid: base_lid((ACTIVE, 1)),
                ..source(pair, PASSIVE, id)
            };
            let forged = req(pair, PASSIVE, id);
            pair.forge(PASSIVE, from, forged.into());
        }
        pair.run_us(100);
        pair.hosts[PASSIVE].sent("REP") - before
    };
    assert_eq!(reps(2, &mut pair), 1, "paced, and sent to the peer");
    assert_eq!(reps(1, &mut pair), 10, "from where the QP leads");
}

#[test]
fn registered_first_or_last_the_forged_req_opens_nothing() {
    let mut pair = Pair::new(4);
    pair.start(PASSIVE);
    for number in 0..100 {
        let forged = req(&pair, PASSIVE, number + 1);
        let from = source(&pair, PASSIVE, number);
        pair.forge(PASSIVE, from, forged.into());
    }
    pair.register(PASSIVE);
    pair.run(100);
    let view = pair.view(PASSIVE);
    assert_eq!(
        view.association.state,
        statemachine::view::AssociationState::None
    );
    assert!(view.association.peer_ports.is_empty());
    for (_, message) in &pair.to_strangers {
        let unnamed = matches!(message, cm::Message::Mra(mra) if mra.local_comm_id == 0);
        assert!(unnamed, "{message:?}");
    }
}

/// What the forger heard of a host's second connection.
fn heard_of_second(pair: &Pair, host: usize) -> usize {
    let qpn = pair.hosts[host].qpn(1);
    let of_second = |message: &cm::Message| match message {
        cm::Message::Req(req) => req.local_qpn == qpn,
        cm::Message::Rep(rep) => rep.local_qpn == qpn,
        _ => false,
    };
    let heard = pair.to_strangers.iter();
    heard.filter(|(_, message)| of_second(message)).count()
}

#[test]
fn what_a_forger_says_of_ports_is_for_no_other_connection() {
    let mut pair = Pair::with(8, 0, 2);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..1);
    }
    pair.run(10);
    attack(&mut pair, 500);
    pair.pull(PASSIVE, 1);
    pair.run(100);
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 1..2);
    }
    attack(&mut pair, 5_000);
    assert_heard_nothing(&pair);
    for host in [ACTIVE, PASSIVE] {
        let view = pair.views(host).into_iter().nth(1).expect("registered");
        let ports = view.association.peer_ports;
        assert!(ports.iter().all(|port| port.lid != FORGER), "{host}");
        assert_eq!(ports.len(), 2, "{host}: the true ones are known");
    }
}

/// A local program helps the forger: its own connection leads to the peer's port, and by its alternate to
/// the forger, who so hears its communication ID and answers in the peer's place.
#[test]
fn nor_is_what_it_says_where_a_helpers_own_connection_leads() {
    let mut pair = Pair::with(9, 0, 2);
    let helpers = &mut pair.hosts[ACTIVE].qps[0];
    helpers.alternate = Some(Path {
        port: 2,
        slid: base_lid((ACTIVE, 2)),
        sgid: gid((ACTIVE, 2)),
        dlid: FORGER,
        dgid: forger_gid(),
        ..helpers.primary
    });
    helpers.migration = MigrationState::Rearm;
    pair.start(ACTIVE);
    pair.register_some(ACTIVE, 0..1);
    pair.run(1_000);
    let asked = pair
        .to_strangers
        .iter()
        .find_map(|(_, message)| match message {
            cm::Message::Req(req) => Some(req.local_comm_id),
            _ => None,
        });
    let rep = Rep {
        local_comm_id: 7,
        remote_comm_id: asked.expect("its alternate leads there"),
        private_data: association::RepData {
            state: State {
                ports: Ports::new([
                    port(gid((PASSIVE, 1)), base_lid((PASSIVE, 1))),
                    port(forger_gid(), FORGER),
                ]),
                ..state(&pair, ACTIVE)
            },
            refusal: None,
        }
        .encode(),
        ..Rep::default()
    };
    pair.forge(ACTIVE, source(&pair, ACTIVE, 1), rep.into());
    let view = pair.view(ACTIVE).association;
    assert_eq!(
        view.remote_comm_id,
        Some(7),
        "the helper has what it wanted"
    );
    // Another's connection to the same port of the peer's, which does not answer.
    pair.pull(PASSIVE, 1);
    pair.register_some(ACTIVE, 1..2);
    pair.run(30_000);
    assert!(pair.hosts[ACTIVE].sent("REQ") > 5);
    assert_eq!(heard_of_second(&pair, ACTIVE), 0);
}

/// A REQ that is parked until its application registers is withdrawn by its sender only.
#[test]
fn a_parked_req_is_not_withdrawn_by_others_nor_under_another_name() {
    let mut pair = Pair::new(11);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.run(100);
    assert_eq!(pair.hosts[PASSIVE].sent("MRA"), 1);
    let name = pair.view(ACTIVE).association.local_comm_id;
    let name = name.expect("it has sent a REQ");
    let sender = MadSource {
        port: pair.hosts[PASSIVE].port_id(1),
        lid: base_lid((ACTIVE, 1)),
        ..source(&pair, PASSIVE, 7)
    };
    let rej = |local_comm_id| Rej {
        local_comm_id,
        ..Rej::default()
    };
    pair.forge(PASSIVE, source(&pair, PASSIVE, 7), rej(name).into());
    pair.forge(PASSIVE, sender, rej(name ^ 1).into());
    pair.register(PASSIVE);
    pair.run(1);
    assert_eq!(pair.hosts[PASSIVE].sent("REP"), 1, "to the parked REQ");
}

#[test]
fn strangers_reqs_leave_room_for_those_of_peers() {
    for lmc in [0, 2] {
        let mut pair = Pair::with(12, lmc, 2);
        pair.config.parked_limit = 16;
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register_some(host, 0..1);
        }
        pair.set_traffic(true);
        pair.run(2_000);
        for number in 0..500_u16 {
            let stranger = MadSource {
                lid: Lid(0x1000 + 8 * number),
                ..source(&pair, PASSIVE, 2)
            };
            let data = ReqData {
                peer_qpn: Qpn(0x70_0000 + u32::from(number)),
                state: state(&pair, PASSIVE),
            };
            let req = Req {
                private_data: data.encode(),
                ..req(&pair, PASSIVE, 0x100 + u32::from(number))
            };
            pair.forge(PASSIVE, stranger, req.into());
        }
        let overflow = |pair: &Pair| {
            let engine = pair.hosts[PASSIVE].engine.as_ref().expect("it runs");
            engine.counters().parked_overflow
        };
        let before = overflow(&pair);
        assert!(before > 400, "{before}");
        pair.register_some(ACTIVE, 1..2);
        pair.run(200);
        assert_eq!(overflow(&pair), before, "LMC {lmc}");
        pair.register_some(PASSIVE, 1..2);
        pair.run(2_000);
        assert!(pair.is_armed());
    }
}

/// A connection that is not managed has no association that could limit its answers.
#[test]
fn refusals_to_strangers_are_limited() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(13);
        for port in &mut pair.hosts[host].ports {
            port.apm = false;
        }
        pair.start(host);
        pair.register(host);
        for number in 0..1_000 {
            let forged = req(&pair, host, 0x100 + number);
            pair.forge(host, source(&pair, host, number), forged.into());
        }
        assert_eq!(pair.hosts[host].sent("REP"), 16);
        // The peer is answered all the same.
        pair.start(1 - host);
        pair.register(1 - host);
        pair.run(70_000);
        let reason = pair.view(1 - host).reason;
        let told = association::Refusal::DeviceCannot;
        assert_eq!(reason, Some(Reason::PeerRefused(Some(told))));
    }
}
