// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use cm_msgs::{Guid, Lid};

use super::*;

const UID: u32 = 1000;
const SOON: Time = Time(1);

const NEAR: PortId = PortId {
    node_guid: Guid(1),
    port: 1,
};
const SECOND: PortId = PortId {
    node_guid: Guid(1),
    port: 2,
};

const FAR: FarPort = FarPort {
    port: NEAR,
    lid: Lid(9),
    partition: 0x7fff,
};
const PEER: PeerLid = (NEAR, Lid(9));

fn up(lid: u16, lmc: u8) -> PortStatus {
    PortStatus {
        active: true,
        infiniband: true,
        apm: true,
        moves_idle: false,
        lid: Lid(lid),
        sm_lid: Lid(1),
        lmc,
        pkeys: vec![PKey::DEFAULT_FULL],
        ..PortStatus::default()
    }
}

fn down() -> PortStatus {
    PortStatus {
        active: false,
        ..up(2, 0)
    }
}

/// A host with two ports, of LIDs 1 and 2.
fn peers() -> Peers {
    let mut peers = Peers::new(14);
    peers.handle_port(NEAR, Some(&up(1, 0)));
    peers.handle_port(SECOND, Some(&up(2, 0)));
    peers
}

fn told(peers: &mut Peers) -> Vec<Told> {
    std::iter::from_fn(|| peers.poll()).collect()
}

/// The one question that it asks now.
fn question(peers: &mut Peers) -> PeerQuestion {
    let told = told(peers);
    let [Told::Ask { question, far, .. }] = told[..] else {
        panic!("not one question: {told:?}");
    };
    assert_eq!(far, FAR);
    question
}

/// The one thing that the module is told now, of this bound; with which token.
fn bound(peers: &mut Peers, bound: u8) -> u32 {
    let told = told(peers);
    let [
        Told::Bound {
            token,
            peer: PEER,
            ack_timeout,
        },
    ] = told[..]
    else {
        panic!("not one bound: {told:?}");
    };
    assert_eq!(ack_timeout, bound);
    token
}

/// The peer is named.
fn named() -> Peers {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let question = question(&mut peers);
    peers.handle_answer(SOON, question, true);
    bound(&mut peers, 14);
    peers
}

#[test]
fn who_answers_is_named_once() {
    let mut peers = named();
    assert_eq!(peers.count(), 1);
    peers.expect(FAR, Person::without_ranges(UID));
    peers.asked_by(FAR);
    assert_eq!(told(&mut peers), []);
}

/// Of another partition it may be a member no more.
#[test]
fn a_peer_is_asked_in_the_partition_that_it_was_met_in_last() {
    let mut peers = peers();
    let other = FarPort {
        partition: 5,
        ..FAR
    };
    peers.expect(other, Person::without_ranges(UID));
    let told_first = told(&mut peers);
    let [
        Told::Ask {
            question: first, ..
        },
    ] = told_first[..]
    else {
        panic!("not one question: {told_first:?}");
    };
    peers.handle_answer(SOON, first, false);
    peers.expect(FAR, Person::without_ranges(UID));
    question(&mut peers);
}

#[test]
fn one_question_is_open_for_a_peer() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    peers.expect(FAR, Person::without_ranges(UID + 1));
    question(&mut peers);
}

#[test]
fn who_does_not_answer_is_asked_about_at_the_next_connection() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let first = question(&mut peers);
    peers.handle_answer(SOON, first, false);
    assert_eq!(told(&mut peers), []);
    peers.expect(FAR, Person::without_ranges(UID));
    assert_ne!(question(&mut peers), first);
    // The old answer again is nobody's.
    peers.handle_answer(SOON, first, true);
    assert_eq!(told(&mut peers), []);
}

#[test]
fn who_asks_for_this_daemon_is_asked_about() {
    let mut peers = peers();
    peers.asked_by(FAR);
    let told = told(&mut peers);
    assert!(
        matches!(told[..], [Told::Ask { uid: STRANGERS, .. }]),
        "{told:?}"
    );
}

/// The one question that it asks now, and of whose share it is.
fn payer(peers: &mut Peers) -> (PeerQuestion, u32) {
    let told = told(peers);
    let [Told::Ask { question, uid, .. }] = told[..] else {
        panic!("not one question: {told:?}");
    };
    (question, uid)
}

#[test]
fn who_meets_a_peer_pays_and_not_who_met_it_first() {
    let mut peers = peers();
    // Somebody whose share is used up has been there before.
    for uid in [UID, UID + 1, ROOT, STRANGERS, UID] {
        match uid {
            STRANGERS => peers.asked_by(FAR),
            _ => peers.expect(FAR, Person::without_ranges(uid)),
        }
        let (question, pays) = payer(&mut peers);
        assert_eq!(pays, uid);
        peers.handle_answer(SOON, question, false);
    }
}

#[test]
fn a_ulp_waits_for_no_users_question() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let (users, _) = payer(&mut peers);
    peers.expect(FAR, Person::without_ranges(ROOT));
    let (roots, pays) = payer(&mut peers);
    assert_eq!(pays, ROOT);
    // His share is used up.
    peers.handle_answer(SOON, users, false);
    peers.expect(FAR, Person::without_ranges(UID));
    assert_eq!(told(&mut peers), [], "it is asked");
    peers.handle_answer(SOON, roots, true);
    bound(&mut peers, 14);
}

