// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking for a path: what is asked for, and which answers still count.

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use statemachine::trace::{PathLids, What};
use statemachine::{Candidate, Command};

use super::pair::{ACTIVE, Fabric, LibraryFault, PASSIVE, Pair, shared};

fn alternate(pair: &Pair) -> Path {
    pair.qp(ACTIVE).alternate.expect("loaded")
}

/// Nobody knows a path. The best half is asked for each time, and the others in turn.
#[test]
fn each_search_asks_for_the_best_candidates_and_for_some_of_the_others() {
    let mut pair = Pair::with(1, 2, 1);
    pair.config.candidate_limit = 4;
    pair.sa_dead = true;
    pair.begin();
    pair.run(120_000);
    let asked = pair.traces(ACTIVE).filter_map(|trace| match trace.what {
        What::Candidate(Candidate {
            slid, dlid, port, ..
        }) => Some((port.port, slid, dlid)),
        _ => None,
    });
    let asked: Vec<_> = asked.collect();
    let searches: Vec<_> = asked.chunks_exact(4).collect();
    assert!(searches.len() > 4, "{}", searches.len());
    let best = &searches[0][..2];
    for search in &searches {
        assert_eq!(&search[..2], best, "{search:?}");
    }
    let turns: Vec<_> = searches[1..].iter().map(|search| &search[2..]).collect();
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
}

/// An alternate is replaced by what is better and by nothing else, whatever it is an answer to.
#[test]
fn a_path_by_other_lids_than_were_asked_for_replaces_none_as_good() {
    let clear = |offset: u16| {
        Fabric::new(move |_, (slid, _)| match slid.0 & 3 == offset {
            true => Some(shared(0, 0)),
            false => Some(shared(1, 2)),
        })
    };
    let mut pair = Pair::with(2, 2, 1);
    pair.fabric = clear(1);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    let loaded = PathLids::from(&alternate(&pair));
    assert_eq!(loaded.slid.0 & 3, 1);
    let before = pair.view(ACTIVE).counters;
    pair.base_lids_only = true;
    pair.reroute(clear(3));
    pair.run(10_000);
    let after = pair.view(ACTIVE).counters;
    assert!(
        after.queries > before.queries,
        "a better one was looked for"
    );
    assert_eq!(after.loads, before.loads);
    assert_eq!(PathLids::from(&alternate(&pair)), loaded);
}

/// How many paths it has asked for.
fn queries(pair: &Pair) -> u32 {
    pair.view(ACTIVE).counters.queries
}

#[test]
fn an_operators_wish_does_not_begin_a_first_search_again() {
    let mut pair = Pair::new(7);
    pair.sa_takes = Some(1_000_000);
    pair.begin();
    pair.run(200);
    let before = queries(&pair);
    assert_eq!(before, 1);
    pair.command(ACTIVE, Command::Rearm);
    pair.run(20);
    assert_eq!(queries(&pair), before);
    pair.run(2_000);
    pair.assert_armed();
}

/// Hardware migrates both ends while a better alternate is looked for, which was for the old primary.
#[test]
fn a_migration_begins_the_search_again() {
    let mut pair = Pair::new(8);
    let ends = |near, far| ((ACTIVE, near), (PASSIVE, far));
    pair.sa_knows_only(vec![ends(1, 1), ends(2, 1)]);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.sa_takes = Some(5_000_000);
    pair.command(ACTIVE, Command::Rearm);
    pair.run(100);
    let before = queries(&pair);
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].qps[0].order_migration();
        pair.report_changed(host);
    }
    pair.run(20);
    assert_eq!(pair.view(ACTIVE).counters.migrations, 1);
    assert_eq!(queries(&pair), before + 1);
}

#[test]
fn a_fabric_that_changes_while_the_peer_is_asked_has_nothing_asked_again() {
    let mut pair = Pair::new(4);
    pair.begin();
    while pair.hosts[ACTIVE].sent("LAP") == 0 {
        pair.run_us(20);
    }
    pair.reroute(Fabric::unknown());
    pair.run(1_000);
    pair.assert_armed();
    assert_eq!(pair.view(ACTIVE).counters.laps_sent, 1);
}

/// Answers to LAPs tell how long the peer takes, as those to REQs do. Of several copies none tells (Karn), so this one
/// becomes slower little by little.
#[test]
fn a_peer_that_becomes_slow_is_not_sent_more_copies() {
    let mut pair = Pair::armed(6);
    pair.run(2_000);
    pair.set_traffic(false);
    for delay in [2_000, 3_500, 6_000, 10_000, 10_000] {
        pair.net.weather.delay = delay;
        let before = pair.hosts[ACTIVE].sent("LAP");
        for _ in 0..20 {
            pair.command(ACTIVE, Command::Rearm);
            pair.run(200);
        }
        let sent = pair.hosts[ACTIVE].sent("LAP") - before;
        assert!(sent <= 25, "{sent} copies of 20 LAPs, {delay} us");
    }
}

/// Its applications are told when no alternate can be had, and none is looked for any more.
#[test]
fn a_load_that_fails_after_the_peer_has_closed_is_no_failed_search() {
    let mut pair = Pair::new(10);
    pair.opted_in = true;
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stopped);
    pair.begin();
    pair.run(700);
    assert_eq!(pair.hosts[ACTIVE].unread(), ["load"]);
    pair.close(PASSIVE);
    pair.run(100);
    pair.resume_library_with(ACTIVE, Some(LibraryFault::Fails(22)));
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).counters.failed_orders, 1);
    let events = &pair.hosts[ACTIVE].events;
    assert!(!events.contains(&AppEvent::AltRouteError), "{events:?}");
}

/// No path source has answered by then, and one has half a minute.
#[test]
fn a_connection_that_is_closed_during_its_search_leaves_no_question_behind() {
    let mut pair = Pair::new(11);
    pair.sa_takes = Some(60_000_000);
    pair.begin();
    pair.run(200);
    assert_eq!(queries(&pair), 1);
    for host in [ACTIVE, PASSIVE] {
        pair.close(host);
    }
    pair.run(10_000);
    let engine = pair.hosts[ACTIVE].engine.as_ref().expect("a daemon");
    assert_eq!(engine.next_alarm(), None);
}

/// What the queue pair is like is in the report, so that a second try may do better. A third would not.
#[test]
fn after_two_loads_that_were_stale_the_next_try_is_put_off() {
    let mut pair = Pair::new(9);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stale(u32::MAX));
    pair.begin();
    pair.run(700);
    assert_eq!(pair.view(ACTIVE).counters.stale_loads, 2);
}
