// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine with very many connections: how soon the first order leaves after a port event, what
//! an event costs, how much memory a connection takes, what is allocated, how much is in flight, and what others
//! cost a connection that is to be armed again.
//!
//! Exit status: 0 all goals were met; 1 otherwise; 2 usage.

mod allocations;
mod beside;
mod event;
// The worlds that the scenarios have for that, and what is measured in them.
#[path = "../../../statemachine/tests/scenarios/fairness.rs"]
mod fairness;
mod host;
mod idle;
mod pair;
#[path = "../../../statemachine/tests/scenarios/several.rs"]
mod several;

use std::process::ExitCode;

use clap::Parser;

/// The engine with very many connections.
#[derive(Parser)]
#[command(name = "bench engine")]
struct Arguments {
    /// One JSON object a figure and line
    #[arg(long)]
    json: bool,
    /// Fewer connections; judges what does not depend on the machine's speed
    #[arg(long)]
    short: bool,
    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// One figure and what it should be.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The most that is well.
    goal: f64,
    /// Whether it depends on how fast the machine is.
    is_time: bool,
}

impl Figure {
    fn is_met(&self) -> bool {
        self.value <= self.goal
    }

    fn print(&self, json: bool) {
        let Self {
            name,
            value,
            unit,
            goal,
            ..
        } = self;
        let met = self.is_met();
        if json {
            println!(
                "{{\"bench\":\"engine\",\"figure\":\"{name}\",\"value\":{value:.2},\
                 \"unit\":\"{unit}\",\"goal\":{goal},\"met\":{met}}}"
            );
        } else {
            let met = if met { "yes" } else { "no" };
            println!("{name:60} {value:12.2} {unit:12} goal {goal:9} met {met}");
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scale = if arguments.short { 10 } else { 1 };
    let mut figures = event::figures(scale);
    figures.extend(idle::figures(scale));
    figures.extend(pair::figures(10_000 / scale));
    figures.extend(beside::figures(scale as u32));
    let mut fine = true;
    for figure in &figures {
        figure.print(arguments.json);
        // Memory and counts are the same on every machine; of few connections, tables are a larger part.
        let judged = !arguments.short || (!figure.is_time && figure.unit != "bytes");
        if judged && !figure.is_met() {
            eprintln!("goal missed: {}", figure.name);
            fine = false;
        }
    }
    ExitCode::from(u8::from(!fine))
}
