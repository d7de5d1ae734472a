// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that get another LID, or leave their partition, under connections.

use cm_msgs::{Lid, PKey};
use statemachine::view::{Protection, Reason};

use super::pair::{ACTIVE, PASSIVE, Pair};

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
