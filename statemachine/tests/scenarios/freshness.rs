// SPDX-License-Identifier: MIT OR Apache-2.0
//! An armed alternate is given up only for a path that answers now, not for one that answered a while ago.

use std::cell::Cell;
use std::num::NonZeroU8;

use cm_msgs::Lid;
use cm_msgs::control::Placement;
use cm_msgs::path::Path;
use statemachine::trace::What;

use super::pair::{ACTIVE, Fabric, PASSIVE, Pair, Qp, base_lid, seeds, shared};

/// Connections between the same two hosts, with four LIDs a port: one connection's candidates are the alternates
/// of others, so that probes know them already.
fn many(seed: u64, fabric: Fabric) -> Pair {
    let mut pair = Pair::with(seed, 2, 16);
    pair.fabric = fabric;
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair
}

/// The alternates that end at this port of the peer's and that the active side has loaded in the next milliseconds. What
/// is loaded already may be proposed again.
fn loaded_to(pair: &mut Pair, port: u8, ms: u64) -> Vec<Lid> {
    pair.forget_traces();
    pair.run(ms);
    let loaded = pair.traces(ACTIVE).filter_map(|trace| match trace.what {
        What::Load(path) => Some(path.dlid),
        _ => None,
    });
    let base = base_lid((PASSIVE, port)).0;
    loaded.filter(|lid| lid.0 & !3 == base).collect()
}

/// All paths to a port fail together, and probes notice it of one after the other: the one that is noticed last has
/// not lasted longer. The simulation's seed 5000239 was such a case: MADs took half a second, the armed alternate was
/// suspected first, and its place was taken by a path over the port that carried nothing.
#[test]
fn of_paths_that_fail_together_none_takes_the_place_of_another() {
    seeds(20, |seed| {
        let mut pair = many(seed, Fabric::unknown());
        pair.black_hole(PASSIVE, 2);
        assert_eq!(loaded_to(&mut pair, 2, 2_500), []);
        pair.run(1_000);
        pair.assert_armed();
    });
}

/// The simulation's seed 9000578: a path record came after 5 s, and the peer, which wants the connection on another
/// port, had asked meanwhile whether both ends have the same alternate; the path had failed before the record came.
#[test]
fn a_path_that_failed_while_its_record_was_awaited_does_not_replace_what_works() {
    let mut pair = Pair::with(1, 2, 16);
    pair.policies[PASSIVE].placement = NonZeroU8::new(2).map(Placement::Prefer);
    pair.begin();
    pair.run(4_500);
    pair.assert_armed();
    // What the first connection has is the best for all of them from now on.
    let best = pair.qp(ACTIVE).alternate.expect("armed");
    let best = (best.slid, best.dlid);
    pair.sa_takes = Some(1_000_000);
    pair.reroute(Fabric::new(move |_, lids| {
        Some(if lids == best {
            shared(0, 0)
        } else {
            shared(1, 2)
        })
    }));
    pair.run(900);
    assert!(
        pair.hosts[PASSIVE].sent("SAP") > 0,
        "it wants to be on its port 2"
    );
    pair.black_hole(PASSIVE, 2);
    assert_eq!(loaded_to(&mut pair, 2, 300), []);
}

/// The active side has all of its connections' alternates replaced by the first one's, which has become the best for
/// all of them, while `hinder` holds; then it ends. How many have it, so many milliseconds later.
fn improved(seed: u64, hinder: impl Fn(&mut Pair, bool), hindered: u64, ms: u64) -> [usize; 2] {
    let mut pair = many(seed, Fabric::unknown());
    let best = pair.qp(ACTIVE).alternate.expect("armed");
    let best = (best.slid, best.dlid);
    hinder(&mut pair, true);
    pair.run(5_000);
    pair.reroute(Fabric::new(move |_, lids| {
        Some(if lids == best {
            shared(0, 0)
        } else {
            shared(1, 2)
        })
    }));
    let have = |pair: &Pair| {
        let qps = pair.hosts[ACTIVE].qps.iter();
        let is_best = |path: &Path| (path.slid, path.dlid) == best;
        let is_it = |qp: &&Qp| {
            [Some(qp.primary), qp.alternate]
                .iter()
                .flatten()
                .any(is_best)
        };
        qps.filter(is_it).count()
    };
    pair.run(hindered);
    let before = have(&pair);
    hinder(&mut pair, false);
    pair.run(ms);
    [before, have(&pair)]
}

/// A path that would be better is asked for a fresh answer again and again while none can come, and what has taken
/// long does not take longer because of that.
#[test]
fn a_check_that_failed_for_long_is_repeated_soon() {
    let full = |pair: &mut Pair, on| pair.set_full(ACTIVE, 2, on);
    let [before, after] = improved(3, full, 40_000, 1_500);
    assert!(before < 16, "no probe of it could be sent");
    assert_eq!(after, 16);
}

/// In heavy loss of MADs what works is kept. When that is over, improvements are not put off for as long as it took.
#[test]
fn heavy_loss_of_mads_puts_improvements_off_for_no_longer_than_it_lasts() {
    let foul = |pair: &mut Pair, on| pair.net.weather.loss = if on { 300 } else { 0 };
    for seconds in [20, 40, 80] {
        let [before, after] = improved(4, foul, seconds * 1_000, 3_000);
        assert!(before < 16, "improvements wait");
        assert_eq!(after, 16, "after {seconds} s");
    }
}

/// While MADs are late no answer of the primary tells how it is now, and without another alternate the loss of one port
/// ends the connection. A primary that is silent is called suspect later than that, so that it is not waited for.
#[test]
fn an_alternate_that_shares_a_port_is_replaced_though_a_late_primary_has_not_answered() {
    let proposed = Cell::new(0);
    seeds(20, |seed| {
        let mut pair = Pair::armed(seed);
        pair.pull(PASSIVE, 2);
        pair.run(5_000);
        pair.assert_armed();
        let ends = |path: &Path| (path.port, path.dlid);
        let shared = pair.qp(ACTIVE).alternate.as_ref().map(ends);
        assert_eq!(shared, Some((2, base_lid((PASSIVE, 1)))));
        pair.set_traffic(false);
        pair.net.weather.delay = 300_000;
        pair.run(3_000);
        let asked = pair.view(ACTIVE).counters.queries;
        pair.plug(PASSIVE, 2);
        while pair.view(ACTIVE).counters.queries == asked {
            pair.run(1);
        }
        pair.black_hole(ACTIVE, 1);
        pair.forget_traces();
        pair.run(1_000);
        let better = base_lid((PASSIVE, 2));
        let is_it = |what: &What| matches!(what, What::LapSent(path) if path.dlid == better);
        let is_proposed = pair.traces(ACTIVE).any(|trace| is_it(&trace.what));
        proposed.set(proposed.get() + u32::from(is_proposed));
    });
    // The better path's own answer may take longer.
    assert!(proposed.get() >= 15, "{} of 20", proposed.get());
}
