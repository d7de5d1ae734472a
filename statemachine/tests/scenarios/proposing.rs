// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side's LAP, from the path that was found to the peer's answer.

use std::time::Duration;

use cm_msgs::Lid;
use cm_msgs::cm::{ApStatus, Message, Mra};
use cm_msgs::control::{Mode, PolicyOverride};
use statemachine::view::Held;
use statemachine::{Command, MadSource};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair, base_lid};

#[test]
fn without_probes_nothing_is_waited_for() {
    let mut pair = Pair::new(1);
    pair.config.verify = Duration::ZERO;
    pair.begin();
    assert!(pair.run_until_armed(2_000) < 200);
    assert_eq!(pair.view(ACTIVE).counters.laps_sent, 1);
}

/// None is armed that would be given up for it, and the LAP tries it.
#[test]
fn the_first_alternate_is_proposed_though_no_probe_can_be_sent() {
    let mut pair = Pair::new(8);
    pair.probes_wait = true;
    pair.begin();
    pair.run_until_armed(5_000);
}

/// Armed, and its LAP that asks the peer whether it has the alternate is lost.
fn with_a_lost_lap(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    pair.record("APR");
    pair.begin();
    pair.run(5_000);
    pair.lose.insert("LAP", 1);
    pair.command(ACTIVE, Command::Rearm);
    assert_eq!(pair.lose["LAP"], 0);
    pair
}

/// The network may deliver a copy of an answer at any time.
#[test]
fn a_late_answer_to_an_earlier_lap_does_not_answer_this_one() {
    let mut pair = with_a_lost_lap(2);
    let (to, source, apr) = pair.recorded()[0].clone();
    assert_eq!(to, ACTIVE);
    let sent = pair.hosts[ACTIVE].sent("LAP");
    pair.forge(ACTIVE, source, apr);
    pair.run(100);
    assert!(pair.hosts[ACTIVE].sent("LAP") > sent, "it is repeated");
}

#[test]
fn an_mra_to_another_lap_or_of_another_association_puts_nothing_off() {
    let mut pair = with_a_lost_lap(3);
    let ids = pair.view(ACTIVE).association;
    let transaction_id = pair.last_transaction("LAP");
    let (ours, theirs) = (ids.local_comm_id, ids.remote_comm_id);
    let (ours, theirs) = (ours.expect("open"), theirs.expect("open"));
    let sent = pair.hosts[ACTIVE].sent("LAP");
    for (local_comm_id, transaction_id) in [
        (theirs, transaction_id.wrapping_sub(1)),
        (theirs ^ 1, transaction_id),
    ] {
        let mra = Mra {
            local_comm_id,
            remote_comm_id: ours,
            message_mraed: 2,
            service_timeout: 20,
            ..Mra::default()
        };
        let source = MadSource {
            port: pair.hosts[ACTIVE].port_id(1),
            lid: base_lid((PASSIVE, 1)),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: cm_msgs::PKey::DEFAULT_FULL,
            transaction_id,
        };
        pair.forge(ACTIVE, source, mra.into());
    }
    pair.run(100);
    assert!(pair.hosts[ACTIVE].sent("LAP") > sent, "it is repeated");
}

/// Armed, and the peer does not say that it has the same alternate: it may have another.
fn not_agreed(seed: u64) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.run(2_000);
    pair.set_traffic(false);
    pair.run(100);
    pair.twist(|message| {
        if let Message::Apr(apr) = message {
            apr.ar_status = ApStatus::Rejected.into();
        }
    });
    pair.command(ACTIVE, Command::Rearm);
    pair.run(100);
    pair
}

#[test]
fn lost_probes_move_nothing_while_the_ends_may_have_different_alternates() {
    let mut pair = not_agreed(4);
    pair.black_hole(PASSIVE, 1);
    pair.run(5_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.view(host).counters.migrations, 0, "host {host}");
    }
}

#[test]
fn nor_does_an_operator_while_that_is_so() {
    let mut pair = not_agreed(5);
    let within = Duration::from_secs(5);
    pair.command(ACTIVE, Command::Migrate { within });
    pair.run(1_000);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::Negotiating));
    assert_eq!(pair.qp(ACTIVE).primary.port, 1);
}

/// Its library is slow, which keeps it from no other LAP.
#[test]
fn a_peer_that_asks_for_time_is_sent_the_laps_of_all_connections() {
    let mut pair = Pair::with(7, 0, 150);
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    pair.begin();
    pair.run(3_000);
    let views = pair.views(ACTIVE);
    let proposed = views.iter().filter(|view| view.counters.laps_sent > 0);
    assert_eq!(proposed.count(), 150);
}

/// A path was proposed, and the peer has not answered yet.
fn proposed(seed: u64) -> Pair {
    let mut pair = Pair::with(seed, 2, 1);
    pair.sa_dead = true;
    pair.begin();
    pair.run(2_000);
    pair.lose.insert("APR", usize::MAX);
    pair.sa_dead = false;
    pair.record("LAP");
    pair.command(ACTIVE, Command::Rearm);
    pair.run(50);
    assert_eq!(proposals(&pair, 0).last(), Some(&base_lid((ACTIVE, 2))));
    pair
}

/// The ports, by their base LIDs, that the paths of LAPs begin at, those that came after some.
fn proposals(pair: &Pair, after: usize) -> Vec<Lid> {
    let begins = |message: &Message| match message {
        Message::Lap(lap) => Some(lap.alternate.local_port_lid),
        _ => None,
    };
    let recorded = pair.recorded()[after..].iter();
    let lids = recorded.filter_map(|(_, _, message)| begins(message));
    let lids = lids.filter(|lid| *lid != Lid(0));
    lids.map(|lid| Lid(lid.0 & !7)).collect()
}

#[test]
fn a_proposal_that_has_lost_its_sense_is_not_repeated() {
    let lids = PolicyOverride {
        mode: Some(Mode::Lid),
        ..PolicyOverride::default()
    };
    type Change = fn(&mut Pair, PolicyOverride);
    let changes: [Change; 2] = [
        |pair, _| pair.pull(ACTIVE, 2),
        |pair, lids| pair.set_policy(ACTIVE, lids),
    ];
    for change in changes {
        let mut pair = proposed(6);
        change(&mut pair, lids);
        pair.run(2);
        let before = pair.recorded().len();
        pair.run(1_500);
        let later = proposals(&pair, before);
        assert!(!later.is_empty(), "another is proposed");
        let first = base_lid((ACTIVE, 1));
        assert!(later.iter().all(|&port| port == first), "{later:?}");
    }
}

/// Its port is lost while the peer is asked to agree to a better alternate.
#[test]
fn an_answer_that_comes_while_the_library_has_an_order_to_migrate_has_nothing_loaded() {
    let mut pair = Pair::armed(8);
    pair.run(2_000);
    pair.pull(PASSIVE, 2);
    pair.run(5_000);
    pair.assert_armed();
    pair.record("LAP");
    pair.plug(PASSIVE, 2);
    while proposals(&pair, 0).is_empty() {
        pair.run_us(20);
    }
    let answered = pair.hosts[PASSIVE].sent("APR");
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stopped);
    pair.hosts[ACTIVE].ports[0].active = false;
    pair.port_input(ACTIVE, 1);
    pair.run(100);
    assert!(pair.hosts[PASSIVE].sent("APR") > answered);
    assert_eq!(pair.hosts[ACTIVE].unread(), ["migrate"]);
}
