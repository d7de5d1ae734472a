// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shortest history that still fails.

use super::plan::Plan;
use super::profile::Profile;
use super::verdict::Rule;
use super::world::{Keep, run};

/// Runs at most.
const TRIES: usize = 400;

/// Drops faults one by one for as long as the same rule is broken.
pub fn shrink(plan: &Plan, profile: &Profile, rule: Rule) -> Plan {
    let mut best = plan.clone();
    let mut tries = TRIES;
    loop {
        let numbers: Vec<usize> = best.faults.iter().map(|fault| fault.number).collect();
        let mut smaller = None;
        for dropped in &numbers {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            let kept: Vec<usize> = numbers.iter().copied().filter(|n| n != dropped).collect();
            let candidate = plan.keep(&kept);
            let outcome = run(&candidate, profile, Keep::Nothing);
            if outcome
                .violation
                .is_some_and(|violation| violation.rule == rule)
            {
                smaller = Some(candidate);
                break;
            }
        }
        match smaller {
            Some(plan) => best = plan,
            None => return best,
        }
    }
}
