// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side's REQ: what comes of it when it is kept, refused, denied, or never answered.

use cm_msgs::cm::{FailoverAccepted, Message, Mra, Rej, RejReason, Rejected, Rep, Sap};
use cm_msgs::control::{MigrationState, Role};
use statemachine::view::{AssociationState, Reason};
use statemachine::{Command, MadSource};

use super::association::assert_open;
use super::pair::{ACTIVE, Cable, PASSIVE, Pair, base_lid, guid};

/// Only the active side runs, and asks.
fn asking(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.run(10);
    pair
}

/// From the peer's first port.
fn from_peer(pair: &Pair) -> MadSource {
    MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid: base_lid((PASSIVE, 1)),
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: cm_msgs::PKey::DEFAULT_FULL,
        transaction_id: 1,
    }
}

fn reqs(pair: &Pair) -> usize {
    pair.hosts[ACTIVE].sent("REQ")
}

fn state(pair: &Pair) -> AssociationState {
    pair.view(ACTIVE).association.state
}

/// Our name in the REQ that is under way.
fn comm_id(pair: &Pair) -> u32 {
    pair.view(ACTIVE).association.local_comm_id.expect("asking")
}

fn rej(remote_comm_id: u32, rejected: Rejected, reason: RejReason) -> Rej {
    Rej {
        remote_comm_id,
        message_rejected: rejected.into(),
        reason: reason.into(),
        ..Rej::default()
    }
}

#[test]
fn a_req_says_what_iba_asks_for() {
    let mut pair = Pair::new(1);
    pair.record("REQ");
    pair.begin();
    pair.run(10);
    let Message::Req(req) = &pair.recorded()[0].2 else {
        panic!("recorded");
    };
    for code in [
        req.remote_cm_response_timeout,
        req.local_cm_response_timeout,
    ] {
        // IBA 12.7.12: 4.096 us, doubled so often. The second copy goes out after 50 ms.
        let told = 4.096e-6 * f64::from(1_u32 << code);
        assert!((0.05..0.1).contains(&told), "{told} s");
    }
    assert_eq!(
        usize::from(req.max_cm_retries),
        usize::from(pair.config.tries)
    );
    let primary = &pair.qp(ACTIVE).primary;
    assert_eq!(req.partition_key, primary.pkey);
    assert_eq!(req.path_packet_payload_mtu, primary.mtu);
    assert!(req.sap_supported);
}

#[test]
fn a_rep_names_the_end_that_it_is_of() {
    let mut pair = Pair::new(14);
    pair.record("REP");
    pair.begin();
    pair.run(10);
    let Message::Rep(rep) = &pair.recorded()[0].2 else {
        panic!("recorded");
    };
    assert_eq!(rep.local_qpn, pair.hosts[PASSIVE].qpn(0));
    assert_eq!(rep.local_ca_guid, guid(PASSIVE));
}

#[test]
fn each_association_is_counted_once() {
    let mut pair = Pair::armed(2);
    let count = |pair: &Pair, host: usize| {
        let engine = pair.hosts[host].engine.as_ref().expect("it runs");
        engine.counters().associations
    };
    assert_eq!([count(&pair, ACTIVE), count(&pair, PASSIVE)], [1, 1]);
    pair.kill(PASSIVE);
    pair.start(PASSIVE);
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    assert_open(&pair);
    assert_eq!([count(&pair, ACTIVE), count(&pair, PASSIVE)], [2, 1]);
}

/// It was looked for all the time, and its peer said that it is there.
#[test]
fn a_peer_that_keeps_the_req_is_never_taken_for_one_without_a_daemon() {
    let mut pair = asking(3);
    pair.start(PASSIVE);
    pair.run(100);
    for _ in 0..3_000 {
        let view = pair.view(ACTIVE);
        assert_ne!(view.association.state, AssociationState::Pausing);
        assert_ne!(view.reason, Some(Reason::PeerNoApmd));
        pair.run(100);
    }
    assert_eq!(state(&pair), AssociationState::Parked);
}

/// How long the peer's program took to register is not how long its daemon takes to answer.
#[test]
fn the_wait_for_the_peers_program_is_no_round_trip() {
    let mut pair = Pair::new(4);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
    }
    pair.register(ACTIVE);
    pair.run(1_500);
    assert_eq!(reqs(&pair), 1);
    assert_eq!(state(&pair), AssociationState::Parked);
    pair.lose.insert("LAP", 1);
    pair.set_traffic(true);
    pair.register(PASSIVE);
    assert!(
        pair.run_until_armed(1_000) < 250,
        "a lost LAP is repeated soon"
    );
}

#[test]
fn a_peer_that_refuses_is_asked_once_a_minute() {
    let mut pair = Pair::new(5);
    for port in &mut pair.hosts[PASSIVE].ports {
        port.apm = false;
    }
    pair.begin();
    pair.run(45_000);
    assert_eq!(state(&pair), AssociationState::Refused);
    assert_eq!(reqs(&pair), 1);
    pair.run(600_000);
    assert!((8..=14).contains(&reqs(&pair)), "{}", reqs(&pair));
}

