// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is found wrong with random fabrics, compared with packets that are followed one by one.

use pathdb::check::{Cause, difference, survey};
use pathdb::{Element, Fabric, Finder, Path, PortId};
use proptest::prelude::*;

use crate::plan::{HOST_PORTS, plans};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn lids_are_out_of_reach_as_packets_find(plan in plans()) {
        let built = plan.build();
        let fabric = &built.fabric;
        let found = fabric.unreachable();
        let sources: Vec<_> = (0..plan.hosts())
            .flat_map(|host| (1..=HOST_PORTS).map(move |number| (host, number)))
            .filter(|&end| fabric.is_up(built.port(end)))
            .collect();
        prop_assert_eq!(fabric.source_count(), sources.len());
        let mut expected = Vec::new();
        for (&lid, &owner) in plan.lids() {
            let others = sources.iter().filter(|&&source| source != owner);
            let ends: Vec<_> = others.filter_map(|&s| plan.follow(s, lid).err()).collect();
            if !ends.is_empty() {
                expected.push((lid, ends.len(), ends.contains(&true)));
            }
        }
        let is_loop = |cause: &Cause| matches!(cause, Cause::Loop(_));
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.lid.0, found.sources, found.causes.iter().any(is_loop)))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_survey_finds_what_each_pair_shares(plan in plans()) {
        let built = plan.build();
        let fabric = &built.fabric;
        let up = |host: usize| -> Vec<PortId> {
            let ports = (1..=HOST_PORTS).map(|number| built.port((host, number)));
            ports.filter(|&port| fabric.is_up(port)).collect()
        };
        let hosts: Vec<Vec<PortId>> = (0..plan.hosts()).map(up).collect();
        let (mut joined, mut alone, mut elements, mut pairs) = (0, 0, Vec::new(), 0);
        for (at, local) in hosts.iter().enumerate().filter(|(_, own)| own.len() > 1) {
            for remote in hosts[at + 1..].iter().filter(|own| own.len() > 1) {
                let found = pair(fabric, local, remote);
                pairs += 1;
                joined += u64::from(!found.0.is_empty());
                alone += u64::from(found.1);
                elements.extend(found.0);
            }
        }
        let survey = survey(fabric, u64::MAX, &mut |_, _| ());
        prop_assert_eq!((survey.pairs, survey.looked_at), (pairs, pairs));
        prop_assert_eq!((survey.joined, survey.alone), (joined, alone));
        let sum: u64 = survey.needless.iter().map(|needless| needless.pairs).sum();
        prop_assert_eq!(sum, elements.len() as u64);
        for needless in &survey.needless {
            let count = elements.iter().filter(|&&element| element == needless.element).count();
            prop_assert_eq!(needless.pairs, count as u64);
            prop_assert!(!needless.examples.is_empty());
        }
    }

    #[test]
    fn a_fabric_does_not_differ_from_itself(plan in plans()) {
        let fabric = plan.build().fabric;
        prop_assert!(difference(&fabric, &fabric, u64::MAX, &mut |_, _| ()).is_none());
    }
}

/// What joins two hosts needlessly, and whether no primary has an alternate, by the parts of which
/// the survey is made.
fn pair(fabric: &Fabric, local: &[PortId], remote: &[PortId]) -> (Vec<Element>, bool) {
    let base = |port: PortId| fabric.port(port).lids.expect("an end port").base();
    let (mut found, mut works) = (Vec::new(), false);
    for &from in local {
        for &to in remote {
            let primary = Path {
                slid: base(from),
                dlid: base(to),
            };
            if let Ok(best) = Finder::new(fabric).best(primary, local, remote) {
                works = true;
                found.extend(best.map(|best| (best.shared, primary, best.path)));
            }
        }
    }
    // Of several that share least, the first counts, whichever LIDs it has.
    let least = found.iter().map(|found| found.0).min();
    let Some(&(_, primary, alternate)) = found.iter().find(|f| Some(f.0) == least) else {
        return (Vec::new(), works);
    };
    let shared = fabric.shared(primary, alternate, local, remote);
    let shared = shared.expect("both work").into_iter();
    let avoidable = shared.filter(|s| !s.unavoidable).map(|s| s.element);
    (avoidable.collect(), false)
}
