// SPDX-License-Identifier: MIT OR Apache-2.0
//! PathRecords a second from OpenSM's SA and from pathdb, for the same pairs of one fabric, and every
//! answer compared.
//!
//! Exit status: 0 every answer was the same, 1 some was not or a program failed, 2 usage.

mod measure;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};
use testbed::ibsim::{Net, Shape};

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

/// From how many ports paths are asked in a short run: enough for every window.
const SOURCES_IN_SHORT: usize = 128;

/// What is measured.
#[derive(Clone, Copy)]
struct Fabric {
    shape: Shape,
    /// From how many ports paths are asked to all others; from all if there are not so many.
    sources: usize,
}

/// PathRecords a second from OpenSM's SA and from pathdb, every answer compared.
#[derive(Parser)]
#[command(name = "bench sa")]
struct Arguments {
    /// One JSON object a fabric and line
    #[arg(long)]
    json: bool,
    /// Only the fabric with so many end ports
    #[arg(long, value_name = "N")]
    end_ports: Option<usize>,
    /// Only the smaller fabric, and from a few ports: shows that all answers are right, and not how fast
    /// they come
    #[arg(long, conflicts_with = "end_ports")]
    short: bool,
    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    /// The fabrics to measure; a usage error if there is none of that size.
    fn fabrics(&self) -> Result<Vec<(Fabric, Net)>, clap::Error> {
        let mut fabrics = FABRICS
            .map(|fabric| (fabric, fabric.shape.build(0)))
            .to_vec();
        let sizes: Vec<_> = fabrics.iter().map(|(_, net)| net.end_ports()).collect();
        if self.short {
            fabrics.truncate(1);
            fabrics[0].0.sources = SOURCES_IN_SHORT;
        }
        let Some(only) = self.end_ports else {
            return Ok(fabrics);
        };
        fabrics.retain(|(_, net)| net.end_ports() == only);
        if fabrics.is_empty() {
            let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
            let text = format!(
                "no fabric has {only} end ports: --end-ports is one of {}",
                sizes.join(", ")
            );
            return Err(Self::command().error(ErrorKind::InvalidValue, text));
        }
        Ok(fabrics)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let fabrics = arguments.fabrics().unwrap_or_else(|error| error.exit());
    let json = arguments.json;
    if !json {
        println!("{}", Figures::HEAD);
    }
    let mut fine = true;
    for (fabric, net) in &fabrics {
        match measure::figures(net, fabric) {
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
