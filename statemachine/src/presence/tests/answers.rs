// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many questions of other ports are answered, and which answers wait.

use super::*;

#[test]
fn strangers_questions_are_answered_in_shares_and_none_is_a_peers() {
    let mut presence = presence();
    let (ports, wide) = (local_ports(0), local_ports(3));
    let sender = |ports, lid| Sender::new(ports, port(1), Lid(lid));
    let second = 1_000 * MS;
    let mut answered = [0; 4];
    // 360 a second each, from eight LIDs of a port.
    for question in 0..3_600_u64 {
        let now = Time(question * second / 360);
        for number in 0..4_u8 {
            let lid = 8 * u16::from(number) + 64 + (question % 8) as u16;
            answered[usize::from(number)] +=
                u64::from(presence.admits(now, sender(&wide, lid), false));
        }
    }
    for answered in answered {
        assert!((200..=240).contains(&answered), "{answered} in ten seconds");
    }
    let now = Time(10 * second);
    assert!(
        presence.admits(now, sender(&wide, 7), false),
        "another one is heard"
    );
    assert!(
        (0..512).all(|_| presence.admits(now, sender(&wide, 64), true)),
        "a peer"
    );
    let discarded = presence.counters().discarded;
    let all = (0..60_000)
        .filter(|number| presence.admits(now, sender(&ports, 128 + *number as u16), false));
    let all = all.count();
    assert!(all <= 256, "however many LIDs ask");
    assert_eq!(
        presence.counters().discarded - discarded,
        60_000 - all as u64
    );
}

#[test]
fn a_flood_of_peers_questions_is_bounded_and_holds_up_no_question_of_ours() {
    let mut presence = presence();
    for number in 0..2000 {
        presence.hear(
            Time(0),
            far(1, 9),
            MadWay::default(),
            number,
            &Presence::Get,
        );
    }
    presence.ask(Time(0), question(1, 1), USER, far(2, 7));
    let mad = presence.poll_transmit(|id| id == port(2));
    assert_eq!(mad.map(|mad| mad.to), Some(far(2, 7)));
    assert_eq!(sent(&mut presence).len(), SENDER_MAX);
    let (answered, discarded) = (SENDER_MAX as u64, 2000 - SENDER_MAX as u64);
    let counters = presence.counters();
    assert_eq!(
        (counters.answered, counters.discarded),
        (answered, discarded)
    );
    presence.hear(Time(0), far(1, 9), MadWay::default(), 1, &Presence::Get);
    assert_eq!(sent(&mut presence).len(), 1, "and there is room again");
}

#[test]
fn answers_by_a_port_that_changed_are_dropped() {
    const STAY: usize = 10;
    let mut presence = presence();
    let flood = |presence: &mut PeerPresence, number, count| {
        for transaction in 0..count as u64 {
            presence.hear(Time(0), far(number, 9), WAY, transaction, &Presence::Get);
        }
    };
    flood(&mut presence, 1, SENDER_MAX);
    flood(&mut presence, 2, STAY);
    presence.ask(Time(0), question(1, 1), USER, far(1, 7));
    presence.port_changed(Time(0), port(1));
    assert_eq!(presence.replies.len(), STAY);
    flood(&mut presence, 1, 2 * SENDER_MAX);
    let to: Vec<_> = sent(&mut presence).iter().map(|mad| mad.to.port).collect();
    let through = |number| to.iter().filter(|id| **id == port(number)).count();
    assert_eq!([1, 2].map(through), [SENDER_MAX, STAY]);
    assert_eq!(presence.replies.len(), 0);
}

/// A peer that asks faster than one local port sends, or a port that is stuck, leaves places for the answers to other
/// peers by other ports. Their daemons would take good paths for holes.
#[test]
fn answers_that_wait_for_one_port_leave_room_for_those_of_another() {
    let mut presence = presence();
    for lid in 1..=PORT_MAX as u16 {
        for id in 0..4 {
            presence.hear(Time(0), far(1, lid), WAY, id, &Presence::Get);
        }
    }
    assert_eq!(presence.replies.len(), PORT_MAX, "port 1 is full");
    presence.hear(Time(0), far(2, 10), WAY, 1, &Presence::Get);
    let answer = presence.poll_transmit(|id| id == port(2));
    assert_eq!(answer.map(|mad| mad.to), Some(far(2, 10)));
}

/// Of the answers that wait for one local port, a peer that asks all the time has a quarter.
#[test]
fn a_peer_that_asks_all_the_time_leaves_room_for_answers_to_another() {
    let mut presence = presence();
    for id in 0..10_000 {
        if presence.admits(Time(0), sender(far(1, 9)), true) {
            presence.hear(Time(0), far(1, 9), WAY, id, &Presence::Get);
        }
    }
    assert_eq!(presence.replies.len(), SENDER_MAX);
    assert!(
        presence.admits(Time(0), sender(far(1, 10)), true),
        "another peer"
    );
    presence.hear(Time(0), far(1, 10), WAY, 1, &Presence::Get);
    let sent = sent(&mut presence);
    assert!(sent.iter().any(|mad| mad.to == far(1, 10)));
}

/// Four peers that ask all the time do not have all the places together: others find one each.
#[test]
fn four_peers_leave_room_for_answers_to_others() {
    let mut presence = presence();
    for id in 0..1_000 {
        for lid in 1..=4 {
            presence.hear(Time(0), far(1, lid), WAY, id, &Presence::Get);
        }
    }
    for lid in 10..26 {
        presence.hear(Time(0), far(1, lid), WAY, 1, &Presence::Get);
    }
    let sent = sent(&mut presence);
    for lid in 10..26 {
        assert!(sent.iter().any(|mad| mad.to == far(1, lid)), "LID {lid}");
    }
}

/// A stranger has one share, by whichever of four local ports in its subnet it asks.
#[test]
fn a_stranger_has_one_share_of_answers_by_all_local_ports() {
    let mut presence = presence();
    let ports = local_ports(0);
    let asked = (0..400_u16).filter(|number| {
        let local = port(1 + (number % 4) as u8);
        presence.admits(Time(0), Sender::new(&ports, local, Lid(9)), false)
    });
    assert_eq!(asked.count(), 32);
}

/// A client of a kernel target or a user's program elsewhere makes its host's port a peer. The failover loop answers as
/// many of its questions as an honest daemon sends, and some more; what it sends besides costs no other peer anything.
#[test]
fn a_peers_questions_are_bounded() {
    let mut presence = presence();
    let (peer, other) = (sender(far(1, 9)), sender(far(1, 10)));
    let mut asked = 0;
    for number in 0..100_000_u64 {
        let now = Time(number * 10);
        asked += usize::from(presence.admits(now, peer, true));
        // 400 a second, which is what an honest daemon sends at most.
        if number % 250 == 0 {
            assert!(presence.admits(now, other, true), "an honest peer");
        }
    }
    assert!((1_000..=1_020).contains(&asked), "{asked} in a second");
    assert_eq!(presence.counters().discarded, 100_000 - asked as u64);
}

/// However many peers ask, the failover loop answers so many in a second.
#[test]
fn all_peers_questions_together_are_bounded() {
    let mut presence = presence();
    let ports = local_ports(0);
    let asked = (0..200_000_u64).filter(|number| {
        let sender = Sender::new(&ports, port(1), Lid(1 + (number % 1_000) as u16));
        presence.admits(Time(number * 5), sender, true)
    });
    let asked = asked.count();
    assert!(asked <= 8_192 + 20_000, "{asked} in a second");
    assert!(
        presence.admits(Time(0), sender(far(1, 2_000)), false),
        "a stranger"
    );
}
