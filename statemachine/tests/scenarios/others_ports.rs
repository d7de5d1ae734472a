// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that names a port of the victim's own, or of a third host, as its own. Here the other host of the pair is
//! the third host: its connection with the victim is honest. The liar's are the second connections.

use cm_msgs::association::{PeerPort, Ports, PrimaryPath, RepData, ReqData, State};
use cm_msgs::cm::{self, ApStatus, Lap, PathFields, Rep, Req, Rtu, Sap, SpStatus};
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::trace::What;
use statemachine::view::Grade;
use statemachine::{MadSource, SERVICE_ID};

use super::pair::{ACTIVE, PASSIVE, Pair, PortOf, base_lid, gid};

/// The port that the liar's connection leads to, and the liar's name of the association.
const LIAR: Lid = Lid(0x99);
const LIARS_ID: u32 = 7;

fn liar_gid() -> Gid {
    Gid::new(0xfe80 << 48, Guid(0x666))
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

/// A port of the pair's hosts as the liar names it.
fn named(of: PortOf) -> PeerPort {
    port(gid(of), base_lid(of))
}

/// What the liar says of itself: this is its second port.
fn state(victim: usize, second: PeerPort) -> State {
    State {
        sequence: 1,
        primary: PrimaryPath {
            port: 1,
            local: LIAR,
            remote: base_lid((victim, 1)),
        },
        place: 1,
        ports: Ports::new([port(liar_gid(), LIAR), second]),
        ..State::default()
    }
}

fn source(pair: &Pair, victim: usize, transaction_id: u32) -> MadSource {
    MadSource {
        port: pair.hosts[victim].port_id(1),
        lid: LIAR,
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id,
    }
}

/// Two hosts with a connection that is armed if it is `honest`, and a second one at the victim that leads to the liar.
fn pair(seed: u64, victim: usize, honest: bool) -> Pair {
    let mut pair = Pair::with(seed, 0, 2);
    let primary = &mut pair.hosts[victim].qps[1].primary;
    (primary.dlid, primary.dgid) = (LIAR, liar_gid());
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
    }
    if honest {
        begin_honest(&mut pair);
    }
    pair
}

fn begin_honest(pair: &mut Pair) {
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 0..1);
    }
    pair.set_traffic(true);
    pair.run(200);
    // Nobody answers the second one's packets.
    pair.set_traffic(false);
    assert!(pair.qp(ACTIVE).is_armed() && pair.qp(PASSIVE).is_armed());
}

fn to_liar<T>(pair: &Pair, find: impl Fn(&cm::Message) -> Option<T>) -> Vec<T> {
    let heard = pair.to_strangers.iter();
    let heard = heard.filter(|(lid, _)| *lid == LIAR);
    heard.filter_map(|(_, message)| find(message)).collect()
}

/// The active victim's second connection has its association with the liar, who names this port as its second.
/// Returns the victim's name of it.
fn accepted(pair: &mut Pair, second: PeerPort) -> u32 {
    pair.register_some(ACTIVE, 1..2);
    pair.run(100);
    let reqs = to_liar(pair, |message| match message {
        cm::Message::Req(req) => Some(req.local_comm_id),
        _ => None,
    });
    let remote_comm_id = *reqs.last().expect("a REQ");
    let data = RepData {
        state: state(ACTIVE, second),
        refusal: None,
    };
    let rep = Rep {
        local_comm_id: LIARS_ID,
        remote_comm_id,
        private_data: data.encode(),
        ..Rep::default()
    };
    let from = source(pair, ACTIVE, 1);
    pair.forge(ACTIVE, from, rep.into());
    pair.run(2_000);
    remote_comm_id
}

/// The LIDs that the victim has proposed as alternate's ends for the connection with the liar.
fn proposed(pair: &Pair) -> Vec<Lid> {
    let id = pair.id(ACTIVE, 1);
    let of_liar = pair.traces(ACTIVE).filter(|trace| trace.conn == Some(id));
    let lids = of_liar.filter_map(|trace| match trace.what {
        What::LapSent(path) => Some(path.dlid),
        _ => None,
    });
    lids.collect()
}

