// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alternates that share nothing with the primary inside the fabric.

use cm_msgs::Lid;
use statemachine::view::Grade;
use statemachine::{Origin, Overlap, Shared};

use super::pair::{ACTIVE, Fabric, PASSIVE, Pair, Weather, seeds, shared};

/// Four LIDs a port, and so many connections.
fn pair(seed: u64, connections: usize, fabric: Fabric) -> Pair {
    let mut pair = Pair::with(seed, 2, connections);
    pair.fabric = fabric;
    pair
}

fn running(mut pair: Pair) -> Pair {
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair
}

/// Paths with this LID offset share nothing with any other, all the rest one switch and its links.
fn only_clear(offset: u16) -> Fabric {
    Fabric::new(move |_, (slid, _)| {
        let clear = slid.0 & 3 == offset;
        Some(if clear { shared(0, 0) } else { shared(1, 2) })
    })
}

fn offsets(pair: &Pair) -> Vec<u16> {
    let alternates = pair.hosts[ACTIVE].qps.iter().filter_map(|qp| qp.alternate);
    alternates.map(|path| path.slid.0 & 3).collect()
}

fn loads(pair: &Pair) -> u32 {
    pair.views(ACTIVE)
        .iter()
        .map(|view| view.counters.loads)
        .sum()
}

#[test]
fn the_lid_that_leads_by_other_switches_is_chosen() {
    let pair = running(pair(1, 16, only_clear(3)));
    assert_eq!(offsets(&pair), [3; 16]);
    pair.assert_best_alternates();
    for view in pair.views(ACTIVE) {
        let chosen = view.chosen.expect("armed");
        assert_eq!(chosen.score.shared, Shared::Neither);
        assert_eq!(chosen.score.overlap, Some(shared(0, 0)));
        assert_eq!(view.overlap, Some(shared(0, 0)));
        assert_eq!(chosen.origin, Some(Origin::Sa));
        assert_eq!(view.alternate_origin, Some(Origin::Sa));
        let runner_up = view.runner_up.expect("many to choose from");
        assert_eq!(
            runner_up.score.overlap,
            Some(shared(0, 0)),
            "back by another LID"
        );
    }
    assert_eq!(pair.view(PASSIVE).alternate_origin, None);
    pair.assert_asleep(ACTIVE);
}

#[test]
fn operators_see_what_the_best_alternate_shares_with_the_primary() {
    let same_switch = Some(Grade::SameSwitch(shared(1, 2)));
    for (overlap, grade) in [
        (Some(shared(1, 2)), same_switch),
        (Some(shared(0, 0)), Some(Grade::Full)),
        (None, Some(Grade::Full)),
    ] {
        let pair = running(pair(2, 1, Fabric::new(move |_, _| overlap)));
        assert_eq!(pair.view(ACTIVE).grade, grade, "{overlap:?}");
        assert_eq!(
            pair.view(PASSIVE).grade,
            Some(Grade::Full),
            "it asks nobody"
        );
    }
}

#[test]
fn the_way_back_has_a_lid_of_its_own() {
    let clear = |slid: Lid, dlid: Lid| (slid.0 & 3, dlid.0 & 3) == (1, 2);
    let fabric = Fabric::new(move |_, (slid, dlid)| {
        Some(match clear(slid, dlid) {
            true => shared(0, 0),
            false => shared(1, 2),
        })
    });
    let pair = running(pair(3, 8, fabric));
    for qp in &pair.hosts[ACTIVE].qps {
        let path = qp.alternate.expect("armed");
        assert!(clear(path.slid, path.dlid), "{path:?}");
    }
}

#[test]
fn the_least_overlap_is_chosen_where_none_is_clear() {
    let more =
        |offset| [shared(2, 0), shared(1, 3), shared(1, 2), shared(3, 3)][usize::from(offset)];
    let fabric = Fabric::new(move |_, (slid, _): (Lid, _)| Some(more(slid.0 & 3)));
    let pair = running(pair(2, 8, fabric));
    assert_eq!(offsets(&pair), [2; 8]);
}

#[test]
fn other_ports_come_before_other_switches() {
    // Only paths between the primary's own ports share nothing.
    let fabric = Fabric::new(|primary, way| {
        let same = primary.0.0 & !7 == way.0.0 & !7 && primary.1.0 & !7 == way.1.0 & !7;
        Some(if same { shared(0, 0) } else { shared(4, 4) })
    });
    let pair = running(pair(3, 8, fabric));
    pair.assert_best_alternates();
}

#[test]
fn a_reroute_that_makes_an_alternate_share_a_switch_has_it_replaced() {
    let mut pair = running(pair(4, 16, only_clear(3)));
    pair.reroute(only_clear(1));
    pair.run(500);
    pair.assert_armed();
    assert_eq!(offsets(&pair), [1; 16]);
    pair.assert_best_alternates();
    for host in [ACTIVE, PASSIVE] {
        for view in pair.views(host) {
            assert_eq!(view.counters.migrations, 0);
            assert_eq!(view.counters.loads, 2);
        }
    }
    pair.assert_asleep(ACTIVE);
}

