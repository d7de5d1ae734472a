// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end sees, the other is told.

use std::collections::BTreeSet;

use cm_msgs::association::ReqData;
use cm_msgs::cm::{Message, RejReason, Req};
use cm_msgs::control::{MigrationState, Mode, PolicyOverride};
use cm_msgs::path::Path;
use cm_msgs::{Lid, PKey};
use statemachine::trace::What;
use statemachine::view::{Protection, Reason};
use statemachine::{MadSource, SERVICE_ID};

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid, seeds};

#[test]
fn the_peer_of_a_lost_primary_follows_without_waiting_for_its_retries() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        // Nothing but the daemons' messages tells the other end.
        pair.set_traffic(false);
        pair.run(100);
        pair.pull(host, 1);
        pair.run(10);
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(Pair::rails(&pair.qp(end).primary), (2, (1 - end, 2)));
        }
        let counters = pair.view(1 - host).counters;
        assert_eq!((counters.migrations, counters.ordered_migrations), (1, 1));
        pair.set_traffic(true);
        pair.run(1_000);
        pair.assert_armed();
    }
}

#[test]
fn a_lost_alternate_of_the_passive_side_is_replaced() {
    seeds(20, |seed| {
        let mut pair = Pair::armed(seed);
        pair.pull(PASSIVE, 2);
        pair.run(10);
        let view = pair.view(ACTIVE);
        assert_ne!(Pair::rails(&view.alternate.unwrap()), (2, (PASSIVE, 2)));
        pair.run(500);
        pair.assert_armed();
        let (_, remote) = Pair::rails(&pair.qp(ACTIVE).alternate.unwrap());
        assert_eq!(remote, (PASSIVE, 1), "the other local port at least");
        pair.plug(PASSIVE, 2);
        pair.run(5_000);
        let alternate = pair.qp(ACTIVE).alternate.unwrap();
        assert_eq!(Pair::rails(&alternate), (2, (PASSIVE, 2)), "and back");
        pair.assert_armed();
    });
}

#[test]
fn an_alternate_whose_far_port_is_lost_does_not_count() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(3);
        pair.sa_dead = true;
        pair.pull(host, 2);
        pair.run(20);
        let view = pair.view(1 - host);
        assert_eq!(pair.qp(1 - host).migration, MigrationState::Armed);
        assert_ne!(view.protection, Protection::Armed, "host {}", 1 - host);
    }
}

#[test]
fn announcements_and_their_answers_may_be_lost() {
    for name in ["SAP", "SPR", "LAP", "APR"] {
        for host in [ACTIVE, PASSIVE] {
            let mut pair = Pair::armed(4);
            pair.lose.insert(name, 3);
            pair.pull(host, 1);
            pair.run(10_000);
            pair.plug(host, 1);
            pair.run(10_000);
            pair.assert_armed();
            for end in [ACTIVE, PASSIVE] {
                let ports = pair.view(end).association.peer_ports;
                assert!(ports.iter().all(|port| port.lid.0 != 0), "{name} {host}");
                pair.assert_asleep(end);
            }
        }
    }
}

#[test]
fn an_apmd_of_another_version_is_told_so() {
    let mut pair = Pair::new(5);
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    let mut private_data = ReqData::default().encode();
    private_data[4] = 1;
    let req = Req {
        local_comm_id: 9,
        service_id: SERVICE_ID,
        private_data,
        ..Req::default()
    };
    let source = MadSource {
        port: pair.hosts[PASSIVE].port_id(1),
        lid: base_lid((ACTIVE, 1)),
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: 1,
    };
    pair.record("REJ");
    pair.start(ACTIVE);
    pair.forge(PASSIVE, source, req.into());
    pair.run(10);
    let reasons = pair.recorded().iter().map(|(_, _, message)| match message {
        Message::Rej(rej) => rej.rej_reason(),
        other => panic!("{}", other.name()),
    });
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [RejReason::InvalidClassVersion]
    );
    let shown = Reason::Rejected(RejReason::InvalidClassVersion.into()).to_string();
    assert!(shown.contains("another version"), "{shown}");
}

#[test]
fn a_sap_that_crosses_a_lap_does_no_harm() {
    // The passive end's operator drains a port at any moment while the active end proposes it.
    let crossed = (2_500..4_000).step_by(7).filter(|&later| {
        let mut pair = Pair::armed(later);
        pair.forget_traces();
        pair.pull(ACTIVE, 2);
        pair.run_us(later);
        pair.drain_port(PASSIVE, 2, true);
        pair.run(3_000);
        let at = |host, is: fn(&What) -> bool| pair.traces(host).position(|trace| is(&trace.what));
        let lap_sent = at(ACTIVE, |what| matches!(what, What::LapSent(_)));
        let sap_came = at(ACTIVE, |what| matches!(what, What::SapReceived(_)));
        let sap_sent = at(PASSIVE, |what| matches!(what, What::SapSent { .. }));
        let lap_came = at(PASSIVE, |what| matches!(what, What::LapReceived(_)));
        pair.drain_port(PASSIVE, 2, false);
        pair.plug(ACTIVE, 2);
        pair.run(10_000);
        pair.assert_armed();
        pair.assert_best_alternates();
        lap_sent.is_some() && lap_sent < sap_came && sap_sent.is_some() && sap_sent < lap_came
    });
    assert!(crossed.count() > 0, "they never met");
}

