// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that are lost and come back.

use cm_msgs::control::{AppEvent, MigrationState};
use statemachine::view::{Protection, Reason};
use statemachine::{Doubt, PortDown, Shared};

use super::pair::{ACTIVE, PASSIVE, Pair, seeds};

#[test]
fn a_local_port_loss_migrates_at_once() {
    let mut pair = Pair::armed(1);
    pair.pull(ACTIVE, 1);
    pair.run(4);
    assert_eq!(pair.qp(ACTIVE).primary.port, 2);
    assert_eq!(pair.view(ACTIVE).counters.ordered_migrations, 1);
    pair.run(500);
    pair.assert_armed();
    let [a, b] = [0, 1].map(|host| pair.view(host).counters);
    assert_eq!((a.migrations, b.migrations), (1, 1));
}

#[test]
fn the_passive_side_migrates_at_once_too() {
    let mut pair = Pair::armed(1);
    pair.pull(PASSIVE, 1);
    pair.run(4);
    assert_eq!(pair.qp(PASSIVE).primary.port, 2);
    pair.run(500);
    pair.assert_armed();
}

#[test]
fn migration_by_order_can_be_turned_off() {
    let mut pair = Pair::new(1);
    pair.config.port_down = PortDown::Wait;
    pair.begin();
    pair.run(1_000);
    pair.pull(ACTIVE, 1);
    pair.run(10);
    assert_eq!(pair.qp(ACTIVE).primary.port, 1);
    pair.run(1_000);
    pair.assert_armed();
    assert_eq!(pair.view(ACTIVE).counters.ordered_migrations, 0);
    assert_eq!(pair.view(ACTIVE).counters.migrations, 1);
}

#[test]
fn a_port_that_comes_back_is_used_after_its_hold_off() {
    let mut pair = Pair::armed(2);
    pair.pull(ACTIVE, 1);
    pair.run(500);
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.port, 2, "only the remote port can differ");
    pair.plug(ACTIVE, 1);
    pair.run(500);
    assert_eq!(
        pair.qp(ACTIVE).alternate.map(|path| path.port),
        Some(2),
        "hold-off"
    );
    pair.run(1_000);
    assert_eq!(pair.qp(ACTIVE).alternate.map(|path| path.port), Some(1));
    pair.assert_armed();
    pair.assert_asleep(ACTIVE);
}

#[test]
fn the_loss_of_an_alternates_port_makes_another_be_chosen() {
    let mut pair = Pair::armed(3);
    pair.pull(ACTIVE, 2);
    pair.run(500);
    pair.assert_armed();
    let (port, remote) = Pair::rails(&pair.qp(ACTIVE).alternate.expect("armed"));
    assert_eq!((port, remote), (1, (PASSIVE, 2)));
    assert_eq!(pair.view(ACTIVE).counters.migrations, 0);
}

