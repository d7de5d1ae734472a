// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one connection's handshake has proven of the peer's ports serves others to the same port.

use cm_msgs::PKey;
use cm_msgs::cm::Message;
use statemachine::Input;
use statemachine::view::AssociationState;

use super::pair::{ACTIVE, PASSIVE, Pair};

/// Two idle connections between the first ports. The first has its association, and the second's programs
/// have not registered yet.
fn one_of_two(seed: u64) -> Pair {
    let mut pair = Pair::with(seed, 0, 2);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..1);
    }
    pair.run(2_000);
    assert_eq!(state(&pair, ACTIVE, 0), AssociationState::Established);
    pair
}

fn register_second(pair: &mut Pair) {
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 1..2);
    }
}

fn state(pair: &Pair, host: usize, conn: usize) -> AssociationState {
    let view = pair.views(host).into_iter().nth(conn);
    view.expect("it is registered").association.state
}

fn is_open(pair: &Pair, conn: usize) -> bool {
    [ACTIVE, PASSIVE]
        .into_iter()
        .all(|host| state(pair, host, conn) == AssociationState::Established)
}

#[test]
fn a_peer_whose_port_died_before_the_handshake_is_reached_at_its_other() {
    for loses in [ACTIVE, PASSIVE] {
        let mut pair = one_of_two(1);
        pair.pull(loses, 1);
        pair.run(100);
        register_second(&mut pair);
        pair.run(10_000);
        assert!(is_open(&pair, 1), "host {loses} has lost its port");
    }
}

/// A local port joins another partition: that says nothing about the peer's ports.
#[test]
fn proofs_outlast_a_local_change_that_keeps_lids_and_subnet() {
    let mut pair = one_of_two(1);
    pair.join_partition(ACTIVE, 2, PKey(0x8005));
    pair.run(100);
    pair.pull(PASSIVE, 1);
    pair.run(100);
    register_second(&mut pair);
    pair.run(10_000);
    assert!(is_open(&pair, 1));
}

#[test]
fn without_another_connection_it_is_not() {
    let mut pair = Pair::new(1);
    pair.pull(PASSIVE, 1);
    pair.begin();
    pair.set_traffic(false);
    pair.run(10_000);
    assert!(!is_open(&pair, 0));
}

#[test]
fn nor_after_the_last_one_has_closed() {
    let mut pair = one_of_two(2);
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].registered[0] = false;
        let id = pair.id(host, 0);
        pair.tell(host, Input::Close(id));
    }
    pair.run(1_000);
    pair.pull(PASSIVE, 1);
    pair.run(100);
    register_second(&mut pair);
    pair.run(10_000);
    assert!(!is_open(&pair, 0), "it is the only one now");
}

#[test]
fn nor_at_a_port_that_was_out_of_service_when_it_was_said_last() {
    let mut pair = one_of_two(3);
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    pair.record("REQ");
    pair.pull(PASSIVE, 1);
    pair.run(100);
    // It works again, and nobody has said so.
    *pair.net.cable((PASSIVE, 2)) = super::pair::Cable::Plugged;
    register_second(&mut pair);
    pair.run(10_000);
    let qpn = pair.hosts[ACTIVE].qpn(1);
    let of_second =
        |message: &Message| matches!(message, Message::Req(req) if req.local_qpn == qpn);
    let mut heard = pair.recorded().iter();
    assert!(!heard.any(|(_, _, message)| of_second(message)));
}

/// Its connection lives on, and its peer's daemon was started again and knows nothing of it.
#[test]
fn nor_after_its_association_has_ended() {
    let mut pair = one_of_two(4);
    pair.kill(PASSIVE);
    pair.hosts[PASSIVE].registered[0] = false;
    pair.start(PASSIVE);
    // Its state is another, so that the peer is told, and says that it knows nothing of it.
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    assert_ne!(state(&pair, ACTIVE, 0), AssociationState::Established);
    pair.pull(PASSIVE, 1);
    pair.run(100);
    register_second(&mut pair);
    pair.run(10_000);
    assert!(!is_open(&pair, 1));
}
