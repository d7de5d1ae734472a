// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl port`: the local ports.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome};
use crate::observe::model;
use crate::observe::request::Show;

#[derive(Args)]
pub(super) struct Port {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show ports
    Show {
        /// DEVICE or DEVICE/PORT
        #[arg(value_name = "PORT")]
        name: Option<String>,
    },
}

impl Port {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let mut ports: Vec<model::Port> = ask(options, Show::Port)?;
        if let Some(Verb::Show { name: Some(name) }) = self.verb {
            ports.retain(|port| port.device == name || label(port) == name);
            if ports.is_empty() {
                return Err(Failure::Failed(format!(
                    "{name}: not a device or port that apmd looks after (see `apmctl port`)"
                )));
            }
        }
        options.show(&ports, || table(&ports, options.details))?;
        Ok(Outcome::Ok)
    }
}

fn label(port: &model::Port) -> String {
    format!("{}/{}", port.device, port.port)
}

fn table(ports: &[model::Port], details: bool) -> String {
    if ports.is_empty() {
        return "no ports: apmd has no RDMA device (see `apmctl status`)".to_owned();
    }
    let mut heading = vec![
        "PORT",
        "STATE",
        "LID",
        "SM",
        "GID",
        "MTU",
        "PRIMARIES",
        "ALTERNATES",
        "INTERFACE",
    ];
    if details {
        heading.extend(["LMC", "APM", "MADS", "LINK", "PKEYS"]);
    }
    let mut table = Table::new(&heading);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for port in ports {
        let mut row = vec![
            label(port),
            port.state.clone(),
            port.link.lid.to_string(),
            port.link.sm_lid.to_string(),
            port.link.gid.clone(),
            port.link.mtu.to_string(),
            port.primaries.to_string(),
            port.alternates.to_string(),
            port.interface.clone().unwrap_or_else(|| "-".to_owned()),
        ];
        if details {
            let keys = port.link.pkeys.iter().map(|key| format!("0x{key:04x}"));
            row.extend([
                port.link.lmc.to_string(),
                yes(port.apm),
                yes(port.mads),
                port.link.link_layer.clone(),
                keys.collect::<Vec<_>>().join(","),
            ]);
        }
        table.row(row);
    }
    table.text()
}
