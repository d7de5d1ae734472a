// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that go to the port where their policy wants them.

use std::num::{NonZeroU8, NonZeroU32};

use cm_msgs::PKey;
use cm_msgs::control::{MigrationState, Mode, Placement, PolicyOverride, QpState};
use statemachine::trace::What;
use statemachine::view::Protection;
use statemachine::{Command, PortStatus, Trace};

use super::pair::{ACTIVE, PASSIVE, Pair, Weather, base_lid, gid, seeds};

const BOTH: [usize; 2] = [ACTIVE, PASSIVE];

pub(super) fn place(placement: Placement) -> PolicyOverride {
    PolicyOverride {
        placement: Some(placement),
        ..PolicyOverride::default()
    }
}

pub(super) fn prefer(port: u8) -> PolicyOverride {
    place(Placement::Prefer(NonZeroU8::new(port).expect("a port")))
}

/// Both ends run and are armed; this host has this policy.
fn armed(seed: u64, host: usize, policy: PolicyOverride) -> Pair {
    let mut pair = Pair::new(seed);
    pair.policies[host] = policy;
    started(pair)
}

fn started(mut pair: Pair) -> Pair {
    pair.begin();
    pair.run(1_000);
    pair.assert_armed();
    pair
}

fn port(pair: &Pair, host: usize) -> u8 {
    pair.qp(host).primary.port
}

#[test]
fn by_default_a_connection_stays_where_it_is() {
    let mut pair = Pair::armed(1);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    pair.plug(ACTIVE, 1);
    pair.run(60_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 2);
}

#[test]
fn it_goes_back_when_its_port_has_been_good_for_the_hold_down() {
    for host in BOTH {
        let mut pair = armed(1, host, prefer(1));
        pair.pull(host, 1);
        pair.run(1_000);
        assert_eq!(port(&pair, host), 2);
        pair.plug(host, 1);
        // 50 ms until the daemon hears of it, and 500 until the port is good.
        pair.run(5_500);
        assert_eq!(port(&pair, host), 2, "host {host}: the hold-down lasts");
        pair.run(1_000);
        pair.assert_armed();
        assert_eq!(port(&pair, host), 1, "host {host}");
        let counters = pair.view(host).counters;
        assert_eq!(counters.migrations, 2);
        pair.run(60_000);
        assert_eq!(pair.view(host).counters.migrations, 2, "and stays there");
        pair.assert_asleep(ACTIVE);
        pair.assert_asleep(PASSIVE);
    }
}

/// Such as that the port is in one more partition.
#[test]
fn a_change_that_leaves_the_port_good_does_not_begin_its_hold_down_again() {
    for host in BOTH {
        let mut pair = armed(1, host, prefer(1));
        pair.pull(host, 1);
        pair.run(1_000);
        pair.plug(host, 1);
        pair.run(3_000);
        pair.join_partition(host, 1, PKey(0x8005));
        pair.run(3_500);
        assert_eq!(port(&pair, host), 1, "host {host}");
    }
}

#[test]
fn what_works_is_not_left_for_a_hole_that_no_probe_has_told_of_yet() {
    for host in BOTH {
        for far in BOTH {
            let mut pair = armed(1, host, prefer(1));
            pair.pull(host, 1);
            pair.run(1_000);
            pair.plug(host, 1);
            // It is about to go.
            pair.run(5_500);
            assert_eq!(port(&pair, host), 2);
            pair.black_hole(far, 1);
            pair.run(3_000);
            // The port may be to be had by a path around the hole.
            assert!(far != host || port(&pair, host) == 2, "hole at host {far}");
            assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
            pair.assert_armed();
        }
    }
}

#[test]
fn a_port_that_flaps_within_the_hold_down_is_not_gone_back_to() {
    for host in BOTH {
        let mut pair = armed(2, host, prefer(1));
        pair.pull(host, 1);
        pair.run(1_000);
        for _ in 0..10 {
            pair.plug(host, 1);
            pair.run(4_000);
            pair.pull(host, 1);
            pair.run(500);
            assert_eq!(port(&pair, host), 2);
        }
        assert_eq!(pair.view(host).counters.migrations, 1);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
    }
}

#[test]
fn it_waits_until_both_ends_are_armed() {
    for host in BOTH {
        let mut pair = armed(3, host, prefer(1));
        // Without traffic the new alternate arms at neither end.
        pair.set_traffic(false);
        pair.pull(host, 1);
        pair.run(1_000);
        pair.plug(host, 1);
        pair.run(20_000);
        assert_eq!(
            BOTH.map(|host| pair.qp(host).migration),
            [MigrationState::Rearm; 2]
        );
        assert_eq!(port(&pair, host), 2, "host {host}");
        pair.set_traffic(true);
        pair.run(20_000);
        pair.assert_armed();
        assert_eq!(port(&pair, host), 1, "host {host}");
    }
}

