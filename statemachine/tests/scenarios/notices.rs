// SPDX-License-Identifier: MIT OR Apache-2.0
//! What subnet administration reports by itself is looked into, and nothing of it is believed.

use cm_msgs::{Gid, Guid, Lid};
use statemachine::view::{Grade, Protection};
use statemachine::{Input, Notice, PathHealth};

use super::pair::{ACTIVE, Fabric, PASSIVE, Pair, base_lid, gid, shared};

fn notify(pair: &mut Pair, host: usize, port: u8, notice: Notice) {
    let port = pair.hosts[host].port_id(port);
    pair.tell(host, Input::Notice(port, notice));
}

/// Runs until a probe of `host` has just been answered: the next is due in 0.7 s at the earliest.
fn just_probed(pair: &mut Pair, host: usize) {
    pair.run(3_000);
    let fresh = |pair: &Pair| {
        let view = pair.view(host);
        let ages = [view.primary_probe.age, view.alternate_probe.age];
        ages.iter()
            .all(|age| age.is_some_and(|age| age.as_millis() < 300))
    };
    while !fresh(pair) {
        pair.run(10);
    }
}

fn suspects(pair: &Pair, host: usize) -> bool {
    pair.view(host).alternate_probe.health == PathHealth::Suspect
}

#[test]
fn an_alternate_whose_far_port_is_said_to_be_gone_is_probed_at_once() {
    let (gone, lid) = (gid((PASSIVE, 2)), base_lid((PASSIVE, 2)));
    for (notice, found) in [
        (Some(Notice::OutOfService(gone)), true),
        (Some(Notice::PortChange(lid)), true),
        (Some(Notice::LinkState), true),
        (Some(Notice::OutOfService(Gid::new(1, Guid(1)))), false),
        (Some(Notice::PortChange(Lid(0x700))), false),
        (None, false),
    ] {
        let mut pair = Pair::armed(1);
        just_probed(&mut pair, ACTIVE);
        // As where the peer's daemon is dead, and cannot tell.
        pair.kill(PASSIVE);
        pair.black_hole(PASSIVE, 2);
        if let Some(notice) = notice {
            notify(&mut pair, ACTIVE, 2, notice);
        }
        pair.run(420);
        assert_eq!(suspects(&pair, ACTIVE), found, "{notice:?}");
    }
}

/// A notice names a port's base LID, whichever of its LIDs the path has.
#[test]
fn a_notice_with_the_base_lid_is_about_all_lids_of_the_port() {
    let mut pair = Pair::with(6, 2, 1);
    pair.fabric = Fabric::new(|_, (_, dlid)| {
        let clear = dlid.0 & 3 == 3;
        Some(if clear { shared(0, 0) } else { shared(1, 2) })
    });
    pair.begin();
    pair.run(3_000);
    let base = base_lid((PASSIVE, 2));
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.dlid, Lid(base.0 | 3));
    just_probed(&mut pair, ACTIVE);
    pair.kill(PASSIVE);
    pair.black_hole(PASSIVE, 2);
    notify(&mut pair, ACTIVE, 2, Notice::PortChange(base));
    pair.run(420);
    assert!(suspects(&pair, ACTIVE));
}

#[test]
fn so_is_a_primary_which_is_then_left_by_order() {
    let mut pair = Pair::armed(2);
    pair.run(2_000);
    pair.set_traffic(false);
    just_probed(&mut pair, ACTIVE);
    pair.black_hole(PASSIVE, 1);
    notify(
        &mut pair,
        ACTIVE,
        1,
        Notice::OutOfService(gid((PASSIVE, 1))),
    );
    pair.run(550);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.view(host).counters.ordered_migrations, 1, "{host}");
    }
}

