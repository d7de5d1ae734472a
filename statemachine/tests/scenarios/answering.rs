// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passive side: how it answers REQs, and how it makes itself heard.

use std::collections::BTreeSet;
use std::time::Duration;

use cm_msgs::cm::{Drep, Message, Rej, RejReason, Rejected, Req};
use cm_msgs::control::{Mode, PolicyOverride, QpState, Role};
use cm_msgs::{Lid, PKey};
use statemachine::view::{AssociationState, Held, Reason};
use statemachine::{Command, MadSource};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair, base_lid};

/// The passive side alone, and the REQ that its peer sent before its daemon ended.
fn asked(seed: u64) -> (Pair, MadSource, Req) {
    let mut pair = Pair::new(seed);
    pair.record("REQ");
    for host in [ACTIVE, PASSIVE] {
        pair.start(host);
    }
    pair.register(ACTIVE);
    pair.run(10);
    let [(_, source, Message::Req(req)), ..] = pair.recorded() else {
        panic!("no REQ");
    };
    let (source, req) = (*source, req.clone());
    for host in [ACTIVE, PASSIVE] {
        pair.kill(host);
    }
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    (pair, source, req)
}

fn state(pair: &Pair) -> AssociationState {
    pair.view(PASSIVE).association.state
}

#[test]
fn a_peer_that_asks_and_does_not_go_on_is_not_waited_for_for_ever() {
    let (mut pair, source, req) = asked(1);
    pair.forge(PASSIVE, source, req.into());
    assert_eq!(state(&pair), AssociationState::Opening);
    pair.run(25_000);
    assert_eq!(state(&pair), AssociationState::Opening);
    pair.run(10_000);
    assert_eq!(state(&pair), AssociationState::None);
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::WaitingForReq));
}

#[test]
fn a_peer_that_does_not_know_its_req_any_more_is_not_waited_for() {
    let (mut pair, source, req) = asked(2);
    pair.forge(PASSIVE, source, req.clone().into());
    let rej = Rej {
        local_comm_id: req.local_comm_id,
        remote_comm_id: pair.view(PASSIVE).association.local_comm_id.expect("asked"),
        message_rejected: Rejected::Rep.into(),
        reason: RejReason::InvalidCommId.into(),
        ..Rej::default()
    };
    pair.forge(PASSIVE, source, rej.into());
    assert_eq!(state(&pair), AssociationState::None);
}

/// It may be the peer, on a port that is not known: the REP goes to where the QP leads, where one way may have failed.
#[test]
fn the_answers_to_reqs_from_elsewhere_take_turns_over_the_ways_to_the_peer() {
    let (mut pair, source, req) = asked(3);
    pair.record("REP");
    for _ in 0..2 {
        let elsewhere = MadSource {
            lid: Lid(0x99),
            ..source
        };
        pair.forge(PASSIVE, elsewhere, req.clone().into());
        pair.run(1_500);
    }
    let ways: Vec<Lid> = pair
        .recorded()
        .iter()
        .filter_map(|(_, source, message)| matches!(message, Message::Rep(_)).then_some(source.lid))
        .collect();
    assert_eq!(ways.len(), 2);
    assert_ne!(ways[0], ways[1]);
}

/// Host 0 has the lower end and so is passive; without a REQ it would become active after 10 s.
fn lower_is_passive(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    pair.roles = [Role::Passive, Role::Active];
    pair
}

#[test]
fn a_peer_whose_reps_are_lost_has_asked_all_the_same() {
    let mut pair = lower_is_passive(4);
    pair.lose.insert("REP", usize::MAX);
    pair.begin();
    pair.run(25_000);
    assert_eq!(pair.view(0).role, Role::Passive);
    pair.lose.clear();
    pair.run_until_armed(30_000);
}

/// There is nothing to protect, and perhaps no peer any more.
#[test]
fn a_queue_pair_that_is_not_in_use_asks_nobody() {
    let mut pair = lower_is_passive(5);
    pair.hosts[0].qps[0].state = QpState::Error;
    pair.start(0);
    pair.register(0);
    pair.run(100_000);
    assert_eq!(pair.view(0).role, Role::Passive);
    assert_eq!(pair.hosts[0].sent("REQ"), 0);
}

#[test]
fn an_operator_has_the_peer_look_again_at_once() {
    let mut pair = Pair::armed(6);
    pair.run(5_000);
    let before = pair.hosts[PASSIVE].sent("SAP");
    pair.command(PASSIVE, Command::Rearm);
    pair.run(50);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP"), before + 1);
}

