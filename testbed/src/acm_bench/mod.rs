// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast ACM is served: apmd beside the stock ibacm, in the VM, on the same questions.
//!
//! Both servers are given the same routes and addresses before they start, so that every answer
//! comes from memory. Every answer is compared, byte for byte. Very short rounds of the two alternate,
//! and of each the fastest tenth counts: the machine below the VM may have other things to do, and
//! those rounds were disturbed the least.

mod bare;
mod client;
mod figures;
mod goals;
mod learn;
mod preload;
mod question;
mod server;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::bare::Bare;
use self::figures::{Cell, Rounds};
use self::goals::Verdict;
use self::preload::Preload;
use self::question::{Kind, Question};
use self::server::{Server, Software, Transport};
use crate::bench::{self, Form};
use crate::failure::Failure;

/// Requests under way on each connection where the server takes more than one.
const PIPELINE: usize = 16;

/// Which of the sides that are measured is the bare server.
const BARE: usize = 3;

/// Measures how fast ACM is served
#[derive(Parser)]
#[command(name = "apm-acm-bench")]
struct Options {
    #[command(flatten)]
    form: Form,
    /// Rounds of every measurement
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long one takes
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    milliseconds: u64,
    /// Destinations, each asked for by its addresses
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u16).range(1..=16000))]
    destinations: u16,
    /// Only over these
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["unix", "tcp"])]
    transports: Vec<Transport>,
    /// Only by these
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["ip", "ip-alone", "gid"])]
    asks_by: Vec<Kind>,
    /// Only over so many connections at the same time
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1", "4", "16"], value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: Vec<u16>,
}

/// The program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = Options::parse_from(arguments);
    let verdict = run(&options).map(|cells| Verdict::on(&cells));
    bench::end("apm-acm-bench", options.form, verdict)
}

fn run(options: &Options) -> Result<Vec<Cell>, Failure> {
    let preload = Preload::provide(options.destinations)?;
    options.form.head(Cell::HEAD);
    let mut cells = Vec::new();
    for &transport in &options.transports {
        let ibacm = Server::start(Software::Ibacm, transport, &preload)?;
        let apmd = Server::start(Software::Apmd, transport, &preload)?;
        for &kind in &options.asks_by {
            let clients = [ibacm.client(1, 1)?, apmd.client(1, 1)?];
            let questions = learn::learn(kind, &preload, clients)?;
            for connections in options.connections.iter().copied().map(usize::from) {
                let bare = Bare::start(transport, &questions[1], connections)?;
                let sides = measure(options, [&ibacm, &apmd], &bare, &questions, connections)?;
                let [theirs, ours, pipelined, bare] = sides.map(Rounds::figures);
                let cell = Cell {
                    transport,
                    kind,
                    connections,
                    ibacm: theirs,
                    apmd: ours,
                    pipelined,
                    bare,
                };
                options.form.print(&cell.json(), &cell.row());
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

fn measure(
    options: &Options,
    [ibacm, apmd]: [&Server; 2],
    bare: &Bare,
    [theirs, ours]: &[Vec<Question>; 2],
    connections: usize,
) -> Result<[Rounds; 4], Failure> {
    let time = Duration::from_millis(options.milliseconds);
    let mut clients = [
        ibacm.client(connections, 1)?,
        apmd.client(connections, 1)?,
        apmd.client(connections, PIPELINE)?,
        bare.client(connections)?,
    ];
    let cpu_times: [&dyn Fn() -> Result<Duration, Failure>; 4] = [
        &|| ibacm.cpu_time(),
        &|| apmd.cpu_time(),
        &|| apmd.cpu_time(),
        &|| bare.cpu_time(),
    ];
    let questions = [theirs, ours, ours, ours];
    let mut sides = [const { Rounds::NONE }; 4];
    for _ in 0..options.rounds {
        for (at, side) in sides.iter_mut().enumerate() {
            bare.rest(at != BARE);
            let before = cpu_times[at]()?;
            let sample = clients[at].drive(questions[at], time)?;
            side.add(sample, cpu_times[at]()?.saturating_sub(before));
        }
    }
    Ok(sides)
}
