// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which path becomes the alternate.

use std::cell::Cell;

use cm_msgs::association::{MAX_PORTS, PeerPort, Ports, State};
use cm_msgs::cm::{ApStatus, Message};
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::Shared;

use super::pair::{ACTIVE, PASSIVE, Pair, gid};

fn running(mut pair: Pair) -> Pair {
    pair.begin();
    pair.run(2_000);
    pair
}

#[test]
fn other_ports_on_both_sides_come_first() {
    let pair = Pair::armed(1);
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (2, (PASSIVE, 2)));
    let view = pair.view(ACTIVE);
    assert_eq!(
        view.chosen.map(|candidate| candidate.score.shared),
        Some(Shared::Neither)
    );
    assert_eq!(
        view.runner_up.map(|candidate| candidate.score.shared),
        Some(Shared::OnePort)
    );
}

#[test]
fn equal_candidates_share_the_connections() {
    let mut pair = Pair::with(2, 0, 64);
    *pair.net.cable((PASSIVE, 2)) = super::pair::Cable::Plugged;
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 2)),
        ((ACTIVE, 2), (PASSIVE, 1)),
    ]);
    let pair = running(pair);
    pair.assert_armed();
    let second = pair.hosts[ACTIVE].qps.iter();
    let second = second
        .filter(|qp| qp.alternate.is_some_and(|path| path.port == 2))
        .count();
    assert!((16..=48).contains(&second), "{second} of 64 by port 2");
}

#[test]
fn with_several_lids_an_alternate_has_them_all_to_choose_from() {
    let pair = running(Pair::with(3, 2, 64));
    pair.assert_armed();
    let mut lids: Vec<u16> = pair.hosts[ACTIVE]
        .qps
        .iter()
        .filter_map(|qp| qp.alternate)
        .map(|path| path.slid.0)
        .collect();
    lids.sort_unstable();
    lids.dedup();
    assert_eq!(lids.len(), 4);
}

#[test]
fn a_port_outside_the_partition_is_not_chosen() {
    let mut pair = Pair::new(4);
    pair.hosts[ACTIVE].ports[1].pkeys = vec![PKey(0x8001)];
    let pair = running(pair);
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (1, (PASSIVE, 2)));
    pair.assert_armed();
}

#[test]
fn a_port_with_a_smaller_mtu_is_not_chosen() {
    let mut pair = Pair::new(5);
    pair.hosts[ACTIVE].ports[1].mtu = 3;
    let pair = running(pair);
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.port, 1);
    pair.assert_armed();
}

#[test]
fn the_peer_names_a_port_that_it_would_rather_have() {
    let mut pair = Pair::new(6);
    // At the passive side port 2 lacks the partition, which no path record tells.
    pair.hosts[PASSIVE].ports[1].pkeys = vec![PKey(0x8001)];
    pair.record("LAP");
    let pair = running(pair);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (2, (PASSIVE, 1)));
    let proposed = pair
        .recorded()
        .iter()
        .filter_map(|(_, _, message)| match message {
            Message::Lap(lap) => Some(lap.alternate.remote_port_gid),
            _ => None,
        });
    let proposed: Vec<Gid> = proposed.filter(|gid| !gid.is_unspecified()).collect();
    assert_eq!(proposed[..2], [gid((PASSIVE, 2)), gid((PASSIVE, 1))]);
}

#[test]
fn the_alternate_keeps_what_the_qp_cannot_change() {
    let pair = Pair::armed(7);
    for host in [ACTIVE, PASSIVE] {
        let (primary, alternate) = (pair.qp(host).primary, pair.qp(host).alternate);
        let alternate = alternate.expect("armed");
        assert_eq!(alternate.mtu, primary.mtu);
        assert_eq!(alternate.pkey, primary.pkey);
        assert_eq!(alternate.ack_timeout, primary.ack_timeout);
        assert!(!alternate.global);
    }
}

/// The path source has not noticed that the port is down, and would have its path probed until that is suspect.
#[test]
fn a_path_to_a_port_that_goes_down_while_it_is_asked_for_is_not_waited_for() {
    let mut pair = Pair::with(7, 1, 1);
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair.sa_names_dead_ports = true;
    pair.sa_takes = Some(20_000);
    pair.pull(ACTIVE, 2);
    pair.run(10);
    pair.pull(PASSIVE, 2);
    pair.run(100);
    // By other LIDs of the ports that are left.
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.port, 1);
}

/// A state that names ports which no path leads to, besides the real ones.
fn with_ports_that_are_none(mut state: State) -> State {
    let real = state.ports.as_slice().to_vec();
    let invented = (real.len()..MAX_PORTS).map(|number| PeerPort {
        gid: Gid::new(real[0].gid.subnet_prefix(), Guid(0x7000 + number as u64)),
        lid: Lid(0x700 + 8 * number as u16),
        ..real[0]
    });
    state.ports = Ports::new(real.iter().copied().chain(invented));
    state
}

/// The simulation's seed 1795731523211390: a peer that had declined the only path that is left, and named ports that do
/// not exist, lost its other port for good. Sixteen candidates that lead nowhere were asked for each time, and the one
/// that leads to it never again.
#[test]
fn candidates_that_lead_nowhere_do_not_keep_another_from_being_tried() {
    let mut pair = Pair::with(8, 1, 1);
    pair.net.two_subnets = true;
    let mut pair = running(pair);
    pair.assert_armed();
    let declined = Cell::new(0);
    pair.twist(move |message| match message {
        Message::Apr(apr) => {
            if apr.status() == ApStatus::Success && declined.get() < 2 {
                declined.set(declined.get() + 1);
                apr.ar_status = ApStatus::InvalidGid.into();
            }
            let state = State::decode(&apr.private_data).expect("its state");
            apr.private_data = with_ports_that_are_none(state).encode();
        }
        Message::Sap(sap) => {
            let state = State::decode(&sap.private_data).expect("its state");
            sap.private_data = with_ports_that_are_none(state).encode();
        }
        _ => {}
    });
    pair.pull(PASSIVE, 2);
    pair.run(30_000);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (1, (PASSIVE, 1)), "by another LID");
}

/// The simulation's seed 1795739211519278: a path source that was silent for a moment had lost the question for a lesser
/// path, and the port that came back meanwhile was not asked for until that question had been given up.
#[test]
fn a_port_that_comes_back_is_not_kept_waiting_by_a_question_for_a_lesser_path() {
    let mut pair = Pair::armed(9);
    pair.sa_takes = Some(20_000_000);
    pair.pull(ACTIVE, 1);
    pair.run(200);
    pair.sa_takes = None;
    pair.plug(ACTIVE, 1);
    pair.run(2_000);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(Pair::rails(&alternate), (1, (PASSIVE, 1)));
}
