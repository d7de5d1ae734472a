// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens in the middle of an idle move: the port comes back, the program speaks, LAPs cross, daemons restart.

use statemachine::Command;

use super::idle_moves::{BOTH, assert_survives, idle, primary_ports};
use super::pair::{ACTIVE, PASSIVE};

/// The moments of a move: it takes some 10 ms in all.
fn moments() -> impl Iterator<Item = u64> {
    (0..60).map(|step| step * 250)
}

#[test]
fn a_port_that_comes_back_in_the_middle_of_a_move_leaves_both_ends_on_one_path() {
    for host in [ACTIVE, PASSIVE] {
        for after in moments() {
            let mut pair = idle(11, BOTH);
            pair.pull(host, 1);
            pair.run_us(after);
            pair.plug(host, 1);
            pair.run(3_000);
            let [a, b] = primary_ports(&pair);
            assert_eq!(a, b, "back at {host} after {after} us");
            assert_survives(&mut pair);
        }
    }
}

#[test]
fn a_program_may_speak_in_the_middle_of_a_move() {
    for host in [ACTIVE, PASSIVE] {
        for after in moments() {
            let mut pair = idle(12, BOTH);
            pair.pull(host, 1);
            pair.run_us(after);
            assert_survives(&mut pair);
            assert_eq!(primary_ports(&pair), [2, 2], "spoke after {after} us");
        }
    }
}

/// The active end looks for another alternate just then, and its LAP and APR cross what the other end says of its move.
#[test]
fn a_proposal_may_cross_a_move() {
    for host in [ACTIVE, PASSIVE] {
        for after in moments() {
            let mut pair = idle(13, BOTH);
            pair.command(ACTIVE, Command::Rearm);
            pair.run_us(after);
            pair.pull(host, 1);
            pair.run(3_000);
            assert_eq!(primary_ports(&pair), [2, 2], "{host} after {after} us");
            assert_survives(&mut pair);
        }
    }
}

#[test]
fn daemons_may_restart_in_the_middle_of_a_move() {
    for host in [ACTIVE, PASSIVE] {
        for restarted in [ACTIVE, PASSIVE] {
            for after in moments() {
                let mut pair = idle(14, BOTH);
                pair.pull(host, 1);
                pair.run_us(after);
                pair.kill(restarted);
                pair.run(200);
                pair.start(restarted);
                pair.register(restarted);
                pair.run(20_000);
                let [a, b] = primary_ports(&pair);
                assert_eq!(
                    a, b,
                    "{restarted} restarted {after} us after the loss at {host}"
                );
                pair.plug(host, 1);
                pair.run(20_000);
                assert_survives(&mut pair);
            }
        }
    }
}