#[test]
fn what_happens_to_a_port_is_told_though_the_peer_was_silent_for_long() {
    let mut pair = Pair::armed(7);
    pair.run(2_000);
    pair.set_traffic(false);
    pair.sa_dead = true;
    pair.hosts[ACTIVE].stopped = true;
    pair.pull(PASSIVE, 2);
    pair.run(200_000);
    pair.hosts[ACTIVE].stopped = false;
    // Nor does the peer ask.
    for name in ["LAP", "REQ"] {
        pair.lose.insert(name, usize::MAX);
    }
    pair.plug(PASSIVE, 2);
    pair.run(700);
    let known = pair.view(ACTIVE).association.peer_ports;
    assert!(
        known.iter().any(|port| port.lid == base_lid((PASSIVE, 2))),
        "{known:?}"
    );
}

fn heard(pair: &Pair) -> usize {
    let ids = pair.recorded().iter().map(|(_, _, message)| match message {
        Message::Sap(sap) => sap.local_comm_id,
        other => panic!("{}", other.name()),
    });
    ids.collect::<BTreeSet<_>>().len()
}

#[test]
fn the_saps_of_many_take_turns_though_the_peer_is_silent() {
    let mut pair = Pair::with(8, 0, 200);
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.sa_dead = true;
    pair.hosts[ACTIVE].stopped = true;
    pair.record("SAP");
    pair.pull(PASSIVE, 2);
    pair.run(3);
    let first = heard(&pair);
    assert!((40..=64).contains(&first), "{first} at once");
    pair.run(10_000);
    assert_eq!(heard(&pair), 200);
}

/// `mads_out_of_place` tells an operator of strangers, and of peers that do what they should not.
#[test]
fn what_is_in_its_place_is_not_counted_as_out_of_it() {
    let mut pair = Pair::armed(9);
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    pair.plug(PASSIVE, 2);
    pair.run(5_000);
    for host in [ACTIVE, PASSIVE] {
        let engine = pair.hosts[host].engine.as_ref().expect("it runs");
        assert_eq!(engine.counters().mads_out_of_place, 0);
        let from = MadSource {
            port: pair.hosts[host].port_id(1),
            lid: base_lid((1 - host, 1)),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: 1,
        };
        let ids = pair.view(host).association;
        let out_of_place = Drep {
            local_comm_id: ids.remote_comm_id.expect("open"),
            remote_comm_id: ids.local_comm_id.expect("open"),
            ..Drep::default()
        };
        pair.forge(host, from, out_of_place.into());
        let engine = pair.hosts[host].engine.as_ref().expect("it runs");
        assert_eq!(engine.counters().mads_out_of_place, 1);
    }
}

#[test]
fn a_peer_is_told_of_an_alternate_that_does_not_answer() {
    let mut pair = Pair::armed(10);
    pair.run(5_000);
    pair.sa_dead = true;
    let before = pair.hosts[PASSIVE].sent("SAP");
    pair.black_hole(PASSIVE, 2);
    pair.run(3_000);
    assert_eq!(pair.qp(PASSIVE).primary.port, 1);
    assert!(pair.hosts[PASSIVE].sent("SAP") > before);
}

/// The alternate that it would go to may not be the one that the peer has by then.
#[test]
fn while_its_library_loads_what_the_peer_proposes_it_goes_nowhere() {
    let mut pair = Pair::with(11, 2, 1);
    pair.begin();
    pair.run(2_000);
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    let policy = PolicyOverride {
        mode: Some(Mode::Lid),
        ..PolicyOverride::default()
    };
    pair.set_policy(ACTIVE, policy);
    pair.run(50);
    assert_eq!(pair.hosts[PASSIVE].unread(), ["load"]);
    let within = Duration::from_secs(60);
    pair.command(PASSIVE, Command::Migrate { within });
    pair.run(10);
    assert_eq!(pair.view(PASSIVE).held, Some(Held::Negotiating));
    pair.resume_library(PASSIVE);
    pair.run(1_000);
    assert_eq!(pair.view(PASSIVE).counters.migrations, 1);
    pair.assert_armed();
}

/// It has no alternate, and is about to have one.
#[test]
fn while_its_library_loads_what_the_peer_proposes_it_asks_the_peer_nothing() {
    let mut pair = Pair::new(16);
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    pair.begin();
    pair.run(1_000);
    assert_eq!(pair.hosts[PASSIVE].unread(), ["load"]);
    let saps = pair.hosts[PASSIVE].sent("SAP");
    pair.run(8_000);
    pair.resume_library(PASSIVE);
    pair.run(30);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP"), saps);
}
