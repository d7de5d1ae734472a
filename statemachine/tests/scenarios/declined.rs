// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the active side makes of a peer that does not agree.

use std::cell::Cell;
use std::time::Duration;

use cm_msgs::cm::{ApStatus, Message};
use cm_msgs::{Gid, Guid};
use statemachine::Command;
use statemachine::view::Protection;

use super::pair::{ACTIVE, PASSIVE, Pair, gid, gid_in};

/// Hardware could not go there.
#[test]
fn an_armed_alternate_that_the_peer_does_not_know_is_no_protection() {
    for status in [ApStatus::InvalidGid, ApStatus::InvalidLid] {
        let mut pair = Pair::armed(1);
        pair.run(2_000);
        pair.sa_dead = true;
        pair.twist(move |message| {
            if let Message::Apr(apr) = message {
                apr.ar_status = status.into();
            }
        });
        pair.command(ACTIVE, Command::Rearm);
        pair.run(20);
        assert_ne!(pair.view(ACTIVE).protection, Protection::Armed);
    }
}

/// Its daemon was started again, and says so in this way.
#[test]
fn a_peer_that_knows_no_such_association_is_asked_for_a_new_one_at_once() {
    let mut pair = Pair::armed(2);
    pair.run(2_000);
    let asked = pair.hosts[ACTIVE].sent("REQ");
    let mut left = 1;
    pair.twist(move |message| {
        if let Message::Apr(apr) = message
            && left > 0
        {
            left -= 1;
            apr.ar_status = ApStatus::InvalidCommId.into();
        }
    });
    pair.command(ACTIVE, Command::Rearm);
    pair.run(20);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), asked + 1);
    pair.run(1_000);
    pair.assert_armed();
}

/// A GID of the passive side's second port that it has named to nobody.
fn alias(number: u64) -> Gid {
    let prefix = gid((PASSIVE, 2)).subnet_prefix();
    gid_in(prefix ^ (number % 7 + 1 + number * 8), (PASSIVE, 2))
}

/// Its peer agrees to no LAP, and each time names another GID that it would rather have: the first, the second, and so
/// on.
fn redirected(seed: u64, better: fn(u64) -> Gid) -> Pair {
    let mut pair = Pair::with(seed, 3, 1);
    pair.config.verify = Duration::ZERO;
    let count = Cell::new(0);
    pair.twist(move |message| {
        if let Message::Apr(apr) = message {
            count.set(count.get() + 1);
            apr.set_better_gid(better(count.get()));
        }
    });
    pair.record("LAP");
    pair
}

/// Where the alternates end that were proposed.
fn proposed(pair: &Pair) -> Vec<Gid> {
    let recorded = pair.recorded().iter();
    let ends = recorded.filter_map(|(_, _, message)| match message {
        Message::Lap(lap) => Some(lap.alternate.remote_port_gid),
        _ => None,
    });
    ends.filter(|gid| !gid.is_unspecified()).collect()
}

#[test]
fn a_gid_that_the_peer_prefers_is_proposed_next_at_most_twice() {
    let mut pair = redirected(3, alias);
    pair.begin();
    pair.run(200);
    let proposed = proposed(&pair);
    assert!(proposed.len() > 3, "{proposed:?}");
    assert_eq!(proposed[1..3], [alias(1), alias(2)]);
    let is_alias = |gid: &Gid| (1..100).any(|number| alias(number) == *gid);
    assert!(
        !is_alias(&proposed[0]) && !is_alias(&proposed[3]),
        "{proposed:?}"
    );
}

#[test]
fn fewer_paths_are_proposed_after_an_invalid_gid_than_after_an_invalid_lid() {
    let proposed = [ApStatus::InvalidGid, ApStatus::InvalidLid].map(|status| {
        let mut pair = Pair::with(6, 1, 1);
        pair.config.verify = Duration::ZERO;
        pair.twist(move |message| {
            if let Message::Apr(apr) = message {
                apr.ar_status = status.into();
            }
        });
        pair.record("LAP");
        pair.begin();
        pair.run(300);
        proposed(&pair).len()
    });
    // Between two ports there may be a path by other LIDs, but none if the peer does not know the port.
    assert!(proposed[0] < proposed[1], "{proposed:?}");
}

#[test]
fn where_no_path_leads_to_a_gid_that_the_peer_prefers_another_is_proposed_without_a_pause() {
    let mut pair = redirected(5, |_| Gid::new(0xfe80 << 48, Guid(0x9000)));
    pair.net.lmc = 0;
    for host in &mut pair.hosts {
        host.ports.iter_mut().for_each(|port| port.lmc = 0);
    }
    pair.begin();
    pair.run(300);
    let proposed = proposed(&pair);
    assert!(proposed.len() >= 2, "{proposed:?}");
}

/// A peer can name any number of ports that do not exist.
#[test]
fn at_most_eight_ports_of_a_peer_are_known() {
    let prefix = gid((PASSIVE, 2)).subnet_prefix();
    assert_eq!(prefix, 0xfe80 << 48);
    let invented = |number| Gid::new(0xfe80 << 48, Guid(0x9000 + number));
    let mut pair = redirected(4, invented);
    pair.begin();
    pair.run(1_000);
    let known = |pair: &Pair| pair.view(ACTIVE).association.peer_ports.len();
    assert_eq!(known(&pair), 4, "two are real");
    for _ in 0..10 {
        pair.command(ACTIVE, Command::Rearm);
        pair.run(1_000);
    }
    assert_eq!(known(&pair), 8);
}
