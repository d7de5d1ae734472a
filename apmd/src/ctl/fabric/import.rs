// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric import`: from what a subnet manager knows to a snapshot.

use std::path::{Path, PathBuf};

use clap::Args;
use pathdb::addresses::Entry;
use pathdb::opensm::Files;
use pathdb::{Addresses, Fabric, snapshot};
use serde::Serialize;

use super::live::Live;
use super::show::Numbers;
use super::{SNAPSHOT, addresses, failed};
use crate::ctl::terminal::Bar;
use crate::ctl::{Failure, Options, Outcome};

#[derive(Args)]
pub(super) struct Import {
    /// OpenSM's dump directory: opensm-subnet.lst, opensm-lfts.dump, and guid2lid
    #[arg(
        value_name = "DIRECTORY",
        required_unless_present = "live",
        conflicts_with = "live"
    )]
    directory: Option<PathBuf>,
    /// OpenSM's guid2lid, where it is not in DIRECTORY
    #[arg(long, value_name = "FILE")]
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

/// What was imported.
#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    numbers: Numbers,
    /// Addresses whose port the fabric has.
    addresses: usize,
    /// Those whose port it does not have.
    foreign: Vec<Foreign>,
}

#[derive(Serialize)]
struct Foreign {
    address: String,
    gid: String,
}

impl Import {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let hosts = addresses(self.hosts.as_deref())?;
        let fabric = match &self.directory {
            None => self.live.read()?,
            Some(directory) => {
                let mut files = Files::in_dir(directory);
                if let Some(guid2lid) = &self.guid2lid {
                    files.guid2lid.clone_from(guid2lid);
                }
                read(&files)?
            }
        };
        let bytes = snapshot::save(&fabric, &self.output).map_err(failed)?;
        let imported = Imported::new(&self.output, bytes, &fabric, &hosts);
        options.show(&imported, || imported.text(self.hosts.is_some()))?;
        Ok(Outcome::Ok)
    }
}

/// Reads OpenSM's files and says how far it is.
fn read(files: &Files) -> Result<Fabric, Failure> {
    let bar = Bar::new();
    let read = files.read_with(&mut |path, done, all| {
        bar.show(&path.display().to_string(), done, all);
    });
    read.map_err(failed)
}

impl Imported {
    fn new(path: &Path, bytes: u64, fabric: &Fabric, hosts: &Addresses) -> Self {
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
        for foreign in &self.foreign {
            let Foreign { address, gid } = foreign;
            text.push_str(&format!("not here      {address}: {gid}\n"));
        }
        text
    }
}
