// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the model checker has found (`src/model`), as scripts.

use statemachine::view::Protection;

use super::pair::{ACTIVE, Cable, PASSIVE, Pair};

#[test]
fn a_port_that_is_lost_while_nothing_is_known_to_be_told_is_told_once() {
    let mut pair = Pair::armed(1);
    // The association is verified, by an end that nobody hears.
    pair.lose.insert("SAP", 6);
    let before = pair.hosts[PASSIVE].sent("SAP");
    let mut seconds = 0;
    while pair.hosts[PASSIVE].sent("SAP") < before + 6 {
        pair.run(1_000);
        seconds += 1;
        assert!(seconds < 1_000, "never verified");
    }
    pair.pull(PASSIVE, 2);
    // The pause after a SAP that was lost comes first.
    pair.run(12_000);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP") - before, 7);
}

#[test]
fn a_port_that_the_peer_has_lost_is_no_protection_whatever_a_source_says() {
    let mut pair = Pair::armed(1);
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (2, (PASSIVE, 1)));
    // The peer loses that port, and the SA has not noticed.
    *pair.net.cable((PASSIVE, 1)) = Cable::BlackHole;
    pair.hosts[PASSIVE].ports[0].active = false;
    pair.port_input(PASSIVE, 1);
    for _ in 0..20 {
        pair.run(500);
        assert_ne!(pair.view(ACTIVE).protection, Protection::Armed);
    }
}

#[test]
fn nobody_follows_the_peer_to_a_port_that_is_down() {
    let mut pair = Pair::armed(1);
    pair.set_traffic(false);
    pair.run(100);
    pair.pull(ACTIVE, 1);
    pair.pull(PASSIVE, 2);
    pair.run(5_000);
    let moves = |pair: &Pair, host| pair.view(host).counters.ordered_migrations;
    assert_eq!((moves(&pair, ACTIVE), moves(&pair, PASSIVE)), (1, 0));
    pair.plug(PASSIVE, 2);
    pair.run(2_000);
    assert_eq!(moves(&pair, PASSIVE), 1, "and then it does");
    pair.set_traffic(true);
    pair.run(2_000);
    pair.assert_armed();
}
