// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel module costs those whose queue pairs it sees: librdmacm's cmtime makes many connections
//! at once and takes them down again, and perftest sends, where the module is not loaded, where it is, and
//! where daemons use it, in the VM.
//!
//! All are measured in each round, one after the other, and compared within it. `cargo xtask bench` runs it where
//! the clock counts instructions, so that what else the machine does is not measured.

mod figures;
mod perftest;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::figures::{Round, Sample, Verdict};
use self::perftest::{BANDWIDTH, LATENCY};
use self::state::State;
use crate::bench::{self, Form};
use crate::cmtime::{CONNECT, Ends, Side};
use crate::failure::Failure;
use crate::narration::Narration;
use crate::timeline::Timeline;
use crate::world::{Kind, World};

/// Measures what the kernel module costs where it is loaded
#[derive(Parser)]
#[command(name = "apm-overhead-bench")]
struct Options {
    #[command(flatten)]
    form: Form,
    /// Rounds, each with all states
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Connections of each run
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
}

const SIDE: Side = Side {
    name: "cmtime's",
    run: &[],
    port: "7470",
};

/// The program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    let verdict = run(&options);
    bench::end("apm-overhead-bench", options.form, verdict)
}

fn run(options: &Options) -> Result<Verdict, Failure> {
    let mut world = World::prepare(Kind::Netns, &Timeline::new(Narration::SILENT))?;
    let ends = Ends::new(SIDE, options.connections);
    // The first run fills caches of addresses.
    ends.connect()?;
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let round = measure_all(number, &mut world, &ends)?;
        options.form.print(&round.json(), &round.text());
        rounds.push(round);
    }
    Ok(Verdict::on(&rounds))
}

fn measure_all(number: u32, world: &mut World, ends: &Ends) -> Result<Round, Failure> {
    let mut samples = [Sample([f64::NAN; 4]); 4];
    for at in 0..State::ROUND.len() {
        let at = match number.is_multiple_of(2) {
            true => at,
            false => State::ROUND.len() - 1 - at,
        };
        samples[at] = State::ROUND[at].during(world, || measure(ends))?;
    }
    Ok(Round(samples))
}

/// The connections come last: daemons have something to do after they have gone.
fn measure(ends: &Ends) -> Result<Sample, Failure> {
    let latency = LATENCY.average()?;
    let transfer = 1e6 / BANDWIDTH.average()?;
    let run = ends.connect()?;
    Ok(Sample([
        run.all().0,
        run.step(CONNECT).0,
        latency,
        transfer,
    ]))
}
