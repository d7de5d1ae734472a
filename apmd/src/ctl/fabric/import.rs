// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric import`: from what a subnet manager knows to a snapshot.

use std::path::{Path, PathBuf};

use clap::Args;
use pathdb::addresses::Entry;
use pathdb::import::{self, Files, Links, Warnings};
use pathdb::{Addresses, Fabric, snapshot};
use serde::Serialize;

use super::live::Live;
use super::show::Numbers;
use super::{SNAPSHOT, addresses, failed};
use crate::ctl::terminal::Bar;
use crate::ctl::{Failure, Options, Outcome};

#[derive(Args)]
pub(super) struct Import {
    /// OpenSM's dump directory, or UFM's log directory: opensm-subnet.lst, opensm-lfts.dump, and guid2lid if it is there
    #[arg(
        value_name = "DIRECTORY",
        required_unless_present_any = ["live", "ibnetdiscover"],
        conflicts_with_all = ["live", "ibnetdiscover"]
    )]
    directory: Option<PathBuf>,
    /// What ibnetdiscover printed, with -p or without, in place of DIRECTORY
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    ibnetdiscover: Option<PathBuf>,
    /// Forwarding tables that are not in DIRECTORY: OpenSM's, or what dump_fts or dump_lfts.sh printed
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    tables: Option<PathBuf>,
    /// OpenSM's guid2lid, where it is not in DIRECTORY
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    guid2lid: Option<PathBuf>,
    #[command(flatten)]
    live: Live,
    /// The snapshot to write
    #[arg(short, long, value_name = "FILE", default_value = SNAPSHOT)]
    output: PathBuf,
    /// Addresses to look for in the fabric (ibacm_hosts.data, ibssa_hosts.data)
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
}

/// Warnings that are shown unless all are asked for.
const WARNINGS: usize = 10;

/// What was imported.
#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    numbers: Numbers,
    /// Addresses whose port the fabric has.
    addresses: usize,
    /// Those whose port it does not have.
    foreign: Vec<Foreign>,
    /// Lines that could not be taken as they are.
    warnings: u64,
    /// Of which cost something.
    losses: u64,
    /// The first hundred of them.
    lines: Vec<Line>,
}

/// A line that could not be taken as it is.
#[derive(Serialize)]
struct Line {
    file: String,
    /// Counted from 1; 0 is the file itself.
    line: usize,
    problem: String,
    lost: String,
    is_loss: bool,
}

#[derive(Serialize)]
struct Foreign {
    address: String,
    gid: String,
}

impl Import {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let hosts = addresses(self.hosts.as_deref())?;
        let (fabric, warnings) = match self.files() {
            None => (self.live.read()?, Warnings::default()),
            Some(files) => {
                let imported = read(&files)?;
                (imported.fabric, imported.warnings)
            }
        };
        let bytes = snapshot::save(&fabric, &self.output).map_err(failed)?;
        let imported = Imported::new(&self.output, bytes, &fabric, &hosts, &warnings);
        warn(&warnings, options.details);
        options.show(&imported, || imported.text(self.hosts.is_some()))?;
        Ok(Outcome::Ok)
    }

    /// The files to read, unless it is the live fabric.
    fn files(&self) -> Option<Files> {
        let mut files = match (&self.directory, &self.ibnetdiscover) {
            (Some(directory), _) => Files::in_dir(directory),
            (None, Some(links)) => Files {
                links: Links::IbNetDiscover(links.clone()),
                tables: None,
                guid2lid: None,
            },
            (None, None) => return None,
        };
        if self.tables.is_some() {
            files.tables.clone_from(&self.tables);
        }
        if self.guid2lid.is_some() {
            files.guid2lid.clone_from(&self.guid2lid);
        }
        Some(files)
    }
}

/// Reads files and says how far it is.
fn read(files: &Files) -> Result<import::Imported, Failure> {
    let bar = Bar::new();
    let read = files.read_with(&mut |path, done, all| {
        bar.show(&path.display().to_string(), done, all);
    });
    read.map_err(failed)
}

/// Says which lines could not be taken as they are: the first few, or with `-d` all that are kept.
fn warn(warnings: &Warnings, all: bool) {
    let shown = if all { usize::MAX } else { WARNINGS };
    for warning in warnings.kept().iter().take(shown) {
        eprintln!("apmctl: {warning}");
    }
    let hidden = warnings.count() - warnings.kept().len().min(shown) as u64;
    if hidden > 0 {
        eprintln!("apmctl: and {hidden} more lines like these");
    }
}

impl Imported {
    fn new(
        path: &Path,
        bytes: u64,
        fabric: &Fabric,
        hosts: &Addresses,
        warnings: &Warnings,
    ) -> Self {
        let is_here = |entry: &&Entry| fabric.port_by_guid(entry.gid.interface_id()).is_some();
        let foreign = hosts.iter().filter(|entry| !is_here(entry));
        Self {
            numbers: Numbers::new(path, bytes, fabric),
            addresses: hosts.iter().filter(is_here).count(),
            foreign: foreign
                .map(|entry| Foreign {
                    address: entry.address.to_string(),
                    gid: entry.gid.to_string(),
                })
                .collect(),
            warnings: warnings.count(),
            losses: warnings.losses(),
            lines: warnings.kept().iter().map(Line::new).collect(),
        }
    }

    fn text(&self, with_hosts: bool) -> String {
        let mut text = self.numbers.text();
        if with_hosts {
            text.push_str(&format!(
                "addresses     {} of ports of this fabric, {} of others\n",
                self.addresses,
                self.foreign.len()
            ));
        }
        if self.losses > 0 {
            let lines = match self.losses {
                1 => "1 line says".to_owned(),
                losses => format!("{losses} lines say"),
            };
            text.push_str(&format!("left out      what {lines}\n"));
        }
        for foreign in &self.foreign {
            let Foreign { address, gid } = foreign;
            text.push_str(&format!("not here      {address}: {gid}\n"));
        }
        text
    }
}

impl Line {
    fn new(warning: &import::Warning) -> Self {
        Self {
            file: warning.path.display().to_string(),
            line: warning.line,
            problem: warning.problem.to_string(),
            lost: warning.lost.to_string(),
            is_loss: warning.lost.is_loss(),
        }
    }
}
