// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random small fabrics against what a packet that is followed link by link finds.

mod plan;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Mutex;

use pathdb::{
    Capability, Change, Delta, Element, Fault, Finder, Leg, Lid, Pair, Path, PathRecord, Rate,
    Sharing, Verdict, World, recheck,
};
use proptest::prelude::*;

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
        let (slid, dlid) = (record.slid.get(), record.dlid.get());
        let (from, to) = (plan.lids()[&slid], plan.lids()[&dlid]);
        compare(plan, from, dlid, record.forward());
        compare(plan, to, slid, record.reverse());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

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
    fn single_walks_are_what_packets_find(plan in plans()) {
        let built = plan.build();
        for &from in plan.lids().values() {
            for &dlid in plan.lids().keys() {
                let lid = lid(dlid);
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
        links,
        switches,
        carries,
        hops: all.len(),
    })
}

fn lid(number: u16) -> Lid {
    Lid::new(number).expect("unicast")
}

/// What is chosen by, the least first.
type Rank = (usize, usize, Reverse<Option<Rate>>, usize, u16, u16);

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
            if mtu.is_none() || mtu >= first.carries.mtu {
                ranks.push((
                    first.switches.intersection(&other.switches).count(),
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_alternate_shares_less(plan in plans()) {
        let built = plan.build();
        let ports = |host: usize| (1..=2).map(|n| built.port((host, n))).collect::<Vec<_>>();
        let mut finder = Finder::new(&built.fabric);
        let mut pairs = Vec::new();
        for hosts in (1..plan.hosts()).map(|host| [0, host]) {
            for slid in plan.host_lids(hosts[0]) {
                for dlid in plan.host_lids(hosts[1]) {
                    let primary = Path { slid: lid(slid), dlid: lid(dlid) };
                    let [local, remote] = hosts.map(ports);
                    let found = finder.best(primary, &local, &remote);
                    let works = whole(&plan, slid, dlid).is_some();
                    prop_assert_eq!(found.is_ok(), works);
                    let Ok(found) = found else { continue };
                    let rank = found.map(|found| (
                        usize::from(found.shared.switches),
                        usize::from(found.shared.links),
                        Reverse(found.forward.carries.rate.min(found.reverse.carries.rate)),
                        usize::from(found.forward.hops + found.reverse.hops),
                        found.path.slid.get(),
                        found.path.dlid.get(),
                    ));
                    prop_assert_eq!(rank, best(&plan, hosts, (slid, dlid)));
                    let Some(found) = found else { continue };
                    let shared = built.fabric.shared(primary, found.path, &local, &remote);
                    let shared = shared.expect("both work");
                    let switches = shared.iter().filter(|s| matches!(s.element, Element::Switch(_)));
                    prop_assert_eq!(switches.count(), usize::from(found.shared.switches));
                    prop_assert_eq!(
                        shared.len(),
                        usize::from(found.shared.switches + found.shared.links)
                    );
                    for shared in &shared {
                        let name = built.fabric.element_name(shared.element).to_string();
                        let joined = plan.is_joined_without(hosts, &name);
                        prop_assert_eq!(shared.unavoidable, !joined, "{}", name);
                    }
                    pairs.push(Pair { primary, alternate: found.path, shared: found.shared });
                }
            }
        }
        prop_assert_eq!(recheck(&built.fabric, &pairs), []);
    }

    #[test]
    fn a_recheck_tells_what_a_fault_did(plan in plans(), cut in any::<prop::sample::Index>()) {
        let built = plan.build();
        let lids: Vec<u16> = (0..plan.hosts()).flat_map(|host| plan.host_lids(host)).collect();
        let mut pairs = Vec::new();
        for (&slid, &dlid) in lids.iter().zip(lids.iter().rev()) {
            let (primary, alternate) = ((slid, dlid), (dlid, slid));
            let whole = |(slid, dlid)| whole(&plan, slid, dlid);
            if let (Some(a), Some(b)) = (whole(primary), whole(alternate)) {
                let shared = Sharing {
                    switches: a.switches.intersection(&b.switches).count() as u16,
                    links: a.links.intersection(&b.links).count() as u16,
                };
                let path = |(slid, dlid)| Path { slid: lid(slid), dlid: lid(dlid) };
                pairs.push(Pair { primary: path(primary), alternate: path(alternate), shared });
            }
        }
        let Some((after, end)) = plan.cut(cut) else { return Ok(()) };
        let node = built.fabric.port(built.port(end)).node;
        let mut fabric = built.fabric;
        let down = Change::Link { end: (node, end.1), up: false, carries: Capability::default() };
        let delta = Delta { from: 0, to: 1, changes: vec![down] };
        fabric.apply(&delta).expect("a link");
        let failed: Vec<usize> = (0..pairs.len())
            .filter(|&at| {
                let Path { slid, dlid } = pairs[at].primary;
                whole(&after, slid.get(), dlid.get()).is_none()
            })
            .collect();
        let found = recheck(&fabric, &pairs);
        let fails = |verdict: &Verdict| matches!(verdict, Verdict::PrimaryFails(_));
        prop_assert!(found.iter().all(|(_, verdict)| fails(verdict)), "{:?}", found);
        let found: Vec<usize> = found.into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(found, failed);
    }
}

#[test]
fn the_plans_are_worth_comparing() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut arrive, mut circle, mut stop) = (0, 0, 0);
    for _ in 0..100 {
        let plan = plans().new_tree(&mut runner).expect("a plan").current();
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
}
