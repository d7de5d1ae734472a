// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that move: they are announced, others take that in, and ask before they believe it.

use super::*;

/// The lookup of host 0 that is to check whether the host `held_by` still has an address.
fn check(world: &mut World, number: u32, destination: Address, held_by: u8) {
    let lookup = Lookup {
        number,
        endpoint: partition(world.hosts[0].number),
        source: world.hosts[0].addresses[0],
        destination,
        held_by: Some(Gid([held_by; 16])),
    };
    world.hosts[0].net.lookup(world.now, &lookup);
    world.settle();
}

fn announce(world: &mut World, host: usize, address: Address, moved: bool) {
    let (now, id) = (world.now, partition(world.hosts[host].number));
    world.hosts[host].net.announce(now, id, address, moved);
    world.settle();
}

#[test]
fn an_address_that_has_moved_is_told_to_all_three_times_in_two_seconds() {
    let mut world = World::ready(Settings::default(), 3);
    world.hosts[1].addresses.push(ip(77));
    announce(&mut world, 1, ip(77), true);
    let start = world.now;
    world.run(2);
    for host in [0, 2] {
        let claims = &world.hosts[host].claims;
        let heard = claims.iter().map(|(at, address, gid)| {
            assert_eq!((*address, *gid), (ip(77), Gid([2; 16])));
            (*at - start).as_millis()
        });
        assert_eq!(heard.collect::<Vec<_>>(), [1, 301, 1501]);
    }
    assert_eq!(world.hosts[1].claims, [], "its own");
    assert_eq!(world.hosts[1].net.counters().announced, 3);
    // As ibacm learns it: who looks for the address finds it without a question.
    let questions = world.questions();
    let found = world.resolve(0, 1, ip(77)).unwrap();
    assert_eq!(found.gid, Gid([2; 16]));
    assert_eq!(world.questions(), questions);
}

#[test]
fn before_it_is_in_its_group_an_endpoint_keeps_what_has_moved_and_nothing_else() {
    let mut world = World::new(Settings::default(), 2);
    announce(&mut world, 1, ip(76), false);
    announce(&mut world, 1, ip(77), true);
    world.run(3);
    let heard: Vec<_> = world.hosts[0].claims.iter().map(|claim| claim.1).collect();
    assert_eq!(heard, [ip(77); 3]);
}

#[test]
fn an_address_that_goes_elsewhere_is_announced_no_longer() {
    let mut world = World::ready(Settings::default(), 2);
    announce(&mut world, 1, ip(77), true);
    let elsewhere = PortPartition {
        pkey: PKey(0x8001),
        ..partition(2)
    };
    let now = world.now;
    world.hosts[1].net.announce(now, elsewhere, ip(77), true);
    world.run(3);
    assert_eq!(world.hosts[0].claims.len(), 1);
}

#[test]
fn nor_is_one_that_leaves_the_host() {
    let mut world = World::ready(Settings::default(), 2);
    announce(&mut world, 1, ip(77), true);
    world.hosts[1].net.announce_no_longer(&ip(77));
    world.run(3);
    assert_eq!(world.hosts[0].claims.len(), 1);
}

#[test]
fn who_claims_what_another_one_answers_for_does_not_get_it() {
    let mut world = World::ready(Settings::default(), 3);
    // Host 3 claims an address of host 2, and would answer for it as well.
    world.hosts[2].addresses.push(ip(2));
    announce(&mut world, 2, ip(2), true);
    world.run(1);
    check(&mut world, 1, ip(2), 2);
    world.run(1);
    assert_eq!(world.result(0, 1).unwrap().gid, Gid([2; 16]));
}

#[test]
fn what_is_claimed_by_who_alone_answers_for_it_has_moved() {
    let mut world = World::ready(Settings::default(), 3);
    world.hosts[1].addresses.retain(|address| *address != ip(2));
    world.hosts[2].addresses.push(ip(2));
    announce(&mut world, 2, ip(2), true);
    world.run(1);
    check(&mut world, 1, ip(2), 2);
    world.run(1);
    let found = world.result(0, 1).unwrap();
    assert_eq!((found.gid, found.until), (Gid([3; 16]), None));
}

#[test]
fn what_was_only_heard_does_not_answer_a_check() {
    let mut world = World::ready(Settings::default(), 3);
    // Host 3 only claims it, and nobody answers.
    world.hosts[1].addresses.retain(|address| *address != ip(2));
    announce(&mut world, 2, ip(2), true);
    world.run(1);
    check(&mut world, 1, ip(2), 2);
    world.run(20);
    assert_eq!(world.result(0, 1), Err(LookupError::Unanswered));
}
