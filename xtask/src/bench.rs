// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measurements, each a benchmark of the crate that it measures.

use std::process::Command;

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::{packages, workspace};

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Subject {
    /// Path records, alternates and changes on generated fat trees of up to 40,960 end ports
    Pathdb,
}

impl Subject {
    /// The benchmark and its crate have one name.
    const fn name(self) -> &'static str {
        match self {
            Self::Pathdb => "pathdb",
        }
    }
}

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// What to measure, one after the other
    #[arg(value_name = "NAME", required = true)]
    subjects: Vec<Subject>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// `cargo xtask bench`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    for subject in &options.subjects {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let name = subject.name();
        let mut command = Command::new(program);
        command
            .current_dir(workspace::root())
            .args(["bench", "--quiet", "--package", name, "--bench", name, "--"])
            .args(options.json.then_some("--json"));
        let status = command.status().map_err(|source| Error::Start {
            program: "cargo".to_owned(),
            source,
        })?;
        if !status.success() {
            return Err(Error::Failed {
                what: format!("bench {name}"),
                status: status.to_string(),
                output: String::new(),
            });
        }
    }
    Ok(0)
}
