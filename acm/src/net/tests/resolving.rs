// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses asked for, found, and not found.

use super::*;

#[test]
fn one_asks_and_the_one_concerned_answers() {
    let mut world = World::ready(Settings::default(), 3);
    let found = world.resolve(0, 7, name("HOST-2")).unwrap();
    assert_eq!((found.gid, found.lid), (Gid([2; 16]), Lid(2)));
    assert_eq!(found.path, None, "the SA is asked for it");
    assert_eq!(world.sent.len(), 2, "one question, one answer");
    let (_, from, qpn, answer) = world.sent[1];
    assert_eq!((from, qpn), (2, Qpn(17)), "back to where it came from");
    let Ok(Message::Answer(answer)) = Message::decode(&answer) else {
        panic!("no answer")
    };
    let least = Settings::default().least;
    assert_eq!(answer.groups.as_slice(), [least.mgid(PKEY)]);
    // Who heard the question knows the asker, and so does the one who answered.
    for host in [1, 2] {
        world.lookup(host, 8, ip(1));
        assert_eq!(world.result(host, 8).unwrap().lid, Lid(1));
    }
    assert_eq!(world.questions(), 1);
}

#[test]
fn what_was_heard_is_not_believed_for_ever() {
    let mut world = World::ready(Settings::default(), 2);
    world.lookup(0, 1, ip(2));
    world.run(59);
    world.lookup(1, 2, ip(1));
    assert_eq!(world.questions(), 1);
    let believed = world.result(1, 2).unwrap().until.unwrap();
    assert!(believed > world.now && believed <= world.now + Duration::from_secs(2));
    world.run(2);
    world.lookup(1, 3, ip(1));
    assert_eq!(world.questions(), 2);
    world.run(1);
    let asked = world.result(1, 3).unwrap();
    assert_eq!((asked.lid, asked.until), (Lid(1), None));
}

#[test]
fn with_route_prot_acm_the_path_is_the_best_common_groups() {
    let settings = Settings {
        route_prot: RouteProt::Acm,
        ..Settings::default()
    };
    let mut world = World::ready(settings, 2);
    let path = world.resolve(0, 1, ip(2)).unwrap().path.unwrap();
    assert_eq!((path.sgid, path.dgid), (Gid([1; 16]), Gid([2; 16])));
    assert_eq!((path.slid, path.dlid), (Lid(1), Lid(2)));
    assert_eq!((path.rate, path.mtu), (7, 5), "that of the ports");
    assert_eq!((path.sl, path.packet_life_time), (2, 18));
    assert!(path.reversible);
    // A slower peer is in the first group only.
    let slow = UpPort {
        rate: 3,
        mtu: 4,
        ..up(2)
    };
    world.hosts[1]
        .net
        .handle_port(world.now, partition(2).port, Some(slow));
    world.settle();
    world.run(11);
    let path = world.resolve(1, 2, ip(1)).unwrap().path.unwrap();
    assert_eq!((path.rate, path.mtu), (3, 4));
    assert_eq!(world.left.len(), 1, "the group that is no longer wanted");
}

#[test]
fn a_lossy_wire_is_asked_again() {
    let mut answered = 0;
    for round in 0..200 {
        let mut world = World::ready(Settings::default(), 2);
        (world.loss, world.random) = (30, round);
        world.lookup(0, 1, ip(2));
        world.lookup(1, 2, ip(1));
        world.run(60);
        for (host, number) in [(0, 1), (1, 2)] {
            match world.result(host, number) {
                Ok(found) => {
                    assert_eq!(found.lid, Lid(2 - host as u16));
                    answered += 1;
                }
                Err(error) => assert_eq!(error, LookupError::Unanswered),
            }
        }
        assert!(world.questions() <= 6);
    }
    // Each of three tries gets through with 0.49, or the peer's own question does with 0.7.
    assert!(answered > 380, "{answered} of 400");
}

#[test]
fn nobody_there_is_remembered_for_a_while() {
    let mut world = World::ready(Settings::default(), 2);
    world.lookup(0, 1, ip(77));
    world.run(30);
    assert_eq!(world.result(0, 1), Err(LookupError::Unanswered));
    let times: Vec<_> = world.sent.iter().map(|(at, ..)| at.0 / 1_000_000).collect();
    assert_eq!(times.len(), 3);
    assert!(times[1] - times[0] >= 3, "2 s and SubnetTimeOut");
    assert!(times[2] - times[1] >= 6, "twice that");
    let (given_up, ..) = world.hosts[0].found[0];
    world.now = given_up;
    world.lookup(0, 2, ip(77));
    assert_eq!(world.result(0, 2), Err(LookupError::Unanswered), "at once");
    assert_eq!(world.questions(), 3);
    // It comes up and speaks.
    world.hosts[1].addresses = vec![ip(77)];
    world.lookup(1, 3, ip(55));
    world.run(1);
    world.lookup(0, 4, ip(77));
    assert_eq!(world.result(0, 4).unwrap().lid, Lid(2));
}
