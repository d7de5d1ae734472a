// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulation: what the engine must survive, and that it is the same each time.

use testbed::sim::plan::Plan;
use testbed::sim::profile::{Named, Profile};
use testbed::sim::world::run;

#[test]
fn a_hundred_seeds_break_no_rule() {
    let profile = Profile::new(Named::Default, &[], &[]);
    for seed in 0..100 {
        let outcome = run(&Plan::new(seed, &profile), &profile, false);
        let words = outcome.violation.map(|violation| violation.to_string());
        assert_eq!(words, None, "cargo xtask sim --seeds 1 --first {seed}");
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    let profile = Profile::new(Named::All, &[], &[]);
    let plan = Plan::new(1, &profile);
    let [one, other] = [(), ()].map(|()| run(&plan, &profile, true).lines);
    assert!(one == other && !one.is_empty());
}
