// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pathdb does on generated fat trees, in figures. `--json`: one object a fabric and line;
//! `--end-ports N`: only fabrics with so many end ports. Ends with failure when the largest fabric
//! misses a goal.

mod measure;
mod reroute;

use std::error::Error;
use std::process::ExitCode;

use pathdb::{FatTree, Spread};

use measure::Figures;

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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let only = arguments
        .iter()
        .position(|argument| argument == "--end-ports")
        .and_then(|at| arguments.get(at + 1)?.parse().ok());
    let chosen = |tree: &FatTree| only.is_none_or(|only: u32| only == tree.end_ports());
    let trees: Vec<FatTree> = fabrics().filter(chosen).collect();
    if trees.is_empty() {
        eprintln!("no fabric has so many end ports: want 4096, 12288 or 40960");
        return ExitCode::FAILURE;
    }
    if !json {
        println!("{}", Figures::HEAD);
    }
    let mut missed = Vec::new();
    for tree in &trees {
        match measure::figures(tree) {
            Ok(figures) => {
                let text = if json { figures.json() } else { figures.row() };
                println!("{text}");
                missed.extend(figures.missed_goals());
            }
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    for miss in &missed {
        eprintln!("goal missed: {miss}");
    }
    ExitCode::from(u8::from(!missed.is_empty()))
}
