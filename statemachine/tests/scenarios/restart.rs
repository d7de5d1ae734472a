// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons and libraries that come and go.

use statemachine::view::AssociationState;

use super::association::assert_open;
use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, seeds};

#[test]
fn a_passive_daemon_that_knows_its_alternate_is_dead_says_so_after_its_start() {
    for dies_first in [true, false] {
        let mut pair = Pair::new(11);
        // No probe tells the active end.
        pair.config.verify = std::time::Duration::ZERO;
        pair.begin();
        pair.run(2_000);
        pair.assert_armed();
        pair.kill(PASSIVE);
        if dies_first {
            pair.pull(PASSIVE, 2);
        }
        pair.run(100);
        pair.start(PASSIVE);
        pair.run(10);
        if !dies_first {
            pair.pull(PASSIVE, 2);
        }
        pair.run(3_000);
        pair.assert_armed();
        let alternate = pair.qp(PASSIVE).alternate.expect("armed");
        assert_eq!(alternate.port, 1, "{dies_first}");
    }
}

#[test]
fn the_lap_after_a_new_handshake_does_not_wait_for_a_silent_path_source() {
    let mut pair = Pair::armed(12);
    pair.run(2_000);
    pair.pull(ACTIVE, 2);
    pair.run(2_000);
    pair.assert_armed();
    pair.sa_takes = Some(25_000_000);
    // What the passive end has is not what was agreed on.
    let alternate = pair.hosts[PASSIVE].qps[0].alternate.as_mut();
    let alternate = alternate.expect("armed");
    (alternate.port, alternate.slid) = (1, base_lid((PASSIVE, 1)));
    alternate.dlid = base_lid((ACTIVE, 2));
    pair.report_changed(PASSIVE);
    // There is a better alternate again, and its path is asked for.
    pair.plug(ACTIVE, 2);
    pair.lose.insert("LAP", 6);
    let mut waited = 0;
    while pair.hosts[ACTIVE].sent("REQ") < 2 {
        pair.run(10);
        waited += 10;
        assert!(
            waited < 20_000,
            "its state does not get through: another handshake"
        );
    }
    pair.run(200);
    pair.assert_armed();
}

#[test]
fn a_daemon_killed_while_armed_is_not_missed() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.kill(host);
        pair.run(5_000);
        pair.assert_armed();
        pair.start(host);
        pair.run(5_000);
        pair.assert_armed();
        let [a, b] = [0, 1].map(|host| pair.view(host).counters);
        assert_eq!((a.migrations, b.migrations), (0, 0));
    }
}

#[test]
fn the_active_daemon_opens_again_after_its_restart() {
    let mut pair = Pair::armed(2);
    pair.kill(ACTIVE);
    pair.start(ACTIVE);
    pair.run(1_000);
    assert_open(&pair);
    pair.assert_armed();
    assert_eq!(
        pair.view(ACTIVE).counters.loads,
        0,
        "nothing had to be loaded"
    );
}

#[test]
fn a_restarted_passive_daemon_is_found_out_by_the_next_lap() {
    let mut pair = Pair::armed(3);
    pair.kill(PASSIVE);
    pair.start(PASSIVE);
    pair.run(1_000);
    assert_eq!(pair.view(PASSIVE).association.state, AssociationState::None);
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    assert_open(&pair);
    pair.assert_armed();
}

#[test]
fn a_library_that_reconnects_is_taken_up_again() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(4);
        pair.reconnect(host);
        pair.run(3_000);
        assert_open(&pair);
        pair.assert_armed();
        pair.assert_asleep(ACTIVE);
        pair.assert_asleep(PASSIVE);
    }
}

#[test]
fn both_daemons_restart() {
    let mut pair = Pair::armed(5);
    pair.kill(ACTIVE);
    pair.kill(PASSIVE);
    pair.run(1_000);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    pair.run(1_000);
    assert_open(&pair);
    pair.assert_armed();
}

#[test]
fn a_migration_without_daemons_is_made_good_by_their_restart() {
    seeds(10, |seed| {
        let mut pair = Pair::armed(seed);
        pair.kill(ACTIVE);
        pair.kill(PASSIVE);
        pair.black_hole(PASSIVE, 1);
        pair.run(1_000);
        assert_eq!(pair.qp(ACTIVE).primary.port, 2);
        for host in [(seed % 2) as usize, 1 - (seed % 2) as usize] {
            pair.start(host);
            pair.run(seed * 50);
        }
        pair.run(10_000);
        pair.assert_armed();
        assert_open(&pair);
    });
}

#[test]
fn a_daemon_may_die_at_any_moment_of_the_negotiation() {
    for host in [ACTIVE, PASSIVE] {
        for tenths in 0..80 {
            let mut pair = Pair::running(tenths);
            pair.run_us(tenths * 100);
            pair.kill(host);
            pair.run(200);
            pair.start(host);
            pair.run(12_000);
            pair.assert_armed();
        }
    }
}

/// What a QP's attributes say of a path is LIDs; which of the peer's ports that is must be known
/// though the port was out of service when the peer named its ports.
#[test]
fn a_port_that_was_down_when_the_association_opened_is_recognised_later() {
    let mut pair = Pair::armed(5);
    for (host, port, restart) in [(0, 1, false), (1, 2, true), (0, 1, false), (1, 2, false)] {
        pair.pull(host, port);
        if restart {
            pair.kill(ACTIVE);
            pair.run(20);
            pair.start(ACTIVE);
        }
        pair.run(2_000);
        assert!(pair.is_alive(ACTIVE));
        pair.plug(host, port);
        pair.run(100_000);
        pair.assert_armed();
    }
}
