// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pathdb does on generated fat trees, in figures. `--json`: one object a fabric and line;
//! `--end-ports N`: only fabrics with so many end ports; `--short`: a single small one.
//!
//! Exit status: 0 all goals were met, 1 the largest fabric missed one, 2 usage.

mod measure;
mod operator;
mod reroute;

use std::error::Error;
use std::process::ExitCode;

use test_fabrics::{FatTree, Spread};

/// Whatever went wrong, in one line.
type Failure = Box<dyn Error + Send + Sync>;

/// Fabrics of radix 64 with 4,096, 12,288 and 40,960 end ports, LMC 1 where there are LIDs for it.
fn fabrics() -> impl Iterator<Item = FatTree> {
    let shapes = [
        (4, false, 0),
        (4, true, 0),
        (4, true, 1),
        (12, false, 0),
        (12, true, 0),
        (12, true, 1),
        (40, false, 0),
        (40, true, 0),
    ];
    shapes.into_iter().flat_map(|(pods, dual, lmc)| {
        [Spread::DModK, Spread::Random(1)].map(|spread| FatTree {
            pods,
            half: 32,
            dual,
            lmc,
            spread,
        })
    })
}

/// What the command line says.
#[derive(Default)]
struct Arguments {
    json: bool,
    end_ports: Option<u32>,
    short: bool,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--json" => parsed.json = true,
                "--short" => parsed.short = true,
                "--end-ports" => {
                    let value = arguments.next().ok_or("--end-ports wants a number")?;
                    let number = value.parse();
                    let number = number.map_err(|e| format!("--end-ports {value}: {e}"))?;
                    parsed.end_ports = Some(number);
                }
                // Cargo says so to every benchmark.
                "--bench" => {}
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(parsed)
    }

    /// The fabrics to measure.
    fn fabrics(&self) -> Result<Vec<FatTree>, Failure> {
        if self.short {
            // With alternates, and more LIDs than ports.
            return Ok(fabrics().filter(|tree| tree.lmc > 0).take(1).collect());
        }
        let Some(only) = self.end_ports else {
            return Ok(fabrics().collect());
        };
        let chosen: Vec<_> = fabrics().filter(|tree| tree.end_ports() == only).collect();
        if chosen.is_empty() {
            let mut sizes: Vec<_> = fabrics().map(|tree| tree.end_ports()).collect();
            sizes.dedup();
            let sizes: Vec<_> = sizes.iter().map(u32::to_string).collect();
            let sizes = sizes.join(", ");
            let text = format!("no fabric has {only} end ports: --end-ports is one of {sizes}");
            return Err(text.into());
        }
        Ok(chosen)
    }
}

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let chosen = arguments.and_then(|arguments| Ok((arguments.fabrics()?, arguments.json)));
    let (trees, json) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let measured = figures(&trees, json).and_then(|missed| {
        operator(&trees, json)?;
        Ok(missed)
    });
    match measured {
        Ok(missed) => {
            for miss in &missed {
                eprintln!("goal missed: {miss}");
            }
            ExitCode::from(u8::from(!missed.is_empty()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The table of what the daemon does; the goals that were missed.
fn figures(trees: &[FatTree], json: bool) -> Result<Vec<String>, Failure> {
    if !json {
        println!("{}", measure::Figures::HEAD);
    }
    let mut missed = Vec::new();
    for tree in trees {
        let figures = measure::figures(tree)?;
        let text = if json { figures.json() } else { figures.row() };
        println!("{text}");
        missed.extend(figures.missed_goals());
    }
    Ok(missed)
}

/// The table of what an operator does.
fn operator(trees: &[FatTree], json: bool) -> Result<(), Failure> {
    if !json {
        println!("\n{}", operator::Figures::HEAD);
    }
    for tree in trees {
        let figures = operator::figures(tree)?;
        println!("{}", if json { figures.json() } else { figures.row() });
    }
    Ok(())
}
