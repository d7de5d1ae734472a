// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl path`: every path between two hosts, and what each shares with the primary.

mod judged;
mod text;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pathdb::{Addresses, Fabric, Place};

use super::fabric::{Source, addresses};
use super::{Failure, Options, Outcome};
use judged::Judged;

#[derive(Args)]
pub(super) struct Path {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show the paths between two hosts
    Show(Show),
}

#[derive(Args)]
struct Show {
    /// A host or port: node description (or its first word), with /PORT; IP address or name of
    /// --hosts; GID, GUID, or LID
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Another
    #[arg(value_name = "DESTINATION")]
    destination: String,
    #[command(flatten)]
    from: Source,
    /// Addresses of ports (ibacm_hosts.data, ibssa_hosts.data)
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
}

impl Path {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Verb::Show(show) = self.verb;
        let fabric = show.from.load()?;
        let hosts = addresses(show.hosts.as_deref())?;
        if !fabric.has_routes() {
            let path = show.from.fabric.display();
            return Err(Failure::Failed(format!(
                "{path} has no forwarding tables, so no path is known: import it again with --tables FILE"
            )));
        }
        let source = place(&fabric, &show.source, &hosts)?;
        let destination = place(&fabric, &show.destination, &hosts)?;
        if source.ports == destination.ports {
            return Err(Failure::Failed(format!(
                "{} and {} are one host",
                show.source, show.destination
            )));
        }
        let judged = Judged::new(&fabric, &source, &destination).map_err(|fault| {
            let (source, destination) = (&show.source, &show.destination);
            Failure::Failed(format!("no path from {source} to {destination}: {fault}"))
        })?;
        options.show(&judged, || text::text(&judged, options.details))?;
        Ok(Outcome::Ok)
    }
}

fn place(fabric: &Fabric, text: &str, hosts: &Addresses) -> Result<Place, Failure> {
    let place = fabric.locate(text, hosts);
    place.map_err(|error| Failure::Failed(error.to_string()))
}
