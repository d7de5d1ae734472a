// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection's history tells of its past.

use std::time::Duration;

use cm_msgs::control::MigrationState;
use cm_msgs::{Lid, PKey};
use statemachine::view::{MoveCause, Stall, Transition};
use statemachine::{Command, PortDown, PortStatus};

use super::pair::{ACTIVE, PASSIVE, Pair, Weather};

/// How often it tells that the primary's port was lost.
fn losses(pair: &Pair, host: usize) -> usize {
    let history = pair.view(host).history.into_iter();
    history
        .filter(|past| past.what == Transition::PrimaryLost)
        .count()
}

/// One that is armed migrates, and its history tells that instead.
#[test]
fn the_loss_of_the_primarys_port_is_told_of_what_is_not_armed() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.pull(host, 1);
        pair.run(1_000);
        assert_eq!(losses(&pair, host), 0, "it has migrated");

        let mut pair = Pair::new(2);
        pair.sa_dead = true;
        pair.begin();
        pair.run(1_000);
        pair.set_traffic(false);
        pair.run(100);
        pair.pull(host, 2);
        pair.run(100);
        pair.plug(host, 2);
        pair.run(100);
        assert_eq!(losses(&pair, host), 0, "another port's");
        pair.pull(host, 1);
        pair.run(100);
        assert_eq!(losses(&pair, host), 1);
        pair.plug(host, 1);
        pair.run(1_000);
        assert_eq!(losses(&pair, host), 1, "its return is no loss");
    }
}

/// Why its connection has left its primary, each time.
fn causes(pair: &Pair, host: usize) -> Vec<MoveCause> {
    let history = pair.view(host).history.into_iter();
    let cause = |what| match what {
        Transition::Migrated { cause, .. } => Some(cause),
        _ => None,
    };
    history.filter_map(|past| cause(past.what)).collect()
}

#[test]
fn an_operators_order_and_a_drained_port_are_told_apart() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(3);
        pair.run(1_000);
        let within = Duration::from_secs(10);
        pair.command(host, Command::Migrate { within });
        pair.run(2_000);
        assert_eq!(causes(&pair, host), [MoveCause::Operator]);
        pair.drain_port(host, 2, true);
        pair.run(5_000);
        assert_eq!(causes(&pair, host)[0], MoveCause::Drained, "the latest");
        let engine = pair.hosts[host].engine.as_ref().expect("it runs");
        assert_eq!(engine.counters().migrations, 2);
    }
}

/// A port is up, and all is well as far as probes tell: one end's hardware has used up its retries, and nobody knows
/// why.
#[test]
fn one_end_is_moved_by_hardware_and_the_other_follows() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(4);
        pair.run(1_000);
        pair.set_traffic(false);
        pair.run(100);
        let qp = &mut pair.hosts[host].qps[0];
        qp.primary = qp.alternate.take().expect("armed");
        qp.migration = MigrationState::Migrated;
        pair.report_changed(host);
        pair.run(20);
        assert_eq!(causes(&pair, host), [MoveCause::Hardware]);
        assert_eq!(causes(&pair, 1 - host), [MoveCause::PeerMoved]);
        // Probes of the path came back until then.
        assert_eq!([0, 1].map(|end| stall(&pair, end)), [None; 2]);
    }
}

/// For how long the connection had stood still when it last left its primary.
fn stall(pair: &Pair, host: usize) -> Option<u16> {
    let history = pair.view(host).history.into_iter();
    let moves = history.filter_map(|past| match past.what {
        Transition::Migrated { stall, .. } => Some(stall.map(Stall::millis)),
        _ => None,
    });
    moves.into_iter().next().expect("it has migrated")
}

/// The end that loses its port knows when; the other end knows when the last answered probe was sent.
#[test]
fn how_long_it_stood_still_is_told_of_a_lost_port() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(6);
        pair.run(5_000);
        pair.pull(host, 1);
        pair.run(1_000);
        let own = stall(&pair, host).expect("its own port");
        assert!((1..=3).contains(&own), "{own} ms");
        let other = stall(&pair, 1 - host).expect("the peer's port");
        assert!(other >= own && other < 2_000, "{other} ms");
    }
}

