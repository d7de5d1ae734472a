// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator is told of connections that stay unprotected, and of no others.

use cm_msgs::control::{MigrationState, Refusal};
use statemachine::trace::What;
use statemachine::view::{AssociationState, Grade, Protection, Reason, Transition};
use statemachine::{Command, Level, Time};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair};

/// What a host's engine said at level info and above, about connections.
fn said(pair: &Pair, host: usize) -> Vec<(Level, String)> {
    let of_conns = pair.traces(host).filter(|trace| trace.conn.is_some());
    let loud = of_conns.filter(|trace| trace.level() >= Level::Info);
    loud.map(|trace| (trace.level(), trace.to_string()))
        .collect()
}

/// There was exactly one line, a warning that says this.
fn assert_warned(pair: &Pair, host: usize, what: &str) {
    let said = said(pair, host);
    let [(Level::Warn, line)] = &said[..] else {
        panic!("host {host}: {said:?}");
    };
    assert!(
        line.contains("unprotected") && line.contains(what),
        "{line}"
    );
}

/// There was exactly one line, that all is well again.
fn assert_protected_again(pair: &Pair, host: usize) {
    let again = (Level::Info, "connection protected again".to_owned());
    assert_eq!(said(pair, host), [again]);
}

fn registered(pair: &mut Pair, hosts: &[usize]) {
    for &host in hosts {
        pair.start(host);
        pair.register(host);
    }
    pair.set_traffic(true);
}

/// Programs that make and drop many connections do not fill the log.
#[test]
fn a_connection_that_comes_and_goes_without_trouble_is_no_line() {
    for end in [Pair::close, Pair::disconnect] {
        let mut pair = Pair::new(1);
        registered(&mut pair, &[ACTIVE, PASSIVE]);
        pair.run_until_armed(5_000);
        pair.run(1_000);
        end(&mut pair, ACTIVE);
        end(&mut pair, PASSIVE);
        pair.run(10_000);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(said(&pair, host), []);
            assert!(pair.traces(host).any(|trace| trace.what == What::Closed));
        }
    }
}

#[test]
fn no_apmd_at_the_peer() {
    let mut pair = Pair::new(1);
    registered(&mut pair, &[ACTIVE]);
    pair.run(4_900);
    assert_eq!(said(&pair, ACTIVE), []);
    pair.run(60_000);
    assert_warned(&pair, ACTIVE, "start apmd on the peer's host");
    pair.forget_traces();
    registered(&mut pair, &[PASSIVE]);
    pair.run_until_armed(70_000);
    pair.run(10_000);
    assert_protected_again(&pair, ACTIVE);
    assert_eq!(said(&pair, PASSIVE).len() % 2, 0, "warned, or not at all");
}

#[test]
fn no_apmd_at_the_active_side() {
    let mut pair = Pair::new(1);
    registered(&mut pair, &[PASSIVE]);
    pair.run(60_000);
    assert_warned(&pair, PASSIVE, "start apmd on the peer's host");
}

#[test]
fn the_peers_program_does_not_run_under_apm() {
    let mut pair = Pair::new(1);
    pair.start(PASSIVE);
    registered(&mut pair, &[ACTIVE]);
    pair.run(60_000);
    let remedy = "'apmctl run' on the peer's host, or load the kernel module apm there";
    assert_warned(&pair, ACTIVE, remedy);
    assert_eq!(said(&pair, PASSIVE), []);
}

#[test]
fn no_second_port_on_either_host() {
    let mut pair = Pair::armed(1);
    pair.forget_traces();
    pair.pull(ACTIVE, 2);
    pair.pull(PASSIVE, 2);
    pair.run(60_000);
    for host in [ACTIVE, PASSIVE] {
        assert_warned(&pair, host, "no second port is up on this host");
    }
    pair.forget_traces();
    pair.plug(ACTIVE, 2);
    pair.plug(PASSIVE, 2);
    pair.run_until_armed(70_000);
    pair.run(10_000);
    for host in [ACTIVE, PASSIVE] {
        assert_protected_again(&pair, host);
    }
}

#[test]
fn no_second_port_at_the_peer() {
    let mut pair = Pair::new(1);
    pair.sa_knows_only(vec![((0, 1), (1, 1)), ((0, 2), (1, 2))]);
    pair.pull(PASSIVE, 2);
    registered(&mut pair, &[PASSIVE, ACTIVE]);
    pair.run(60_000);
    assert_warned(&pair, ACTIVE, "no second port is up at the peer");
    assert_warned(&pair, PASSIVE, "no second port is up on this host");
    let reason = pair.view(ACTIVE).reason;
    assert_eq!(reason, Some(Reason::NoSecondPortAtPeer));
}

