// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQ, LAP, PathRecord and Notice, written and read by cm-msgs and by the field functions of
//! libibmad: the same values, every field, in one process.
//!
//! Exit status: 0 both agree, nothing was allocated, all goals were met; 1 otherwise; 2 usage.

mod allocations;
mod attributes;
mod libibmad;
mod measure;

use std::process::ExitCode;

use clap::Parser;
use cm_msgs::cm::{Lap, Req};
use cm_msgs::sa::{Notice, PathRecord};

use measure::{Figures, Length, figures};

/// CM and SA attributes written and read by cm-msgs and by libibmad, every result compared.
#[derive(Parser)]
#[command(name = "bench codec")]
struct Arguments {
    /// One JSON object an attribute and line
    #[arg(long)]
    json: bool,
    /// Shows that both agree and nothing is allocated, and not how fast they are
    #[arg(long)]
    short: bool,
    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(words) = libibmad::check_numbers() {
        eprintln!("{words}");
        return ExitCode::FAILURE;
    }
    let length = match arguments.short {
        true => Length::Short,
        false => Length::Full,
    };
    let all = [
        figures::<Req, 232>,
        figures::<Lap, 232>,
        figures::<PathRecord, 64>,
        figures::<Notice, 80>,
    ];
    if !arguments.json {
        println!("{}", Figures::HEAD);
    }
    let mut fine = true;
    for measure in all {
        let figures = match measure(length) {
            Ok(figures) => figures,
            Err(error) => {
                eprintln!("processor time: {error}");
                return ExitCode::FAILURE;
            }
        };
        match arguments.json {
            true => println!("{}", figures.json()),
            false => println!("{}", figures.rows()),
        }
        let mut wrong = figures.faults();
        if !arguments.short {
            wrong.extend(figures.missed_goals());
        }
        wrong.iter().for_each(|words| eprintln!("{words}"));
        fine &= wrong.is_empty();
    }
    ExitCode::from(u8::from(!fine))
}
