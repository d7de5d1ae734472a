// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl source`: where paths come from.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome};
use crate::observe::model;
use crate::observe::request::Show;

#[derive(Args)]
pub(super) struct Source {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show the path sources, in the order in which they are asked
    Show {
        /// sa, acm, ssa or static
        #[arg(value_name = "SOURCE")]
        name: Option<String>,
    },
}

impl Source {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let mut sources: Vec<model::Source> = ask(options, Show::Source)?;
        if let Some(Verb::Show { name: Some(name) }) = self.verb {
            sources.retain(|source| source.source == name);
            if sources.is_empty() {
                return Err(Failure::Failed(format!(
                    "{name}: not among the path sources (see `apmctl source`, and [source] in apmd.toml)"
                )));
            }
        }
        options.show(&sources, || table(&sources, options.details))?;
        Ok(Outcome::Ok)
    }
}

fn table(sources: &[model::Source], details: bool) -> String {
    let mut heading = vec![
        "SOURCE",
        "STATE",
        "ANSWERED",
        "NO PATH",
        "TIMED OUT",
        "FAILED",
        "LATENCY",
    ];
    if details {
        heading.extend(["IN FLIGHT", "WAITING", "TIMEOUT", "FAILING PORTS", "DETAIL"]);
    }
    heading.push("LAST ERROR");
    let mut table = Table::new(&heading);
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("-".into());
    for source in sources {
        let latency = source
            .health
            .last_latency_ms
            .map(|ms| format!("{ms:.1} ms"));
        let mut row = vec![
            source.source.clone(),
            state(source),
            source.counts.answered.to_string(),
            source.counts.no_path.to_string(),
            source.counts.timed_out.to_string(),
            source.counts.failed.to_string(),
            or_dash(latency),
        ];
        if details {
            row.extend([
                format!(
                    "{} of {}",
                    source.load.in_flight, source.load.in_flight_limit
                ),
                source.load.waiting.to_string(),
                format!("{} ms", source.load.timeout_ms),
                or_dash(Some(source.health.failing_ports.join(","))),
                or_dash(source.detail.clone()),
            ]);
        }
        row.push(or_dash(source.health.last_error.clone()));
        table.row(row);
    }
    table.text()
}

fn state(source: &model::Source) -> String {
    match source.health.failing_seconds {
        Some(seconds) => format!("{} for {seconds:.0} s", source.state),
        None => source.state.to_string(),
    }
}