#[test]
fn without_any_second_port_it_says_so_and_waits_for_one() {
    let mut pair = Pair::new(4);
    for host in [PASSIVE, ACTIVE] {
        pair.hosts[host].ports[1].active = false;
        *pair.net.cable((host, 2)) = super::pair::Cable::Pulled;
        pair.start(host);
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(3_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(view.reason, Some(Reason::NoSecondPort));
    pair.plug(ACTIVE, 2);
    pair.plug(PASSIVE, 2);
    pair.run(5_000);
    pair.assert_armed();
}

#[test]
fn a_black_hole_is_left_by_hardware_and_its_path_suspect() {
    let mut pair = Pair::armed(5);
    pair.black_hole(PASSIVE, 1);
    pair.run(2_000);
    pair.assert_armed();
    let qp = pair.qp(ACTIVE);
    assert_eq!(Pair::rails(&qp.primary), (2, (PASSIVE, 2)));
    let other = Pair::rails(&qp.alternate.expect("armed"));
    assert_ne!(other, (1, (PASSIVE, 1)), "the path that was left");
    pair.run(10_000);
    assert_ne!(
        Pair::rails(&pair.qp(ACTIVE).alternate.expect("armed")),
        (1, (PASSIVE, 1)),
        "while nothing passes"
    );
    pair.plug(PASSIVE, 1);
    pair.run(2_000);
    assert_eq!(
        Pair::rails(&pair.qp(ACTIVE).alternate.expect("armed")),
        (1, (PASSIVE, 1))
    );
    pair.assert_armed();
    pair.assert_asleep(ACTIVE);
}

#[test]
fn a_suspect_path_is_better_than_none() {
    let mut pair = Pair::armed(6);
    pair.black_hole(PASSIVE, 1);
    pair.run(1_000);
    pair.assert_armed();
    pair.plug(PASSIVE, 1);
    pair.run(100);
    // Now only the pair of ports that is suspect is left beside the primary's.
    let view = pair.view(ACTIVE);
    assert!(
        view.chosen
            .is_some_and(|chosen| chosen.score.shared == Shared::OnePort)
    );
    assert!(
        view.chosen
            .is_some_and(|chosen| chosen.score.doubt == Doubt::None)
    );
    pair.sa_knows_only(vec![((ACTIVE, 1), (PASSIVE, 1))]);
    pair.report_broken_alternate(ACTIVE);
    pair.run(3_000);
    let alternate = pair.qp(ACTIVE).alternate.expect("loaded");
    assert_eq!(Pair::rails(&alternate), (1, (PASSIVE, 1)));
    pair.assert_armed();
}

#[test]
fn a_remote_port_that_was_pulled_is_used_again_soon() {
    let mut pair = Pair::armed(7);
    pair.pull(PASSIVE, 1);
    pair.run(5_000);
    pair.assert_armed();
    pair.plug(PASSIVE, 1);
    pair.run(10_000);
    pair.assert_armed();
    assert_eq!(
        Pair::rails(&pair.qp(ACTIVE).alternate.expect("armed")),
        (1, (PASSIVE, 1))
    );
}

#[test]
fn cables_are_pulled_for_twenty_rounds() {
    seeds(5, |seed| {
        let mut pair = Pair::armed(seed);
        for round in 0..20 {
            let host = round % 2;
            let port = pair.qp(host).primary.port;
            pair.pull(host, port);
            pair.run(10);
            pair.run_until_armed(5_000);
            pair.plug(host, port);
            pair.run(20_000);
            pair.assert_armed();
            let [primary, alternate] = {
                let qp = pair.qp(ACTIVE);
                [
                    Pair::rails(&qp.primary),
                    Pair::rails(&qp.alternate.expect("armed")),
                ]
            };
            assert_ne!(primary.0, alternate.0, "round {round}");
            assert_ne!(primary.1, alternate.1, "round {round}");
        }
        assert_eq!(pair.view(ACTIVE).counters.migrations, 20);
        assert_eq!(pair.view(PASSIVE).counters.migrations, 20);
    });
}

#[test]
fn a_flapping_port_is_not_trusted() {
    let mut pair = Pair::armed(8);
    for _ in 0..50 {
        pair.pull(ACTIVE, 2);
        pair.run(100);
        pair.plug(ACTIVE, 2);
        pair.run(200);
    }
    let laps = pair.view(ACTIVE).counters.laps_sent;
    assert!(laps < 5, "{laps} LAPs for 50 flaps");
    pair.run(2_000);
    pair.assert_armed();
    assert_eq!(pair.qp(ACTIVE).alternate.map(|path| path.port), Some(2));
}

/// A better alternate is being negotiated when a primary's port goes.
fn lose_primary_while_negotiating(host: usize) {
    for us in (0..6_000).step_by(100) {
        let mut pair = Pair::armed(9);
        pair.pull(ACTIVE, 2);
        pair.run(500);
        pair.plug(ACTIVE, 2);
        pair.run(549);
        pair.run_us(us);
        pair.pull(host, 1);
        pair.run(3_000);
        pair.assert_armed();
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(pair.view(host).counters.migrations, 1, "{us} us");
        }
    }
}

#[test]
fn a_lap_that_crosses_a_migration_of_the_passive_side_does_no_harm() {
    lose_primary_while_negotiating(PASSIVE);
}

#[test]
fn a_lap_that_crosses_a_migration_of_the_active_side_does_no_harm() {
    lose_primary_while_negotiating(ACTIVE);
}

#[test]
fn a_thousand_connections_leave_a_port_and_come_back() {
    let mut pair = Pair::with(8, 0, 1_000);
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    assert_eq!(pair.views(ACTIVE).len(), 1_000);
    for view in pair.views(ACTIVE) {
        assert_eq!(view.primary.port, 2);
        assert_eq!(view.counters.migrations, 1);
        assert_eq!(
            view.protection,
            Protection::Armed,
            "over the peer's other port"
        );
    }
    pair.plug(ACTIVE, 1);
    pair.run(10_000);
    pair.assert_armed();
}

#[test]
fn both_ends_lose_their_port_at_once() {
    let mut pair = Pair::armed(10);
    pair.pull(ACTIVE, 1);
    pair.pull(PASSIVE, 1);
    pair.run(3_000);
    assert_eq!(Pair::rails(&pair.qp(ACTIVE).primary), (2, (PASSIVE, 2)));
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Migrated);
    assert_eq!(pair.view(ACTIVE).protection, Protection::Unprotected);
    pair.plug(ACTIVE, 1);
    pair.run(3_000);
    pair.assert_armed();
    pair.plug(PASSIVE, 1);
    pair.run(70_000);
    pair.assert_armed();
    assert_eq!(
        Pair::rails(&pair.qp(ACTIVE).alternate.expect("armed")),
        (1, (PASSIVE, 1))
    );
}