#[test]
fn what_is_protected_again_soon_is_not_worth_a_word() {
    let mut pair = Pair::armed(1);
    pair.forget_traces();
    for _ in 0..3 {
        for host in [ACTIVE, PASSIVE] {
            pair.pull(host, 2);
        }
        pair.run(2_000);
        for host in [ACTIVE, PASSIVE] {
            pair.plug(host, 2);
        }
        pair.run_until_armed(3_000);
        pair.run(1_000);
    }
    assert_eq!(
        (said(&pair, ACTIVE), said(&pair, PASSIVE)),
        (vec![], vec![])
    );
}

#[test]
fn an_idle_connection_is_not_unprotected() {
    let mut pair = Pair::new(1);
    registered(&mut pair, &[PASSIVE, ACTIVE]);
    pair.set_traffic(false);
    pair.run(120_000);
    assert_eq!(pair.view(ACTIVE).protection, Protection::RearmingIdle);
    assert_eq!(
        (said(&pair, ACTIVE), said(&pair, PASSIVE)),
        (vec![], vec![])
    );
}

#[test]
fn short_connections_are_not_worth_a_word() {
    let mut pair = Pair::new(1);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    for _ in 0..150 {
        for host in [PASSIVE, ACTIVE] {
            pair.new_connections(host);
            pair.register(host);
        }
        pair.set_traffic(true);
        pair.run(200);
        pair.close(ACTIVE);
        pair.close(PASSIVE);
        pair.set_traffic(false);
        pair.run(100);
    }
    assert_eq!(
        (said(&pair, ACTIVE), said(&pair, PASSIVE)),
        (vec![], vec![])
    );
}

#[test]
fn a_device_that_cannot_is_a_warning_for_what_stays() {
    let mut pair = Pair::new(1);
    pair.hosts[ACTIVE]
        .ports
        .iter_mut()
        .for_each(|port| port.apm = false);
    registered(&mut pair, &[ACTIVE]);
    pair.run(1_000);
    assert_eq!(pair.hosts[ACTIVE].refused[0], Some(Refusal::NoApm));
    assert_eq!(said(&pair, ACTIVE), []);
    pair.run(60_000);
    assert_warned(&pair, ACTIVE, "no automatic path migration");
}

#[test]
fn an_alternate_that_is_the_primary_is_none() {
    for migration in [MigrationState::Armed, MigrationState::Rearm] {
        let mut pair = Pair::new(1);
        for host in [ACTIVE, PASSIVE] {
            let qp = &mut pair.hosts[host].qps[0];
            qp.alternate = Some(qp.primary);
            qp.migration = migration;
        }
        registered(&mut pair, &[ACTIVE, PASSIVE]);
        pair.run(1);
        for host in [ACTIVE, PASSIVE] {
            assert_ne!(pair.view(host).protection, Protection::Armed);
        }
        pair.run(2_000);
        pair.assert_armed();
        for host in [ACTIVE, PASSIVE] {
            let qp = pair.qp(host);
            assert_ne!(qp.alternate.expect("armed").port, qp.primary.port);
        }
    }
}

#[test]
fn one_that_waits_for_traffic_is_not_protected_again_yet() {
    let mut pair = Pair::new(20);
    registered(&mut pair, &[ACTIVE]);
    pair.set_traffic(false);
    pair.run(60_000);
    assert_warned(&pair, ACTIVE, "start apmd on the peer's host");
    pair.forget_traces();
    pair.start(PASSIVE);
    pair.register(PASSIVE);
    pair.run(70_000);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::WaitingForTraffic));
    assert_eq!(said(&pair, ACTIVE), []);
    pair.set_traffic(true);
    pair.run(1_000);
    assert_protected_again(&pair, ACTIVE);
}

/// What a host's engine said of protection, grades and associations.
fn changes(pair: &Pair, host: usize) -> Vec<What> {
    let said = pair.traces(host).map(|trace| trace.what);
    let is_one = |what: &What| {
        matches!(
            what,
            What::Protection { .. } | What::Grade(_) | What::Association { .. }
        )
    };
    said.filter(is_one).collect()
}

