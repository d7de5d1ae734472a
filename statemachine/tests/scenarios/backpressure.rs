// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outputs that the caller does not take at once, or not at all.

use std::time::Duration;

use cm_msgs::Lid;
use cm_msgs::cm::Message;
use statemachine::view::Reason;
use statemachine::{Command, Input, PortStatus};

use super::pair::{ACTIVE, PASSIVE, Pair};

fn armed(connections: usize) -> Pair {
    let mut pair = Pair::with(1, 0, connections);
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair
}

#[test]
fn a_full_send_queue_gathers_one_copy_of_each_message() {
    const CONNECTIONS: usize = 50;
    let mut pair = armed(CONNECTIONS);
    for port in [1, 2] {
        pair.set_full(ACTIVE, port, true);
    }
    // Its answers to the peer's questions are counted elsewhere: those are bounded by themselves.
    let own = |pair: &Pair| pair.all_sent(ACTIVE) - pair.hosts[ACTIVE].sent("SPR");
    let before = own(&pair);
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    pair.plug(ACTIVE, 2);
    pair.run(5_000);
    assert_eq!(own(&pair), before);
    for port in [1, 2] {
        pair.set_full(ACTIVE, port, false);
    }
    let at_once = own(&pair) - before;
    assert!(at_once <= CONNECTIONS, "{at_once} MADs had piled up");
    pair.run_until_armed(70_000);
}

#[test]
fn waiting_for_a_full_send_queue_is_not_taken_for_a_peer_that_does_not_answer() {
    let mut pair = Pair::new(1);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
    }
    for port in [1, 2] {
        pair.set_full(ACTIVE, port, true);
    }
    pair.register(PASSIVE);
    pair.register(ACTIVE);
    pair.run(60_000);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::Opening));
}

#[test]
fn messages_wait_for_their_own_port_only() {
    let mut pair = armed(1);
    pair.set_full(ACTIVE, 1, true);
    pair.pull(PASSIVE, 2);
    pair.run(3_000);
    assert!(pair.view(ACTIVE).alternate.is_some());
    pair.plug(PASSIVE, 2);
    pair.run_until_armed(10_000);
}

/// They would arrive long after they meant anything.
#[test]
fn messages_that_wait_for_a_port_are_dropped_when_it_goes_down() {
    for down in [false, true] {
        let mut pair = armed(1);
        for port in [1, 2] {
            pair.set_full(ACTIVE, port, true);
        }
        pair.command(ACTIVE, Command::Rearm);
        pair.run(10);
        let one = pair.hosts[ACTIVE].port_id(1);
        if down {
            pair.tell(ACTIVE, Input::Port(one, None));
        } else {
            let other = PortStatus {
                mtu: 5,
                ..pair.hosts[ACTIVE].ports[0].clone()
            };
            pair.tell(ACTIVE, Input::Port(one, Some(other)));
        }
        let engine = pair.hosts[ACTIVE].engine.as_mut().expect("a daemon");
        let waits = engine.poll_transmit(|id| id == one);
        assert_eq!(waits.is_some(), !down, "down: {down}");
    }
}

fn is_proposal(message: &Message) -> bool {
    match message {
        Message::Lap(lap) => lap.alternate.local_port_lid != Lid(0),
        _ => false,
    }
}

#[test]
fn a_proposal_that_has_lost_its_sense_while_it_waits_is_not_sent() {
    for lost in [false, true] {
        let mut pair = armed(1);
        for port in [1, 2] {
            pair.set_full(ACTIVE, port, true);
        }
        pair.command(ACTIVE, Command::Rearm);
        pair.run(10);
        if lost {
            pair.sa_dead = true;
            pair.pull(ACTIVE, 2);
            pair.run(10);
        }
        let engine = pair.hosts[ACTIVE].engine.as_mut().expect("a daemon");
        let left = std::iter::from_fn(|| engine.poll_transmit(|_| true));
        let proposals = left.filter(|mad| is_proposal(&mad.message)).count();
        assert_eq!(proposals, usize::from(!lost));
    }
}

/// The proposal that follows it tells the state as well.
#[test]
fn an_announcement_that_waits_is_not_sent_beside_a_proposal() {
    let mut pair = Pair::new(1);
    pair.config.verify = Duration::ZERO;
    pair.begin();
    pair.run_until_armed(2_000);
    for port in [1, 2] {
        pair.set_full(ACTIVE, port, true);
    }
    pair.pull(ACTIVE, 2);
    pair.run(3_000);
    let engine = pair.hosts[ACTIVE].engine.as_mut().expect("a daemon");
    let left = std::iter::from_fn(|| engine.poll_transmit(|_| true));
    let laps = left.filter(|mad| matches!(mad.message, Message::Lap(_)));
    let proposes: Vec<_> = laps.map(|mad| is_proposal(&mad.message)).collect();
    assert_eq!(proposes, [true]);
}

#[test]
fn traces_that_are_switched_off_are_not_made() {
    let mut pair = armed(1);
    let engine = pair.hosts[ACTIVE].engine.as_mut().expect("a daemon");
    engine.set_trace_level(None);
    pair.forget_traces();
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    assert!(pair.traces(PASSIVE).count() > 0);
    assert_eq!(pair.traces(ACTIVE).count(), 0);
}
