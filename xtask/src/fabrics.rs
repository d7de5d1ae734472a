// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fabrics`: pathdb held against OpenSM on simulated fabrics, by a program of the
//! testbed crate.

use std::process::Command;

use clap::Args;

use crate::error::Error;
use crate::{packages, workspace};

/// The program.
pub(crate) const PROGRAM: &str = "apm-fabrics";

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// What to compare, as `apm-fabrics compare` takes it: --shape, --engine, --lmc, --seed,
    /// --seeds, --quick, --keep, --json, or --help
    #[arg(
        value_name = "OPTION",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
}

/// `cargo xtask fabrics`. The release build is that of the VM's programs.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    packages::install(packages::FABRICS)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace::root())
        .args(["run", "--release", "--quiet", "--package=testbed", "--bin"])
        .args([PROGRAM, "--", "compare"])
        .args(&options.arguments)
        .status()
        .map_err(|source| Error::Start {
            program: PROGRAM.to_owned(),
            source,
        })?;
    Ok(u8::from(!status.success()))
}
