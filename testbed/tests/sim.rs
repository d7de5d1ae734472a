// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulation: what the engine must survive, and that it is the same each time.

use testbed::sim::plan::Plan;
use testbed::sim::profile::{Named, Profile};
use testbed::sim::world::{Keep, run};

/// The page that shows which states follow each other.
const PROTOCOL: &str = include_str!("../../docs/protocol.md");
/// Its diagrams are drawn from so many seeds.
const DRAWN: u64 = 1000;

#[test]
fn a_hundred_seeds_break_no_rule() {
    let profile = Profile::new(Named::Default, &[], &[]);
    // And one whose MADs are lost more than half of the time, while an alternate could be improved.
    for seed in (0..100).chain([7_933]) {
        let outcome = run(&Plan::new(seed, &profile), &profile, Keep::Transitions);
        if seed < DRAWN {
            let missing = outcome.transitions.missing_in(PROTOCOL);
            let remedy = "put the output of cargo xtask sim --diagrams into docs/protocol.md";
            assert_eq!(missing, [""; 0], "{remedy}");
        }
        let words = outcome.violation.map(|violation| violation.to_string());
        assert_eq!(words, None, "cargo xtask sim --seeds 1 --first {seed}");
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    let profile = Profile::new(Named::All, &[], &[]);
    let plan = Plan::new(1, &profile);
    let [one, other] = [(), ()].map(|()| run(&plan, &profile, Keep::Lines).lines);
    assert!(one == other && !one.is_empty());
}