/// No path is ever agreed on, and the peer knows nothing of what it has opened.
#[test]
fn a_peer_that_denies_what_came_to_nothing_is_asked_ever_more_rarely() {
    let mut pair = Pair::new(6);
    pair.sa_dead = true;
    pair.begin();
    pair.run(1_000);
    assert_open(&pair);
    let before = reqs(&pair);
    for _ in 0..1_500 {
        pair.run(200);
        let association = pair.view(ACTIVE).association;
        if association.state == AssociationState::Established {
            let denies = Rej {
                local_comm_id: association.remote_comm_id.expect("open"),
                ..rej(
                    comm_id(&pair),
                    Rejected::NoMessage,
                    RejReason::InvalidCommId,
                )
            };
            let from = from_peer(&pair);
            pair.forge(ACTIVE, from, denies.into());
        }
    }
    // In 300 s: at once, and after 1, 2, 4, 8, 16, 32, 60, 60 and 60 s.
    let asked = reqs(&pair) - before;
    assert!((7..=13).contains(&asked), "{asked}");
}

#[test]
fn a_rejected_req_says_why_and_is_not_repeated_at_once() {
    let mut pair = asking(7);
    let reason = RejReason::InvalidClassVersion;
    let rejects = rej(comm_id(&pair), Rejected::Req, reason);
    let from = from_peer(&pair);
    pair.forge(ACTIVE, from, rejects.into());
    let view = pair.view(ACTIVE);
    assert_eq!(view.role, Role::Active);
    assert_eq!(view.reason, Some(Reason::Rejected(reason.into())));
    assert_eq!(view.association.state, AssociationState::Pausing);
    let before = reqs(&pair);
    pair.run(700);
    assert_eq!(reqs(&pair), before);
}

/// A daemon that is to answer a REQ says so; what it says of other messages does not put the REQ off.
#[test]
fn an_mra_for_something_else_does_not_park_the_req() {
    let mut pair = asking(8);
    for (message_mraed, parked) in [(1, false), (0, true)] {
        let mra = Mra {
            remote_comm_id: comm_id(&pair),
            message_mraed,
            service_timeout: 20,
            ..Mra::default()
        };
        let from = from_peer(&pair);
        pair.forge(ACTIVE, from, mra.into());
        assert_eq!(state(&pair) == AssociationState::Parked, parked);
    }
}

/// Its REPs are lost, and so it is still asked.
#[test]
fn a_peer_that_closes_before_its_rep_has_arrived_is_believed() {
    let mut pair = Pair::new(9);
    pair.lose.insert("REP", usize::MAX);
    pair.begin();
    pair.run(20);
    assert_eq!(state(&pair), AssociationState::Opening);
    pair.close(PASSIVE);
    pair.run(5);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerClosed));
    assert_eq!(state(&pair), AssociationState::Pausing);
}

/// Of an attempt that is over nothing is kept, and who answers it is told.
#[test]
fn a_rep_to_an_earlier_attempt_is_rejected() {
    let mut pair = asking(10);
    let first = comm_id(&pair);
    pair.run(6_000);
    assert_ne!(comm_id(&pair), first, "the second attempt");
    let rep = Rep {
        local_comm_id: 7,
        remote_comm_id: first,
        failover_accepted: FailoverAccepted::Accepted.into(),
        ..Rep::default()
    };
    let from = from_peer(&pair);
    pair.forge(ACTIVE, from, rep.into());
    assert_eq!(pair.hosts[ACTIVE].sent("REJ"), 1);
    assert_ne!(state(&pair), AssociationState::Established);
}

#[test]
fn an_operator_who_has_started_the_peers_daemon_need_not_wait() {
    let mut pair = asking(11);
    pair.run(400_000);
    while state(&pair) != AssociationState::Pausing {
        pair.run(100);
    }
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.set_traffic(true);
    pair.command(ACTIVE, Command::Rearm);
    assert!(pair.run_until_armed(1_000) < 200);
}

/// The simulation's seed 1795871196677743: of three attempts within four seconds one came of a pulled cable, and the pause
/// after them was longer than the peer's daemon had been away.
#[test]
fn a_pause_that_something_ended_is_followed_by_none_that_is_longer() {
    let mut pair = asking(15);
    for _ in 0..10 {
        while state(&pair) != AssociationState::Pausing {
            pair.run(10);
        }
        pair.command(ACTIVE, Command::Rearm);
    }
    while state(&pair) != AssociationState::Pausing {
        pair.run(10);
    }
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.set_traffic(true);
    assert!(pair.run_until_armed(3_000) < 3_000);
}

/// The REQ that it kept is lost with the daemon before it.
#[test]
fn a_peer_that_asks_itself_has_what_it_kept_asked_again() {
    let mut pair = Pair::new(12);
    pair.roles = [Role::Active; 2];
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    while reqs(&pair) < 5 {
        pair.run(100);
    }
    pair.kill(PASSIVE);
    pair.run(100);
    assert_eq!(state(&pair), AssociationState::Parked);
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.set_traffic(true);
    assert!(pair.run_until_armed(2_000) < 200);
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Armed);
    assert_open(&pair);
}

