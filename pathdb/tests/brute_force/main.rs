// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random small fabrics against what a packet that is followed link by link finds.

mod check;
mod plan;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Mutex;

use cm_msgs::Lid;
use pathdb::{
    Capability, Change, Delta, Element, Fault, Finder, Fitness, Leg, NodeKind, Pair, Path,
    PathRecord, Rate, Sharing, Verdict, World, recheck, recheck_after, snapshot,
};
use proptest::prelude::*;
use proptest::sample::Index;

use plan::{End, Plan, plans};

fn compare(plan: &Plan, from: End, lid: u16, walked: Result<Leg, Fault>) {
    match (plan.follow(from, lid), walked) {
        (Ok(left), Ok(leg)) => {
            assert_eq!(left.len(), usize::from(leg.hops));
            let carries = match plan.carries(&left) {
                Some(carries) => carries,
                None if from.1 == 0 => leg.carries,
                None => plan.link(from),
            };
            assert_eq!(leg.carries, carries);
        }
        (Err(true), Err(Fault::Loop)) | (Err(false), Err(Fault::DeadEnd)) => {}
        (expected, walked) => panic!("{from:?} to {lid}: {expected:?}, but {walked:?}"),
    }
}

fn check(plan: &Plan, records: &[PathRecord]) {
    for record in records {
        let (slid, dlid) = (record.slid.0, record.dlid.0);
        let (from, to) = (plan.lids()[&slid], plan.lids()[&dlid]);
        compare(plan, from, dlid, record.forward());
        compare(plan, to, slid, record.reverse());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn half_worlds_are_what_packets_find(plan in plans()) {
        let built = plan.build();
        let world = World::new(&built.fabric);
        let sources: Vec<_> = built.fabric.end_ports().collect();
        let seen = Mutex::new(0);
        world.each(&sources, |source, records| {
            check(&plan, records);
            assert_eq!(world.half_world(source), records);
            *seen.lock().expect("no panic") += records.len();
        });
        let lids = plan.lids().len();
        prop_assert_eq!(seen.into_inner().expect("no panic"), lids * lids);
    }

    #[test]
    fn snapshots_are_what_was_built(plan in plans()) {
        let mut fabric = plan.build().fabric;
        fabric.set_risks(pathdb::Risks::default());
        let mut bytes = Vec::new();
        snapshot::write(&fabric, &mut bytes).expect("memory takes everything");
        prop_assert_eq!(snapshot::read(&bytes[..]).expect("a snapshot"), fabric);
    }

    #[test]
    fn single_walks_are_what_packets_find(plan in plans()) {
        let built = plan.build();
        for &from in plan.lids().values() {
            for &dlid in plan.lids().keys() {
                let lid = Lid(dlid);
                let levels = built.fabric.service_levels(built.port(from), lid);
                let levels = levels.ok().map(|levels| levels.iter().fold(0, |bits, sl| bits | 1 << sl));
                prop_assert_eq!(levels, plan.service_levels(from, dlid));
                let walked = built.fabric.leg(built.port(from), lid);
                compare(&plan, from, dlid, walked);
                if let Ok(left) = built.fabric.trace(built.port(from), lid) {
                    let expected = plan.follow(from, dlid).expect("it arrives");
                    let expected: Vec<_> = expected.iter().map(|&e| built.port(e)).collect();
                    prop_assert_eq!(left, expected);
                }
            }
        }
    }
}

/// What a path depends on, both ways, with its least MTU and rate and its length.
struct Whole {
    links: BTreeSet<End>,
    switches: BTreeSet<usize>,
    groups: BTreeSet<usize>,
    carries: Capability,
    hops: usize,
}

fn whole(plan: &Plan, slid: u16, dlid: u16) -> Option<Whole> {
    let there = plan.follow(plan.lids()[&slid], dlid).ok()?;
    let back = plan.follow(plan.lids()[&dlid], slid).ok()?;
    let all = [there, back].concat();
    let (links, switches) = plan.elements(&all);
    let carries = plan.carries(&all)?;
    Some(Whole {
        groups: plan.groups(&links, &switches),
        links,
        switches,
        carries,
        hops: all.len(),
    })
}

/// Pairs of any two paths that work, with what they share.
fn pairs(plan: &Plan, seed: u64) -> Vec<Pair> {
    let lids: Vec<u16> = (0..plan.hosts())
        .flat_map(|host| plan.host_lids(host))
        .collect();
    let mut pairs = Vec::new();
    for at in 0..lids.len() * 4 {
        let lid_at = |shift: u32| lids[(seed.rotate_left(shift) as usize / 7 + at) % lids.len()];
        let [a, b, c, d] = [0, 13, 27, 44].map(lid_at);
        if a == b || c == d {
            continue;
        }
        if let (Some(first), Some(second)) = (whole(plan, a, b), whole(plan, c, d)) {
            let path = |slid, dlid| Path {
                slid: Lid(slid),
                dlid: Lid(dlid),
            };
            pairs.push(Pair {
                primary: path(a, b),
                alternate: path(c, d),
                shared: Sharing {
                    switches: first.switches.intersection(&second.switches).count() as u16,
                    groups: first.groups.intersection(&second.groups).count() as u16,
                    links: first.links.intersection(&second.links).count() as u16,
                },
            });
        }
    }
    pairs
}

/// What is chosen by, the least first.
type Rank = (usize, usize, usize, Reverse<Option<Rate>>, usize, u16, u16);

/// Of all pairs of LIDs of two hosts, the one that shares least with the primary.
fn best(plan: &Plan, hosts: [usize; 2], primary: (u16, u16)) -> Option<Rank> {
    let first = whole(plan, primary.0, primary.1)?;
    let mut ranks = Vec::new();
    for slid in plan.host_lids(hosts[0]) {
        for dlid in plan.host_lids(hosts[1]) {
            let Some(other) = whole(plan, slid, dlid).filter(|_| (slid, dlid) != primary) else {
                continue;
            };
            let mtu = other.carries.mtu;
            let fits = mtu.is_none() || mtu >= first.carries.mtu;
            if fits && plan.takes_service_level(slid, dlid) {
                ranks.push((
                    first.switches.intersection(&other.switches).count(),
                    first.groups.intersection(&other.groups).count(),
                    first.links.intersection(&other.links).count(),
                    Reverse(other.carries.rate),
                    other.hops,
                    slid,
                    dlid,
                ));
            }
        }
    }
    ranks.into_iter().min()
}

/// How many of these elements must fail at least to part two hosts: at most as many as they have
/// ports.
fn fewest(plan: &Plan, hosts: [usize; 2], elements: &[String]) -> usize {
    let joined = |without: &[String]| plan.is_joined_without(hosts, without);
    if !joined(&[]) {
        return 0;
    }
    if elements
        .iter()
        .any(|one| !joined(std::slice::from_ref(one)))
    {
        return 1;
    }
    let pairs = elements
        .iter()
        .flat_map(|a| elements.iter().map(move |b| [a.clone(), b.clone()]));
    match pairs.into_iter().any(|pair| !joined(&pair)) {
        true => 2,
        false => plan::HOST_PORTS.into(),
    }
}

/// How many paths there are at most that work and of which no two share a link, nor a switch.
fn most(plan: &Plan, hosts: [usize; 2], switches: bool) -> usize {
    let [local, remote] = hosts.map(|host| plan.host_lids(host));
    let pairs = local
        .iter()
        .flat_map(|a| remote.iter().map(move |b| (*a, *b)));
    let mut paths: Vec<Whole> = pairs.filter_map(|(a, b)| whole(plan, a, b)).collect();
    paths.sort_by(|a, b| (&a.links, &a.switches).cmp(&(&b.links, &b.switches)));
    paths.dedup_by(|a, b| a.links == b.links && a.switches == b.switches);
    let apart = |a: &Whole, b: &Whole| {
        a.links.is_disjoint(&b.links) && (!switches || a.switches.is_disjoint(&b.switches))
    };
    let mut most = usize::from(!paths.is_empty());
    for (at, a) in paths.iter().enumerate() {
        let beside: Vec<&Whole> = paths[at + 1..].iter().filter(|b| apart(a, b)).collect();
        most = most.max(1 + usize::from(!beside.is_empty()));
        for (at, b) in beside.iter().enumerate() {
            if beside[at + 1..].iter().any(|c| apart(b, c)) {
                return plan::HOST_PORTS.into();
            }
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_alternate_shares_less(plan in plans()) {
        let built = plan.build();
        let ports = |host: usize| (1..=plan::HOST_PORTS).map(|n| built.port((host, n))).collect::<Vec<_>>();
        let mut finder = Finder::new(&built.fabric);
        let mut pairs = Vec::new();
        for hosts in (1..plan.hosts()).map(|host| [0, host]) {
            for slid in plan.host_lids(hosts[0]) {
                for dlid in plan.host_lids(hosts[1]) {
                    let primary = Path { slid: Lid(slid), dlid: Lid(dlid) };
                    let [local, remote] = hosts.map(ports);
                    let found = finder.best(primary, &local, &remote);
                    let works = whole(&plan, slid, dlid).is_some();
                    prop_assert_eq!(found.is_ok(), works);
                    let Ok(found) = found else { continue };
                    let rank = found.map(|found| (
                        usize::from(found.shared.switches),
                        usize::from(found.shared.groups),
                        usize::from(found.shared.links),
                        Reverse(found.forward.carries.rate.min(found.reverse.carries.rate)),
                        usize::from(found.forward.hops + found.reverse.hops),
                        found.path.slid.0,
                        found.path.dlid.0,
                    ));
                    prop_assert_eq!(rank, best(&plan, hosts, (slid, dlid)));
                    let all = built.fabric.candidates(primary, &local, &remote);
                    let all = all.expect("the primary works");
                    let fits = all.iter().find_map(|candidate| match candidate.fitness {
                        Fitness::Alternate(alternate) => Some(alternate),
                        _ => None,
                    });
                    prop_assert_eq!(fits, found, "the best of all candidates");
                    let lids = hosts.map(|host| plan.host_lids(host).len());
                    prop_assert_eq!(all.len(), lids[0] * lids[1]);
                    let Some(found) = found else { continue };
                    let shared = built.fabric.shared(primary, found.path, &local, &remote);
                    let shared = shared.expect("both work");
                    let switches = shared.iter().filter(|s| matches!(s.element, Element::Switch(_)));
                    prop_assert_eq!(switches.count(), usize::from(found.shared.switches));
                    prop_assert_eq!(
                        shared.len(),
                        usize::from(
                            found.shared.switches + found.shared.groups + found.shared.links
                        )
                    );
                    for shared in &shared {
                        let name = built.fabric.element_name(shared.element).to_string();
                        let joined = plan.is_joined_without(hosts, std::slice::from_ref(&name));
                        prop_assert_eq!(shared.unavoidable, !joined, "{}", name);
                    }
                    pairs.push(Pair { primary, alternate: found.path, shared: found.shared });
                }
            }
        }
        prop_assert_eq!(recheck(&built.fabric, &pairs), []);
    }

    #[test]
    fn cables_allow_as_many_routes_as_failures_part_the_hosts(plan in plans()) {
        let built = plan.build();
        let ports = |host: usize| (1..=plan::HOST_PORTS).map(|n| built.port((host, n))).collect::<Vec<_>>();
        let (links, switches) = plan.elements_by_name();
        let all = [links.clone(), switches].concat();
        for hosts in (1..plan.hosts()).map(|host| [0, host]) {
            let [local, remote] = hosts.map(ports);
            let bound = built.fabric.disjoint_by_cables(&local, &remote);
            prop_assert_eq!(usize::from(bound.links), fewest(&plan, hosts, &links));
            prop_assert_eq!(usize::from(bound.switches), fewest(&plan, hosts, &all));
            let given = built.fabric.disjoint_by_tables(&local, &remote, bound);
            prop_assert_eq!(usize::from(given.links), most(&plan, hosts, false));
            prop_assert_eq!(usize::from(given.switches), most(&plan, hosts, true));
        }
    }

    #[test]
    fn a_delta_tells_which_paths_it_can_have_changed(
        plan in plans(),
        seed in any::<u64>(),
        ends in prop::collection::vec((any::<Index>(), any::<Index>(), 1u8..7), 1..4),
    ) {
        let mut built = plan.build();
        let lids: Vec<u16> = plan.lids().keys().copied().collect();
        let pairs = pairs(&plan, seed);
        let mut changes = Vec::new();
        for (index, to, number) in ends {
            let port = built.port(plan.lids()[index.get(&lids)]);
            let node = built.fabric.port(port).node;
            if built.fabric.node(node).kind == NodeKind::Switch {
                let lid = Lid(*to.get(&lids));
                changes.push(Change::Route { switch: node, lid, port: Some(number) });
            }
            let linked = built.fabric.port_of(node, number);
            if linked.is_some_and(|port| built.fabric.peer(port).is_some()) {
                let end = (node, number);
                changes.push(Change::Link { end, up: false, carries: Capability::default() });
            }
        }
        let delta = Delta { from: 0, to: 1, changes };
        built.fabric.apply(&delta).expect("ports and links that are there");
        let all = recheck(&built.fabric, &pairs);
        prop_assert_eq!(recheck_after(&built.fabric, &delta, &pairs), all);
    }

    #[test]
    fn a_recheck_tells_what_a_fault_did(
        plan in plans(),
        seed in any::<u64>(),
        cut in any::<Index>(),
    ) {
        let built = plan.build();
        let pairs = pairs(&plan, seed);
        let Some((after, end)) = plan.cut(cut) else { return Ok(()) };
        let node = built.fabric.port(built.port(end)).node;
        let mut fabric = built.fabric;
        let down = Change::Link { end: (node, end.1), up: false, carries: Capability::default() };
        let delta = Delta { from: 0, to: 1, changes: vec![down] };
        fabric.apply(&delta).expect("a link");
        let works = |path: Path| whole(&after, path.slid.0, path.dlid.0).is_some();
        let found = recheck(&fabric, &pairs);
        prop_assert_eq!(recheck_after(&fabric, &delta, &pairs), &found[..]);
        let mut expected = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            match (works(pair.primary), works(pair.alternate)) {
                (true, true) => {}
                (false, _) => expected.push((at, "primary")),
                (true, false) => expected.push((at, "alternate")),
            }
        }
        let found = found.into_iter().map(|(at, verdict)| match verdict {
            Verdict::PrimaryFails(_) => (at, "primary"),
            Verdict::AlternateFails(_) => (at, "alternate"),
            Verdict::SharesMore(_) => (at, "more"),
        });
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_plans_are_worth_comparing() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut arrive, mut circle, mut stop) = (0, 0, 0);
    let mut bounds = [0; 4];
    let mut could_do_better = 0;
    for _ in 0..100 {
        let plan = plans().new_tree(&mut runner).expect("a plan").current();
        let (links, switches) = plan.elements_by_name();
        let all = [links, switches].concat();
        for hosts in (1..plan.hosts()).map(|host| [0, host]) {
            let bound = fewest(&plan, hosts, &all);
            bounds[bound] += 1;
            could_do_better += usize::from(most(&plan, hosts, true) < bound);
        }
        for &from in plan.lids().values() {
            for &dlid in plan.lids().keys() {
                match plan.follow(from, dlid) {
                    Ok(left) if left.len() > 2 => arrive += 1,
                    Ok(_) => {}
                    Err(true) => circle += 1,
                    Err(false) => stop += 1,
                }
            }
        }
    }
    assert!(
        arrive > 1000 && circle > 100 && stop > 1000,
        "{arrive} {circle} {stop}"
    );
    assert!(bounds.iter().all(|&count| count > 5), "{bounds:?}");
    assert!(could_do_better > 5, "{could_do_better}");
}
