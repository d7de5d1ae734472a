// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask sim`: the engines of many hosts in virtual time, by a program of the testbed crate.

use clap::Args;

use crate::error::Error;
use crate::{artefacts, packages};

/// The program.
const PROGRAM: &str = "apm-sim";

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// What to run, as `apm-sim` takes it: --seeds, --first, --fresh, --seed, --keep, --profile, --with,
    /// --judge, --failures, --diagrams, or --help
    #[arg(
        value_name = "OPTION",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
}

/// `cargo xtask sim`, with a release build.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    let status = artefacts::program(PROGRAM)?
        .args(&options.arguments)
        .status()
        .map_err(|source| Error::Start {
            program: PROGRAM.to_owned(),
            source,
        })?;
    // 1: a rule is broken; 2: usage. None if a signal ended it.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(1))
}