#[test]
fn forged_notices_move_nothing_and_cost_few_probes() {
    let mut pair = Pair::armed(3);
    pair.run(2_000);
    let mads = [ACTIVE, PASSIVE].map(|host| pair.all_sent(host));
    let alternates = [ACTIVE, PASSIVE].map(|host| pair.qp(host).alternate);
    let queries = pair.view(ACTIVE).counters.queries;
    let before = pair.hosts[ACTIVE].probes;
    for round in 0..1_000 {
        for port in [(PASSIVE, 1), (PASSIVE, 2), (ACTIVE, 1), (ACTIVE, 2)] {
            let stranger = Gid::new(0xfe80 << 48, Guid(round * 10));
            for notice in [
                Notice::OutOfService(gid(port)),
                Notice::OutOfService(stranger),
                Notice::InService(gid(port)),
                Notice::PortChange(base_lid(port)),
                Notice::LinkState,
            ] {
                notify(&mut pair, ACTIVE, port.1, notice);
            }
        }
        pair.run(10);
        let protection = pair.view(ACTIVE).protection;
        assert_eq!(protection, Protection::Armed, "round {round}");
    }
    // Ten seconds: ten regular probes of either path, and a look every two for each that is named.
    let probes = pair.hosts[ACTIVE].probes - before;
    assert!(probes < 80, "{probes}");
    assert_eq!([ACTIVE, PASSIVE].map(|host| pair.all_sent(host)), mads);
    assert_eq!(pair.view(ACTIVE).counters.queries, queries);
    for (host, alternate) in [ACTIVE, PASSIVE].into_iter().zip(alternates) {
        assert_eq!(pair.qp(host).alternate, alternate);
        assert_eq!(pair.view(host).counters.migrations, 0);
    }
    let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
    assert_eq!(engine.counters().notices, 20_000);
    pair.assert_armed();
}

/// Armed to the peer's only port that the SA knows, and tired of asking for the other.
fn armed_to_one_port(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    let known = [1, 2].map(|port| ((ACTIVE, port), (PASSIVE, 1)));
    pair.sa_knows_only(known.to_vec());
    for host in [ACTIVE, PASSIVE] {
        pair.start(host);
    }
    for host in [PASSIVE, ACTIVE] {
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(70_000);
    pair.assert_armed();
    assert_eq!(pair.view(ACTIVE).grade, Some(Grade::SamePort));
    pair
}

#[test]
fn a_path_that_nobody_knew_is_asked_for_when_its_port_comes_into_service() {
    let grade = |notice: Option<Notice>| {
        let mut pair = armed_to_one_port(4);
        let all = [1, 2].map(|local| [1, 2].map(|far| ((ACTIVE, local), (PASSIVE, far))));
        pair.sa_knows_only(all.concat());
        if let Some(notice) = notice {
            notify(&mut pair, ACTIVE, 1, notice);
        }
        pair.run(1_500);
        pair.assert_armed();
        pair.view(ACTIVE).grade
    };
    let far = gid((PASSIVE, 2));
    assert_eq!(grade(Some(Notice::InService(far))), Some(Grade::Full));
    for other in [
        None,
        Some(Notice::InService(gid((PASSIVE, 1)))),
        Some(Notice::OutOfService(far)),
        Some(Notice::LinkState),
    ] {
        let grade = grade(other);
        assert_eq!(
            grade,
            Some(Grade::SamePort),
            "{other:?}: in a minute, perhaps"
        );
    }
}

#[test]
fn a_port_that_is_said_to_be_in_service_and_is_not_costs_a_query_every_two_seconds() {
    let mut pair = armed_to_one_port(5);
    let before = pair.view(ACTIVE).counters.queries;
    for _ in 0..1_000 {
        notify(&mut pair, ACTIVE, 1, Notice::InService(gid((PASSIVE, 2))));
        pair.run(10);
        assert_eq!(pair.view(ACTIVE).protection, Protection::Armed);
    }
    let asked = pair.view(ACTIVE).counters.queries - before;
    assert!((3..=20).contains(&asked), "{asked}");
    assert_eq!(pair.view(ACTIVE).grade, Some(Grade::SamePort));
}