#[test]
fn an_active_victim_proposes_no_port_of_its_own_nor_a_third_hosts() {
    for of in [(PASSIVE, 2), (PASSIVE, 1), (ACTIVE, 1), (ACTIVE, 2)] {
        let mut pair = pair(1, ACTIVE, true);
        accepted(&mut pair, named(of));
        assert_eq!(proposed(&pair), [], "{of:?}");
        assert_eq!(pair.hosts[ACTIVE].qps[1].alternate, None, "{of:?}");
    }
}

/// That it is asked for again has its bounds.
#[test]
fn a_path_to_such_a_port_is_asked_for_ever_more_rarely() {
    let mut pair = pair(2, ACTIVE, true);
    accepted(&mut pair, named((PASSIVE, 2)));
    let queries = |pair: &Pair| pair.views(ACTIVE)[1].counters.queries;
    let before = queries(&pair);
    pair.run(120_000);
    let asked = queries(&pair) - before;
    assert!((1..=24).contains(&asked), "{asked} in two minutes");
}

#[test]
fn a_liar_who_names_a_port_first_keeps_its_owner_from_nothing() {
    let mut pair = pair(3, ACTIVE, false);
    accepted(&mut pair, named((PASSIVE, 2)));
    assert!(!proposed(&pair).is_empty(), "nobody else has shown it");
    begin_honest(&mut pair);
    assert_eq!(pair.view(ACTIVE).grade, Some(Grade::Full));
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.dlid, base_lid((PASSIVE, 2)));
}

#[test]
fn a_suggestion_of_such_a_port_is_rejected() {
    for (of, status) in [
        ((PASSIVE, 2), SpStatus::Rejected),
        ((ACTIVE, 2), SpStatus::Rejected),
        ((0, 0), SpStatus::Success),
    ] {
        let mut pair = pair(4, ACTIVE, true);
        let second = match of {
            (0, 0) => port(liar_gid(), LIAR),
            of => named(of),
        };
        let ours = accepted(&mut pair, port(liar_gid(), LIAR));
        let sap = Sap {
            local_comm_id: LIARS_ID,
            remote_comm_id: ours,
            alternate_local_port_gid: second.gid,
            alternate_local_port_lid: second.lid,
            private_data: State {
                sequence: 2,
                ..state(ACTIVE, second)
            }
            .encode(),
            ..Sap::default()
        };
        let from = source(&pair, ACTIVE, 9);
        pair.forge(ACTIVE, from, sap.into());
        pair.run(2_000);
        let answers = to_liar(&pair, |message| match message {
            cm::Message::Spr(spr) => Some(SpStatus::from(spr.sp_status)),
            _ => None,
        });
        assert_eq!(answers, [status], "{of:?}");
        assert_eq!(proposed(&pair), [], "{of:?}");
    }
}

/// The liar connects to a passive victim, and proposes an alternate that ends at this port. The answer.
fn proposes(pair: &mut Pair, second: PeerPort, by: u8) -> Vec<ApStatus> {
    proposes_from(pair, second, by, LIAR)
}

