// SPDX-License-Identifier: MIT OR Apache-2.0
use cm_msgs::{Gid, Guid, PKey};
use statemachine::{PeerQuestion, PortStatus};

use super::super::{Peers, Told};
use super::*;
use crate::io::person::Person;

fn peer(lid: u16) -> PeerLid {
    (PortId::new(Guid(9), 1), Lid(lid))
}

fn far(lid: u16) -> FarPort {
    FarPort {
        port: peer(lid).0,
        lid: Lid(lid),
        partition: 0x7fff,
    }
}

/// All that are asked until then, each answered at once, with when.
fn asked(discovery: &mut Discovery, until: Time, answers: bool) -> Vec<(Time, PeerLid)> {
    let mut all = Vec::new();
    while let Some(at) = discovery.poll_timeout().filter(|at| *at <= until) {
        let peer = match discovery.poll(at) {
            Some(Due::First(far)) => (far.port, far.lid),
            Some(Due::Again(way)) => way,
            None => panic!("nothing due"),
        };
        discovery.asked(peer);
        all.push((at, peer));
        if !discovery.handle_answer(at, peer, answers) {
            discovery.forget(peer);
        }
    }
    all
}

fn lids(asked: &[(Time, PeerLid)]) -> Vec<u16> {
    asked.iter().map(|(_, (_, lid))| lid.0).collect()
}

#[test]
fn each_is_asked_once_beginning_behind_the_own_lid() {
    let mut discovery = Discovery::default();
    discovery.begin_behind(Lid(3), peer(3).0);
    for lid in [5, 1, 4, 2, 5] {
        discovery.find(far(lid));
    }
    let all = asked(&mut discovery, Time(1_000_000), true);
    assert_eq!(lids(&all), [4, 5, 1, 2]);
    let gaps = all.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.into_iter().all(|gap| gap == PACE_FIRST));
}

#[test]
fn few_are_under_way_at_a_time() {
    let mut discovery = Discovery::default();
    (1..=20).for_each(|lid| discovery.find(far(lid)));
    let mut now = Time(0);
    while let Some(at) = discovery.poll_timeout() {
        now = at;
        let Some(Due::First(far)) = discovery.poll(now) else {
            panic!("nothing due");
        };
        discovery.asked((far.port, far.lid));
    }
    assert_eq!(discovery.under_way.len(), UNDER_WAY_MAX);
    assert_eq!(discovery.poll(now + AGAIN_AFTER), None);
    discovery.handle_answer(now, peer(1), false);
    assert!(discovery.poll_timeout().is_some());
}

#[test]
fn many_are_asked_again_no_faster_than_the_pace() {
    let mut discovery = Discovery::default();
    const MANY: usize = 3000;
    (1..=MANY as u16).for_each(|lid| discovery.find(far(lid)));
    let first = asked(&mut discovery, Time(20_000_000), true);
    assert_eq!(first.len(), MANY);
    let mut last = first.last().unwrap().0;
    for (at, _) in asked(&mut discovery, Time(400_000_000), true) {
        assert!(at - last >= PACE_AGAIN);
        last = at;
    }
    let again = asked(&mut discovery, last + 2 * AGAIN_AFTER, true);
    assert!(again.len() > MANY, "{}", again.len());
}

#[test]
fn who_never_answered_is_soon_forgotten_and_who_did_after_a_while() {
    let mut discovery = Discovery::default();
    discovery.find(far(1));
    let silent = asked(&mut discovery, Time(u64::MAX), false);
    let after: Vec<_> = silent.iter().map(|(at, _)| at.0 / 1_000_000).collect();
    assert_eq!(after, [0, 4, 12, 28, 60, 124]);
    assert!(!discovery.keeps(peer(1)));
    assert_eq!(discovery.poll_timeout(), None);

    discovery.find(far(1));
    let begin = discovery.poll_timeout().unwrap();
    asked(&mut discovery, begin, true);
    let silent = asked(&mut discovery, Time(u64::MAX), false);
    assert_eq!(silent.len(), usize::from(SILENT_MAX));
    assert!(!discovery.keeps(peer(1)));
}

#[test]
fn who_was_too_busy_to_answer_is_named_seconds_later() {
    let mut discovery = Discovery::default();
    discovery.find(far(1));
    asked(&mut discovery, Time(0), false);
    let again = asked(&mut discovery, Time(0) + AGAIN_AFTER, true);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0, Time(0) + RETRY_AFTER);
    assert_eq!(discovery.poll_timeout(), Some(again[0].0 + AGAIN_AFTER));
}

#[test]
fn of_those_who_never_answer_few_are_asked_again() {
    let mut discovery = Discovery::default();
    const MANY: usize = 2 * UNPROVEN_MAX;
    (1..=MANY as u16).for_each(|lid| discovery.find(far(lid)));
    let all = asked(&mut discovery, Time(u64::MAX), false);
    let again = UNPROVEN_MAX * (usize::from(UNPROVEN_SILENT_MAX) - 1);
    assert_eq!(all.len(), MANY + again);
    assert!(discovery.unproven.is_empty() && discovery.poll_timeout().is_none());
}

#[test]
fn what_others_ask_neither_hastens_nor_delays_nor_forgets() {
    let mut discovery = Discovery::default();
    discovery.find(far(1));
    asked(&mut discovery, Time(0), false);
    let due = discovery.poll_timeout();
    for _ in 0..100 {
        assert!(discovery.handle_answer(Time(1), peer(1), false));
        assert!(!discovery.handle_answer(Time(1), peer(2), false));
    }
    assert_eq!(discovery.poll_timeout(), due);
    assert_eq!((due, discovery.unproven.len()), (Some(Time(4_000_000)), 1));
}

