// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which way messages take to the peer.

use cm_msgs::Lid;
use cm_msgs::cm::Message;
use statemachine::Command;

use super::pair::{ACTIVE, PASSIVE, Pair};

/// Where the LAPs that were recorded came from, and to which of the passive side's ports.
fn ways(pair: &Pair) -> Vec<(Lid, u8)> {
    let ways = pair.recorded().iter().map(|(to, source, message)| {
        assert!(*to == PASSIVE && matches!(message, Message::Lap(_)));
        (source.lid, source.port.port)
    });
    ways.collect()
}

/// The first copy goes by the path that it is about, and each next by one that has not been tried.
#[test]
fn each_copy_of_a_lap_takes_another_way_while_there_is_one() {
    let mut pair = Pair::armed(1);
    pair.run(2_000);
    pair.hosts[PASSIVE].stopped = true;
    pair.record("LAP");
    pair.command(ACTIVE, Command::Rearm);
    pair.run(700);
    let ways = ways(&pair);
    assert!(ways.len() >= 4, "{ways:?}");
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(ways[0], (alternate.slid, 2));
    let mut first = ways[..4].to_vec();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 4, "{ways:?}");
}

/// It would be lost, and the QP's own primary carries packets.
#[test]
fn a_lap_does_not_go_first_by_a_path_whose_port_is_down() {
    let mut pair = Pair::armed(2);
    pair.run(2_000);
    pair.sa_dead = true;
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    pair.record("LAP");
    pair.command(ACTIVE, Command::Rearm);
    pair.run(10);
    for (_, port) in ways(&pair) {
        assert_eq!(port, 1);
    }
}
