// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measurements, each a benchmark of a crate.

use std::process::Command;

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::{packages, workspace};

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Subject {
    /// Path records, alternates and changes on generated fat trees of up to 40,960 end ports
    Pathdb,
    /// Path records a second of OpenSM's SA against pathdb's, on simulated fabrics of 1,024 and 4,096
    /// hosts, and every answer compared
    Sa,
}

impl Subject {
    /// The benchmark.
    const fn name(self) -> &'static str {
        match self {
            Self::Pathdb => "pathdb",
            Self::Sa => "sa",
        }
    }

    /// The crate that has it.
    const fn package(self) -> &'static str {
        match self {
            Self::Pathdb => "pathdb",
            Self::Sa => "testbed",
        }
    }

    /// What it runs on.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Pathdb => &[],
            Self::Sa => packages::FABRICS,
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
        packages::install(subject.packages())?;
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let name = subject.name();
        let mut command = Command::new(program);
        command
            .current_dir(workspace::root())
            .args(["bench", "--quiet", "--package", subject.package()])
            .args(["--bench", name, "--"])
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
