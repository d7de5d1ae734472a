// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that may migrate by themselves when a local port fails.

use std::time::Duration;

use cm_msgs::control::{MigrationState, QpState};
use statemachine::trace::{MigratedBy, What};
use statemachine::{Command, PortDown};

use super::pair::{ACTIVE, Fabric, LibraryFault, PASSIVE, Pair, shared};

#[test]
fn an_alternate_that_answers_comes_with_a_standing_order() {
    let mut pair = Pair::armed(1);
    pair.run(100);
    for host in [ACTIVE, PASSIVE] {
        assert!(pair.may_stand(host), "host {host}");
        assert!(pair.view(host).standing_order);
        assert!(pair.hosts[host].stands_told.len() <= 1);
    }
}

#[test]
fn an_alternate_that_nothing_answers_over_has_none() {
    let mut pair = Pair::armed(1);
    pair.run(100);
    let before = pair.hosts[ACTIVE].stands_told.len();
    pair.sa_dead = true;
    pair.black_hole(PASSIVE, 2);
    pair.run(5_000);
    assert_eq!(pair.qp(ACTIVE).primary.port, 1);
    assert!(!pair.may_stand(ACTIVE) && !pair.view(ACTIVE).standing_order);
    assert_eq!(pair.hosts[ACTIVE].stands_told[before..], [false]);
}

#[test]
fn a_library_that_migrates_before_its_daemon_sees_the_loss_is_understood() {
    let mut pair = Pair::armed(1);
    pair.forget_traces();
    pair.pull(ACTIVE, 1);
    assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 1);
    assert_eq!(pair.qp(ACTIVE).primary.port, 2);
    assert!(!pair.may_stand(ACTIVE), "for the path that it has left");
    pair.run(500);
    pair.assert_armed();
    assert!(pair.may_stand(ACTIVE));
    let counters = pair.view(ACTIVE).counters;
    assert_eq!(
        (
            counters.migrations,
            counters.ordered_migrations,
            counters.standing_migrations,
            counters.stale_loads,
        ),
        (1, 1, 1, 0)
    );
    let by = |suspect| {
        pair.traces(ACTIVE).any(|trace| {
            matches!(trace.what, What::Migrated { by, suspect: so, .. }
                if by == MigratedBy::StandingOrder && so == suspect)
        })
    };
    assert!(by(false) && !by(true), "a lost port explains it");
}

#[test]
fn an_order_that_crosses_is_harmless_and_costs_no_time() {
    let rearmed_after = |crosses: bool| {
        let mut pair = Pair::armed(1);
        pair.pull(ACTIVE, 1);
        // The daemon has seen the loss, and its order has not reached the library yet.
        pair.run_us(1_100);
        assert_eq!(pair.qp(ACTIVE).primary.port, 1);
        if crosses {
            assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 1);
        }
        pair.run(4);
        assert_eq!(pair.qp(ACTIVE).primary.port, 2);
        let took = pair.run_until_armed(2_000);
        let counters = pair.view(ACTIVE).counters;
        assert_eq!(counters.standing_migrations, u32::from(crosses));
        assert_eq!((counters.stale_loads, counters.failed_orders), (0, 0));
        assert_eq!((counters.migrations, counters.ordered_migrations), (1, 1));
        let engine = pair.hosts[ACTIVE].engine.as_ref().expect("it runs");
        assert_eq!(engine.counters().reports_out_of_place, 0);
        took
    };
    let (ordered, crossed) = (rearmed_after(false), rearmed_after(true));
    // Packets come every 20 ms, and re-arming waits for one.
    assert!(crossed <= ordered + 20, "{crossed} ms and {ordered} ms");
}

/// The active end's alternate leads to a port that the peer says is down, and nothing better is known.
fn with_a_dead_far_port() -> Pair {
    let mut pair = Pair::armed(2);
    pair.sa_dead = true;
    pair.pull(PASSIVE, 2);
    pair.run(300);
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Armed);
    pair
}

#[test]
fn it_is_withdrawn_when_the_far_port_goes_down_and_given_again_when_it_returns() {
    let mut pair = with_a_dead_far_port();
    assert_eq!(pair.hosts[ACTIVE].stands_told.last(), Some(&false));
    assert!(!pair.view(ACTIVE).standing_order);
    pair.plug(PASSIVE, 2);
    pair.run(2_000);
    assert!(pair.hosts[ACTIVE].stands_told.ends_with(&[false, true]));
    assert!(pair.may_stand(ACTIVE));
}

#[test]
fn without_one_a_blip_of_the_local_port_does_not_kill() {
    let mut pair = with_a_dead_far_port();
    pair.pull(ACTIVE, 1);
    assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 0);
    pair.run(200);
    assert_eq!(pair.qp(ACTIVE).primary.port, 1, "the far port is dead");
    pair.plug(ACTIVE, 1);
    pair.run(1_000);
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
    assert_eq!(pair.view(ACTIVE).counters.migrations, 0);
}