/// Nobody knows yet that the primary carries nothing: until both ends have loaded another alternate, hardware would move
/// them apart.
#[test]
fn no_other_alternate_is_proposed_while_the_primary_does_not_answer() {
    let mut pair = running(pair(4, 16, only_clear(3)));
    let laps = |pair: &Pair| -> u32 {
        let views = pair.views(ACTIVE);
        views.iter().map(|view| view.counters.laps_sent).sum()
    };
    let before = laps(&pair);
    pair.black_hole(PASSIVE, 1);
    pair.run(20);
    pair.reroute(only_clear(1));
    pair.run(250);
    assert_eq!(laps(&pair), before);
    assert_eq!(offsets(&pair), [3; 16]);
}

#[test]
fn a_reroute_that_changes_nothing_for_an_alternate_moves_nothing() {
    let mut pair = running(pair(5, 16, only_clear(3)));
    let sent = pair.all_sent(ACTIVE);
    for clear in [shared(0, 0), shared(0, 1)] {
        // Others become as good as what is loaded: no reason to leave it.
        pair.reroute(Fabric::new(move |_, _| Some(clear)));
        pair.run(500);
    }
    assert_eq!(offsets(&pair), [3; 16]);
    assert_eq!((loads(&pair), pair.all_sent(ACTIVE)), (16, sent));
    pair.assert_asleep(ACTIVE);
}

#[test]
fn unknown_overlaps_leave_the_choice_to_ports_and_ties() {
    let unknown = running(pair(6, 32, Fabric::unknown()));
    let equal = running(pair(6, 32, Fabric::new(|_, _| Some(shared(1, 1)))));
    let mut silent = Fabric::new(|_, _| Some(shared(1, 1)));
    silent.silent = true;
    let silent = running(pair(6, 32, silent));
    assert_eq!(offsets(&unknown), offsets(&equal));
    assert_eq!(offsets(&unknown), offsets(&silent));
    for pair in [&unknown, &silent] {
        assert_eq!(pair.view(ACTIVE).overlap, None);
        pair.assert_asleep(ACTIVE);
    }
}

#[test]
fn an_unknown_overlap_stands_between_none_and_some() {
    let fabric = |one: Option<Overlap>, others: Option<Overlap>| {
        Fabric::new(move |_, (slid, _)| if slid.0 & 3 == 2 { one } else { others })
    };
    let (clear, some) = (Some(shared(0, 0)), Some(shared(1, 0)));
    let first = running(pair(7, 8, fabric(clear, None)));
    assert_eq!((offsets(&first), loads(&first)), (vec![2; 8], 8));
    let mut pair = running(pair(7, 8, fabric(None, some)));
    assert_eq!(offsets(&pair), [2; 8]);
    let loaded = loads(&pair);
    // Of what is loaded it is known now that it shares as much; then of the others nothing is
    // known any more, and so on: they are not known to be better.
    for rule in [
        (some, None),
        (None, some),
        (None, None),
        (some, some),
        (clear, None),
    ] {
        pair.reroute(fabric(rule.0, rule.1));
        pair.run(500);
    }
    assert_eq!(loads(&pair), loaded);
    pair.reroute(fabric(None, clear));
    pair.run(500);
    assert!(
        offsets(&pair).iter().all(|&offset| offset != 2),
        "known to be clear"
    );
    pair.assert_armed();
}

#[test]
fn answers_that_are_late_or_of_nothing_change_nothing() {
    let mut pair = running(pair(8, 4, only_clear(3)));
    let (sent, asked) = (pair.all_sent(ACTIVE), pair.fabric.asked.clone());
    let wrong = vec![Some(shared(9, 9)); 40];
    for host in [ACTIVE, PASSIVE] {
        for query in 0..100 {
            pair.forge_assessed(host, query, wrong.clone());
        }
    }
    pair.run(2_000);
    assert_eq!((offsets(&pair), pair.all_sent(ACTIVE)), (vec![3; 4], sent));
    // The answers of the fabric before arrive when those of the present one are waited for.
    pair.fabric.takes = 50;
    pair.reroute(only_clear(0));
    pair.run(20);
    pair.reroute(only_clear(1));
    pair.run(1);
    for (_, query) in asked {
        pair.forge_assessed(ACTIVE, query, wrong.clone());
    }
    pair.run(1_000);
    assert_eq!(offsets(&pair), [1; 4]);
    pair.assert_best_alternates();
    pair.assert_asleep(ACTIVE);
}

#[test]
fn an_answer_that_is_too_short_leaves_the_rest_unknown() {
    let mut fabric = only_clear(3);
    fabric.silent = true;
    let mut pair = running(pair(9, 1, fabric));
    pair.reroute(only_clear(3));
    let (_, query) = pair.fabric.asked.last().copied().expect("asked again");
    pair.forge_assessed(ACTIVE, query, vec![Some(shared(1, 1))]);
    let view = pair.view(ACTIVE);
    assert_eq!(
        view.overlap,
        Some(shared(1, 1)),
        "the loaded alternate comes first"
    );
    assert_eq!(
        view.runner_up.and_then(|candidate| candidate.score.overlap),
        None
    );
    pair.run(2_000);
    pair.assert_armed();
    pair.assert_asleep(ACTIVE);
}

