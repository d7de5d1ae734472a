// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends take themselves for the active side, or both for the passive.

use cm_msgs::control::Role;
use statemachine::view::AssociationState;

use super::association::assert_open;
use super::pair::{ACTIVE, PASSIVE, Pair};

fn with_roles(seed: u64, roles: [Role; 2]) -> Pair {
    let mut pair = Pair::new(seed);
    pair.roles = roles;
    for host in [ACTIVE, PASSIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.set_traffic(true);
    pair
}

#[test]
fn of_two_active_ends_the_lower_stays_active() {
    for seed in 0..20 {
        let mut pair = with_roles(seed, [Role::Active; 2]);
        pair.run(5_000);
        assert_open(&pair);
        pair.assert_armed();
        assert_eq!(pair.view(0).role, Role::Active);
        assert_eq!(pair.view(1).role, Role::Passive);
    }
}

#[test]
fn of_two_passive_ends_the_lower_becomes_active() {
    let mut pair = with_roles(1, [Role::Passive; 2]);
    pair.run(9_000);
    assert_eq!(pair.view(0).association.state, AssociationState::None);
    pair.run(4_000);
    assert_open(&pair);
    pair.assert_armed();
    assert_eq!(pair.view(0).role, Role::Active);
    assert_eq!(pair.view(1).role, Role::Passive);
}

#[test]
fn a_daemon_that_is_started_anew_with_the_other_idea_finds_its_role_again() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_roles(2, [Role::Active; 2]);
        pair.run(5_000);
        pair.assert_armed();
        pair.kill(host);
        pair.run(1_000);
        pair.start(host);
        pair.run(5_000);
        assert_open(&pair);
        pair.assert_armed();
        pair.pull(0, 1);
        pair.run(3_000);
        pair.plug(0, 1);
        pair.run(5_000);
        pair.assert_armed();
    }
}

#[test]
fn a_peer_that_registers_late_keeps_the_role_that_was_taken_meanwhile() {
    let mut pair = Pair::new(3);
    pair.roles = [Role::Passive, Role::Active];
    pair.start(0);
    pair.start(1);
    pair.register(0);
    pair.set_traffic(true);
    pair.run(15_000);
    assert_eq!(pair.view(0).role, Role::Active, "nobody asked");
    pair.register(1);
    pair.run(5_000);
    assert_open(&pair);
    pair.assert_armed();
}

/// The ends have exchanged their roles, and the daemon of the active one is started again.
#[test]
fn two_passive_ends_of_which_one_takes_the_association_for_open_find_their_roles_again() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(4);
        // As the other end of an association that its host has forgotten: both have no active side.
        pair.roles = [Role::Passive; 2];
        pair.kill(host);
        pair.run(100);
        pair.start(host);
        let sides = [ACTIVE, PASSIVE].map(|host| pair.view(host).role);
        if host == ACTIVE {
            assert_eq!(sides, [Role::Passive; 2]);
        }
        pair.run(40_000);
        assert_open(&pair);
        pair.assert_armed();
        pair.pull(host, 2);
        pair.run(1_000);
        pair.assert_armed();
    }
}

/// The same, without an alternate that tells the daemon that there was an association.
#[test]
fn of_two_passive_ends_the_higher_asks_when_the_lower_takes_the_association_for_open() {
    for host in [ACTIVE, PASSIVE] {
        let mut roles = [Role::Passive; 2];
        roles[host] = Role::Active;
        let mut pair = Pair::new(5);
        pair.roles = roles;
        pair.sa_dead = true;
        pair.begin();
        pair.run(2_000);
        assert_open(&pair);
        pair.roles = [Role::Passive; 2];
        pair.kill(host);
        pair.start(host);
        pair.sa_dead = false;
        // The lower makes sure of its peer, whose daemon knows nothing of it, and asks two seconds later.
        pair.run(10_000);
        assert_open(&pair);
        pair.assert_armed();
    }
}

/// The other would ask if both took themselves for the passive side.
#[test]
fn the_higher_passive_end_asks_much_later() {
    let mut pair = Pair::new(1);
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.run(59_000);
    assert_eq!(pair.view(PASSIVE).role, Role::Passive);
    assert_eq!(pair.hosts[PASSIVE].sent("REQ"), 0);
    pair.run(2_000);
    assert_eq!(pair.view(PASSIVE).role, Role::Active);
}

/// Its own REQ is repeated soon. With a new one for each of the peer's, they would go out as often as the peer asks.
#[test]
fn a_req_of_the_peers_does_not_begin_a_req_again_that_is_under_way() {
    let mut pair = Pair::new(7);
    pair.roles = [Role::Active; 2];
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.lose.insert("REQ", 1);
    pair.register(ACTIVE);
    pair.run(1);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 1);
    pair.register(PASSIVE);
    pair.run(5);
    assert_eq!(pair.hosts[PASSIVE].sent("REQ"), 1);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 1);
}
