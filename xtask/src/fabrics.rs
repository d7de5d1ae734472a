// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fabrics`: pathdb held against OpenSM on simulated fabrics, by a program of the
//! testbed crate.

use std::process::Command;

use clap::Args;

use crate::error::Error;
use crate::{artefacts, packages, shell};

/// The options of `cargo xtask test`.
pub(crate) const OF_TEST: &[&str] = &["--quick", "--seeds", "1"];

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// What to compare, as `apm-fabrics compare` takes it: --shape, --engine, --lmc, --seed,
    /// --seeds, --quick, --keep, --json, --list, or --help
    #[arg(
        value_name = "OPTION",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
}

/// `cargo xtask fabrics`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    packages::install(packages::FABRICS)?;
    let status = compare()?
        .args(&options.arguments)
        .status()
        .map_err(|source| Error::Start {
            program: artefacts::FABRICS.to_owned(),
            source,
        })?;
    Ok(u8::from(!status.success()))
}

/// The cases that `cargo xtask fabrics` with these options compares, a word or more each.
pub(crate) fn cases(arguments: &[&str]) -> Result<Vec<String>, Error> {
    packages::install(packages::BUILD)?;
    let mut list = compare()?;
    list.args(arguments).arg("--list");
    let what = format!("cargo xtask fabrics {} --list", arguments.join(" "));
    let listing = shell::output(&what, &mut list)?;
    Ok(listing.lines().map(str::to_owned).collect())
}

fn compare() -> Result<Command, Error> {
    let mut command = artefacts::program(artefacts::FABRICS)?;
    command.arg("compare");
    Ok(command)
}
