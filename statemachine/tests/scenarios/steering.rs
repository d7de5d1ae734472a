// SPDX-License-Identifier: MIT OR Apache-2.0
//! A passive side that wants its connection on another port asks the active side for it.

use std::num::{NonZeroU8, NonZeroU32};

use cm_msgs::control::{Placement, PolicyOverride};

use super::pair::{ACTIVE, PASSIVE, Pair, gid};

fn prefer(port: u8) -> PolicyOverride {
    PolicyOverride {
        placement: NonZeroU8::new(port).map(Placement::Prefer),
        ..PolicyOverride::default()
    }
}

fn port(pair: &Pair) -> [u8; 2] {
    [ACTIVE, PASSIVE].map(|host| pair.qp(host).primary.port)
}

/// A network may deliver a copy of a MAD at any time. This one was sent from where the peer is now, too.
#[test]
fn a_late_copy_of_such_a_wish_moves_nothing() {
    let mut pair = Pair::new(1);
    pair.begin();
    pair.run(1_000);
    pair.record("SAP");
    pair.set_policy(PASSIVE, prefer(2));
    pair.run(10_000);
    assert_eq!(port(&pair), [2, 2]);
    let wishes: Vec<_> = pair.recorded().to_vec();
    assert!(!wishes.is_empty());
    pair.set_policy(PASSIVE, prefer(1));
    pair.run(20_000);
    assert_eq!(port(&pair), [1, 1]);
    pair.set_policy(PASSIVE, PolicyOverride::default());
    pair.run(5_000);
    for (to, source, sap) in wishes {
        pair.forge(to, source, sap);
        pair.run(2_000);
        assert_eq!(port(&pair), [1, 1]);
    }
    pair.assert_armed();
}

/// The alternate ends at the port that the peer wants to leave.
#[test]
fn a_port_that_no_alternate_ends_at_is_gone_to_when_there_is_a_path_to_it() {
    let rails = |pairs: &[(u8, u8)]| {
        let ends = |&(near, far): &(u8, u8)| ((ACTIVE, near), (PASSIVE, far));
        pairs.iter().map(ends).collect()
    };
    let mut pair = Pair::new(2);
    pair.sa_knows_only(rails(&[(1, 1), (2, 1)]));
    pair.begin();
    pair.run(20_000);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.dgid, gid((PASSIVE, 1)));
    pair.sa_knows_only(rails(&[(1, 1), (2, 1), (2, 2)]));
    pair.set_policy(PASSIVE, prefer(2));
    pair.run(700);
    assert_eq!(port(&pair), [2, 2]);
}

/// The peer changes its placement policy all the time, and no path of this end has a fault.
#[test]
fn a_peer_that_is_never_content_is_followed_eight_times_a_minute_at_most() {
    let mut pair = Pair::armed(1);
    pair.run(5_000);
    let before = pair.view(ACTIVE).counters.migrations;
    for _ in 0..240 {
        let other = 3 - pair.qp(PASSIVE).primary.port;
        let restless = PolicyOverride {
            hold_down: NonZeroU32::new(1),
            ..prefer(other)
        };
        pair.set_policy(PASSIVE, restless);
        pair.run(250);
    }
    let moved = pair.view(ACTIVE).counters.migrations - before;
    assert!((1..=8).contains(&moved), "{moved} migrations in a minute");
}