/// The same, and the proposal comes from this LID.
fn proposes_from(pair: &mut Pair, second: PeerPort, by: u8, lid: Lid) -> Vec<ApStatus> {
    pair.register_some(PASSIVE, 1..2);
    let fields = |near: PeerPort, far: u8| PathFields {
        local_port_lid: near.lid,
        remote_port_lid: base_lid((PASSIVE, far)),
        local_port_gid: near.gid,
        remote_port_gid: gid((PASSIVE, far)),
        subnet_local: true,
        ..PathFields::default()
    };
    let state = state(PASSIVE, second);
    let req = Req {
        local_comm_id: LIARS_ID,
        service_id: SERVICE_ID,
        local_qpn: pair.hosts[ACTIVE].qpn(1),
        primary: fields(port(liar_gid(), LIAR), 1),
        private_data: ReqData {
            peer_qpn: pair.hosts[PASSIVE].qpn(1),
            state,
        }
        .encode(),
        ..Req::default()
    };
    let from = source(pair, PASSIVE, 1);
    pair.forge(PASSIVE, from, req.into());
    pair.run(100);
    let reps = to_liar(pair, |message| match message {
        cm::Message::Rep(rep) => Some(rep.local_comm_id),
        _ => None,
    });
    let (local_comm_id, remote_comm_id) = (LIARS_ID, *reps.last().expect("a REP"));
    let rtu = Rtu {
        local_comm_id,
        remote_comm_id,
        ..Rtu::default()
    };
    pair.forge(PASSIVE, from, rtu.into());
    let lap = Lap {
        local_comm_id,
        remote_comm_id,
        alternate: fields(second, 2),
        private_data: state.encode(),
        ..Lap::default()
    };
    let from = MadSource {
        port: pair.hosts[PASSIVE].port_id(by),
        lid,
        ..source(pair, PASSIVE, 2)
    };
    pair.forge(PASSIVE, from, lap.into());
    pair.run(100);
    to_liar(pair, |message| match message {
        cm::Message::Apr(apr) => Some(apr.status()),
        _ => None,
    })
}

#[test]
fn a_passive_victim_takes_no_alternate_to_its_own_or_a_third_hosts_port() {
    let own_lid = port(Gid::new(0xfe80 << 48, Guid(0x667)), base_lid((PASSIVE, 2)));
    let third_lid = port(Gid::new(0xfe80 << 48, Guid(0x667)), base_lid((ACTIVE, 2)));
    let own_gid = port(gid((PASSIVE, 2)), Lid(0x9a));
    for second in [
        own_gid,
        named((ACTIVE, 2)),
        named((ACTIVE, 1)),
        third_lid,
        named((PASSIVE, 1)),
        named((PASSIVE, 2)),
        own_lid,
    ] {
        // Whichever port the liar's own leads to.
        for by in [1, 2] {
            let mut pair = pair(5, PASSIVE, true);
            let answers = proposes(&mut pair, second, by);
            assert_eq!(answers, [ApStatus::InvalidGid], "{second:?}");
            assert_eq!(pair.hosts[PASSIVE].qps[1].alternate, None, "{second:?}");
        }
    }
}

/// What one port of the host sends to the other comes from a LID of the host's own. Only what comes in by the alternate's
/// own port proves that its far end is elsewhere.
#[test]
fn a_message_from_a_lid_of_the_hosts_own_does_not_make_that_the_peers() {
    let second = port(Gid::new(0xfe80 << 48, Guid(0x667)), base_lid((PASSIVE, 2)));
    let mut pair = pair(14, PASSIVE, true);
    pair.record("APR");
    proposes_from(&mut pair, second, 1, second.lid);
    let answers = pair
        .recorded()
        .iter()
        .filter_map(|(_, _, message)| match message {
            cm::Message::Apr(apr) => Some(apr.status()),
            _ => None,
        });
    assert_eq!(answers.collect::<Vec<_>>(), [ApStatus::InvalidGid]);
    assert_eq!(pair.hosts[PASSIVE].qps[1].alternate, None);
}

#[test]
fn it_takes_one_to_a_port_that_is_nobodys() {
    let second = port(Gid::new(0xfe80 << 48, Guid(0x667)), Lid(0x9a));
    let mut pair = pair(6, PASSIVE, true);
    assert_eq!(proposes(&mut pair, second, 1), [ApStatus::Success]);
}

/// Two connections between two honest hosts, each on other ports, so that both ends have spoken from all.
fn crossing(seed: u64) -> Pair {
    crossing_after(seed, |pair| {
        pair.begin();
        pair.run(2_000);
        pair.assert_armed();
    })
}

