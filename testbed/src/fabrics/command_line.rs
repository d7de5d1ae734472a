// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apm-fabrics`: the command line and what it prints.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};

use super::case::{Case, Form, Selection};
use super::run::{self, Outcome};
use super::tally::Tally;
use crate::ibsim::Engine;

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Holds pathdb against OpenSM on simulated fabrics.
///
/// Exit status: 0 nothing differs, 1 something does or a program failed, 2 usage.
#[derive(Parser)]
#[command(name = "apm-fabrics", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare every path record, table entry and hop count, and the least sharing alternates
    Compare(Options),
}

#[derive(Args)]
struct Options {
    /// Only fabrics of this shape (may be given again)
    #[arg(long, value_enum)]
    shape: Vec<Form>,
    /// Only this routing engine (may be given again)
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Only this LID mask count (may be given again)
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=3))]
    lmc: Vec<u8>,
    /// Decides cables, cuts and primaries
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from that one on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Only engines that suit the shape
    #[arg(long)]
    quick: bool,
    /// Keep the files of each fabric, and say where they are
    #[arg(long)]
    keep: bool,
    /// One JSON object a fabric and state
    #[arg(long)]
    json: bool,
    /// Only list the cases, a line each: what makes a command of that case alone
    #[arg(long)]
    list: bool,
}

/// The program: everything but the process's exit.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing is left to do if the terminal is gone.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let Command::Compare(options) = arguments.command;
    compare(options)
}

fn compare(options: Options) -> ExitCode {
    let selection = Selection {
        forms: options.shape,
        engines: options.engine,
        lmcs: options.lmc,
        quick: options.quick,
        seeds: (options.seed, options.seeds),
    };
    let started = Instant::now();
    let cases = selection.cases();
    if options.list {
        cases.iter().for_each(|case| println!("{}", alone(case)));
        return ExitCode::SUCCESS;
    }
    if !options.json {
        println!(
            "shape       engine  used    lmc  state   {}  seconds",
            Tally::HEAD
        );
    }
    let (mut sum, mut failed) = (Tally::default(), 0);
    for case in &cases {
        let report = |outcome: &Outcome| {
            sum.add(&outcome.tally);
            match options.json {
                true => println!("{}", serde_json::to_string(outcome).unwrap_or_default()),
                false => print(outcome),
            }
        };
        if let Err(failure) = run::run(*case, options.keep, report) {
            failed += 1;
            eprintln!("{}: FAILED: {failure}", replay(case));
        }
    }
    let line = format!(
        "fabrics: {} cases, {} records, {} walks, {} hop counts, {} table entries, {} alternates \
         compared in {:.0} s",
        cases.len(),
        sum.records,
        sum.walks,
        sum.hops,
        sum.entries,
        sum.alternates,
        started.elapsed().as_secs_f64(),
    );
    let fine = failed == 0 && sum.differences == 0;
    let verdict = match fine {
        true => format!("{line}: ok"),
        false => format!(
            "{line}: FAILED: {} differ, {failed} cases failed",
            sum.differences
        ),
    };
    match options.json {
        true => eprintln!("{verdict}"),
        false => println!("{verdict}"),
    }
    ExitCode::from(u8::from(!fine))
}

fn print(outcome: &Outcome) {
    let Outcome {
        shape,
        engine,
        engine_used,
        lmc,
        state,
        seconds,
        tally,
        ..
    } = outcome;
    println!(
        "{shape:10}  {engine:6}  {engine_used:6}  {lmc:3}  {state:6}  {}  {seconds:7.2}",
        tally.row()
    );
    for words in &tally.first {
        println!("    {words}");
    }
    let more = tally.differences - tally.first.len();
    if more > 0 {
        println!("    and {more} more");
    }
    if tally.differences > 0 && !outcome.pulled.is_empty() {
        println!("    pulled: {}", outcome.pulled.join(", "));
    }
}

/// The command that runs this case again.
fn replay(case: &Case) -> String {
    format!("apm-fabrics compare {}", alone(case))
}

/// The options that name this case and no other.
fn alone(case: &Case) -> String {
    format!(
        "--shape {} --engine {} --lmc {} --seed {}",
        case.form, case.engine, case.lmc, case.seed
    )
}
