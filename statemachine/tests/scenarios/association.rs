// SPDX-License-Identifier: MIT OR Apache-2.0
//! How two daemons find each other.

use cm_msgs::cm::{Dreq, Message, Rej, RejReason, Rejected, Req, Rtu};
use cm_msgs::{Lid, PKey};
use statemachine::MadSource;
use statemachine::view::{AssociationState, AssociationView, Protection, Reason};

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid};

pub(crate) fn assert_open(pair: &Pair) {
    let [a, b] = [ACTIVE, PASSIVE].map(|host| pair.view(host).association);
    assert_eq!(a.state, AssociationState::Established);
    assert_eq!(b.state, AssociationState::Established);
    assert_eq!(a.local_comm_id, b.remote_comm_id);
    assert_eq!(a.remote_comm_id, b.local_comm_id);
    assert_eq!(a.peer_ports.len(), 2);
    assert_eq!(b.peer_ports.len(), 2);
}

#[test]
fn opens_and_arms_with_one_copy_of_each_message() {
    let pair = Pair::armed(1);
    assert_open(&pair);
    let sent = |host: usize, name| pair.hosts[host].sent(name);
    for (host, name) in [(ACTIVE, "REQ"), (PASSIVE, "REP"), (ACTIVE, "RTU")] {
        assert_eq!(sent(host, name), 1, "{name}");
    }
    assert_eq!((sent(ACTIVE, "LAP"), sent(PASSIVE, "APR")), (1, 1));
}

#[test]
fn an_idle_armed_connection_sets_no_timer() {
    let pair = Pair::armed(1);
    pair.assert_asleep(ACTIVE);
    pair.assert_asleep(PASSIVE);
}

#[test]
fn the_active_side_may_register_first() {
    let mut pair = Pair::new(3);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.set_traffic(true);
    pair.register(ACTIVE);
    pair.run(1);
    pair.register(PASSIVE);
    pair.run(100);
    pair.assert_armed();
    assert_open(&pair);
}

#[test]
fn a_req_before_the_application_is_parked() {
    let mut pair = Pair::new(2);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    // It is repeated after some 2 s, 4 s, 8 s and so on.
    pair.run(9_000);
    assert_eq!(pair.hosts[PASSIVE].sent("MRA"), 3);
    let view = pair.view(ACTIVE);
    assert_eq!(view.association.state, AssociationState::Parked);
    assert_eq!(view.reason, Some(Reason::PeerNotRegistered));
    pair.set_traffic(true);
    pair.register(PASSIVE);
    pair.run(100);
    pair.assert_armed();
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 3);
}

#[test]
fn a_parked_req_is_renewed_when_its_time_is_over() {
    let mut pair = Pair::new(2);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    pair.run(100_000);
    assert!(pair.hosts[PASSIVE].sent("MRA") < 10);
    pair.set_traffic(true);
    pair.register(PASSIVE);
    pair.run(61_000);
    pair.assert_armed();
}

#[test]
fn a_closed_application_is_not_parked_any_more() {
    let mut pair = Pair::new(2);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    pair.run(100);
    pair.close(ACTIVE);
    pair.run(100);
    pair.assert_asleep(ACTIVE);
    pair.assert_asleep(PASSIVE);
    pair.register(PASSIVE);
    pair.run(100);
    assert_eq!(pair.hosts[PASSIVE].sent("REP"), 0);
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::WaitingForReq));
}

#[test]
fn no_more_reqs_are_parked_than_allowed() {
    let mut pair = Pair::with(4, 0, 400);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    pair.run(1_000);
    let counters = pair.hosts[PASSIVE]
        .engine
        .as_ref()
        .map(|engine| engine.counters());
    assert!(counters.is_some_and(|counters| counters.parked_overflow > 0));
    pair.set_traffic(true);
    pair.register(PASSIVE);
    pair.run(70_000);
    pair.assert_armed();
}

#[test]
fn a_peer_without_a_daemon_is_named_and_asked_ever_more_rarely() {
    let mut pair = Pair::new(5);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.set_traffic(true);
    pair.run(8_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.reason, Some(Reason::PeerNoApmd));
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(
        view.reason.map(|reason| reason.to_string()).as_deref(),
        Some("peer: no apmd; start apmd on the peer's host")
    );
    pair.run(600_000);
    let before = pair.hosts[ACTIVE].sent("REQ");
    pair.run(600_000);
    let rate = pair.hosts[ACTIVE].sent("REQ") - before;
    assert!((30..=75).contains(&rate), "{rate} REQs in 600 s");
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.run(75_000);
    pair.assert_armed();
}

#[test]
fn a_hundred_connections_all_arm() {
    let mut pair = Pair::with(6, 0, 100);
    pair.begin();
    pair.run(1_000);
    pair.assert_armed();
    pair.assert_asleep(ACTIVE);
}