fn crossing_after(seed: u64, begin: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = Pair::with(seed, 0, 2);
    for host in [ACTIVE, PASSIVE] {
        let primary = &mut pair.hosts[host].qps[1].primary;
        primary.port = 2;
        (primary.slid, primary.sgid) = (base_lid((host, 2)), gid((host, 2)));
        (primary.dlid, primary.dgid) = (base_lid((1 - host, 2)), gid((1 - host, 2)));
    }
    begin(&mut pair);
    pair
}

#[test]
fn a_host_that_has_shown_its_ports_keeps_them_while_they_are_down_and_back() {
    for of in [(ACTIVE, 1), (ACTIVE, 2), (PASSIVE, 1), (PASSIVE, 2)] {
        let mut pair = crossing(7);
        for _ in 0..3 {
            pair.pull(of.0, of.1);
            pair.run(3_000);
            pair.plug(of.0, of.1);
            pair.run(5_000);
            pair.assert_armed();
            pair.assert_best_alternates();
        }
    }
}

#[test]
fn and_when_one_has_another_lid() {
    for of in [(ACTIVE, 2), (PASSIVE, 2)] {
        let mut pair = crossing(8);
        pair.relabel(of.0, of.1, Lid(0x70));
        pair.run(5_000);
        pair.assert_armed();
        for view in pair.views(ACTIVE) {
            assert_eq!(view.grade, Some(Grade::Full), "{of:?}");
        }
    }
}

/// The primary's far port gets another LID while the connection has no alternate.
/// Its path still has the old one, which is no port's any more.
#[test]
fn and_when_the_primarys_has_another_lid_and_there_is_no_alternate() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = crossing_after(10, |pair| {
            for end in [PASSIVE, ACTIVE] {
                pair.start(end);
                pair.register_some(end, 1..2);
            }
            pair.run(2_000);
            pair.sa_dead = true;
            for end in [PASSIVE, ACTIVE] {
                pair.register_some(end, 0..1);
            }
            pair.run(1_000);
        });
        pair.relabel(host, 1, Lid(0x70));
        pair.run(1_000);
        pair.sa_dead = false;
        pair.run(40_000);
        for end in [ACTIVE, PASSIVE] {
            let alternate = pair.qp(end).alternate.expect("loaded");
            assert_eq!(alternate.port, 2, "{host}: {end}");
            assert_eq!(alternate.dlid, base_lid((1 - end, 2)), "{host}: {end}");
        }
    }
}

/// A daemon that begins again has not found all of its ports yet when it speaks.
#[test]
fn and_when_it_has_listed_one_of_them_first() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = crossing(9);
        let second = pair.hosts[host].ports[1].clone();
        pair.kill(host);
        pair.start(host);
        let id = pair.hosts[host].port_id(2);
        pair.tell(host, statemachine::Input::Port(id, None));
        pair.run(1_000);
        pair.tell(host, statemachine::Input::Port(id, Some(second)));
        pair.run(10_000);
        pair.assert_armed();
        pair.assert_best_alternates();
    }
}

/// Each LAP that names another service level, or one of two alternates by turns, would be a command of the firmware.
#[test]
fn an_active_peer_has_few_alternates_loaded_in_a_second() {
    let second = port(Gid::new(0xfe80 << 48, Guid(0x667)), Lid(0x9a));
    let mut pair = pair(11, PASSIVE, true);
    assert_eq!(proposes(&mut pair, second, 1), [ApStatus::Success]);
    let reps = to_liar(&pair, |message| match message {
        cm::Message::Rep(rep) => Some(rep.local_comm_id),
        _ => None,
    });
    let remote_comm_id = *reps.last().expect("a REP");
    let mut loads = 0;
    let mut before = pair.hosts[PASSIVE].qps[1].alternate;
    for number in 0..1_000_u32 {
        let lap = Lap {
            local_comm_id: LIARS_ID,
            remote_comm_id,
            alternate: PathFields {
                local_port_lid: second.lid,
                remote_port_lid: base_lid((PASSIVE, 2)),
                local_port_gid: second.gid,
                remote_port_gid: gid((PASSIVE, 2)),
                subnet_local: true,
                sl: (number % 2 + 1) as u8,
                ..PathFields::default()
            },
            private_data: state(PASSIVE, second).encode(),
            ..Lap::default()
        };
        let from = source(&pair, PASSIVE, 3 + number);
        pair.forge(PASSIVE, from, lap.into());
        pair.run(1);
        let now = pair.hosts[PASSIVE].qps[1].alternate;
        loads += usize::from(now != before);
        before = now;
    }
    assert!(
        loads <= 32,
        "{loads} loads in a second by one peer's messages"
    );
}

