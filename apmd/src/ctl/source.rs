// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl source`: where paths come from.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::status::duration;
use super::table::{self, Column, or_dash};
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
    let mut columns: Vec<Column<model::Source>> = vec![
        ("SOURCE", |source| source.source.clone()),
        ("STATE", state),
        ("ANSWERED", |source| source.counts.answered.to_string()),
        ("NO PATH", |source| source.counts.no_path.to_string()),
        ("TIMED OUT", |source| source.counts.timed_out.to_string()),
        ("FAILED", |source| source.counts.failed.to_string()),
        ("LATENCY", |source| {
            let latency = source.health.last_latency_ms;
            or_dash(latency.map(|ms| format!("{ms:.1} ms")))
        }),
        ("LAST ANSWER", |source| {
            let age = source.health.last_answer_seconds;
            or_dash(age.map(|seconds| format!("{} ago", duration(seconds as u64))))
        }),
    ];
    if details {
        columns.extend::<[Column<model::Source>; 6]>([
            ("IN FLIGHT", |source| {
                let (now, most) = (source.load.in_flight, source.load.in_flight_limit);
                // Who has windows has a limit for each port.
                match source.load.windows.is_empty() {
                    true => format!("{now} of {most}"),
                    false => format!("{now}, {most} a port at most"),
                }
            }),
            ("WINDOWS", |source| {
                let windows = source.load.windows.iter().map(window);
                or_dash(Some(windows.collect::<Vec<_>>().join(", ")))
            }),
            ("WAITING", |source| source.load.waiting.to_string()),
            ("TIMEOUT", |source| format!("{} ms", source.load.timeout_ms)),
            ("FAILING PORTS", |source| {
                or_dash(Some(source.health.failing_ports.join(",")))
            }),
            ("DETAIL", |source| or_dash(source.detail.clone())),
        ]);
    }
    columns.push(("LAST ERROR", |source| {
        or_dash(source.health.last_error.clone())
    }));
    table::table(sources, &columns)
}

/// How many requests may be on their way by a port, and whether it has been fewer.
fn window(window: &model::Window) -> String {
    let model::Window {
        port,
        size,
        reductions,
        ..
    } = window;
    match reductions {
        0 => format!("{port}: {size}"),
        1 => format!("{port}: {size} (reduced once)"),
        times => format!("{port}: {size} (reduced {times} times)"),
    }
}

fn state(source: &model::Source) -> String {
    match source.health.failing_seconds {
        Some(seconds) => format!("{} for {seconds:.0} s", source.state),
        None => source.state.to_string(),
    }
}
