// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to connect under `apmctl run`: librdmacm's cmtime, which makes many connections at
//! once and takes them down again, without and with it, in the VM.
//!
//! The daemons run all the time, as the VM starts them for anybody, so the two sides differ in nothing
//! but `apmctl run` on both hosts.
//! Runs of the two alternate, and the medians are compared: what the machine below the VM does besides
//! meets both.

mod figures;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::figures::{Pair, Verdict};
use crate::bench::{self, Form};
use crate::cmtime::{Ends, Side};
use crate::command;
use crate::failure::Failure;
use crate::narration::Narration;
use crate::timeline::Timeline;
use crate::world::{Kind, World};

const PLAIN: Side = Side {
    name: "plain",
    run: &[],
    port: "7470",
};

const PROTECTED: Side = Side {
    name: "protected",
    run: &["apmctl", "run", "--"],
    port: "7471",
};

/// Measures what it costs to connect under apmctl run
#[derive(Parser)]
#[command(name = "apm-connect-bench")]
struct Options {
    #[command(flatten)]
    form: Form,
    /// Pairs of runs, one of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Connections of each run
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
}

/// The program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    let verdict = run(&options);
    bench::end("apm-connect-bench", options.form, verdict)
}

fn run(options: &Options) -> Result<Verdict, Failure> {
    World::prepare(Kind::Netns, &Timeline::new(Narration::SILENT))?;
    // Not a drill's: those tell of all that they do.
    command::run(&["daemons", "start"])?;
    let plain = Ends::new(PLAIN, options.connections);
    let protected = Ends::new(PROTECTED, options.connections);
    // The first run of each side fills caches: of addresses, and of what the daemons know.
    plain.connect()?;
    protected.connect()?;
    options.form.head(Pair::HEAD);
    let mut pairs = Vec::new();
    for number in 0..options.pairs {
        let pair = measure(number, &plain, &protected)?;
        options.form.print(&pair.json(), &pair.row());
        pairs.push(pair);
    }
    Ok(Verdict::on(&pairs))
}

/// Neither side is always the first of a pair.
fn measure(number: u32, plain: &Ends, protected: &Ends) -> Result<Pair, Failure> {
    if number.is_multiple_of(2) {
        let plain = plain.connect()?;
        let protected = protected.connect()?;
        return Ok(Pair { plain, protected });
    }
    let protected = protected.connect()?;
    let plain = plain.connect()?;
    Ok(Pair { plain, protected })
}
