// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl port`: the local ports.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::{self, Column, or_dash};
use super::{Failure, Options, Outcome, drain};
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
    /// Have connections leave a port, before its maintenance; until apmd ends or `undrain`
    Drain(drain::Drain),
    /// Use a drained port again
    Undrain(drain::Undrain),
}

impl Port {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let name = match self.verb {
            Some(Verb::Drain(drain)) => return drain.run(options),
            Some(Verb::Undrain(undrain)) => return undrain.run(options),
            Some(Verb::Show { name }) => name,
            None => None,
        };
        let mut ports: Vec<model::Port> = ask(options, Show::Port)?;
        let status: model::Status = ask(options, Show::Status)?;
        let mut ignored = status.ignored;
        if let Some(name) = name {
            ports.retain(|port| port.device == name || port.label() == name);
            ignored.retain(|ignored| ignored.device == name);
            if ports.is_empty() && ignored.is_empty() {
                return Err(Failure::Failed(format!(
                    "{name}: not a device or port that apmd manages (see `apmctl port`)"
                )));
            }
        }
        options.show(&ports, || text(&ports, &ignored, options.details))?;
        Ok(Outcome::Ok)
    }
}

/// A table of the ports, and a line for each device without any that could be used.
fn text(ports: &[model::Port], ignored: &[model::IgnoredDevice], details: bool) -> String {
    let mut text = match ports.is_empty() && !ignored.is_empty() {
        true => String::new(),
        false => table(ports, details),
    };
    for model::IgnoredDevice { device, reason } in ignored {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("{device} is ignored: {reason}\n"));
    }
    text
}

fn table(ports: &[model::Port], details: bool) -> String {
    if ports.is_empty() {
        return "no ports: apmd has no RDMA device (see `apmctl status`)".to_owned();
    }
    let mut columns: Vec<Column<model::Port>> = vec![
        ("PORT", model::Port::label),
        ("STATE", |port| match port.drained {
            true => format!("{}, drained", port.state),
            false => port.state.clone(),
        }),
        ("LID", |port| port.link.lid.to_string()),
        ("SM", |port| port.link.sm_lid.to_string()),
        ("GID", |port| port.link.gid.clone()),
        ("MTU", |port| port.link.mtu.to_string()),
        ("PRIMARIES", |port| port.primaries.to_string()),
        ("ALTERNATES", |port| port.alternates.to_string()),
        ("INTERFACE", |port| or_dash(port.interface.clone())),
    ];
    if details {
        columns.extend::<[Column<model::Port>; 6]>([
            ("LMC", |port| port.link.lmc.to_string()),
            ("APM", |port| yes(port.apm)),
            ("IDLE", |port| yes(port.moves_idle)),
            ("MADS", |port| yes(port.mads)),
            ("LINK", |port| port.link.link_layer.clone()),
            ("PKEYS", |port| {
                let keys = port.link.pkeys.iter().map(|key| format!("0x{key:04x}"));
                keys.collect::<Vec<_>>().join(",")
            }),
        ]);
    }
    table::table(ports, &columns)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
