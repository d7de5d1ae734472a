// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the passive side checks of a LAP before it loads the path: here the peer itself proposes what it should not.

use cm_msgs::cm::{ApStatus, Lap, Message};
use cm_msgs::control::Mode;
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::MadSource;

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid};

/// An armed pair, and the LAP that led to it.
fn armed() -> (Pair, MadSource, Lap) {
    let mut pair = Pair::new(1);
    pair.record("LAP");
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    let lap = pair
        .recorded()
        .iter()
        .rev()
        .find_map(|(_, source, message)| match message {
            Message::Lap(lap) if lap.alternate.local_port_lid != Lid(0) => {
                Some((*source, lap.clone()))
            }
            _ => None,
        });
    let (source, lap) = lap.expect("a LAP");
    (pair, source, lap)
}

/// What the passive side answers to a LAP of the peer's.
fn answer(pair: &mut Pair, mut source: MadSource, lap: &Lap) -> Option<ApStatus> {
    source.transaction_id = pair.last_transaction("LAP").wrapping_add(1);
    answer_to(pair, source, lap)
}

fn answer_to(pair: &mut Pair, source: MadSource, lap: &Lap) -> Option<ApStatus> {
    pair.record("APR");
    let before = pair.recorded().len();
    pair.forge(PASSIVE, source, Message::Lap(lap.clone()));
    pair.run(20);
    pair.recorded()[before..]
        .iter()
        .find_map(|(_, _, message)| match message {
            Message::Apr(apr) => Some(apr.status()),
            _ => None,
        })
}

/// The answer to the LAP when it has been changed, and the world with it; nothing has been loaded.
fn refused(change: impl FnOnce(&mut Pair, &mut Lap)) -> Option<ApStatus> {
    let (mut pair, source, mut lap) = armed();
    let loaded = pair.qp(PASSIVE).alternate;
    change(&mut pair, &mut lap);
    let status = answer(&mut pair, source, &lap);
    assert_eq!(pair.qp(PASSIVE).alternate, loaded, "{status:?}");
    status
}

#[test]
fn the_path_that_is_loaded_is_agreed_to_again() {
    let (mut pair, source, lap) = armed();
    assert_eq!(answer(&mut pair, source, &lap), Some(ApStatus::Success));
}

#[test]
fn a_lid_that_is_not_of_the_port_that_is_named_is_invalid() {
    let status = refused(|_, lap| lap.alternate.remote_port_lid = base_lid((PASSIVE, 1)));
    assert_eq!(status, Some(ApStatus::InvalidLid));
}

#[test]
fn a_path_to_a_multicast_lid_is_invalid() {
    let status = refused(|_, lap| lap.alternate.local_port_lid = Lid(0xc001));
    assert_eq!(status, Some(ApStatus::InvalidLid));
}

#[test]
fn a_path_to_a_port_that_is_not_known_to_be_the_peers_is_invalid() {
    let elsewhere = Gid::new(0xfe80 << 48, Guid(0x999));
    let status = refused(|_, lap| {
        lap.alternate.local_port_gid = elsewhere;
        lap.alternate.local_port_lid = Lid(0x99);
    });
    assert_eq!(status, Some(ApStatus::InvalidGid));
}

#[test]
fn the_primary_is_no_alternate() {
    let status = refused(|_, lap| {
        lap.alternate.local_port_lid = base_lid((ACTIVE, 1));
        lap.alternate.remote_port_lid = base_lid((PASSIVE, 1));
        lap.alternate.local_port_gid = gid((ACTIVE, 1));
        lap.alternate.remote_port_gid = gid((PASSIVE, 1));
    });
    assert_eq!(status, Some(ApStatus::IsCurrent));
}

#[test]
fn a_port_that_is_outside_of_the_partition_or_has_a_smaller_mtu_is_invalid() {
    for change in [
        (|pair: &mut Pair| pair.hosts[PASSIVE].ports[1].pkeys = vec![PKey(0x8005)])
            as fn(&mut Pair),
        |pair| pair.hosts[PASSIVE].ports[1].mtu = 2,
    ] {
        let status = refused(|pair, _| {
            change(pair);
            pair.port_input(PASSIVE, 2);
        });
        assert_eq!(status, Some(ApStatus::InvalidGid));
    }
}

#[test]
fn a_path_that_the_policy_excludes_is_unsupported() {
    let mut pair = Pair::new(2);
    pair.policies[PASSIVE].mode = Some(Mode::Lid);
    pair.record("APR");
    pair.begin();
    pair.run(2_000);
    let answers = pair
        .recorded()
        .iter()
        .filter_map(|(_, _, message)| match message {
            Message::Apr(apr) => Some(apr.status()),
            _ => None,
        });
    let answers: Vec<ApStatus> = answers.collect();
    assert!(answers.contains(&ApStatus::Unsupported), "{answers:?}");
    assert_eq!(pair.qp(PASSIVE).alternate, None);
}

/// Transaction IDs wrap: three steps of less than half of their range pass the end of it wherever they begin.
#[test]
fn a_later_lap_counts_past_the_wrap_of_transaction_ids_and_an_earlier_one_does_not() {
    const STEP: u32 = 0x6000_0000;
    let (mut pair, mut source, lap) = armed();
    source.transaction_id = pair.last_transaction("LAP");
    for _ in 0..3 {
        source.transaction_id = source.transaction_id.wrapping_add(STEP);
        assert_eq!(answer_to(&mut pair, source, &lap), Some(ApStatus::Success));
        let earlier = MadSource {
            transaction_id: source.transaction_id.wrapping_sub(1),
            ..source
        };
        assert_eq!(answer_to(&mut pair, earlier, &lap), None);
    }
}
