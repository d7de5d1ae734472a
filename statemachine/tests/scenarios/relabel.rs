// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that get another LID, or leave their partition, under connections.

use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;
use cm_msgs::{Lid, PKey};
use statemachine::Command;
use statemachine::view::{Protection, Reason};

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid};

const NEW: Lid = Lid(0x80);

const STORAGE: PKey = PKey(0x8005);

#[test]
fn an_alternate_whose_port_has_another_lid_is_loaded_anew_at_both_ends() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.relabel(host, 2, NEW);
        pair.run(3_000);
        pair.assert_armed();
        let ends = [ACTIVE, PASSIVE].map(|host| pair.qp(host).alternate.expect("armed"));
        assert_eq!((ends[host].slid, ends[1 - host].dlid), (NEW, NEW));
        // It is good for something.
        pair.pull(host, 1);
        pair.run(3_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        assert_eq!(pair.qp(host).primary.slid, NEW);
    }
}

#[test]
fn a_primary_whose_port_has_another_lid_is_left_for_the_alternate() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(2);
        // Nothing that the QPs send by the old LID arrives any more.
        pair.relabel(host, 1, NEW);
        pair.run(3_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(pair.qp(end).primary.port, 2, "{host} {end}");
        }
        // The port is as good as any, by its new LID.
        pair.run_until_armed(10_000);
        pair.run(100);
        pair.assert_armed();
        let ends = [ACTIVE, PASSIVE].map(|host| pair.qp(host).alternate.expect("armed"));
        assert_eq!((ends[host].slid, ends[1 - host].dlid), (NEW, NEW));
    }
}

/// A pair whose connection and ports are in the partition.
fn in_partition(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    for host in &mut pair.hosts {
        for qp in &mut host.qps {
            qp.primary.pkey = STORAGE;
        }
        for port in &mut host.ports {
            port.pkeys.push(STORAGE);
        }
    }
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair
}

#[test]
fn an_alternate_whose_port_leaves_the_partition_is_replaced() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = in_partition(3);
        pair.leave_partition(host, 2, STORAGE);
        pair.run(5_000);
        pair.assert_armed();
        for end in [ACTIVE, PASSIVE] {
            let alternate = pair.qp(end).alternate.expect("armed");
            assert_eq!(alternate.port == 1, end == host, "{host} {end}");
            assert_eq!(alternate.pkey, STORAGE);
        }
    }
}

#[test]
fn a_port_outside_of_the_partition_is_never_chosen_and_that_is_told() {
    let mut pair = in_partition(4);
    for host in [ACTIVE, PASSIVE] {
        pair.leave_partition(host, 2, STORAGE);
    }
    pair.run(20_000);
    for host in [ACTIVE, PASSIVE] {
        let view = pair.view(host);
        assert_eq!(view.protection, Protection::Unprotected, "{host}");
        let told = Reason::NotInPartition(2, STORAGE);
        assert_eq!(view.reason, Some(told), "{host}");
        assert!(view.chosen.is_none_or(|chosen| chosen.port.port != 2));
    }
    for host in [ACTIVE, PASSIVE] {
        pair.join_partition(host, 2, STORAGE);
        pair.run(20_000);
    }
    // The passive side tells that its port is another, or the active one would wait for its pause to end.
    pair.run_until_armed(1_000);
    pair.run(3_000);
    pair.assert_armed();
    assert_eq!(pair.qp(ACTIVE).alternate.expect("armed").port, 2);
}

#[test]
fn a_primary_whose_port_leaves_the_partition_is_left_for_the_alternate() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = in_partition(5);
        pair.leave_partition(host, 1, STORAGE);
        pair.run(3_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(pair.qp(end).primary.port, 2, "{host} {end}");
        }
    }
}

/// The queue pair of host 0 is shown with its port's new LID.
fn shown_with(pair: &mut Pair, lid: Lid) {
    pair.relabel(ACTIVE, 1, lid);
    pair.hosts[ACTIVE].qps[0].primary.slid = lid;
    pair.run(5);
    pair.report_changed(ACTIVE);
    pair.run(5);
}

