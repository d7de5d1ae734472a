// SPDX-License-Identifier: MIT OR Apache-2.0
//! PathRecords a second from OpenSM's SA and from pathdb, for the same pairs of one fabric, and every
//! answer compared. `--json`: one object a fabric and line; `--end-ports N`: only the fabric with so
//! many end ports.

mod measure;

use std::process::ExitCode;

use testbed::ibsim::Shape;

use measure::Figures;

/// 1,024 hosts below 64 switches and 4,096 below 768.
const FABRICS: [Fabric; 2] = [
    Fabric {
        shape: Shape::Tree2 {
            leaves: 32,
            spines: 32,
            down: 32,
            dual: false,
        },
        sources: usize::MAX,
    },
    Fabric {
        shape: Shape::Tree3 {
            pods: 16,
            half: 16,
            dual: false,
        },
        sources: 96,
    },
];

/// What is measured.
#[derive(Clone, Copy)]
struct Fabric {
    shape: Shape,
    /// From how many ports paths are asked to all others; from all if there are not so many.
    sources: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let only: Option<usize> = arguments
        .iter()
        .position(|argument| argument == "--end-ports")
        .and_then(|at| arguments.get(at + 1)?.parse().ok());
    if !json {
        println!("{}", Figures::HEAD);
    }
    let mut fine = true;
    for fabric in FABRICS {
        let net = fabric.shape.build(0);
        if only.is_some_and(|only| only != net.end_ports()) {
            continue;
        }
        match measure::figures(&net, &fabric) {
            Ok(figures) => {
                match json {
                    true => println!("{}", figures.json()),
                    false => println!("{}", figures.row()),
                }
                for words in &figures.tally.first {
                    eprintln!("{words}");
                }
                fine &= figures.tally.differences == 0;
            }
            Err(failure) => {
                eprintln!("{failure}");
                fine = false;
            }
        }
    }
    ExitCode::from(u8::from(!fine))
}
