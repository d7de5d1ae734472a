// SPDX-License-Identifier: MIT OR Apache-2.0
//! What could have two daemons, or a daemon and its path source, ask and answer without end.

use std::cell::Cell;
use std::rc::Rc;

use cm_msgs::association::{PeerPort, Ports, State};
use cm_msgs::cm::{self, ApStatus};
use cm_msgs::{Gid, Lid};
use statemachine::Command;
use statemachine::view::Grade;

use super::pair::{ACTIVE, Fabric, PASSIVE, Pair, base_lid, gid, gid_in, shared};

const PREFIX: u64 = 0xfec0_0000_0000_0008;

/// LAPs, SAPs and path queries of so many milliseconds.
fn asked(pair: &mut Pair, ms: u64) -> [usize; 3] {
    asked_while(pair, |pair| pair.run(ms))
}

fn asked_while(pair: &mut Pair, passes: impl FnOnce(&mut Pair)) -> [usize; 3] {
    let count = |pair: &Pair| {
        let queries = pair.view(ACTIVE).counters.queries as usize;
        let [laps, saps] =
            [(ACTIVE, "LAP"), (PASSIVE, "SAP")].map(|(host, name)| pair.hosts[host].sent(name));
        [laps, saps, queries]
    };
    let before = count(pair);
    passes(pair);
    let after = count(pair);
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// Armed, and whoever knows the fabric says that paths over different rails share nothing.
fn with_fabric_data(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    pair.fabric = Fabric::new(|primary, way| {
        let far = (primary.0 != way.0) && (primary.1 != way.1);
        Some(shared(u8::from(!far), 0))
    });
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair
}

#[test]
fn another_prefix_is_settled_with_few_messages() {
    for fabric_data in [true, false] {
        let mut pair = match fabric_data {
            true => with_fabric_data(1),
            false => Pair::armed(1),
        };
        pair.change_prefix(PREFIX);
        let first = asked(&mut pair, 3_000);
        assert!(first.iter().all(|&count| count <= 8), "{first:?}");
        let later = asked(&mut pair, 60_000);
        assert!(later[0] <= 2 && later[1] <= 2, "{later:?}");
        pair.assert_armed();
        for host in [ACTIVE, PASSIVE] {
            let alternate = pair.qp(host).alternate.expect("armed");
            assert_eq!(alternate.dlid, base_lid((1 - host, 2)), "{host}");
        }
    }
}

#[test]
fn ports_that_exchange_their_lids_are_settled_with_few_messages() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_fabric_data(2);
        let lids = [1, 2].map(|port| base_lid((host, port)));
        pair.relabel(host, 1, lids[1]);
        pair.relabel(host, 2, lids[0]);
        let first = asked(&mut pair, 10_000);
        assert!(first.iter().all(|&count| count <= 40), "{first:?}");
        let later = asked(&mut pair, 60_000);
        assert!(later.iter().all(|&count| count <= 20), "{later:?}");
    }
}

#[test]
fn a_dead_port_that_a_path_source_names_is_proposed_ever_more_rarely() {
    let mut pair = Pair::armed(3);
    pair.sa_names_dead_ports = true;
    pair.config.verify = std::time::Duration::ZERO;
    let config = pair.config.clone();
    for host in [ACTIVE, PASSIVE] {
        pair.configure(host, config.clone());
    }
    pair.pull(PASSIVE, 2);
    pair.run(60_000);
    pair.assert_armed();
    let laps = asked(&mut pair, 600_000)[0];
    // A pause of a minute at most, and one LAP to agree on what there is after each that is declined.
    assert!((1..=30).contains(&laps), "{laps}");
    pair.plug(PASSIVE, 2);
    pair.run(3_000);
    pair.assert_armed();
    assert_eq!(
        pair.qp(ACTIVE).alternate.expect("armed").dlid,
        base_lid((PASSIVE, 2))
    );
}

/// The passive daemon answers each LAP by naming another GID, an alias of its second port. With `lists`, its
/// state names the port under that GID as well.
fn redirecting(seed: u64, lists: bool) -> Pair {
    let mut pair = Pair::with(seed, 3, 1);
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    let count = Rc::new(Cell::new(0_u32));
    pair.twist(move |message| {
        let number = count.get() + 1;
        // Never the alias without an offset.
        let prefix = gid((PASSIVE, 2)).subnet_prefix() ^ u64::from(number % 7 + 1 + number * 8);
        let alias = gid_in(prefix, (PASSIVE, 2));
        let twisted = |mut state: State| {
            state.sequence = state.sequence.wrapping_add(number + 1);
            if lists {
                let lid = Lid(base_lid((PASSIVE, 2)).0);
                state.ports = Ports::new([port(alias, lid)]);
            }
            state
        };
        match message {
            cm::Message::Apr(apr)
                if matches!(apr.status(), ApStatus::Success | ApStatus::InvalidGid) =>
            {
                apr.set_better_gid(alias);
                let state = State::decode(&apr.private_data).expect("ours");
                apr.private_data = twisted(state).encode();
            }
            cm::Message::Sap(sap) => {
                sap.alternate_local_port_gid = alias;
                let state = State::decode(&sap.private_data).expect("ours");
                sap.private_data = twisted(state).encode();
            }
            _ => return,
        }
        count.set(number);
    });
    pair
}