/// The active side, half a second before the hold-down of its preferred port ends.
fn about_to_go_back(seed: u64) -> Pair {
    let mut pair = armed(seed, ACTIVE, prefer(1));
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    pair.plug(ACTIVE, 1);
    pair.run(5_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 2);
    pair
}

#[test]
fn it_does_not_go_while_the_peers_queue_pair_is_known_not_to_be_armed() {
    let mut pair = about_to_go_back(7);
    pair.set_traffic(false);
    pair.run(50);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Rearm;
    pair.report_changed(PASSIVE);
    pair.run(10);
    // The answer to another LAP tells how the peer's queue pair is.
    pair.command(ACTIVE, Command::Rearm);
    pair.run(3_000);
    assert_eq!(pair.view(ACTIVE).counters.migrations, 1);
    pair.set_traffic(true);
    pair.run(20_000);
    pair.assert_armed();
}

#[test]
fn it_does_not_go_while_it_is_not_known_whether_the_peer_has_the_same_alternate() {
    let mut pair = about_to_go_back(8);
    pair.lose.insert("LAP", usize::MAX);
    pair.command(ACTIVE, Command::Rearm);
    pair.run(1_500);
    assert_eq!(pair.view(ACTIVE).counters.migrations, 1);
    pair.lose.clear();
    pair.run(20_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 1);
}

#[test]
fn it_is_without_an_alternate_for_no_longer_than_a_lap_takes() {
    let mut pair = armed(4, ACTIVE, prefer(1));
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    pair.plug(ACTIVE, 1);
    let queries = |pair: &Pair| pair.view(ACTIVE).counters.queries;
    pair.run(5_000);
    let before = queries(&pair);
    let mut unarmed = 0;
    for _ in 0..2_000 {
        pair.run(1);
        unarmed += u32::from(!pair.is_armed());
    }
    assert_eq!(port(&pair, ACTIVE), 1);
    // A LAP and its APR, two loads, and a packet each way, which come every 20 ms.
    assert!((1..=60).contains(&unarmed), "{unarmed} ms");
    assert_eq!(queries(&pair), before, "the path that was left is known");
    pair.assert_armed();
}

#[test]
fn a_policy_that_comes_later_moves_it() {
    for host in BOTH {
        let mut pair = Pair::armed(5);
        pair.set_policy(host, prefer(2));
        pair.run(4_000 - 100);
        assert_eq!(port(&pair, host), 1);
        pair.run(3_000);
        pair.assert_armed();
        assert_eq!(port(&pair, host), 2, "host {host}");
        pair.set_policy(host, place(Placement::Stay));
        pair.run(20_000);
        assert_eq!(port(&pair, host), 2);
        let quick = PolicyOverride {
            hold_down: NonZeroU32::new(100),
            ..prefer(1)
        };
        pair.set_policy(host, quick);
        pair.run(1_500);
        pair.assert_armed();
        assert_eq!(port(&pair, host), 1, "host {host}");
    }
}

#[test]
fn ends_that_disagree_do_not_take_turns() {
    let mut pair = Pair::new(6);
    pair.policies = [prefer(1), prefer(2)];
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 2), (PASSIVE, 2)),
    ]);
    let mut pair = started(pair);
    pair.run(300_000);
    assert_eq!(
        (port(&pair, ACTIVE), port(&pair, PASSIVE)),
        (1, 1),
        "the active side's counts"
    );
    assert_eq!(pair.view(PASSIVE).counters.migrations, 0);
    pair.assert_armed();
    // In five minutes.
    assert!(
        pair.hosts[PASSIVE].sent("SAP") < 300,
        "{:?}",
        pair.hosts[PASSIVE].sent
    );
}

#[test]
fn ends_that_prefer_ports_of_different_rails_get_them() {
    let mut pair = Pair::new(7);
    pair.policies = [prefer(1), prefer(2)];
    let mut pair = started(pair);
    pair.run(60_000);
    pair.assert_armed();
    assert_eq!((port(&pair, ACTIVE), port(&pair, PASSIVE)), (1, 2));
}

#[test]
fn another_lid_leads_nowhere_else() {
    let policy = PolicyOverride {
        mode: Some(Mode::Lid),
        ..prefer(2)
    };
    let mut pair = Pair::with(8, 2, 1);
    pair.policies = [policy; 2];
    let mut pair = started(pair);
    pair.run(60_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 1);
    pair.assert_asleep(ACTIVE);
}

#[test]
fn in_foul_weather_it_gets_there_too() {
    seeds(16, |seed| {
        let host = (seed % 2) as usize;
        let mut pair = armed(seed, host, prefer(1));
        pair.net.weather = Weather::FOUL;
        pair.pull(host, 1);
        pair.run(5_000);
        pair.plug(host, 1);
        pair.run(120_000);
        pair.net.weather = Weather::FAIR;
        pair.run(120_000);
        pair.assert_armed();
        assert_eq!(port(&pair, host), 1);
    });
}

