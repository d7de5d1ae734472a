// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local end of the primary is lost: when that is a reason to go to the alternate, and when not.

use std::num::NonZeroU8;

use cm_msgs::control::Placement;
use cm_msgs::{Lid, PKey};
use statemachine::Command;
use statemachine::view::{AssociationState, Held, MoveCause, Transition};
use std::time::Duration;

use super::pair::{ACTIVE, PASSIVE, Pair};

const NEW: Lid = Lid(0x80);

/// Armed, and the alternate has been black-holed for long. No source knows another path.
fn with_a_black_holed_alternate(seed: u64, host: usize) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.run(2_000);
    pair.sa_dead = true;
    pair.black_hole(1 - host, 2);
    pair.run(5_000);
    assert!(!pair.may_stand(host), "the standing order is withdrawn");
    pair
}

/// The primary's port of a host is down for 60 ms, and no library has a standing order for that.
fn blip(pair: &mut Pair, host: usize) {
    pair.pull(host, 1);
    assert_eq!(pair.libraries_see_loss(host, 1), 0);
    pair.run(60);
    pair.plug(host, 1);
    pair.run(5_000);
}

fn migrations(pair: &Pair) -> [u32; 2] {
    [ACTIVE, PASSIVE].map(|host| pair.view(host).counters.migrations)
}

#[test]
fn a_blip_of_the_primarys_port_sends_nobody_to_a_black_holed_alternate() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_a_black_holed_alternate(1, host);
        blip(&mut pair, host);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        assert_eq!(migrations(&pair), [0, 0], "{host}");
    }
}

/// Without an association nobody probes the alternate: what was known of it stays so.
#[test]
fn nor_after_the_association_has_ended() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_a_black_holed_alternate(4, host);
        pair.kill(1 - host);
        pair.hosts[1 - host].registered = vec![false];
        pair.start(1 - host);
        // Until the association is verified, at the latest.
        pair.run(700_000);
        assert_ne!(
            pair.view(host).association.state,
            AssociationState::Established
        );
        blip(&mut pair, host);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
        assert_eq!(pair.view(host).counters.migrations, 0, "{host}");
    }
}

/// The passive side's daemon starts again, and the active side does not know: soon the alternate is probed all the same.
#[test]
fn nor_soon_after_a_restart() {
    for seed in 0..5 {
        let mut pair = Pair::armed(seed);
        pair.run(2_000);
        pair.kill(PASSIVE);
        pair.sa_dead = true;
        pair.black_hole(ACTIVE, 2);
        pair.start(PASSIVE);
        pair.run(5_000);
        blip(&mut pair, PASSIVE);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{seed}");
        assert_eq!(pair.view(PASSIVE).counters.migrations, 0, "{seed}");
    }
}

#[test]
fn an_alternate_that_carries_packets_again_is_used_at_once() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_a_black_holed_alternate(2, host);
        pair.pull(host, 1);
        pair.run(50);
        pair.plug(1 - host, 2);
        pair.run(200);
        assert_eq!(pair.qp(host).primary.port, 2, "{host}");
        pair.run(5_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{host}");
    }
}

/// The port that a policy wants goes dark just before the connection is moved there.
#[test]
fn nor_does_a_policy() {
    for (seed, side) in (0..20).flat_map(|seed| [(seed, ACTIVE), (seed, PASSIVE)]) {
        let mut pair = Pair::with(seed, 1, 1);
        pair.policies[side].placement = NonZeroU8::new(2).map(Placement::Prefer);
        // No path leads from one rail to the other.
        let rails =
            [ACTIVE, PASSIVE].map(|host| [1, 2].map(|port| ((host, port), (1 - host, port))));
        pair.sa_knows_only(rails.concat());
        pair.begin();
        pair.run(4_800 + 10 * seed);
        pair.assert_armed();
        pair.black_hole(1 - side, 2);
        pair.run(8_000);
        assert!(
            pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE),
            "{seed} {side}"
        );
        assert_eq!(migrations(&pair), [0, 0], "{seed} {side}");
    }
}

#[test]
fn nor_does_an_operators_wish() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_a_black_holed_alternate(3, host);
        let within = Duration::from_secs(20);
        pair.command(host, Command::Migrate { within });
        pair.run(10_000);
        assert_eq!(pair.view(host).held, Some(Held::NotArmed), "{host}");
        assert_eq!(migrations(&pair), [0, 0], "{host}");
        // The wish holds until then.
        pair.plug(1 - host, 2);
        pair.run(5_000);
        assert_eq!(pair.qp(host).primary.port, 2, "{host}");
    }
}

/// No packet of the applications tells the QPs.
fn quiet(seed: u64, pkey: PKey) -> Pair {
    let mut pair = Pair::new(seed);
    for host in &mut pair.hosts {
        host.qps[0].primary.pkey = pkey;
        for port in &mut host.ports {
            port.pkeys.push(pkey);
        }
    }
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.run(100);
    pair
}

/// Both ends are on their second ports, once, because of a port.
fn assert_left(pair: &mut Pair, host: usize) {
    pair.run(20);
    for end in [ACTIVE, PASSIVE] {
        assert_eq!(pair.qp(end).primary.port, 2, "{host} {end}");
    }
    assert_eq!(migrations(pair), [1, 1], "{host}");
    let left = |event: &Transition| matches!(event, Transition::Migrated { cause, .. } if *cause == MoveCause::PortLost);
    let history = pair.view(host).history;
    let mut past = history.iter();
    assert!(past.any(|past| left(&past.what)), "{history:?}");
    pair.set_traffic(true);
    pair.run_until_armed(10_000);
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
}

#[test]
fn a_primary_whose_port_gets_another_lid_is_left_at_once() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = quiet(4, PKey::DEFAULT_FULL);
        pair.relabel(host, 1, NEW);
        assert_left(&mut pair, host);
    }
}

#[test]
fn also_where_the_library_shows_the_queue_pair_with_its_ports_lid() {
    for host in [ACTIVE, PASSIVE] {
        for told_first in [true, false] {
            let mut pair = quiet(5, PKey::DEFAULT_FULL);
            pair.relabel(host, 1, NEW);
            pair.hosts[host].qps[0].primary.slid = NEW;
            if told_first {
                pair.report_changed(host);
            }
            assert_left(&mut pair, host);
        }
    }
}

#[test]
fn a_primary_whose_port_leaves_the_partition_is_left_at_once() {
    let storage = PKey(0x8005);
    for host in [ACTIVE, PASSIVE] {
        let mut pair = quiet(6, storage);
        pair.leave_partition(host, 1, storage);
        assert_left(&mut pair, host);
    }
}