#[test]
fn each_change_is_told_once() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(21);
        let opened = |what: &What| matches!(what, What::Association { to, .. } if *to == AssociationState::Established);
        assert!(changes(&pair, host).iter().any(opened));
        pair.forget_traces();
        pair.command(host, Command::Rearm);
        pair.run(5_000);
        assert_eq!(changes(&pair, host), [], "nothing has changed");
        let before = pair.view(host);
        let lost = Time(pair.now);
        pair.pull(host, 2);
        pair.run(1_000);
        pair.assert_armed();
        let after = pair.view(host);
        assert!(before.changed < lost && after.changed > lost);
        assert_eq!(after.counters.rearms, before.counters.rearms + 1);
        let mut at = Protection::Armed;
        for change in changes(&pair, host) {
            match change {
                What::Protection { from, to, .. } => {
                    assert!(from == at && to != at, "{from} to {to}");
                    at = to;
                }
                What::Grade(_) => assert_eq!(at, Protection::Armed),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(at, Protection::Armed);
        let history = after.history.iter().map(|past| past.what);
        let opened = Transition::Association(AssociationState::Established);
        assert_eq!(history.filter(|what| *what == opened).count(), 1);
    }
}

/// IBA 17.2.8.1: an alternate that is loaded into a queue pair on a dead primary never arms, since that takes packets.
#[test]
fn what_cannot_arm_for_want_of_its_primarys_port_says_so() {
    let mut pair = Pair::armed(22);
    pair.set_traffic(false);
    pair.run(100);
    pair.hosts[ACTIVE].qps[0].migration = MigrationState::Rearm;
    pair.report_changed(ACTIVE);
    pair.run(10);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::WaitingForTraffic));
    pair.pull(ACTIVE, 1);
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PrimaryPortDown));
}

#[test]
fn an_alternate_that_is_lost_while_it_arms_is_no_matter_of_traffic() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(23);
        pair.set_traffic(false);
        pair.run(100);
        pair.hosts[host].qps[0].migration = MigrationState::Rearm;
        pair.report_changed(host);
        pair.sa_dead = true;
        pair.pull(host, 2);
        pair.run(2_000);
        let view = pair.view(host);
        assert_eq!(view.protection, Protection::Unprotected, "host {host}");
        assert_ne!(view.reason, Some(Reason::WaitingForTraffic));
    }
}

#[test]
fn while_a_path_is_asked_for_it_is_being_negotiated() {
    let mut pair = Pair::armed(24);
    pair.run(5_000);
    pair.sa_takes = Some(1_000_000);
    pair.pull(ACTIVE, 2);
    pair.run(300);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Negotiating);
    assert_eq!(view.reason, Some(Reason::WaitingForPath));
}

#[test]
fn without_an_alternate_a_dead_primary_is_the_reason() {
    let mut pair = Pair::new(25);
    pair.sa_dead = true;
    pair.begin();
    pair.run(2_000);
    pair.set_traffic(false);
    pair.run(100);
    pair.pull(ACTIVE, 1);
    pair.run(10_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(view.reason, Some(Reason::PrimaryPortDown));
}

#[test]
fn another_try_after_a_failed_load_is_no_failure() {
    let mut pair = Pair::new(26);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(5));
    pair.begin();
    pair.run(3_000);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::LoadFailed(5)));
    pair.lose.insert("LAP", usize::MAX);
    pair.command(ACTIVE, Command::Rearm);
    pair.run(50);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Negotiating);
    assert_ne!(view.reason, Some(Reason::LoadFailed(5)));
}

/// With several LIDs no second port is missing: another LID of the same ports would do.
#[test]
fn the_passive_side_names_the_end_of_the_alternate_that_is_lost() {
    for (host, reason) in [
        (PASSIVE, Reason::AlternatePortDown),
        (ACTIVE, Reason::AlternatePortDownAtPeer),
    ] {
        let mut pair = Pair::with(27, 2, 1);
        pair.begin();
        pair.run(2_000);
        pair.assert_armed();
        pair.sa_dead = true;
        pair.pull(host, 2);
        pair.run(1_000);
        assert_eq!(pair.view(PASSIVE).reason, Some(reason));
    }
}

/// `apmctl status` and the metrics count connections by the one, and `apmctl conn` shows the other.
#[test]
fn what_is_counted_of_protection_is_what_is_shown() {
    let mut pair = Pair::armed(28);
    let both = |pair: &Pair| {
        let engine = pair.hosts[ACTIVE].engine.as_ref().expect("it runs");
        let counted: Vec<_> = engine.protections(Time(pair.now)).collect();
        let shown = pair.views(ACTIVE).into_iter();
        let shown: Vec<_> = shown.map(|view| (view.protection, view.grade)).collect();
        assert_eq!(counted, shown);
        counted
    };
    assert_eq!(both(&pair), [(Protection::Armed, Some(Grade::Full))]);
    pair.sa_dead = true;
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    assert_eq!(both(&pair), [(Protection::Unprotected, None)]);
}
