// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that are late, fail, or say nothing.

use cm_msgs::control::{Cause, Report};
use statemachine::Input;
use statemachine::view::{Protection, Reason};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair};

fn running_with(host: usize, fault: LibraryFault) -> Pair {
    let mut pair = Pair::new(1);
    pair.hosts[host].fault = Some(fault);
    pair.begin();
    pair
}

#[test]
fn a_failed_load_is_shown_and_tried_again_with_growing_pauses() {
    let mut pair = running_with(ACTIVE, LibraryFault::Fails(22));
    pair.run(3_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(view.reason, Some(Reason::LoadFailed(22)));
    pair.run(300_000);
    let failed = pair.view(ACTIVE).counters.failed_orders;
    assert!((5..20).contains(&failed), "{failed} in 303 s");
    pair.hosts[ACTIVE].fault = None;
    pair.run(75_000);
    pair.assert_armed();
}

#[test]
fn a_load_that_fails_at_the_peer_is_shown_on_both_sides() {
    let mut pair = running_with(PASSIVE, LibraryFault::Fails(22));
    pair.run(800);
    let rejected = cm_msgs::cm::ApStatus::Rejected;
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::Apr(rejected)));
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::LoadFailed(22)));
    pair.hosts[PASSIVE].fault = None;
    pair.run(75_000);
    pair.assert_armed();
}

#[test]
fn a_silent_library_is_named() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = running_with(host, LibraryFault::Stopped);
        pair.run(10_500);
        let view = pair.view(host);
        assert_eq!(view.counters.failed_orders, 1);
        assert_eq!(view.reason, Some(Reason::LibrarySilent));
        pair.resume_library(host);
        pair.run(75_000);
        pair.assert_armed();
    }
}

/// The peer's daemon asks for more time again and again: no reason to open the association anew.
#[test]
fn a_peer_whose_library_is_stopped_is_asked_with_growing_pauses() {
    let mut pair = running_with(PASSIVE, LibraryFault::Stopped);
    pair.run(300_000);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 1);
    let laps = pair.hosts[ACTIVE].sent("LAP");
    assert!((5..80).contains(&laps), "{laps} in 300 s");
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerLibrarySilent));
    pair.resume_library(PASSIVE);
    pair.run(75_000);
    pair.assert_armed();
}

#[test]
fn a_migration_that_the_passive_side_refuses_is_told_and_mended() {
    let mut pair = Pair::armed(3);
    let loads = pair.view(PASSIVE).counters.loads;
    pair.report_broken_alternate(PASSIVE);
    pair.run_us(250);
    let view = pair.view(PASSIVE);
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(view.reason, Some(Reason::AlternateRefused));
    assert!(!view.standing_order);
    pair.run(1_000);
    pair.assert_armed();
    assert!(pair.view(PASSIVE).counters.loads > loads);
}

#[test]
fn a_stale_load_changes_nothing_and_is_made_good() {
    let mut pair = running_with(ACTIVE, LibraryFault::Stale(1));
    pair.run(1_000);
    pair.assert_armed();
    assert_eq!(pair.view(ACTIVE).counters.stale_loads, 1);
    let mut pair = running_with(PASSIVE, LibraryFault::Stale(1));
    pair.run(1_000);
    pair.assert_armed();
    assert_eq!(pair.view(PASSIVE).counters.stale_loads, 1);
}

#[test]
fn stale_for_ever_is_not_a_loop() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = running_with(host, LibraryFault::Stale(u32::MAX));
        pair.run(100_000);
        let stale = pair.view(host).counters.stale_loads;
        assert!(
            (3..80).contains(&stale),
            "host {host}: {stale} orders in 100 s"
        );
    }
}

#[test]
fn a_failing_migration_is_not_ordered_in_a_loop() {
    let mut pair = Pair::armed(2);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(5));
    pair.set_traffic(false);
    pair.pull(ACTIVE, 1);
    pair.run(3_500);
    let failed = pair.view(ACTIVE).counters.failed_orders;
    assert!((2..=5).contains(&failed), "{failed}");
    pair.hosts[ACTIVE].fault = None;
    pair.set_traffic(true);
    pair.run(3_000);
    pair.assert_armed();
}

#[test]
fn a_broken_qp_is_shown_and_left_alone() {
    let mut pair = Pair::armed(3);
    pair.black_hole(PASSIVE, 1);
    pair.black_hole(PASSIVE, 2);
    pair.run(3_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Broken);
    let orders = |pair: &Pair| {
        pair.hosts[ACTIVE]
            .engine
            .as_ref()
            .map(|e| e.counters().orders)
    };
    let before = orders(&pair);
    pair.plug(PASSIVE, 1);
    pair.plug(PASSIVE, 2);
    pair.run(100_000);
    assert_eq!(orders(&pair), before);
}

#[test]
fn an_overdue_order_is_waited_for_before_anything_else_is_decided() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(4);
        pair.hosts[host].fault = Some(LibraryFault::Stopped);
        pair.pull(host, 1);
        pair.run(60_000);
        let view = pair.view(host);
        assert_eq!(view.reason, Some(Reason::LibrarySilent), "host {host}");
        assert_eq!(view.protection, Protection::Unprotected);
        assert_eq!(
            pair.hosts[host].unread(),
            ["migrate", "query"],
            "and no further orders for a process that does not read"
        );
        pair.resume_library(host);
        pair.plug(host, 1);
        pair.run(10_000);
        pair.assert_armed();
    }
}

#[test]
fn an_answer_to_no_order_is_counted_and_changes_nothing() {
    let mut pair = Pair::armed(5);
    let out_of_place = |pair: &Pair| {
        let engine = pair.hosts[ACTIVE].engine.as_ref().expect("a daemon");
        engine.counters().reports_out_of_place
    };
    assert_eq!(out_of_place(&pair), 0);
    let report = Report {
        cause: Cause::Done { token: 0xdead_beef },
        snapshot: pair.qp(ACTIVE).snapshot(),
    };
    let id = pair.id(ACTIVE, 0);
    pair.tell(ACTIVE, Input::Report(id, report));
    assert_eq!(out_of_place(&pair), 1);
    pair.run(1_000);
    pair.assert_armed();
}

/// Its process was stopped, and what was on the way to it is lost.
#[test]
fn a_load_that_is_never_carried_out_is_tried_again() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = running_with(host, LibraryFault::Stopped);
        pair.run(11_000);
        assert_eq!(pair.hosts[host].unread(), ["load", "query"]);
        pair.hosts[host].unread.remove(0);
        pair.resume_library(host);
        pair.run(75_000);
        pair.assert_armed();
    }
}

/// The queue pair may have migrated between the order and its execution: the report says how it is now.
#[test]
fn a_stale_load_is_tried_again_at_once() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = running_with(host, LibraryFault::Stale(1));
        assert!(pair.run_until_armed(3_000) < 500, "host {host}");
        assert_eq!(pair.view(host).counters.stale_loads, 1);
    }
}
