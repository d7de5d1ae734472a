// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a busy connection stands still when its local cable is pulled, by who moves it: its library by
//! a standing order, the kernel module by one, the daemon, hardware that somebody armed once, or the
//! application, which connects again. Each with the ACK timeout that rdma_cm gives and with 14, in the VM,
//! one after the other; then the kernel's own connections, as the module moves them.

mod ack_timeout;
mod figures;
mod kernel;
mod pulls;
mod reconnect;
mod ways;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::ack_timeout::AckTimeout;
use self::figures::{Row, Verdict};
use self::ways::Way;
use crate::bench::{self, Form};
use crate::failure::Failure;
use crate::narration::Narration;
use crate::timeline::Timeline;
use crate::world::{Kind, World};

/// Measures how long a connection stands still for a pulled cable, by who moves it
#[derive(Parser)]
#[command(name = "apm-failover-bench")]
struct Options {
    #[command(flatten)]
    form: Form,
    /// Cables pulled for each figure
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Only connections that are moved in this way (may be given again)
    #[arg(long, value_name = "WAY", requires = "no_goals")]
    way: Vec<Way>,
    /// Leave out what takes 17 s and more for each cable, which is rdma_cm's ACK timeout where hardware's retries
    /// have to run out, and all kernel ULPs but SRP
    #[arg(long, requires = "no_goals")]
    quick: bool,
}

/// The program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    let verdict = run(&options).map(|rows| Verdict::on(&rows));
    bench::end("apm-failover-bench", options.form, verdict)
}

impl Options {
    fn wants(&self, way: Way) -> bool {
        self.way.is_empty() || self.way.contains(&way)
    }

    fn takes(&self, way: Way, timeout: AckTimeout) -> bool {
        let is_long = way.waits_for_hardware() && timeout == AckTimeout::Default;
        self.wants(way) && !(self.quick && is_long)
    }

    fn takes_ulp(&self, way: Way) -> bool {
        self.wants(way) && (way == Way::Srp || !self.quick)
    }

    /// Programs with both ACK timeouts, then the kernel's connections with their own.
    fn plan(&self) -> Vec<(Way, AckTimeout)> {
        let given = |timeout| Way::PROGRAMS.map(|way| (way, timeout));
        let programs = AckTimeout::GIVEN.into_iter().flat_map(given);
        let programs = programs.filter(|(way, timeout)| self.takes(*way, *timeout));
        let ulps = Way::ULPS.into_iter().filter(|way| self.takes_ulp(*way));
        programs
            .chain(ulps.map(|way| (way, AckTimeout::Default)))
            .collect()
    }
}

fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let timeline = Timeline::new(Narration::SILENT);
    let mut kind = Kind::Flat;
    let mut world = World::prepare(kind, &timeline)?;
    options.form.head(Row::HEAD);
    let mut rows = Vec::new();
    for (way, timeout) in options.plan() {
        if way.world() != kind {
            kind = way.world();
            world = World::prepare(kind, &timeline)?;
        }
        let (timeout, stalls) = way.measure(&mut world, timeout, options.repetitions)?;
        let row = Row::new(way, timeout, stalls);
        options.form.print(&row.json(), &row.text());
        rows.push(row);
    }
    Ok(rows)
}
