// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path queries that nobody waits for any more: the path source still looks for the path.

use cm_msgs::association::{PeerPort, Ports, PrimaryPath, State};
use cm_msgs::cm::Sap;
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::MadSource;

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid};

/// More than path queries under way at a time (docs/quotas.md).
const CONNECTIONS: usize = 40;

/// A SAP of the passive end: it has its first port, one that nobody has seen yet, and the one of the SAP before, which is
/// down.
fn sap(pair: &Pair, conn: usize, round: u32) -> Sap {
    let association = &pair.views(ACTIVE)[conn].association;
    let port = |guid, lid, up| PeerPort {
        gid: guid,
        lid: Lid(lid),
        up,
        ..PeerPort::default()
    };
    let unseen = |round: u32, up| {
        let number = 0x1000 + conn as u64 * 0x100 + u64::from(round);
        let gid = Gid::new(0xfe80 << 48, Guid(number));
        port(gid, number as u16, up)
    };
    let first = (PASSIVE, 1);
    let state = State {
        sequence: 1_000 + round,
        primary: PrimaryPath {
            port: 1,
            local: base_lid(first),
            remote: base_lid((ACTIVE, 1)),
        },
        place: 1,
        ports: Ports::new([
            port(gid(first), base_lid(first).0, true),
            port(gid((PASSIVE, 2)), base_lid((PASSIVE, 2)).0, false),
            unseen(round, true),
            unseen(round.saturating_sub(1), false),
        ]),
        ..State::default()
    };
    Sap {
        local_comm_id: association.remote_comm_id.expect("open"),
        remote_comm_id: association.local_comm_id.expect("open"),
        private_data: state.encode(),
        ..Sap::default()
    }
}

/// A peer that has one new port after the other must not take the path source from the connections to others.
#[test]
fn what_a_peer_has_looked_for_and_given_up_is_bounded_while_the_source_is_slow() {
    let mut pair = Pair::with(1, 0, CONNECTIONS);
    pair.sa_takes = Some(60_000_000);
    pair.begin();
    pair.run(3_000);
    assert!(pair.sa_open <= 32, "{}", pair.sa_open);
    let source = MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid: base_lid((PASSIVE, 1)),
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: 1,
    };
    for round in 1..100 {
        for conn in 0..CONNECTIONS {
            let sap = sap(&pair, conn, round);
            pair.forge(ACTIVE, source, sap.into());
        }
        pair.run(200);
    }
    assert!(pair.sa_open <= 32, "{} queries are under way", pair.sa_open);
}
