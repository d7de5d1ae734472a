// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the passive side checks of a LAP before it loads the path: here the peer itself proposes what it should not.

use std::time::Duration;

use cm_msgs::association::{PrimaryPath, State};
use cm_msgs::cm::{ApStatus, Lap, Message};
use cm_msgs::control::{MigrationState, Mode, PolicyOverride, QpState};
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::{Command, MadSource};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair, base_lid, gid};

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
    answer_to(pair, source, lap, 1)
}

/// The same; what comes with the LAP is later by `by` than what it has.
fn answer_to(pair: &mut Pair, source: MadSource, lap: &Lap, by: u32) -> Option<ApStatus> {
    pair.record("APR");
    let before = pair.recorded().len();
    pair.forge_later(PASSIVE, source, lap, by);
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

/// An announcement has neither LID.
#[test]
fn a_path_without_one_of_its_lids_is_invalid() {
    let status = refused(|_, lap| lap.alternate.local_port_lid = Lid(0));
    assert_eq!(status, Some(ApStatus::InvalidLid));
    let status = refused(|_, lap| lap.alternate.remote_port_lid = Lid(0));
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

/// What a LAP comes with tells a new one from a copy, whatever its transaction ID. (The simulation's seed
/// 1795832706290464: somebody repeated the last LAP with a transaction ID of his own, and the peer's next ones seemed to
/// be older than that, until their copies ended 20 s later.)
#[test]
fn a_lap_that_somebody_repeats_with_another_transaction_id_keeps_no_later_one_out() {
    for number in [0x1000, 0x7fff_fff0, 0x8000_0010, 0xffff_0000_u32] {
        let (mut pair, source, mut lap) = armed();
        let last = pair.last_transaction("LAP");
        let repeated = MadSource {
            transaction_id: last.wrapping_add(number),
            ..source
        };
        let loads = pair.view(PASSIVE).counters.loads;
        let again = answer_to(&mut pair, repeated, &lap, 0);
        assert_eq!(again, Some(ApStatus::Success), "{number:#x}");
        assert_eq!(pair.view(PASSIVE).counters.loads, loads);
        lap.alternate.local_port_lid = base_lid((ACTIVE, 1));
        lap.alternate.local_port_gid = gid((ACTIVE, 1));
        let next = MadSource {
            transaction_id: last.wrapping_add(1),
            ..source
        };
        let taken = answer_to(&mut pair, next, &lap, 1);
        assert_eq!(taken, Some(ApStatus::Success), "{number:#x}");
        assert_eq!(pair.view(PASSIVE).counters.loads, loads + 1);
        // And what was sent before it is past, whatever its number.
        assert_eq!(answer_to(&mut pair, repeated, &lap, 0), None);
    }
}

/// A copy has the transaction ID of the one before, with a later state at most. What has its state and another
/// transaction ID proposes nothing new either.
#[test]
fn a_copy_of_a_lap_is_answered_and_is_no_other_proposal() {
    let (mut pair, mut source, lap) = armed();
    source.transaction_id = pair.last_transaction("LAP").wrapping_add(1);
    let answer = answer_to(&mut pair, source, &lap, 1);
    assert_eq!(answer, Some(ApStatus::Success));
    let received = pair.view(PASSIVE).counters.laps_received;
    for later in [1, 2] {
        let answer = answer_to(&mut pair, source, &lap, later);
        assert_eq!(answer, Some(ApStatus::Success), "{later}");
    }
    source.transaction_id += 1;
    let answer = answer_to(&mut pair, source, &lap, 1);
    assert!(matches!(answer, None | Some(ApStatus::Success)));
    assert_eq!(pair.view(PASSIVE).counters.laps_received, received);
}

/// A proposal is no better than its way there: if nothing comes through, the next route is tried, and the path is not
/// loaded unseen.
#[test]
fn a_lap_goes_by_the_path_that_it_proposes_first() {
    let mut pair = Pair::new(2);
    pair.record("LAP");
    pair.begin();
    pair.run(100);
    let (to, source, message) = pair.recorded()[0].clone();
    let Message::Lap(lap) = message else {
        panic!("recorded");
    };
    assert_eq!((to, source.lid), (PASSIVE, lap.alternate.local_port_lid));
    let port = &pair.hosts[PASSIVE].ports[usize::from(source.port.port) - 1];
    assert_eq!(port.lid, lap.alternate.remote_port_lid);
}

/// What names our communication ID is a proof only as long as nobody but the peer gets it.
#[test]
fn an_answer_goes_to_the_peer_wherever_the_question_came_from() {
    let (mut pair, source, lap) = armed();
    let stranger = MadSource {
        lid: Lid(0x99),
        ..source
    };
    assert_eq!(answer(&mut pair, stranger, &lap), Some(ApStatus::Success));
    assert!(pair.to_strangers.is_empty());
}

#[test]
fn an_answer_leaves_by_a_port_that_is_up() {
    let (mut pair, _, _) = armed();
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    let (_, source, message) = pair.recorded().last().expect("another LAP").clone();
    let Message::Lap(lap) = message else {
        panic!("recorded");
    };
    let late = MadSource {
        port: pair.hosts[PASSIVE].port_id(2),
        lid: base_lid((ACTIVE, 2)),
        ..source
    };
    let before = pair.recorded().len();
    assert!(answer(&mut pair, late, &lap).is_some());
    let (_, source, _) = pair.recorded()[before..][0].clone();
    assert_eq!(source.lid, base_lid((PASSIVE, 1)));
}

#[test]
fn an_announcement_is_no_proposal() {
    let (mut pair, ..) = armed();
    pair.sa_dead = true;
    pair.record("APR");
    let before = pair.view(PASSIVE).counters.laps_received;
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    let answers = pair
        .recorded()
        .iter()
        .filter_map(|(_, _, message)| match message {
            Message::Apr(apr) => Some(apr.status()),
            _ => None,
        });
    assert_eq!(answers.collect::<Vec<_>>(), [ApStatus::Success]);
    assert_eq!(pair.view(PASSIVE).counters.laps_received, before);
}

/// While its library is slow the passive side asks for patience, which is longer than the peer would wait by itself.
#[test]
fn a_lap_that_comes_again_while_it_is_acted_on_is_answered_by_an_mra() {
    let (mut pair, source, mut lap) = armed();
    lap.alternate.local_port_lid = base_lid((ACTIVE, 1));
    lap.alternate.local_port_gid = gid((ACTIVE, 1));
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    assert_eq!(answer(&mut pair, source, &lap), None);
    let again = MadSource {
        transaction_id: pair.last_transaction("LAP").wrapping_add(1),
        ..source
    };
    pair.record("MRA");
    let before = pair.recorded().len();
    pair.forge_later(PASSIVE, again, &lap, 1);
    pair.run(20);
    let [(_, _, Message::Mra(mra))] = &pair.recorded()[before..] else {
        panic!("one MRA");
    };
    let asked = Duration::from_nanos(4_096 << mra.service_timeout);
    assert!(asked >= pair.config.retry_first * 4, "{asked:?}");
}

/// A LAP that proposes the path between these ports, of a peer whose primary joins those.
fn proposing(lap: &Lap, ports: (u8, u8), primary: (u8, u8), later: u32) -> Lap {
    let mut lap = lap.clone();
    lap.alternate.local_port_lid = base_lid((ACTIVE, ports.0));
    lap.alternate.local_port_gid = gid((ACTIVE, ports.0));
    lap.alternate.remote_port_lid = base_lid((PASSIVE, ports.1));
    lap.alternate.remote_port_gid = gid((PASSIVE, ports.1));
    let mut state = State::decode(&lap.private_data).expect("a state");
    state.sequence += later;
    state.primary = PrimaryPath {
        port: primary.0,
        local: base_lid((ACTIVE, primary.0)),
        remote: base_lid((PASSIVE, primary.1)),
    };
    state.place = primary.0;
    lap.private_data = state.encode();
    lap
}

/// An armed pair without traffic, and the LAP that led to it.
fn quiet() -> (Pair, MadSource, Lap) {
    let (mut pair, source, lap) = armed();
    pair.set_traffic(false);
    pair.run(100);
    (pair, source, lap)
}

/// The ports of the passive side's primary and alternate.
fn ports(pair: &Pair) -> [u8; 2] {
    let qp = pair.qp(PASSIVE);
    [qp.primary.port, qp.alternate.map_or(0, |path| path.port)]
}

#[test]
fn the_lap_of_a_peer_that_has_migrated_is_answered_from_there() {
    let (mut pair, source, lap) = quiet();
    let lap = proposing(&lap, (1, 1), (2, 2), 100);
    assert_eq!(answer(&mut pair, source, &lap), Some(ApStatus::Success));
    assert_eq!(ports(&pair), [2, 1]);
}

/// The peer left its primary for the alternate while this end loaded another one.
#[test]
fn a_peer_that_has_migrated_to_the_alternate_before_the_present_one_is_followed() {
    let (mut pair, source, lap) = quiet();
    let second = proposing(&lap, (1, 2), (1, 1), 100);
    let mut at = source;
    at.transaction_id = pair.last_transaction("LAP").wrapping_add(1);
    assert_eq!(
        answer_to(&mut pair, at, &second, 0),
        Some(ApStatus::Success)
    );
    let third = proposing(&lap, (1, 1), (2, 2), 101);
    at.transaction_id += 1;
    assert_eq!(answer_to(&mut pair, at, &third, 0), Some(ApStatus::Success));
    assert_eq!(ports(&pair), [2, 1]);
}

#[test]
fn a_peer_on_a_path_that_this_end_does_not_have_is_rejected_after_a_few_looks() {
    let (mut pair, source, lap) = quiet();
    let orders = |pair: &Pair| {
        let engine = pair.hosts[PASSIVE].engine.as_ref().expect("a daemon");
        engine.counters().orders
    };
    let before = orders(&pair);
    let lap = proposing(&lap, (2, 2), (2, 1), 100);
    assert_eq!(answer(&mut pair, source, &lap), Some(ApStatus::Rejected));
    let asked = orders(&pair) - before;
    assert!((1..=5).contains(&asked), "{asked}");
    assert_eq!(ports(&pair), [1, 2]);
}

#[test]
fn a_load_that_is_stale_is_tried_again_a_few_times() {
    for (stale, status) in [
        (1, ApStatus::Success),
        (2, ApStatus::Success),
        (3, ApStatus::Rejected),
    ] {
        let (mut pair, source, lap) = quiet();
        pair.hosts[PASSIVE].fault = Some(LibraryFault::Stale(stale));
        let lap = proposing(&lap, (1, 2), (1, 1), 100);
        assert_eq!(answer(&mut pair, source, &lap), Some(status), "{stale}");
    }
}

#[test]
fn a_lap_that_waits_for_the_library_is_answered_before_anything_is_suggested() {
    let (mut pair, source, lap) = quiet();
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    let lap = proposing(&lap, (1, 2), (1, 1), 100);
    assert_eq!(answer(&mut pair, source, &lap), None);
    let before = pair.hosts[PASSIVE].sent("SAP");
    pair.set_policy(PASSIVE, mode(Mode::Any));
    pair.set_policy(PASSIVE, mode(Mode::Port));
    pair.run(100);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP"), before);
}

#[test]
fn a_queue_pair_outside_of_rts_suggests_nothing() {
    let (mut pair, ..) = quiet();
    pair.hosts[PASSIVE].qps[0].state = QpState::Sqd;
    pair.report_changed(PASSIVE);
    pair.run(10);
    let before = pair.hosts[PASSIVE].sent("SAP");
    pair.set_policy(PASSIVE, mode(Mode::Port));
    pair.run(100);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP"), before);
}

fn mode(mode: Mode) -> PolicyOverride {
    PolicyOverride {
        mode: Some(mode),
        ..PolicyOverride::default()
    }
}

/// A queue pair is protected by a port that its primary does not have: that one is no better.
#[test]
fn no_port_is_named_instead_where_the_primarys_is_the_only_other() {
    let (mut pair, source, lap) = armed();
    pair.hosts[PASSIVE].ports[1].mtu = 2;
    pair.port_input(PASSIVE, 2);
    let before = pair.recorded().len();
    assert_eq!(answer(&mut pair, source, &lap), Some(ApStatus::InvalidGid));
    let answers = pair.recorded()[before..].iter();
    let named = answers.filter_map(|(_, _, message)| match message {
        Message::Apr(apr) => Some(apr.better_gid()),
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), [None]);
}

/// Following a peer is bounded: moved three times in a minute between two paths, a connection stays.
#[test]
fn nobody_is_moved_to_and_fro_by_laps() {
    let (mut pair, source, lap) = quiet();
    let first = pair.last_transaction("LAP");
    pair.kill(ACTIVE);
    for round in 0..6 {
        let (here, there) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        pair.hosts[PASSIVE].qps[0].migration = MigrationState::Armed;
        pair.report_changed(PASSIVE);
        pair.run(10);
        let lap = proposing(&lap, (here, here), (there, there), 100 + round);
        let mut at = source;
        at.transaction_id = first.wrapping_add(1 + round);
        answer_to(&mut pair, at, &lap, 0);
    }
    assert_eq!(pair.view(PASSIVE).counters.migrations, 3);
}

/// The simulation's seed 1795775863237689: moved three times in a minute the passive end does not follow by order, but
/// by the peer's next packet. The LAP that it had to refuse before that is not to be the last for a second.
#[test]
fn a_lap_refused_before_this_end_had_followed_is_asked_for_again() {
    let mut pair = Pair::armed(9);
    for round in 0..4 {
        pair.run(2_000);
        pair.assert_armed();
        let within = Duration::from_secs(1);
        pair.command(ACTIVE, Command::Migrate { within });
        pair.run(200);
        assert_eq!(pair.view(ACTIVE).counters.migrations, round + 1);
        assert_eq!(pair.view(PASSIVE).counters.migrations, round + 1);
        pair.assert_armed();
    }
}