/// It may say so whenever a path has been agreed on, too.
#[test]
fn a_peer_that_forgets_the_association_again_and_again_is_asked_twice_a_second_at_most() {
    let mut pair = Pair::armed(8);
    let deny = |pair: &mut Pair| {
        let AssociationView {
            local_comm_id: Some(ours),
            remote_comm_id: Some(theirs),
            ..
        } = pair.view(ACTIVE).association
        else {
            return;
        };
        let rej = Rej {
            local_comm_id: theirs,
            remote_comm_id: ours,
            message_rejected: Rejected::NoMessage.into(),
            reason: RejReason::InvalidCommId.into(),
            ..Rej::default()
        };
        let from = MadSource {
            port: pair.hosts[ACTIVE].port_id(1),
            lid: base_lid((PASSIVE, 1)),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: 1,
        };
        pair.forge(ACTIVE, from, rej.into());
    };
    let before = pair.hosts[ACTIVE].sent("REQ");
    for _ in 0..6_000 {
        pair.run(10);
        deny(&mut pair);
    }
    let asked = pair.hosts[ACTIVE].sent("REQ") - before;
    assert!((30..=120).contains(&asked), "{asked} in 60 s");
    // One that has stood for a while is opened anew at once.
    pair.run(70_000);
    pair.assert_armed();
    let before = pair.hosts[ACTIVE].sent("REQ");
    deny(&mut pair);
    pair.run(20);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), before + 1);
    assert_open(&pair);
}

/// The first REQ that was recorded, and where it came from.
fn recorded_req(pair: &Pair) -> (MadSource, Req) {
    match pair.recorded() {
        [(_, source, Message::Req(req)), ..] => (*source, req.clone()),
        other => panic!("{other:?}"),
    }
}

/// One end may have left its primary for the alternate, and the other may not know that yet. Any other path is another
/// connection's, which has a queue pair of the same number on another port's far end.
#[test]
fn a_req_is_the_connections_only_if_both_lids_of_a_path_are() {
    let other = |host| base_lid((host, 2));
    type Change = fn(&mut Req, [Lid; 2]);
    let changes: [(Change, bool); 4] = [
        (|_, _| {}, true),
        (
            |req, other| req.primary.local_port_lid = other[ACTIVE],
            false,
        ),
        (
            |req, other| req.primary.remote_port_lid = other[PASSIVE],
            false,
        ),
        (
            |req, other| {
                req.alternate = req.primary;
                req.primary.local_port_lid = other[ACTIVE];
                req.primary.remote_port_lid = other[PASSIVE];
            },
            true,
        ),
    ];
    for (number, (change, taken)) in changes.into_iter().enumerate() {
        let mut pair = Pair::new(9);
        pair.record("REQ");
        for host in [ACTIVE, PASSIVE] {
            pair.start(host);
        }
        pair.register(ACTIVE);
        pair.run(10);
        let (source, mut req) = recorded_req(&pair);
        change(&mut req, [other(ACTIVE), other(PASSIVE)]);
        for host in [ACTIVE, PASSIVE] {
            pair.kill(host);
        }
        pair.run(2_000);
        pair.start(PASSIVE);
        pair.register(PASSIVE);
        pair.forge(PASSIVE, source, req.into());
        pair.run(1);
        assert_eq!(pair.hosts[PASSIVE].sent("REP") > 0, taken, "{number}");
    }
}

/// What the application uses is what works, as far as is known.
#[test]
fn a_req_goes_by_the_primarys_ports_first() {
    let mut pair = Pair::new(10);
    pair.record("REQ");
    pair.begin();
    pair.run(10);
    let (to, source, _) = pair.recorded()[0];
    assert_eq!(to, PASSIVE);
    assert_eq!(source.lid, base_lid((ACTIVE, 1)));
    assert_eq!(source.port, pair.hosts[PASSIVE].port_id(1));
}

#[test]
fn what_is_left_of_either_hosts_ports_is_tried_with_each_other() {
    let mut pair = Pair::armed(11);
    pair.run(5_000);
    pair.set_traffic(false);
    pair.sa_dead = true;
    pair.record("LAP");
    pair.lose.insert("SAP", usize::MAX);
    pair.pull(PASSIVE, 1);
    pair.pull(ACTIVE, 2);
    pair.run(5_000);
    let (to, source, _) = pair.recorded()[0];
    assert_eq!((to, source.port), (PASSIVE, pair.hosts[PASSIVE].port_id(2)));
    assert_eq!(source.lid, base_lid((ACTIVE, 1)));
}