#[test]
fn a_far_port_that_flaps_is_not_told_of_each_time() {
    let mut pair = Pair::armed(3);
    pair.sa_dead = true;
    for _ in 0..20 {
        pair.pull(PASSIVE, 2);
        pair.run(60);
        pair.plug(PASSIVE, 2);
        pair.run(60);
    }
    let told = pair.hosts[ACTIVE].stands_told.len();
    // 2.4 s, with half a second between a withdrawal and what allows it again.
    assert!((1..=12).contains(&told), "{told} times");
    pair.run(2_000);
    assert!(pair.may_stand(ACTIVE));
}

#[test]
fn an_operator_can_forbid_it() {
    let mut pair = Pair::armed(1);
    pair.run(100);
    let mut config = pair.config.clone();
    config.port_down = PortDown::Order;
    let engine = pair.hosts[ACTIVE].engine.as_mut().expect("it runs");
    engine.set_config(config.clone());
    // The world polls when something happens: a probe is due every second.
    pair.run(1_500);
    assert!(!pair.may_stand(ACTIVE));
    assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 0);
    // Nor does a daemon leave in place what the one before it has said.
    assert!(pair.may_stand(PASSIVE));
    pair.kill(PASSIVE);
    pair.config = config;
    pair.start(PASSIVE);
    pair.run(1_000);
    assert!(!pair.may_stand(PASSIVE));
}

#[test]
fn it_outlives_the_daemon() {
    let mut pair = Pair::armed(1);
    for host in [ACTIVE, PASSIVE] {
        pair.kill(host);
    }
    pair.pull(ACTIVE, 1);
    assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 1);
    pair.run(200);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.qp(host).primary.port, 2, "its packets moved the peer");
    }
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
    }
    pair.run_until_armed(60_000);
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
}

#[test]
fn a_new_daemon_says_what_holds() {
    let mut pair = Pair::armed(1);
    pair.kill(ACTIVE);
    pair.start(ACTIVE);
    pair.run(1_000);
    assert_eq!(pair.hosts[ACTIVE].stands_told.last(), Some(&true));
    assert!(pair.may_stand(ACTIVE));
}

#[test]
fn without_one_the_daemon_orders() {
    let mut pair = Pair::armed(1);
    pair.config.port_down = PortDown::Order;
    let config = pair.config.clone();
    for host in [ACTIVE, PASSIVE] {
        let engine = pair.hosts[host].engine.as_mut().expect("it runs");
        engine.set_config(config.clone());
    }
    pair.run(1_500);
    pair.pull(ACTIVE, 1);
    assert_eq!(pair.libraries_see_loss(ACTIVE, 1), 0);
    pair.run(200);
    let counters = pair.view(ACTIVE).counters;
    assert_eq!((counters.migrations, counters.ordered_migrations), (1, 1));
}

/// IBA 17.2.8.1: only a queue pair in RTS migrates by order.
#[test]
fn a_queue_pair_outside_of_rts_has_none() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(20);
        pair.set_traffic(false);
        pair.run(1_000);
        assert!(pair.may_stand(host), "host {host}");
        pair.hosts[host].qps[0].state = QpState::Sqd;
        pair.report_changed(host);
        pair.run(10);
        assert!(!pair.may_stand(host), "host {host}");
        pair.hosts[host].qps[0].state = QpState::Rts;
        pair.report_changed(host);
        pair.run(10);
        assert!(!pair.may_stand(host), "it is allowed again after a while");
        pair.run(1_000);
        assert!(pair.may_stand(host), "host {host}");
    }
}

/// A library that could not load does not say what became of the order that came with the load. That of the new alternate
/// is the same as before, since another connection has shown that it carries packets.
#[test]
fn after_a_load_that_failed_it_is_said_again_what_holds() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::with(21, 2, 2);
        pair.begin();
        pair.run(5_000);
        pair.assert_armed();
        assert!(pair.may_stand(host));
        let alternate = |conn: usize| {
            let alternate = pair.hosts[ACTIVE].qps[conn].alternate.expect("armed");
            (alternate.slid, alternate.dlid)
        };
        let best = alternate(1);
        assert_ne!(alternate(0), best);
        let told = pair.hosts[host].stands_told.len();
        pair.hosts[host].fault = Some(LibraryFault::Fails(22));
        pair.reroute(Fabric::new(move |_, lids| {
            Some(shared(u8::from(lids != best), 0))
        }));
        pair.run(100);
        assert_eq!(pair.view(host).counters.failed_orders, 1, "host {host}");
        assert_eq!(pair.hosts[host].stands_told[told..], [true], "host {host}");
    }
}

/// Only a load comes with a standing order: one to migrate takes nothing back.
#[test]
fn after_an_order_to_migrate_that_failed_nothing_is_said_again() {
    let mut pair = Pair::armed(22);
    pair.run(1_000);
    assert!(pair.may_stand(ACTIVE));
    let told = pair.hosts[ACTIVE].stands_told.len();
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(22));
    let within = Duration::from_millis(100);
    pair.command(ACTIVE, Command::Migrate { within });
    pair.run(1_000);
    assert!(pair.view(ACTIVE).counters.failed_orders > 0);
    assert!(pair.may_stand(ACTIVE));
    assert_eq!(pair.hosts[ACTIVE].stands_told.len(), told);
}