/// A REQ from the peer's own port ends the pause between REQs to it. Each REQ has a new communication ID, takes a place in
/// the window, and is repeated by other routes.
#[test]
fn a_peer_that_asks_and_rejects_by_turns_is_not_asked_with_every_round_trip() {
    let mut pair = pair(12, ACTIVE, true);
    pair.register_some(ACTIVE, 1..2);
    pair.run(10);
    let reqs = |pair: &Pair| {
        to_liar(pair, |message| match message {
            cm::Message::Req(req) => Some(req.local_comm_id),
            _ => None,
        })
    };
    let before = reqs(&pair).len();
    for number in 0..1_000_u32 {
        let rej = cm::Rej {
            local_comm_id: 0,
            remote_comm_id: *reqs(&pair).last().expect("a REQ"),
            message_rejected: cm::Rejected::Req.into(),
            reason: cm::RejReason::NoResources.into(),
            ..cm::Rej::default()
        };
        let from = source(&pair, ACTIVE, 1 + 2 * number);
        pair.forge(ACTIVE, from, rej.into());
        let req = Req {
            local_comm_id: LIARS_ID + number,
            service_id: SERVICE_ID,
            local_qpn: pair.hosts[PASSIVE].qpn(1),
            primary: PathFields {
                local_port_lid: LIAR,
                remote_port_lid: base_lid((ACTIVE, 1)),
                local_port_gid: liar_gid(),
                remote_port_gid: gid((ACTIVE, 1)),
                subnet_local: true,
                ..PathFields::default()
            },
            private_data: ReqData {
                peer_qpn: pair.hosts[ACTIVE].qpn(1),
                state: state(ACTIVE, port(liar_gid(), LIAR)),
            }
            .encode(),
            ..Req::default()
        };
        let from = source(&pair, ACTIVE, 2 + 2 * number);
        pair.forge(ACTIVE, from, req.into());
        pair.run(1);
    }
    let sent = reqs(&pair).len() - before;
    assert!(sent <= 32, "{sent} REQs in a second to one peer");
}

/// A path to the host's other device, in the same subnet, leads to this host as one to its own device does.
#[test]
fn a_lid_of_the_hosts_other_device_is_its_own_as_well() {
    let own_lid = Lid(0x9a);
    let mut pair = pair(13, PASSIVE, true);
    let other = statemachine::PortStatus {
        lid: own_lid,
        gid: Gid::new(0xfe80 << 48, Guid(0x778)),
        ..pair.hosts[PASSIVE].ports[0].clone()
    };
    let id = statemachine::PortId::new(Guid(u64::MAX), 3);
    pair.tell(PASSIVE, statemachine::Input::Port(id, Some(other)));
    let second = port(Gid::new(0xfe80 << 48, Guid(0x667)), own_lid);
    assert_eq!(proposes(&mut pair, second, 1), [ApStatus::InvalidGid]);
}

/// An SA that is out of date may give a port a LID that is this host's own by now, and a peer may confirm that.
#[test]
fn a_path_that_a_source_leads_to_an_own_lid_is_not_proposed() {
    let mut pair = pair(4, ACTIVE, false);
    let own = base_lid((ACTIVE, 2));
    pair.sa_old_lid = Some(((PASSIVE, 2), own));
    accepted(&mut pair, port(gid((PASSIVE, 2)), own));
    assert_eq!(proposed(&pair), []);
}
