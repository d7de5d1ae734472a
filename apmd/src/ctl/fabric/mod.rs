// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric`: the fabric as data, read and judged without the daemon.

mod check;
mod diff;
mod finding;
mod import;
mod live;
mod show;
mod without;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pathdb::{Addresses, Element, RiskFile, snapshot};

use super::{Failure, Options, Outcome};

/// Where the snapshot of the fabric is unless the command line says otherwise.
const SNAPSHOT: &str = "/var/lib/apmd/fabric";

/// Pairs of hosts that are looked at unless the command line says otherwise: some seconds' work.
const PAIRS: u64 = 1_000_000;

#[derive(Args)]
pub(super) struct Fabric {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show what is in it
    Show(show::Show),
    /// Read OpenSM's files, or subnet administration, into a snapshot
    Import(import::Import),
    /// Look for loops, dead ends, and hosts whose paths meet
    Check(check::Check),
    /// What differs between two snapshots
    Diff(diff::Diff),
}

impl Fabric {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        match self.verb {
            Some(Verb::Show(show)) => show.run(options),
            Some(Verb::Import(import)) => import.run(options),
            Some(Verb::Check(check)) => check.run(options),
            Some(Verb::Diff(diff)) => diff.run(options),
            None => show::Show::default().run(options),
        }
    }
}

/// Which fabric, and what is known beside it.
#[derive(Args)]
pub(super) struct Source {
    /// The snapshot of the fabric
    #[arg(long, value_name = "FILE", default_value = SNAPSHOT)]
    pub(in crate::ctl) fabric: PathBuf,
    /// Switches and links that fail together
    #[arg(long, value_name = "FILE")]
    risks: Option<PathBuf>,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            fabric: SNAPSHOT.into(),
            risks: None,
        }
    }
}

impl Source {
    /// The fabric with its shared-risk groups. A group's member that the fabric does not have is
    /// an error: a misspelt name would hide what fails together.
    pub(super) fn load(&self) -> Result<pathdb::Fabric, Failure> {
        let mut fabric = load(&self.fabric)?;
        if let Some(path) = &self.risks {
            let (risks, missing) = RiskFile::read(path).map_err(failed)?.bind(&fabric);
            if let Some(missing) = missing.into_iter().next() {
                return Err(failed(missing));
            }
            fabric.set_risks(risks);
        }
        Ok(fabric)
    }
}

/// Reads a snapshot.
fn load(path: &Path) -> Result<pathdb::Fabric, Failure> {
    snapshot::load(path).map_err(|error| match error {
        snapshot::FileError::Io { ref source, .. } => match source.kind() {
            ErrorKind::NotFound => Failure::Failed(format!(
                "{error}; make one with: apmctl fabric import DIRECTORY -o FILE"
            )),
            ErrorKind::PermissionDenied => Failure::Failed(format!(
                "{error}; it needs read permission on the file, and search permission on its directories"
            )),
            _ => failed(error),
        },
        error => failed(error),
    })
}

/// Reads a file of addresses, if one was named.
pub(super) fn addresses(path: Option<&Path>) -> Result<Addresses, Failure> {
    path.map_or_else(
        || Ok(Addresses::default()),
        |path| Addresses::read(path).map_err(failed),
    )
}

/// What something shared is, in JSON.
pub(super) fn kind(element: Element) -> &'static str {
    match element {
        Element::Switch(_) => "switch",
        Element::Group(_) => "group",
        Element::Link(_) => "link",
    }
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::Failed(error.to_string())
}
