// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator is told of connections that stay unprotected, and of no others.

use cm_msgs::control::{MigrationState, Refusal};
use statemachine::Level;
use statemachine::view::{Protection, Reason};

use super::pair::{ACTIVE, PASSIVE, Pair};

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
