// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaving a primary that works, where something is in the way.

use std::time::Duration;

use cm_msgs::control::MigrationState;
use statemachine::Command;

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair};

const BOTH: [usize; 2] = [ACTIVE, PASSIVE];

#[test]
fn an_operators_order_that_the_library_could_not_carry_out_is_over() {
    for host in BOTH {
        let mut pair = Pair::armed(1);
        pair.run(1_000);
        pair.hosts[host].fault = Some(LibraryFault::Fails(22));
        let within = Duration::from_secs(15);
        pair.command(host, Command::Migrate { within });
        pair.run(500);
        assert_eq!(pair.view(host).counters.failed_orders, 1);
        pair.hosts[host].fault = None;
        pair.run(20_000);
        assert_eq!(pair.qp(host).primary.port, 1, "host {host}");
        pair.assert_armed();
    }
}

/// There may be many thousands of idle connections on a port that is drained.
#[test]
fn a_peer_that_is_not_armed_is_asked_ever_more_rarely() {
    for host in BOTH {
        let mut pair = Pair::armed(2);
        pair.run(1_000);
        pair.set_traffic(false);
        pair.run(100);
        pair.hosts[1 - host].qps[0].migration = MigrationState::Rearm;
        pair.report_changed(1 - host);
        pair.run(100);
        let asked = |pair: &Pair| ["LAP", "SAP"].map(|name| pair.hosts[host].sent(name));
        let before = asked(&pair);
        pair.drain_port(host, 1, true);
        pair.run(60_000);
        let now = asked(&pair);
        let asked = now[0] + now[1] - before[0] - before[1];
        assert!((6..=20).contains(&asked), "host {host}: {asked}");
        assert_eq!(pair.qp(host).primary.port, 1);
        pair.set_traffic(true);
        pair.run(40_000);
        assert_eq!(pair.qp(host).primary.port, 2, "host {host}");
    }
}
