// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apm-sim`: the command line and what it prints.

use std::ffi::OsString;
use std::ops::Range;
use std::process::ExitCode;

use clap::{Parser, ValueEnum, value_parser};
use cm_msgs::control::{Policy, PolicyOverride};

use super::addresses::Subnets;
use super::batch;
use super::diagram::Transitions;
use super::fault::Kind;
use super::plan::Plan;
use super::profile::{Named, Profile};
use super::shrink::shrink;
use super::verdict::Rule;
use super::world::{Keep, run};

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Runs the engine of many hosts in virtual time, with faults that a seed decides.
///
/// Exit status: 0 no rule is broken, 1 one is, 2 usage.
#[derive(Parser)]
#[command(name = "apm-sim", version)]
struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 1000, conflicts_with = "seed", value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// So many seeds that no run has looked at yet: the first one comes from the clock, and is printed
    #[arg(
        long,
        value_name = "SEEDS",
        conflicts_with_all = ["seeds", "first", "seed"],
        value_parser = value_parser!(u64).range(1..)
    )]
    fresh: Option<u64>,
    /// Only this seed, with all that happens in it
    #[arg(long)]
    seed: Option<u64>,
    /// Of that seed, only the faults with these numbers; none, if empty
    #[arg(long, requires = "seed", value_name = "NUMBERS")]
    keep: Option<String>,
    /// Which faults there are and what is judged
    #[arg(long, value_enum, default_value_t)]
    profile: Named,
    /// This kind of fault as well (may be given again)
    #[arg(long, value_enum)]
    with: Vec<Kind>,
    /// This rule as well (may be given again)
    #[arg(long, value_enum)]
    judge: Vec<Rule>,
    /// Go on after so many failing seeds, with one line each
    #[arg(long, default_value_t = 0)]
    failures: u64,
    /// Print which states follow each other, as docs/protocol.md has it
    #[arg(long, conflicts_with = "seed")]
    diagrams: bool,
}

/// The program: everything but the process's exit.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            // Nothing is left to do if the terminal is gone.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    if options.first.checked_add(options.seeds).is_none() {
        let (first, seeds) = (options.first, options.seeds);
        eprintln!(
            "apm-sim: --first {first} --seeds {seeds}: seeds end at {}",
            u64::MAX
        );
        return ExitCode::from(USAGE);
    }
    let profile = Profile::new(options.profile, &options.with, &options.judge);
    match options.seed {
        Some(seed) => replay(&options, seed, &profile),
        None if options.diagrams => diagrams(&options, &profile),
        None => many(&options, &profile),
    }
}

fn diagrams(options: &Options, profile: &Profile) -> ExitCode {
    let mut all = Transitions::default();
    for seed in seeds(options) {
        all.add(run(&Plan::new(seed, profile), profile, Keep::Transitions).transitions);
    }
    print!("{all}");
    ExitCode::SUCCESS
}

/// One seed, with all that happens.
fn replay(options: &Options, seed: u64, profile: &Profile) -> ExitCode {
    let mut plan = Plan::new(seed, profile);
    if let Some(keep) = &options.keep {
        let numbers: Result<Vec<usize>, _> = keep
            .split(',')
            .filter(|number| !number.is_empty())
            .map(str::parse)
            .collect();
        let Ok(numbers) = numbers else {
            eprintln!("apm-sim: --keep {keep}: numbers of faults, with commas between");
            return ExitCode::from(USAGE);
        };
        let is_fault = |number: &usize| plan.faults.iter().any(|fault| fault.number == *number);
        if let Some(number) = numbers.iter().find(|number| !is_fault(number)) {
            let count = plan.faults.len();
            eprintln!(
                "apm-sim: --keep {keep}: seed {seed} has {count} faults, and none has the number {number}"
            );
            return ExitCode::from(USAGE);
        }
        plan = plan.keep(&numbers);
    }
    let outcome = run(&plan, profile, Keep::Lines);
    outcome.lines.iter().for_each(|line| println!("{line}"));
    shape(&plan);
    match outcome.violation {
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: ok");
            ExitCode::SUCCESS
        }
    }
}

/// The seeds that the command line names.
fn seeds(options: &Options) -> Range<u64> {
    let (first, count) = match options.fresh {
        Some(count) => (batch::fresh(), count),
        None => (options.first, options.seeds),
    };
    first..first.saturating_add(count)
}

fn many(options: &Options, profile: &Profile) -> ExitCode {
    let seeds = seeds(options);
    if options.fresh.is_some() {
        let (first, count) = (seeds.start, seeds.end - seeds.start);
        println!("sim: fresh seeds from {first}; again with --first {first} --seeds {count}");
    }
    let explain = |failed: &batch::Failed| explain(options, failed, profile);
    let passed = batch::run_all(seeds, profile, options.failures, explain);
    ExitCode::from(u8::from(!passed))
}

/// The shortest history of a failing seed, and the command that replays it.
fn explain(options: &Options, failed: &batch::Failed, profile: &Profile) {
    let batch::Failed { plan, violation } = failed;
    println!("seed {}: {violation}", plan.seed);
    let short = shrink(plan, profile, violation.rule);
    shape(&short);
    let outcome = run(&short, profile, Keep::Nothing);
    if let Some(violation) = outcome.violation {
        println!("  then {violation}");
    }
    println!("replay: {}", command(options, &short));
}

fn shape(plan: &Plan) {
    println!(
        "{} hosts in {} groups, {} spines, LMC {}, connections {:?}",
        plan.hosts, plan.groups, plan.spines, plan.lmc, plan.connections
    );
    if plan.subnets != Subnets::One {
        println!("  {:?}", plan.subnets);
    }
    for (host, policy) in plan.policies.iter().enumerate() {
        if *policy != PolicyOverride::default() {
            println!("  host {host}: {}", policy.over(Policy::DEFAULT));
        }
    }
    plan.faults.iter().for_each(|fault| println!("  {fault}"));
}

fn command(options: &Options, plan: &Plan) -> String {
    let numbers: Vec<String> = plan.faults.iter().map(|f| f.number.to_string()).collect();
    let mut words = format!(
        "cargo xtask sim --seed {} --keep={}",
        plan.seed,
        numbers.join(",")
    );
    let mut add = |option: &str, value: Option<clap::builder::PossibleValue>| {
        if let Some(value) = value {
            words += &format!(" --{option} {}", value.get_name());
        }
    };
    if options.profile != Named::default() {
        add("profile", options.profile.to_possible_value());
    }
    options
        .with
        .iter()
        .for_each(|kind| add("with", kind.to_possible_value()));
    options
        .judge
        .iter()
        .for_each(|rule| add("judge", rule.to_possible_value()));
    words
}