/// It has an alternate, and both ends are armed.
fn arm(pair: &mut Pair) {
    for host in [ACTIVE, PASSIVE] {
        let far = 1 - host;
        let qp = &mut pair.hosts[host].qps[0];
        qp.alternate = Some(Path {
            port: 2,
            slid: base_lid((host, 2)),
            sgid: gid((host, 2)),
            dlid: base_lid((far, 2)),
            dgid: gid((far, 2)),
            ..qp.primary
        });
        qp.migration = MigrationState::Armed;
        pair.report_changed(host);
    }
    pair.run(20);
}

/// The peer's queue pair sends to the LID that the port had first.
#[test]
fn a_port_whose_lid_changes_twice_is_lost_unless_it_is_the_first_again() {
    let first = base_lid((ACTIVE, 1));
    for (last, migrations) in [(first, 0), (Lid(0x88), 1)] {
        let mut pair = Pair::new(31);
        pair.sa_dead = true;
        pair.begin();
        pair.run(1_000);
        pair.set_traffic(false);
        pair.run(100);
        shown_with(&mut pair, Lid(0x80));
        shown_with(&mut pair, last);
        arm(&mut pair);
        let counters = pair.view(ACTIVE).counters;
        assert_eq!(counters.migrations, migrations, "{last}");
    }
}

/// The peer compares the primary that a LAP names with its own.
#[test]
fn a_proposal_is_made_again_when_the_primary_is_shown_with_another_lid() {
    let mut pair = Pair::new(32);
    pair.sa_dead = true;
    pair.begin();
    pair.run(1_000);
    pair.lose.insert("APR", usize::MAX);
    pair.sa_dead = false;
    pair.command(ACTIVE, Command::Rearm);
    pair.run(20);
    let before = pair.view(ACTIVE).counters.laps_sent;
    assert_eq!(before, 1);
    shown_with(&mut pair, NEW);
    assert_eq!(pair.view(ACTIVE).counters.laps_sent, before + 1);
}

/// The simulation's seed 1795736709846762: an alternate led to a LID that was another host's by then, which answered
/// its probes, and no path source answered. A short loss of the primary's port must not send the connection there.
#[test]
fn a_lid_that_the_peer_does_not_have_any_more_is_no_place_to_go() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(6);
        pair.run(2_000);
        pair.sa_dead = true;
        pair.relabel(1 - host, 2, NEW);
        pair.run(20);
        pair.pull(host, 1);
        pair.run(60);
        pair.plug(host, 1);
        pair.run(1_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        assert_eq!(pair.qp(host).primary.port, 1, "{host}");
        pair.sa_dead = false;
        pair.run(75_000);
        pair.assert_armed();
    }
}

/// The simulation's seed 1795827557595112: the LID of the peer's second port changed and changed back within 60 ms, and
/// an answer of before was used again and again for a second, each time with a longer pause after it.
#[test]
fn an_answer_that_the_peers_report_has_outdated_is_not_used_again() {
    let mut pair = Pair::armed(3);
    pair.run(2_000);
    pair.relabel(PASSIVE, 2, NEW);
    pair.run(60);
    let old = base_lid((PASSIVE, 2));
    pair.relabel(PASSIVE, 2, old);
    pair.run(400);
    pair.assert_armed();
    pair.assert_best_alternates();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!((alternate.port, alternate.dlid), (2, old));
}

/// The simulation's seed 1795782650210787: a path record of a second before gave the peer's port a LID that was
/// another host's by then, to which the LAP went.
#[test]
fn a_path_source_that_is_late_does_not_undo_what_the_peer_says_of_its_lid() {
    let mut pair = Pair::new(7);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 2), (PASSIVE, 2)),
    ]);
    pair.begin();
    pair.run(1_000);
    pair.assert_armed();
    pair.sa_old_lid = Some(((PASSIVE, 2), base_lid((PASSIVE, 2))));
    pair.relabel(PASSIVE, 2, NEW);
    pair.run(3_000);
    let ports = pair.view(ACTIVE).association.peer_ports;
    let far = ports.iter().find(|port| port.gid == gid((PASSIVE, 2)));
    assert_eq!(far.map(|port| port.lid), Some(NEW));
    assert_eq!(pair.to_strangers.len(), 0);
    pair.sa_old_lid = None;
    pair.run(20_000);
    pair.assert_armed();
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.dlid, NEW);
}