/// An armed pair without traffic. Its ports carried nothing for so long, and do again. The active end had something to
/// say meanwhile; a SAP was sent before.
fn after_silence(seed: u64, ms: u64) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.set_traffic(false);
    pair.record("SAP");
    pair.drain_port(PASSIVE, 2, true);
    pair.run(20);
    for port in [1, 2] {
        pair.black_hole(ACTIVE, port);
    }
    pair.drain_port(ACTIVE, 2, true);
    pair.run(ms);
    for port in [1, 2] {
        *pair.net.cable((ACTIVE, port)) = Cable::Plugged;
    }
    pair
}

/// The simulation's seed 1795834721506057: the passive end still had the association, and the active end had given it up
/// and paused for seconds after the fabric was whole, with a REQ on its way before that.
#[test]
fn a_sap_of_an_association_that_was_given_up_has_it_opened_again() {
    for ms in (6_000..12_000).step_by(100) {
        let mut pair = after_silence(13, ms);
        assert_eq!(
            pair.view(PASSIVE).association.state,
            AssociationState::Established
        );
        pair.drain_port(PASSIVE, 2, false);
        // REJ answers its SAP, and meanwhile the association is opened again.
        while pair.hosts[ACTIVE].sent("REJ") == 0 {
            pair.run(1);
        }
        // A REQ that has had few copies has another soon.
        pair.run(400);
        assert_open(&pair);
    }
}

/// A peer that is not told so goes on repeating its SAP, and takes the association for open.
#[test]
fn a_sap_of_an_association_that_was_given_up_is_rejected_after_its_connection_has_closed() {
    let mut pair = after_silence(14, 15_000);
    assert_eq!(state(&pair), AssociationState::Pausing);
    pair.close(ACTIVE);
    let before = pair.hosts[ACTIVE].sent("REJ");
    pair.drain_port(PASSIVE, 2, false);
    pair.run(100);
    assert_eq!(pair.hosts[ACTIVE].sent("REJ"), before + 1);
    let state = pair.view(PASSIVE).association.state;
    assert_ne!(state, AssociationState::Established);
}

/// A daemon sends from QP1. Any program may send from a queue pair of its own.
#[test]
fn a_sap_of_a_programs_does_not_have_an_association_opened() {
    let mut pair = after_silence(14, 15_000);
    let recorded = pair.recorded().iter().rev();
    let mut saps = recorded.filter(|(_, _, message)| matches!(message, Message::Sap(_)));
    let (_, source, sap) = saps.next().expect("a SAP").clone();
    let before = reqs(&pair);
    pair.forge(ACTIVE, MadSource { qpn: 2, ..source }, sap);
    assert_eq!(reqs(&pair), before);
    assert_eq!(state(&pair), AssociationState::Pausing);
}

/// Each costs the peer one MAD, and must not cost this end a REQ.
#[test]
fn a_thousand_such_saps_have_few_reqs_sent() {
    let mut pair = after_silence(14, 15_000);
    assert_eq!(state(&pair), AssociationState::Pausing);
    let recorded = pair.recorded().iter().rev();
    let mut saps = recorded.filter(|(_, _, message)| matches!(message, Message::Sap(_)));
    let (_, source, sap) = saps.next().expect("a SAP").clone();
    pair.lose.insert("REQ", 1_000);
    let before = reqs(&pair);
    for _ in 0..1_000 {
        pair.forge(ACTIVE, source, sap.clone());
        pair.run(1);
    }
    let sent = reqs(&pair) - before;
    assert!((1..20).contains(&sent), "{sent}");
}

/// The first one has a REQ sent. It needs no copy before its answer can have come.
#[test]
fn a_second_such_sap_at_once_has_no_req_sent() {
    let mut pair = after_silence(14, 15_000);
    let recorded = pair.recorded().iter().rev();
    let mut saps = recorded.filter(|(_, _, message)| matches!(message, Message::Sap(_)));
    let (_, source, sap) = saps.next().expect("a SAP").clone();
    pair.lose.insert("REQ", 1_000);
    for _ in 0..2 {
        let before = reqs(&pair);
        let is_pausing = state(&pair) == AssociationState::Pausing;
        pair.forge(ACTIVE, source, sap.clone());
        assert_eq!(reqs(&pair) - before, usize::from(is_pausing));
        assert_ne!(state(&pair), AssociationState::Pausing);
    }
}

/// Only the peer knows both of its names.
#[test]
fn a_sap_that_names_another_association_has_no_req_sent() {
    let mut pair = after_silence(14, 15_000);
    let recorded = pair.recorded().iter().rev();
    let mut saps = recorded.filter_map(|(_, source, message)| match message {
        Message::Sap(sap) => Some((*source, sap.clone())),
        _ => None,
    });
    let (source, sap) = saps.next().expect("a SAP");
    let before = reqs(&pair);
    let wrong = Sap {
        local_comm_id: sap.local_comm_id ^ 1,
        ..sap
    };
    pair.forge(ACTIVE, source, wrong.into());
    assert_eq!(state(&pair), AssociationState::Pausing);
    assert_eq!(reqs(&pair), before);
}