/// The network may deliver a copy of it at any time.
#[test]
fn a_late_answer_to_something_else_answers_no_announcement() {
    let mut pair = Pair::new(31);
    pair.record("APR");
    pair.begin();
    pair.run(5_000);
    let (to, source, apr) = pair.recorded()[0].clone();
    assert_eq!(to, ACTIVE);
    // No LAP is due that proposes a path.
    pair.sa_dead = true;
    pair.lose.insert("LAP", 1);
    pair.drain_port(ACTIVE, 2, true);
    assert_eq!(pair.lose["LAP"], 0, "the announcement");
    let sent = pair.hosts[ACTIVE].sent("LAP");
    pair.forge(ACTIVE, source, apr);
    pair.run(100);
    assert!(pair.hosts[ACTIVE].sent("LAP") > sent, "it is repeated");
}

/// A LAP that proposes a path tells the state as well.
#[test]
fn an_announcement_is_not_repeated_once_a_path_is_proposed() {
    let mut pair = Pair::armed(36);
    pair.record("LAP");
    pair.lose.insert("APR", 1_000);
    pair.pull(ACTIVE, 2);
    pair.run(10_000);
    let proposes = |message: &Message| match message {
        Message::Lap(lap) => lap.alternate.local_port_lid != Lid(0),
        other => panic!("{}", other.name()),
    };
    let laps: Vec<_> = pair
        .recorded()
        .iter()
        .map(|(_, _, message)| proposes(message))
        .collect();
    assert!(laps.iter().any(|&proposes| proposes), "{laps:?}");
    assert!(laps.is_sorted(), "{laps:?}");
}

/// How many of the host's connections have sent their peers a LAP.
fn announced(pair: &Pair) -> usize {
    let ids = pair.recorded().iter().map(|(_, _, message)| match message {
        Message::Lap(lap) => lap.local_comm_id,
        other => panic!("{}", other.name()),
    });
    ids.collect::<BTreeSet<_>>().len()
}

/// 200 connections, armed or without any path; then their peer falls silent, and this gives all something to tell it.
fn begin_to_announce(seed: u64, armed: bool, news: fn(&mut Pair)) -> Pair {
    let mut pair = Pair::with(seed, 0, 200);
    pair.sa_dead = !armed;
    pair.begin();
    pair.run(5_000);
    assert_eq!(pair.is_armed(), armed);
    pair.set_traffic(false);
    pair.sa_dead = true;
    pair.hosts[PASSIVE].stopped = true;
    pair.record("LAP");
    news(&mut pair);
    pair.run(3);
    pair
}

#[test]
fn announcements_of_many_take_turns_though_the_peer_is_silent() {
    let mut pair = begin_to_announce(32, true, |pair| pair.pull(ACTIVE, 2));
    assert_eq!(announced(&pair), 52, "at once");
    pair.run(10_000);
    assert_eq!(announced(&pair), 200);
}

/// Slots stay free for connections that lose their protection.
#[test]
fn those_that_have_lost_no_protection_have_fewer_in_flight() {
    let pair = begin_to_announce(33, false, |pair| pair.pull(ACTIVE, 2));
    assert_eq!(announced(&pair), 44, "at once");
    // Nor do those need it that are protected.
    let pair = begin_to_announce(34, true, |pair| pair.drain_port(ACTIVE, 2, true));
    assert_eq!(announced(&pair), 44, "at once");
}

/// Of 201 protected connections one would end with the loss of one port. What it has to tell is not behind the others.
#[test]
fn one_that_ends_with_a_single_port_has_room_beside_many_that_do_not() {
    let mut pair = Pair::with(35, 0, 201);
    for (host, port, far) in [(ACTIVE, 2, 1), (PASSIVE, 1, 2)] {
        let qp = &mut pair.hosts[host].qps[200];
        qp.alternate = Some(Path {
            port,
            slid: base_lid((host, port)),
            sgid: gid((host, port)),
            dlid: base_lid((1 - host, far)),
            dgid: gid((1 - host, far)),
            ..qp.primary
        });
        qp.migration = MigrationState::Armed;
    }
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..200);
    }
    pair.set_traffic(true);
    pair.run(5_000);
    pair.sa_dead = true;
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 200..201);
    }
    pair.run(2_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.hosts[PASSIVE].stopped = true;
    pair.record("LAP");
    pair.drain_port(ACTIVE, 2, true);
    pair.run(3);
    assert_eq!(announced(&pair), 44 + 1);
    let name = pair.views(ACTIVE)[200].association.local_comm_id;
    let mut laps = pair.recorded().iter();
    let is_it =
        |message: &Message| matches!(message, Message::Lap(lap) if Some(lap.local_comm_id) == name);
    assert!(laps.any(|(_, _, message)| is_it(message)));
}

#[test]
fn proposals_of_many_take_turns_as_well() {
    let ask_again = |pair: &mut Pair| {
        let policy = PolicyOverride {
            mode: Some(Mode::Port),
            ..PolicyOverride::default()
        };
        pair.set_policy(ACTIVE, policy);
    };
    let pair = begin_to_announce(36, true, ask_again);
    assert_eq!(announced(&pair), 44, "at once");
}