#[test]
fn who_has_answered_is_asked_again_at_nobodys_expense() {
    let mut peers = named();
    let again = peers.poll_timeout().expect("a time");
    peers.handle_time(again);
    let (question, pays) = payer(&mut peers);
    assert_eq!(pays, ROOT);
    peers.handle_answer(again, question, false);
    bound(&mut peers, 0);
    // Nor before it is named again.
    let again = peers.poll_timeout().expect("a time");
    peers.handle_time(again);
    assert_eq!(payer(&mut peers).1, ROOT);
    // Of who has never answered anybody may have told.
    peers.find(FarPort {
        lid: Lid(10),
        ..FAR
    });
    peers.handle_time(again + Duration::from_secs(1));
    assert_eq!(payer(&mut peers).1, DISCOVERY);
}

#[test]
fn without_a_second_path_nobody_is_named() {
    let mut peers = peers();
    peers.handle_port(SECOND, Some(&down()));
    peers.expect(FAR, Person::without_ranges(UID));
    assert_eq!(told(&mut peers), []);
    // Several LIDs of one port are several paths.
    peers.handle_port(NEAR, Some(&up(4, 1)));
    peers.expect(FAR, Person::without_ranges(UID));
    question(&mut peers);
}

#[test]
fn a_second_path_that_goes_while_the_peer_is_asked_counts() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let question = question(&mut peers);
    peers.handle_port(SECOND, None);
    peers.handle_answer(SOON, question, true);
    assert_eq!(told(&mut peers), []);
    assert_eq!(peers.count(), 0);
}

#[test]
fn the_host_itself_is_no_peer() {
    let mut peers = peers();
    peers.expect(FarPort { lid: Lid(2), ..FAR }, Person::without_ranges(UID));
    assert_eq!(told(&mut peers), []);
}

#[test]
fn nobody_is_asked_at_a_lid_that_no_port_has() {
    for lid in [0, 0xc000, 0xffff].map(Lid) {
        let far = FarPort { lid, ..FAR };
        let mut peers = peers();
        peers.expect(far, Person::without_ranges(UID));
        peers.asked_by(far);
        peers.find(far);
        peers.handle_time(SOON);
        assert_eq!(told(&mut peers), [], "{lid}");
    }
}

#[test]
fn whom_the_module_refuses_counts_no_more_and_is_named_at_the_next_answer() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let first = question(&mut peers);
    peers.handle_answer(SOON, first, true);
    let token = bound(&mut peers, 14);
    assert_eq!(peers.handle_refused(token + 1), None);
    assert_eq!(peers.handle_refused(token), Some(PEER));
    assert_eq!(peers.count(), 0);
    peers.expect(FAR, Person::without_ranges(UID));
    let again = question(&mut peers);
    peers.handle_answer(SOON, again, true);
    assert_ne!(bound(&mut peers, 14), token);
    assert_eq!(peers.count(), 1);
}

#[test]
fn nothing_is_due_when_nobody_has_answered() {
    let mut peers = peers();
    peers.expect(FAR, Person::without_ranges(UID));
    let question = question(&mut peers);
    peers.handle_answer(SOON, question, false);
    assert_eq!(peers.poll_timeout(), None);
}

#[test]
fn peers_of_a_device_that_has_lost_its_second_path_are_named_no_more() {
    let mut peers = named();
    peers.handle_port(SECOND, Some(&down()));
    assert_eq!(peers.poll_timeout(), Some(Time(0)));
    peers.handle_time(SOON);
    bound(&mut peers, 0);
}

#[test]
fn another_bound_ends_the_old_one_and_none_is_given_when_it_is_0() {
    let mut peers = named();
    peers.set_ack_timeout(0);
    bound(&mut peers, 0);
    peers.expect(FAR, Person::without_ranges(UID));
    assert_eq!(told(&mut peers), []);
    peers.set_ack_timeout(15);
    peers.expect(FAR, Person::without_ranges(UID));
    let question = question(&mut peers);
    peers.handle_answer(SOON, question, true);
    bound(&mut peers, 15);
}

#[test]
fn a_module_that_comes_anew_is_told_anew() {
    let mut peers = named();
    peers.clear();
    assert_eq!(told(&mut peers), []);
    peers.expect(FAR, Person::without_ranges(UID));
    let question = question(&mut peers);
    peers.handle_answer(SOON, question, true);
    bound(&mut peers, 14);
}

#[test]
fn a_flood_of_peers_is_bounded() {
    let mut peers = peers();
    for lid in 10..10 + 2 * MAX as u16 {
        peers.expect(
            FarPort {
                lid: Lid(lid),
                ..FAR
            },
            Person::without_ranges(UID),
        );
    }
    assert_eq!(told(&mut peers).len(), MAX);
    peers.asked_by(FAR);
    assert_eq!(told(&mut peers), []);
}

/// Each rail has a subnet manager of its own: the peer on rail A has the LID of this host's port on rail B.
#[test]
fn a_peer_with_the_lid_of_an_own_port_in_another_subnet_is_asked() {
    let far = FarPort { lid: Lid(2), ..FAR };
    let mut other_prefix = up(2, 0);
    other_prefix.gid.0[7] = 1;
    let other_manager = PortStatus {
        sm_lid: Lid(7),
        ..up(2, 0)
    };
    for second in [other_prefix, other_manager] {
        let mut peers = peers();
        peers.handle_port(SECOND, Some(&second));
        peers.expect(far, Person::without_ranges(UID));
        assert!(matches!(told(&mut peers)[..], [Told::Ask { far: it, .. }] if it == far));
    }
}
