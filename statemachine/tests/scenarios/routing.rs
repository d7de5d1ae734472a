// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which way messages take to the peer.

use cm_msgs::cm::Message;
use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid};
use statemachine::Command;
use statemachine::view::AssociationState;

use super::pair::{ACTIVE, Cable, LibraryFault, PASSIVE, Pair, base_lid, gid};

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

/// Its alternate's port fails while the library does not answer, so that the LAP is not given up.
#[test]
fn no_copy_of_a_lap_leaves_by_a_port_that_is_down() {
    let mut pair = Pair::armed(2);
    pair.run(2_000);
    pair.set_traffic(false);
    pair.hosts[PASSIVE].stopped = true;
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stopped);
    pair.record("LAP");
    pair.command(ACTIVE, Command::Rearm);
    pair.run(10);
    let set_active = |pair: &mut Pair, port: u8, active| {
        pair.hosts[ACTIVE].ports[usize::from(port) - 1].active = active;
        pair.port_input(ACTIVE, port);
        pair.run(1);
    };
    set_active(&mut pair, 1, false);
    assert_eq!(pair.hosts[ACTIVE].unread(), ["migrate"]);
    set_active(&mut pair, 2, false);
    set_active(&mut pair, 1, true);
    let before = ways(&pair);
    assert_eq!(before[0].0, base_lid((ACTIVE, 2)));
    pair.run(1_000);
    let later = &ways(&pair)[before.len()..];
    assert!(later.len() >= 3, "{later:?}");
    for (from, _) in later {
        assert_eq!(*from, base_lid((ACTIVE, 1)));
    }
}

/// An application may have given its queue pair any alternate.
#[test]
fn a_lap_does_not_go_first_by_a_path_to_a_port_that_the_peer_has_not_named() {
    // The LID alone makes no port the peer's: packets with a GRH may go on from there.
    for dlid in [Lid(0x99), base_lid((PASSIVE, 2))] {
        let mut pair = Pair::new(3);
        let qp = &mut pair.hosts[ACTIVE].qps[0];
        qp.migration = MigrationState::Armed;
        qp.alternate = Some(Path {
            port: 2,
            slid: base_lid((ACTIVE, 2)),
            sgid: gid((ACTIVE, 2)),
            dlid,
            dgid: Gid::new(0xfe80 << 48, Guid(0x999)),
            global: dlid != Lid(0x99),
            ..qp.primary
        });
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.record("LAP");
        while pair.hosts[ACTIVE].sent("LAP") == 0 {
            pair.run_us(20);
        }
        assert_eq!(ways(&pair), [(base_lid((ACTIVE, 1)), 1)], "{dlid}");
    }
}

/// Ports with two LIDs each, of which the connection uses the second ones with service level 3, and no way but between
/// the two first ports; nothing gets to `holes`.
fn by_second_lids(seed: u64, holes: [Lid; 2]) -> Pair {
    let mut pair = Pair::with(seed, 1, 1);
    for host in [ACTIVE, PASSIVE] {
        let primary = &mut pair.hosts[host].qps[0].primary;
        primary.slid.0 += 1;
        primary.dlid.0 += 1;
        primary.sl = 3;
        *pair.net.cable((host, 2)) = Cable::BlackHole;
    }
    pair.net.holes = holes.to_vec();
    pair.record("REQ");
    pair.begin();
    pair.run(2_000);
    for host in [ACTIVE, PASSIVE] {
        let state = pair.view(host).association.state;
        assert_eq!(state, AssociationState::Established, "{host}");
    }
    pair
}

#[test]
fn messages_take_the_lids_and_the_service_level_of_the_connection() {
    let first = [ACTIVE, PASSIVE].map(|host| base_lid((host, 1)));
    let pair = by_second_lids(4, first);
    let (_, source, _) = &pair.recorded()[0];
    assert_eq!(source.lid.0, base_lid((ACTIVE, 1)).0 + 1);
    assert_eq!((source.sl, source.path_bits), (3, 1));
}

#[test]
fn messages_take_the_ports_first_lids_where_nothing_comes_by_those_of_the_connection() {
    let second = [ACTIVE, PASSIVE].map(|host| Lid(base_lid((host, 1)).0 + 1));
    let pair = by_second_lids(5, second);
    let (_, source, _) = &pair.recorded()[0];
    assert_eq!(source.lid, base_lid((ACTIVE, 1)));
    assert_eq!((source.sl, source.path_bits), (0, 0));
}
