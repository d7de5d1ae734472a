// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs of which nobody knows the peer's GID: the kernel tells none of paths without a GRH that no
//! REQ was seen for.

use cm_msgs::Gid;

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid};

fn without_gids(seed: u64, lmc: u8) -> Pair {
    let mut pair = Pair::with(seed, lmc, 1);
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].qps[0].primary.dgid = Gid::default();
    }
    pair.begin();
    pair.set_traffic(true);
    pair
}

#[test]
fn the_peers_port_is_found_by_its_lid() {
    for lmc in [0, 2] {
        let mut pair = without_gids(1, lmc);
        pair.run_until_armed(30_000);
        for host in [ACTIVE, PASSIVE] {
            // No other port is taken for the one of the primary.
            let alternate = pair.qp(host).alternate.expect("armed");
            assert_eq!(alternate.dlid.0 >> lmc, base_lid((1 - host, 2)).0 >> lmc);
            assert_eq!(pair.view(host).primary.dgid, gid((1 - host, 1)));
        }
        for (host, port) in [(ACTIVE, 1), (PASSIVE, 2), (ACTIVE, 1), (PASSIVE, 2)] {
            pair.pull(host, port);
            pair.run(5_000);
            assert!(pair.is_alive(host), "port {port} of host {host}");
            pair.plug(host, port);
            pair.run_until_armed(60_000);
        }
    }
}

/// A daemon that starts when connections have migrated is told of no GID, and none of the path before.
#[test]
fn after_a_migration_it_is_the_gid_of_the_port_that_the_path_leads_to() {
    let mut pair = without_gids(1, 0);
    pair.run_until_armed(30_000);
    pair.pull(PASSIVE, 1);
    pair.run(5_000);
    for host in [ACTIVE, PASSIVE] {
        pair.kill(host);
        pair.hosts[host].qps[0].primary.dgid = Gid::default();
        pair.start(host);
        pair.register(host);
    }
    pair.run(5_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.view(host).primary.dlid, base_lid((1 - host, 2)));
        assert_eq!(pair.view(host).primary.dgid, gid((1 - host, 2)));
    }
    pair.plug(PASSIVE, 1);
    pair.run_until_armed(60_000);
    pair.assert_armed();
    pair.pull(ACTIVE, 2);
    pair.run(5_000);
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
}

/// A port has several: applications may use another than the one that daemons go by.
#[test]
fn a_path_may_name_the_peer_by_another_of_its_gids() {
    let mut pair = Pair::new(2);
    for host in [ACTIVE, PASSIVE] {
        let primary = &mut pair.hosts[host].qps[0].primary;
        primary.dgid = Gid::new(0xfec0_0000_0000_0000, primary.dgid.interface_id());
    }
    pair.begin();
    pair.run(2_000);
    super::association::assert_open(&pair);
}