/// IBA 17.2.8: both paths of a queue pair have one partition and one MTU, and a port that is not up carries nothing.
#[test]
fn a_port_that_cannot_carry_the_connection_is_not_gone_to() {
    let faults: [fn(&mut PortStatus); 3] = [
        |port| port.pkeys = vec![PKey(0x8007)],
        |port| port.mtu -= 1,
        |port| port.active = false,
    ];
    for host in BOTH {
        for fault in faults {
            let mut pair = Pair::new(10);
            pair.policies[host] = prefer(2);
            fault(&mut pair.hosts[host].ports[1]);
            let mut pair = started(pair);
            pair.forget_traces();
            pair.run(20_000);
            pair.assert_armed();
            let goes = |trace: &&Trace| matches!(trace.what, What::GoesTo(_));
            assert_eq!(pair.traces(host).find(goes), None, "host {host}");
            pair.assert_asleep(host);
        }
    }
}

#[test]
fn an_end_that_wants_no_port_goes_where_the_peer_does() {
    let mut pair = Pair::new(11);
    pair.policies[PASSIVE] = prefer(2);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 2), (PASSIVE, 2)),
    ]);
    let mut pair = started(pair);
    pair.run(20_000);
    pair.assert_armed();
    assert_eq!(BOTH.map(|host| port(&pair, host)), [2, 2]);
}

/// While it is on its way an alternate that leads there comes before one that shares nothing with the primary; once it
/// is there that no longer counts.
#[test]
fn once_there_it_has_the_best_alternate_at_once() {
    let mut pair = armed(12, PASSIVE, prefer(2));
    while port(&pair, PASSIVE) != 2 {
        pair.run(1);
    }
    pair.run_until_armed(500);
    pair.run(5);
    pair.assert_armed();
    pair.assert_best_alternates();
}

/// How often the active side has set out for a port since then.
fn departures(pair: &Pair) -> usize {
    let goes = |trace: &&Trace| matches!(trace.what, What::GoesTo(_));
    pair.traces(ACTIVE).filter(goes).count()
}

/// An active side that prefers port 2, from which no source has a path. It is armed on port 1.
fn without_a_way(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    pair.policies[ACTIVE] = prefer(2);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 1), (PASSIVE, 2)),
    ]);
    let mut pair = started(pair);
    pair.forget_traces();
    pair
}

#[test]
fn one_that_does_not_get_there_gives_its_turn_up_and_tries_after_growing_pauses() {
    let mut pair = without_a_way(13);
    pair.run(30_000);
    let soon = departures(&pair);
    assert!((2..=3).contains(&soon), "{soon} in half a minute");
    pair.run(570_000);
    // 10 s each, and pauses of 5 s, 10 s and so on up to a minute, give or take a fifth.
    let all = departures(&pair);
    assert!((7..=13).contains(&all), "{all} in ten minutes");
    pair.assert_armed();
    assert_eq!(pair.view(ACTIVE).counters.migrations, 0);
}

#[test]
fn once_it_has_been_there_its_pauses_are_short_again() {
    let mut pair = without_a_way(14);
    pair.run(300_000);
    let rails = [1, 2].map(|port| ((ACTIVE, port), (PASSIVE, port)));
    pair.sa_knows_only(rails.to_vec());
    pair.run(150_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 2);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 1), (PASSIVE, 2)),
    ]);
    pair.pull(ACTIVE, 2);
    pair.run(2_000);
    pair.plug(ACTIVE, 2);
    pair.run(6_000);
    pair.assert_armed();
    pair.forget_traces();
    pair.run(40_000);
    let again = departures(&pair);
    assert!(again >= 2, "{again} in 40 s");
}

/// IBA 17.2.8.1: only a queue pair in RTS migrates by order.
#[test]
fn it_does_not_set_out_while_the_queue_pair_is_drained() {
    let mut pair = about_to_go_back(15);
    pair.set_traffic(false);
    pair.run(50);
    pair.hosts[ACTIVE].qps[0].state = QpState::Sqd;
    pair.report_changed(ACTIVE);
    pair.forget_traces();
    pair.run(5_000);
    assert_eq!(departures(&pair), 0);
    pair.hosts[ACTIVE].qps[0].state = QpState::Rts;
    pair.report_changed(ACTIVE);
    pair.set_traffic(true);
    pair.run(10_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 1);
}

/// How many connections of a host have their primary on its port 1.
fn on_first(pair: &Pair, host: usize) -> usize {
    let qps = pair.hosts[host].qps.iter();
    qps.filter(|qp| qp.primary.port == 1).count()
}

