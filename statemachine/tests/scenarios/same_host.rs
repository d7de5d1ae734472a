// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection with both ends on one host: the ports that its peer names are this host's own.

use cm_msgs::control::Role;
use statemachine::Input;

use super::pair::{ACTIVE, Pair, base_lid, gid};

#[test]
fn a_connection_within_one_host_gets_an_alternate_over_that_hosts_other_port() {
    let mut pair = Pair::with(1, 0, 2);
    for qp in &mut pair.hosts[ACTIVE].qps {
        (qp.primary.dlid, qp.primary.dgid) = (base_lid((ACTIVE, 1)), gid((ACTIVE, 1)));
    }
    pair.start(ACTIVE);
    let ends = [0, 1].map(|conn| pair.registration(ACTIVE, conn));
    let numbers = [0, 1].map(|conn| pair.hosts[ACTIVE].qpn(conn));
    for (conn, (_, end)) in ends.into_iter().enumerate() {
        let Input::Register(id, payer, mut register) = end else {
            panic!("it registers");
        };
        register.peer_qpn = numbers[1 - conn];
        register.role = [Role::Active, Role::Passive][conn];
        pair.hosts[ACTIVE].registered[conn] = true;
        pair.hosts[ACTIVE].told.insert(conn, register.snapshot);
        pair.tell(ACTIVE, Input::Register(id, payer, register));
    }
    pair.run(2_000);
    for qp in &pair.hosts[ACTIVE].qps {
        let alternate = qp.alternate.expect("loaded");
        assert_eq!(alternate.port, 2);
        assert_eq!(alternate.dlid, base_lid((ACTIVE, 2)));
    }
}
