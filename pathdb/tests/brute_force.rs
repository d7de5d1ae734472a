// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random small fabrics against what a packet that is followed link by link finds.

mod plan;

use std::sync::Mutex;

use pathdb::{Fault, Leg, PathRecord, World};
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
                let lid = pathdb::Lid::new(dlid).expect("unicast");
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