#[test]
fn a_flood_waits_in_bounds() {
    let mut discovery = Discovery::default();
    (1..=10_000).for_each(|lid| discovery.find(far(lid)));
    assert_eq!(discovery.waiting.len(), WAITING_MAX);
}

const SECOND: PortId = PortId {
    node_guid: Guid(9),
    port: 2,
};

fn up(lid: u16) -> PortStatus {
    PortStatus {
        active: true,
        infiniband: true,
        apm: true,
        moves_idle: false,
        lid: Lid(lid),
        pkeys: vec![PKey(0xffff)],
        gid: Gid::new(0xfe80 << 48, Guid(lid.into())),
        ..PortStatus::default()
    }
}

/// A host with two ports, of LIDs 1 and 2, that is told of a daemon at LID 7.
fn peers() -> Peers {
    let mut peers = Peers::new(14);
    peers.handle_port(peer(1).0, Some(&up(1)));
    peers.handle_port(SECOND, Some(&up(2)));
    peers.find(far(7));
    peers
}

fn questions(peers: &mut Peers) -> Vec<(PeerQuestion, Lid)> {
    let told = std::iter::from_fn(|| peers.poll());
    let asked = told.filter_map(|told| match told {
        Told::Ask { question, far, .. } => Some((question, far.lid)),
        Told::Bound { .. } => None,
    });
    asked.collect()
}

/// Lets time pass, and answers all questions; who was asked.
fn pass(peers: &mut Peers, from: Time, until: Time, answers: bool) -> Vec<Lid> {
    let (mut now, mut asked) = (from, Vec::new());
    loop {
        peers.handle_time(now);
        for (question, lid) in questions(peers) {
            asked.push(lid);
            peers.handle_answer(now, question, answers);
        }
        match peers.poll_timeout().filter(|at| *at <= until) {
            Some(at) => now = now.max(at),
            None => return asked,
        }
    }
}

const HOUR: Time = Time(3_600_000_000);

#[test]
fn who_answers_stays_named_though_nobody_is_connected() {
    let mut peers = peers();
    let asked = pass(&mut peers, Time(0), HOUR, true);
    assert_eq!(peers.count(), 1);
    let again = HOUR.0 as usize / AGAIN_AFTER.as_micros() as usize;
    assert_eq!(asked.len(), 1 + again, "asked again, and no more than that");
}

#[test]
fn who_does_not_answer_is_not_named_and_who_answers_again_is() {
    let mut peers = peers();
    pass(&mut peers, Time(0), Time(0), false);
    assert_eq!(peers.count(), 0);
    peers.find(far(7));
    let mut now = Time(0) + PACE_FIRST;
    pass(&mut peers, now, now, true);
    for answers in [true, false, false, true] {
        let next = now + AGAIN_AFTER;
        pass(&mut peers, now, next, answers);
        assert_eq!(peers.count(), usize::from(answers));
        now = next;
    }
}

#[test]
fn who_asks_is_kept_too_and_hearsay_of_other_partitions_and_of_the_host_itself_is_nothing() {
    let mut peers = Peers::new(14);
    peers.handle_port(peer(1).0, Some(&up(1)));
    peers.handle_port(SECOND, Some(&up(2)));
    peers.find(far(2));
    peers.find(FarPort {
        partition: 5,
        ..far(8)
    });
    assert_eq!(pass(&mut peers, Time(0), Time(0) + AGAIN_AFTER, true), []);
    peers.asked_by(far(9));
    pass(&mut peers, Time(0), HOUR, true);
    assert_eq!(peers.count(), 1);
}

/// Both daemons start: one has just asked in vain, for a connection that is older, when the other finds it.
#[test]
fn who_asks_while_its_silence_is_believed_is_asked_again_later() {
    let mut peers = Peers::new(14);
    peers.handle_port(peer(1).0, Some(&up(1)));
    peers.handle_port(SECOND, Some(&up(2)));
    peers.expect(far(9), Person::default());
    assert_eq!(pass(&mut peers, Time(0), Time(0), false), [Lid(9)]);
    peers.asked_by(far(9));
    pass(&mut peers, Time(0), Time(0), false);
    assert_eq!(peers.count(), 0);
    pass(&mut peers, Time(0), Time(0) + RETRY_AFTER, true);
    assert_eq!(peers.count(), 1);
}

#[test]
fn a_second_path_that_goes_and_comes_has_peers_named_again() {
    let mut peers = peers();
    pass(&mut peers, Time(0), Time(0), true);
    let down = PortStatus {
        active: false,
        ..up(2)
    };
    let later = Time(0) + PACE_AGAIN;
    peers.handle_port(SECOND, Some(&down));
    pass(&mut peers, later, later, true);
    assert_eq!(peers.count(), 0);
    let later = later + PACE_AGAIN;
    peers.handle_port(SECOND, Some(&up(2)));
    pass(&mut peers, later, later, true);
    assert_eq!(peers.count(), 1);
}

#[test]
fn another_bound_is_told_of_all() {
    let mut peers = peers();
    pass(&mut peers, Time(0), Time(0), true);
    peers.set_ack_timeout(15);
    assert_eq!(peers.count(), 0);
    pass(&mut peers, HOUR, HOUR, true);
    assert_eq!(peers.count(), 1);
}