#[test]
fn how_long_it_stood_still_at_most_is_told_of_a_black_hole() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(7);
        pair.run(5_000);
        pair.black_hole(host, 1);
        pair.run(2_000);
        for end in [ACTIVE, PASSIVE] {
            let stall = stall(&pair, end).expect("its path was probed");
            assert!((100..2_000).contains(&stall), "{stall} ms");
        }
    }
}

/// A path that works is left: nothing stood still.
#[test]
fn no_stall_is_told_of_an_order() {
    let mut pair = Pair::armed(8);
    pair.run(1_000);
    let within = Duration::from_secs(10);
    pair.command(ACTIVE, Command::Migrate { within });
    pair.run(2_000);
    assert_eq!(stall(&pair, ACTIVE), None);
    assert_eq!(causes(&pair, PASSIVE), [MoveCause::PeerOperator]);
    assert_eq!(stall(&pair, PASSIVE), None);
}

/// An armed pair that waits for the hardware when a port is lost.
fn waiting() -> Pair {
    let mut pair = Pair::new(6);
    pair.config.port_down = PortDown::Wait;
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    pair
}

/// What else changes about the port after its loss is no loss.
#[test]
fn a_port_that_changes_after_its_loss_was_lost_before_that() {
    type Change = fn(&mut PortStatus);
    let changes: [Change; 4] = [
        |_| {},
        |port| port.sm_lid = Lid(0),
        |port| port.pkeys.push(PKey(0x8123)),
        |port| port.rate = 2,
    ];
    for change in changes {
        let mut pair = waiting();
        pair.pull(ACTIVE, 1);
        pair.run(300);
        change(&mut pair.hosts[ACTIVE].ports[0]);
        pair.port_input(ACTIVE, 1);
        pair.drain_port(ACTIVE, 1, true);
        pair.run(1_000);
        let stall = stall(&pair, ACTIVE).expect("its own port");
        assert!((290..600).contains(&stall), "{stall} ms");
    }
}

#[test]
fn a_stall_is_told_where_the_port_has_another_lid() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(6);
        pair.run(1_000);
        pair.relabel(host, 1, Lid(0x80));
        pair.run(100);
        assert_eq!(causes(&pair, host), [MoveCause::PortLost]);
        let stall = stall(&pair, host).expect("its own port");
        assert!(stall < 100, "{stall} ms");
    }
}

/// Since when its port is down a daemon does not know that began after that.
#[test]
fn no_stall_is_told_of_a_port_that_was_down_before_the_daemon() {
    let mut pair = waiting();
    pair.pull(ACTIVE, 1);
    pair.run(300);
    pair.kill(ACTIVE);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.run(1_000);
    assert_eq!(causes(&pair, ACTIVE), [MoveCause::PortLost]);
    assert_eq!(stall(&pair, ACTIVE), None);
}

/// The reported bound holds whether MADs are late or not.
#[test]
fn a_stall_is_no_longer_than_is_told_while_mads_are_late() {
    let mut told_of = 0;
    let delays = [20_000, 60_000, 100_000, 300_000];
    for (seed, delay) in (0..12).flat_map(|seed| delays.map(|delay| (seed, delay))) {
        let mut pair = Pair::armed(seed);
        pair.run(3_000 + seed * 137);
        pair.net.weather = Weather {
            delay,
            ..Weather::FAIR
        };
        pair.run(3_000 + seed * 137);
        let since = pair.now;
        pair.black_hole(PASSIVE, 1);
        while causes(&pair, ACTIVE).is_empty() {
            pair.run(1);
        }
        let truth = (pair.now - since) / 1_000;
        // Without a lost probe no stall is reported.
        if let Some(told) = stall(&pair, ACTIVE) {
            assert!(u64::from(told) + 1 >= truth, "{truth} ms, {told} ms told");
            told_of += 1;
        }
    }
    assert!(told_of > 10, "{told_of}");
}
