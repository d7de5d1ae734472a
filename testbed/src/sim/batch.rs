// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many seeds in a row: what they came to, and how far the run is.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::plan::Plan;
use super::profile::Profile;
use super::verdict::{Rule, Violation};
use super::world::{Keep, run};

/// Seeds between two lines of a long run.
const PART: u64 = 10_000;
/// Seeds between two updates of the progress on a terminal.
const UPDATE: u64 = 50;

/// A seed that no earlier run can have begun at: microseconds since 1970. Fresh runs that begin at different times
/// look at different seeds, as long as none of them takes less than a microsecond for a seed.
pub(super) fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// What a range of seeds came to.
#[derive(Default)]
struct Tally {
    seeds: u64,
    events: u64,
    migrations: usize,
    deaths: usize,
    failed: BTreeMap<Rule, u64>,
}

impl Tally {
    fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    fn verdict(&self) -> &'static str {
        match self.failures() {
            0 => "ok",
            _ => "FAILED",
        }
    }
}

/// A seed that broke a rule, after as many as the caller accepts.
pub(super) struct Failed {
    /// Its plan.
    pub(super) plan: Plan,
    /// What happened.
    pub(super) violation: Violation,
}

/// Runs these seeds until more than `accepted` of them have broken a rule. Prints a line for each that did, one for
/// each part of a long run, and the result.
pub(super) fn run_all(
    seeds: Range<u64>,
    profile: &Profile,
    accepted: u64,
    explain: impl FnOnce(&Failed),
) -> bool {
    let progress = Progress::new(&seeds);
    let mut tally = Tally::default();
    for seed in seeds {
        let plan = Plan::new(seed, profile);
        let outcome = run(&plan, profile, Keep::Nothing);
        tally.seeds += 1;
        tally.events += outcome.events;
        tally.migrations += outcome.migrations;
        tally.deaths += outcome.deaths;
        if let Some(violation) = outcome.violation {
            progress.clear();
            *tally.failed.entry(violation.rule).or_default() += 1;
            if tally.failures() > accepted {
                explain(&Failed { plan, violation });
                break;
            }
            println!("seed {seed}: {violation}");
        }
        progress.show(&tally);
    }
    progress.clear();
    println!(
        "sim: {} seeds, {} events, {} migrations, {} connections died, in {} seeds against a rule; in {:.1} s: {}",
        tally.seeds,
        tally.events,
        tally.migrations,
        tally.deaths,
        tally.failures(),
        progress.started.elapsed().as_secs_f64(),
        tally.verdict(),
    );
    for (rule, count) in &tally.failed {
        println!("sim: {rule:?} broken by {count} seeds");
    }
    tally.failures() == 0
}

/// How far a run is, on standard error where that is a terminal, and in parts on standard output.
struct Progress {
    first: u64,
    wanted: u64,
    started: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(seeds: &Range<u64>) -> Self {
        Self {
            first: seeds.start,
            wanted: seeds.end - seeds.start,
            started: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    fn show(&self, tally: &Tally) {
        let (done, taken) = (tally.seeds, self.started.elapsed());
        if done % PART == 0 && done < self.wanted {
            self.clear();
            let (from, to) = (self.first + done - PART, self.first + done - 1);
            let (minutes, verdict) = (taken.as_secs() / 60, tally.verdict());
            println!(
                "sim: seeds {from} to {to}, {done} of {}, {minutes} min: {verdict}",
                self.wanted
            );
        }
        if self.is_terminal && done % UPDATE == 0 {
            let left = remaining(done, self.wanted, taken).as_secs() / 60;
            eprint!("\r{done} of {} seeds, about {left} min left ", self.wanted);
            // Progress is no result.
            drop(io::stderr().flush());
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// The time that the rest takes if it goes on as before.
fn remaining(done: u64, wanted: u64, taken: Duration) -> Duration {
    taken.mul_f64(wanted.saturating_sub(done) as f64 / done.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_for_a_seed_as_what_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(remaining(10, 30, minute), 2 * minute);
        assert_eq!(remaining(30, 30, minute), Duration::ZERO);
        assert_eq!(remaining(0, 30, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn fresh_runs_do_not_begin_at_one_seed() {
        let (one, other) = (fresh(), {
            std::thread::sleep(Duration::from_micros(2));
            fresh()
        });
        assert!(one < other);
    }
}
