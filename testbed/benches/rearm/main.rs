// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a connection is without protection after one failure, in the simulated world: apmd's engine,
//! and beside it Oracle UEK's published schedule.
//!
//! Exit status: 0 all goals were met, or none was judged; 1 otherwise; 2 usage.

mod case;

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use testbed::sim::world::rearm::{self, NeverArmed, Policy};

use case::{Case, Figures};

/// MADs that a host may send in a second of peace.
const BUDGET: u32 = 200;

/// Connections between two hosts whose MADs in peace are counted.
const CONNECTIONS: usize = 100;

/// Time without protection after one failure, apmd's beside UEK's schedule.
#[derive(Parser)]
#[command(name = "bench rearm")]
struct Arguments {
    /// One JSON object a case and line, and the verdict as the last
    #[arg(long)]
    json: bool,
    /// A few seeds of each, and no goals
    #[arg(long)]
    short: bool,
    /// Seeds of each case
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.short {
        arguments.seeds = arguments.seeds.min(5);
    }
    match run(&arguments) {
        Ok(met) if met || arguments.short => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench rearm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all goals were met.
fn run(arguments: &Arguments) -> Result<bool, NeverArmed> {
    if !arguments.json {
        println!("{}", Figures::HEAD);
    }
    let mut met = true;
    for case in Case::all() {
        let ours = Figures::measure(case, Policy::Apmd, arguments.seeds)?;
        let theirs = Figures::measure(case, Policy::Uek, arguments.seeds)?;
        met &= ours.met();
        print(&ours, Some(&theirs), arguments.json);
    }
    for case in Case::of_many() {
        let figures = Figures::measure_many(case, arguments.seeds)?;
        met &= figures.met();
        print(&figures, None, arguments.json);
    }
    met &= probing(arguments)?;
    if arguments.json {
        println!("{}", json!({ "bench": "rearm", "goals_met": met }));
    } else {
        println!("all goals met: {}", yes_no(met));
    }
    Ok(met)
}

fn print(figures: &Figures, beside: Option<&Figures>, json: bool) {
    match json {
        true => println!("{}", figures.json(beside)),
        false => println!("{}", figures.line(beside)),
    }
}

/// What calm costs.
fn probing(arguments: &Arguments) -> Result<bool, NeverArmed> {
    let busy = rearm::mads_in_peace(1, CONNECTIONS)?;
    let none = rearm::mads_in_peace(1, 0)?;
    let met = busy <= BUDGET && none == 0;
    if arguments.json {
        let line = json!({
            "case": "MADs a second and host in peace", "connections": CONNECTIONS, "most": busy,
            "goal": BUDGET, "without_connections": none, "met": met,
        });
        println!("{line}");
    } else {
        println!(
            "in peace a host with {CONNECTIONS} connections sends at most {busy} MADs a second (goal {BUDGET}), \
             one without {none} (goal 0): met {}",
            yes_no(met)
        );
    }
    Ok(met)
}

fn yes_no(met: bool) -> &'static str {
    if met { "yes" } else { "no" }
}
