// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection has no alternate, as its operator is told.

use cm_msgs::PKey;
use cm_msgs::control::{Mode, PolicyOverride};
use statemachine::view::Reason;
use statemachine::{Input, QueryError};

use super::pair::{ACTIVE, PASSIVE, Pair};

fn mode(mode: Mode) -> PolicyOverride {
    PolicyOverride {
        mode: Some(mode),
        ..PolicyOverride::default()
    }
}

fn reason(pair: &Pair) -> Option<Reason> {
    pair.view(ACTIVE).reason
}

/// The active side's second port is down, and the peer has none.
fn with_one_port_each(mut pair: Pair) -> Pair {
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
    }
    let none = pair.hosts[PASSIVE].port_id(2);
    pair.tell(PASSIVE, Input::Port(none, None));
    pair.run(1_000);
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    for host in [PASSIVE, ACTIVE] {
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(2_000);
    pair
}

#[test]
fn a_second_port_is_missing_while_it_is_down_and_settles_when_it_is_back() {
    let mut pair = with_one_port_each(Pair::new(1));
    assert_eq!(reason(&pair), Some(Reason::NoSecondPort));
    pair.plug(ACTIVE, 2);
    // It is used half a second after the daemon has heard of it.
    pair.run(300);
    assert_eq!(reason(&pair), Some(Reason::PortSettling));
    pair.run(700);
    pair.assert_armed();
}

/// It would forbid none of the paths that there could be.
#[test]
fn where_there_is_no_second_port_no_policy_is_to_blame() {
    let mut pair = with_one_port_each(Pair::new(1));
    for policy in [Mode::Port, Mode::Any] {
        pair.set_policy(ACTIVE, mode(policy));
        pair.run(100);
        assert_eq!(reason(&pair), Some(Reason::NoSecondPort), "{policy:?}");
    }
}

/// The peer would have other LIDs of the same ports. When these are all that is left this end's policy forbids them.
#[test]
fn the_policy_is_named_that_forbids_the_paths_there_are() {
    let mut pair = Pair::with(2, 2, 1);
    pair.policies = [mode(Mode::Port), mode(Mode::Lid)];
    let mut pair = with_one_port_each(pair);
    assert_eq!(reason(&pair), Some(Reason::Policy(Mode::Port)));
    pair.plug(ACTIVE, 2);
    pair.run(2_000);
    assert_eq!(reason(&pair), Some(Reason::PeerPolicy(Mode::Lid)));
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    assert_eq!(reason(&pair), Some(Reason::Policy(Mode::Port)));
}

/// Everybody is in it, as a rule.
#[test]
fn the_default_partition_is_not_named_where_a_source_knows_no_path() {
    for pkey in [PKey::DEFAULT_FULL, PKey(0x8005)] {
        let mut pair = Pair::new(3);
        for host in &mut pair.hosts {
            host.qps[0].primary.pkey = pkey;
            for port in &mut host.ports {
                port.pkeys = vec![pkey];
            }
        }
        pair.sa_knows_only(vec![]);
        pair.begin();
        pair.run(2_000);
        let expected = match pkey {
            PKey::DEFAULT_FULL => Reason::NoPath(QueryError::NoPath),
            _ => Reason::NoPathInPartition(pkey),
        };
        assert_eq!(reason(&pair), Some(expected));
        // The primary's own port could carry no alternate.
        pair.set_traffic(false);
        pair.leave_partition(ACTIVE, 1, pkey);
        pair.run(2_000);
        assert_eq!(reason(&pair), Some(expected));
    }
}