/// Both ends' names are a proof; one of them may be known to somebody else.
#[test]
fn who_names_one_of_the_two_ids_only_ends_nothing() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(12);
        pair.run(1_000);
        let view = pair.view(host).association;
        let (ours, theirs) = (view.local_comm_id, view.remote_comm_id);
        let (ours, theirs) = (ours.expect("open"), theirs.expect("open"));
        let source = MadSource {
            port: pair.hosts[host].port_id(1),
            lid: base_lid((1 - host, 1)),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: 77,
        };
        for (local_comm_id, remote_comm_id) in [(theirs, ours ^ 1), (theirs ^ 1, ours)] {
            let dreq = Dreq {
                local_comm_id,
                remote_comm_id,
                ..Dreq::default()
            };
            let rej = Rej {
                local_comm_id,
                remote_comm_id,
                message_rejected: Rejected::NoMessage.into(),
                reason: RejReason::InvalidCommId.into(),
                ..Rej::default()
            };
            pair.forge(host, source, dreq.into());
            pair.forge(host, source, rej.into());
            pair.run(100);
            let now = pair.view(host).association;
            assert_eq!(now.state, AssociationState::Established, "host {host}");
            assert_eq!(now.local_comm_id, Some(ours), "host {host}");
        }
        pair.assert_armed();
    }
}

#[test]
fn a_rep_to_a_req_that_is_over_is_rejected_as_one() {
    let mut pair = Pair::new(13);
    pair.record("REP");
    pair.begin();
    pair.run(1_000);
    let (_, source, message) = pair.recorded()[0].clone();
    let Message::Rep(mut rep) = message else {
        panic!("recorded");
    };
    rep.local_comm_id ^= 1;
    pair.record("REJ");
    let before = pair.recorded().len();
    pair.forge(ACTIVE, source, rep.into());
    pair.run(10);
    let [(PASSIVE, _, Message::Rej(rej))] = &pair.recorded()[before..] else {
        panic!("one REJ");
    };
    assert_eq!(rej.message_rejected, u8::from(Rejected::Rep));
    assert_eq!(rej.reason, u16::from(RejReason::InvalidCommId));
    pair.assert_armed();
}

#[test]
fn what_changes_between_the_replies_to_two_copies_of_a_req_is_told() {
    let mut pair = Pair::new(9);
    // No LAP, whose answer would tell it.
    pair.sa_knows_only(vec![]);
    pair.record("REQ");
    pair.lose.insert("RTU", 1);
    pair.begin();
    pair.run(5);
    let new = Lid(0x80);
    pair.relabel(PASSIVE, 2, new);
    pair.run(5);
    let [(_, source, req)] = pair.recorded() else {
        panic!("one REQ: {:?}", pair.recorded());
    };
    let (source, req) = (*source, req.clone());
    let ids = pair.view(ACTIVE).association;
    let [Some(local_comm_id), Some(remote_comm_id)] = [ids.local_comm_id, ids.remote_comm_id]
    else {
        panic!("open at the active side: {ids:?}");
    };
    // A copy of the REQ was late; so is the RTU that answers the first REP.
    pair.forge(PASSIVE, source, req);
    let rtu = Rtu {
        local_comm_id,
        remote_comm_id,
        ..Rtu::default()
    };
    pair.forge(PASSIVE, source, rtu.into());
    pair.run(100);
    assert_open(&pair);
    let known = pair.view(ACTIVE).association.peer_ports;
    assert!(known.iter().any(|port| port.lid == new), "{known:?}");
}

/// A queue pair's number is given out again: the peer's REQ may be for the one that comes next, and then waits for that
/// to be registered. And any user has queue pairs to send from, other than QP1.
#[test]
fn a_req_for_another_queue_pair_of_the_peers_or_from_a_users_own_waits() {
    type Change = fn(&mut Req, &mut MadSource);
    let changes: [(Change, usize); 3] = [
        (|_, _| {}, 1),
        (|req, _| req.local_qpn.0 += 1, 0),
        (|_, source| source.qpn = 0x42, 0),
    ];
    for (number, (change, reps)) in changes.into_iter().enumerate() {
        let mut pair = Pair::new(13);
        pair.record("REQ");
        for host in [ACTIVE, PASSIVE] {
            pair.start(host);
        }
        pair.register(ACTIVE);
        pair.run(10);
        let (mut source, mut req) = recorded_req(&pair);
        pair.kill(ACTIVE);
        pair.kill(PASSIVE);
        pair.start(PASSIVE);
        pair.register(PASSIVE);
        change(&mut req, &mut source);
        pair.forge(PASSIVE, source, req.into());
        pair.run(1);
        assert_eq!(pair.hosts[PASSIVE].sent("REP"), reps, "{number}");
    }
}

/// Not that its association is being opened, as if nobody had tried.
#[test]
fn a_silent_peer_stays_named_while_it_is_asked_again() {
    let mut pair = Pair::new(14);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.run(3_000);
    let tries = pair.hosts[ACTIVE].sent("REQ");
    for _ in 0..2_000 {
        assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerNoApmd));
        pair.run(10);
    }
    assert!(pair.hosts[ACTIVE].sent("REQ") > tries + 6);
}