/// A hundred connections over two ports; these hosts spread theirs.
fn spread(policies: [PolicyOverride; 2]) -> Pair {
    let mut pair = Pair::with(9, 0, 100);
    pair.policies = policies;
    let mut pair = started(pair);
    assert_eq!(on_first(&pair, ACTIVE), 100);
    watch(&mut pair, 20_000);
    pair
}

/// Lets time pass. At no moment more than a few connections are without their alternate.
fn watch(pair: &mut Pair, ms: u64) {
    for _ in 0..ms / 20 {
        pair.run(20);
        let views = pair.views(ACTIVE);
        let unarmed = views
            .iter()
            .filter(|view| view.protection != Protection::Armed);
        // Those of this host's failbacks, and of those that the peer asks for.
        assert!(unarmed.count() <= 16, "{} ms", pair.now / 1000);
    }
}

#[test]
fn connections_divide_over_the_good_ports() {
    let all = place(Placement::Spread);
    let none = PolicyOverride::default();
    for policies in [[all, all], [all, none], [none, all]] {
        let pair = spread(policies);
        pair.assert_armed();
        for host in BOTH {
            let first = on_first(&pair, host);
            assert!((35..=65).contains(&first), "{first} on host {host}");
        }
    }
}

#[test]
fn after_a_ports_return_they_divide_again_and_a_few_move_at_a_time() {
    let mut pair = spread([place(Placement::Spread); 2]);
    let before: Vec<u8> = pair.hosts[ACTIVE]
        .qps
        .iter()
        .map(|qp| qp.primary.port)
        .collect();
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    assert_eq!(on_first(&pair, ACTIVE), 0);
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
    let stayed = |pair: &Pair| {
        let qps = pair.hosts[ACTIVE].qps.iter();
        qps.map(|qp| qp.primary.port).collect::<Vec<_>>()
    };
    pair.plug(ACTIVE, 1);
    pair.run(3_000);
    assert_eq!(on_first(&pair, ACTIVE), 0, "the hold-down lasts");
    pair.assert_armed();
    watch(&mut pair, 20_000);
    pair.assert_armed();
    assert_eq!(stayed(&pair), before, "each where it was");
}

#[test]
fn a_few_connections_divide_and_each_goes_back_to_its_own_port() {
    let mut pair = Pair::with(16, 0, 20);
    pair.policies[ACTIVE] = place(Placement::Spread);
    let mut pair = started(pair);
    pair.run(20_000);
    pair.assert_armed();
    let ports = |pair: &Pair| {
        let qps = pair.hosts[ACTIVE].qps.iter();
        qps.map(|qp| qp.primary.port).collect::<Vec<_>>()
    };
    let before = ports(&pair);
    let first = on_first(&pair, ACTIVE);
    assert!((5..=15).contains(&first), "{first}");
    pair.pull(ACTIVE, 1);
    pair.run(2_000);
    pair.plug(ACTIVE, 1);
    pair.run(20_000);
    pair.assert_armed();
    assert_eq!(ports(&pair), before);
}

/// One that has arrived makes room for the next.
#[test]
fn all_connections_get_where_the_peer_wants_them() {
    let mut pair = Pair::with(17, 0, 20);
    pair.policies[PASSIVE] = prefer(2);
    let mut pair = started(pair);
    pair.run(14_000);
    pair.assert_armed();
    assert_eq!(on_first(&pair, PASSIVE), 0);
    for host in BOTH {
        pair.assert_asleep(host);
    }
}

#[test]
fn it_goes_although_the_far_ports_lid_was_another_ports_when_the_path_was_made() {
    let mut pair = Pair::new(7);
    pair.policies[ACTIVE] = prefer(2);
    pair.sa_knows_only(vec![]);
    pair.begin();
    pair.run(1_000);
    // The subnet manager exchanges the LIDs of the peer's ports, and the peer's QP follows its LID.
    let lids = [1, 2].map(|port| base_lid((PASSIVE, port)));
    pair.relabel(PASSIVE, 1, lids[1]);
    pair.relabel(PASSIVE, 2, lids[0]);
    let far = gid((PASSIVE, 2));
    let primary = &mut pair.hosts[PASSIVE].qps[0].primary;
    (primary.port, primary.sgid) = (2, far);
    pair.hosts[ACTIVE].qps[0].primary.dgid = far;
    pair.report_changed(PASSIVE);
    let ports = |host| [(host, 1), (host, 2)];
    let pairs = ports(ACTIVE)
        .into_iter()
        .flat_map(|from| ports(PASSIVE).map(|to| (from, to)));
    pair.sa_knows_only(pairs.collect());
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).primary.dgid, far);
    pair.run(30_000);
    pair.assert_armed();
    assert_eq!(port(&pair, ACTIVE), 2);
}