fn port(gid: Gid, lid: Lid) -> PeerPort {
    PeerPort {
        gid,
        lid,
        lmc: 3,
        up: true,
        drained: false,
    }
}

#[test]
fn a_peer_that_points_elsewhere_each_time_is_followed_twice() {
    for verify in [true, false] {
        for lists in [false, true] {
            let mut pair = redirecting(4, lists);
            if !verify {
                pair.config.verify = std::time::Duration::ZERO;
                let config = pair.config.clone();
                pair.configure(ACTIVE, config);
            }
            pair.pull(ACTIVE, 2);
            pair.run(500);
            pair.plug(ACTIVE, 2);
            let [laps, _, queries] = asked(&mut pair, 10_000);
            assert!(
                laps <= 40 && queries <= 40,
                "{verify} {lists}: {laps} {queries}"
            );
        }
    }
}

#[test]
fn also_one_that_suggests_another_port_again_and_again() {
    let mut pair = redirecting(5, true);
    let [laps, saps, queries] = asked_while(&mut pair, |pair| {
        for _ in 0..500 {
            // The passive end has something new to say every 20 ms.
            let status = &mut pair.hosts[PASSIVE].ports[1];
            status.lmc = if status.lmc == 3 { 2 } else { 3 };
            pair.port_input(PASSIVE, 2);
            pair.run(20);
        }
    });
    assert!(saps > 100, "{saps}");
    // In 10 s: a burst, and two or three a second.
    assert!(laps <= 100 && queries <= 100, "{laps} {queries}");
}

#[test]
fn an_alternate_that_ends_at_the_primarys_port_by_another_name_is_no_full_protection() {
    for prefix_first in [true, false] {
        let mut pair = Pair::armed(6);
        pair.run(2_000);
        assert_eq!(pair.view(ACTIVE).grade, Some(Grade::Full));
        if prefix_first {
            pair.change_prefix(PREFIX);
            pair.run(3_000);
        }
        pair.black_hole(PASSIVE, 2);
        pair.run(4_000);
        if !prefix_first {
            pair.change_prefix(PREFIX);
            pair.run(5_000);
        }
        pair.assert_armed();
        for host in [ACTIVE, PASSIVE] {
            let grade = pair.view(host).grade;
            assert_eq!(grade, Some(Grade::SamePort), "{prefix_first} {host}");
        }
    }
}

#[test]
fn suggestions_of_a_peer_do_not_keep_a_slow_path_source_from_answering() {
    let mut pair = Pair::armed(7);
    pair.pull(ACTIVE, 2);
    pair.run(2_000);
    pair.assert_armed();
    pair.sa_takes = Some(1_500_000);
    pair.plug(ACTIVE, 2);
    pair.run(700);
    pair.twist(|message| {
        if let cm::Message::Sap(sap) = message {
            sap.alternate_local_port_gid = gid((PASSIVE, 2));
        }
    });
    let before = pair.view(ACTIVE).counters.loads;
    for _ in 0..20 {
        pair.command(PASSIVE, Command::Rearm);
        pair.run(400);
    }
    pair.assert_armed();
    assert!(pair.view(ACTIVE).counters.loads > before, "the better path");
}

#[test]
fn a_busy_path_source_is_asked_once_for_each_pair_of_ports_and_not_again_with_every_event() {
    let mut pair = Pair::with(8, 2, 1);
    pair.sa_busy = true;
    pair.begin();
    pair.run(100);
    let first = pair.view(ACTIVE).counters.queries;
    assert_eq!(
        first, 3,
        "one for each pair of ports that the search is about: other LIDs would do no better"
    );
    let [_, _, queries] = asked_while(&mut pair, |pair| {
        for host in [ACTIVE, PASSIVE].repeat(250) {
            let status = &mut pair.hosts[host].ports[1];
            status.mtu = if status.mtu == 4 { 5 } else { 4 };
            status.lmc = if status.lmc == 2 { 1 } else { 2 };
            pair.port_input(host, 2);
            pair.run(20);
        }
    });
    assert!((10..=100).contains(&queries), "{queries}");
    pair.sa_busy = false;
    pair.run(61_000);
    pair.assert_armed();
}

#[test]
fn a_path_source_that_knows_no_path_is_not_asked_for_all_of_them_with_every_event() {
    let mut pair = Pair::with(9, 2, 1);
    pair.sa_knows_only(vec![]);
    pair.begin();
    pair.run(900);
    let [_, _, queries] = asked_while(&mut pair, |pair| {
        for _ in 0..100 {
            let status = &mut pair.hosts[ACTIVE].ports[1];
            status.mtu = if status.mtu == 4 { 5 } else { 4 };
            pair.port_input(ACTIVE, 2);
            pair.run(100);
        }
    });
    assert!((50..=100).contains(&queries), "{queries}");
}