#[test]
fn an_idle_connection_is_rearming_and_says_so() {
    let mut pair = Pair::running(11);
    pair.set_traffic(false);
    pair.run(60_000);
    for host in [ACTIVE, PASSIVE] {
        let view = pair.view(host);
        assert_eq!(view.protection, Protection::RearmingIdle);
        assert_eq!(view.reason, Some(Reason::WaitingForTraffic));
    }
    let laps = pair.hosts[ACTIVE].sent("LAP");
    pair.run(600_000);
    assert!(
        pair.hosts[ACTIVE].sent("LAP") - laps <= 11,
        "one confirmation a minute"
    );
    assert_eq!(pair.view(PASSIVE).counters.loads, 1);
    pair.set_traffic(true);
    pair.run(100);
    pair.assert_armed();
    pair.assert_asleep(ACTIVE);
}

#[test]
fn an_idle_peer_is_brought_along() {
    let mut pair = Pair::armed(15);
    pair.set_traffic(false);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(
            pair.qp(host).primary.port,
            2,
            "no packet has told host {host}"
        );
        assert_eq!(pair.view(host).protection, Protection::Rearming);
    }
    assert_eq!(pair.view(PASSIVE).counters.ordered_migrations, 1);
    pair.set_traffic(true);
    pair.run(100);
    pair.assert_armed();
}

#[test]
fn an_idle_connection_survives_a_loss_at_the_passive_side() {
    let mut pair = Pair::armed(16);
    pair.set_traffic(false);
    pair.pull(PASSIVE, 1);
    pair.run(30_000);
    pair.set_traffic(true);
    pair.run(3_000);
    pair.assert_armed();
}

#[test]
fn either_port_may_be_lost_and_come_back_during_rearm() {
    for (host, port) in [(ACTIVE, 1), (ACTIVE, 2), (PASSIVE, 1), (PASSIVE, 2)] {
        let mut pair = Pair::running(18);
        // Without traffic no QP gets from ReArm to Armed.
        pair.set_traffic(false);
        pair.run(1_000);
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(pair.qp(end).migration, MigrationState::Rearm);
        }
        pair.pull(host, port);
        pair.run(2_000);
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(
                pair.qp(end).primary.port,
                1,
                "only what is Armed can be migrated"
            );
            assert_eq!(pair.view(end).counters.migrations, 0);
        }
        pair.plug(host, port);
        pair.run(3_000);
        pair.set_traffic(true);
        pair.run(3_000);
        pair.assert_armed();
        pair.assert_best_alternates();
    }
}

#[test]
fn an_alternate_whose_port_leaves_the_partition_is_replaced() {
    let mut pair = Pair::armed(17);
    pair.hosts[ACTIVE].ports[1].pkeys = vec![cm_msgs::PKey(0x8001)];
    pair.port_input(ACTIVE, 2);
    pair.run(1_000);
    pair.assert_armed();
    assert_eq!(pair.qp(ACTIVE).alternate.map(|path| path.port), Some(1));
}

#[test]
fn applications_that_opted_in_hear_of_everything_in_order() {
    use AppEvent::{AltPathLoaded, AltRouteResolved, LoadAltPath, PathMigrated};
    let mut pair = Pair::new(12);
    pair.opted_in = true;
    pair.begin();
    pair.run(1_000);
    let armed = [AltRouteResolved, LoadAltPath, AltPathLoaded];
    assert_eq!(pair.hosts[ACTIVE].events, armed);
    assert_eq!(pair.hosts[PASSIVE].events, armed);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    let again = [AltRouteResolved, LoadAltPath, AltPathLoaded, PathMigrated];
    let want = [&again[..], &armed[..]].concat();
    assert_eq!(pair.hosts[ACTIVE].events, want);
    assert_eq!(pair.hosts[PASSIVE].events, want);
}

#[test]
fn an_application_hears_once_that_there_is_no_alternate() {
    let mut pair = Pair::new(13);
    pair.opted_in = true;
    pair.sa_dead = true;
    pair.begin();
    pair.run(30_000);
    assert_eq!(pair.hosts[ACTIVE].events, [AppEvent::AltRouteError]);
    let timeout = statemachine::QueryError::Timeout;
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::NoPath(timeout)));
    pair.sa_dead = false;
    pair.run(61_000);
    pair.assert_armed();
}

#[test]
fn applications_that_did_not_opt_in_hear_nothing() {
    let mut pair = Pair::armed(14);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    assert!(pair.hosts[ACTIVE].events.is_empty());
    assert!(pair.hosts[PASSIVE].events.is_empty());
}