#[test]
fn a_changed_fabric_is_looked_at_a_few_connections_at_a_time() {
    let count = 500;
    let mut pair = Pair::with(10, 2, count);
    pair.fabric = only_clear(3);
    let mut pair = running(pair);
    let before = pair.fabric.asked.len();
    // A change that comes while the last one is worked off does not make it faster.
    for _ in 0..3 {
        pair.reroute(only_clear(1));
    }
    // None of them has had an answer: as many look as one turn of the daemon's loop lets.
    assert!(pair.fabric.asked.len() - before <= 3 * 64);
    pair.run(2_000);
    assert_eq!(offsets(&pair), vec![1; count]);
    pair.assert_armed();
    let connections = pair.views(ACTIVE).len();
    assert_eq!(loads(&pair), 2 * connections as u32);
    pair.assert_asleep(ACTIVE);
}

#[test]
fn a_source_that_knows_base_lids_only_is_not_asked_for_ever() {
    let mut pair = pair(11, 1, only_clear(3));
    pair.base_lids_only = true;
    let mut pair = running(pair);
    assert_eq!(offsets(&pair), [0], "all that the source has");
    pair.run(120_000);
    let laps = pair.hosts[ACTIVE].sent("LAP");
    let queries = pair.view(ACTIVE).counters.queries;
    pair.run(600_000);
    // One without alternate makes sure of the association.
    assert_eq!(pair.hosts[ACTIVE].sent("LAP"), laps + 1);
    let queries = pair.view(ACTIVE).counters.queries - queries;
    // Two paths would be clear.
    assert!(queries <= 30, "{queries} in ten minutes");
    pair.assert_armed();
}

#[test]
fn after_a_migration_the_next_alternate_is_clear_of_the_new_primary() {
    // Offsets 0 and 1 share a switch, and so do 2 and 3.
    let fabric = Fabric::new(|primary, way| {
        let same = (primary.0.0 & 3) >> 1 == (way.0.0 & 3) >> 1;
        Some(if same { shared(1, 1) } else { shared(0, 0) })
    });
    let mut pair = running(pair(12, 8, fabric));
    pair.assert_best_alternates();
    for round in 0..6 {
        let port = pair.qp(ACTIVE).primary.port;
        pair.pull(ACTIVE, port);
        pair.run(2_000);
        pair.plug(ACTIVE, port);
        pair.run(5_000);
        pair.assert_armed();
        pair.assert_best_alternates();
        let migrations = pair.view(ACTIVE).counters.migrations;
        assert_eq!(migrations, round + 1);
    }
}

#[test]
fn loss_and_repetition_end_in_the_best_alternate() {
    seeds(30, |seed| {
        let mut pair = pair(seed, 3, Fabric::random(seed));
        pair.fabric.takes = seed % 30;
        let mut pair = running(pair);
        pair.net.weather = Weather::FOUL;
        for round in 0..10 {
            pair.reroute(Fabric::random(seed << 8 | round));
            pair.run(seed * 37 % 400);
        }
        pair.net.weather = Weather::FAIR;
        pair.reroute(Fabric::random(seed << 8));
        pair.run(70_000);
        pair.assert_armed();
        pair.assert_best_alternates();
        pair.assert_asleep(ACTIVE);
    });
}

/// Until both ends have loaded another alternate, a failing primary would move them apart.
#[test]
fn while_mads_are_late_an_alternate_by_other_ports_is_kept() {
    let mut pair = running(pair(10, 4, only_clear(3)));
    pair.net.weather = Weather {
        delay: 300_000,
        ..Weather::FAIR
    };
    pair.run(3_000);
    pair.reroute(only_clear(0));
    pair.run(5_000);
    assert_eq!(offsets(&pair), [3; 4]);
    pair.net.weather = Weather::FAIR;
    pair.run(20_000);
    assert_eq!(offsets(&pair), [0; 4]);
    pair.assert_armed();
}

/// Nothing else saves the connection when that port is lost.
#[test]
fn while_mads_are_late_an_alternate_by_the_primarys_port_is_replaced() {
    let mut pair = pair(11, 4, only_clear(3));
    pair.pull(PASSIVE, 2);
    let mut pair = running(pair);
    pair.net.weather = Weather {
        delay: 300_000,
        ..Weather::FAIR
    };
    pair.run(3_000);
    pair.plug(PASSIVE, 2);
    pair.run(15_000);
    let views = pair.views(ACTIVE);
    let shared = views
        .iter()
        .filter_map(|view| Some(view.chosen?.score.shared));
    assert_eq!(shared.collect::<Vec<_>>(), [Shared::Neither; 4]);
}
