// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection's history tells of its past.

use statemachine::view::Transition;

use super::pair::{ACTIVE, PASSIVE, Pair};

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
