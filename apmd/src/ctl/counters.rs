// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl counters`: what happened since the daemon's start.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome};
use crate::observe::model;
use crate::observe::request::Show;

#[derive(Args)]
pub(super) struct Counters {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show them (the default)
    Show,
}

impl Counters {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let (Some(Verb::Show) | None) = self.verb;
        let counters: model::Counters = ask(options, Show::Counters)?;
        let text = text(&counters)?;
        options.show(&counters, || text)?;
        Ok(Outcome::Ok)
    }
}

fn text(counters: &model::Counters) -> Result<String, Failure> {
    let value = serde_json::to_value(counters);
    let value = value.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut table = Table::new(&["OF", "COUNTER", "COUNT"]);
    for (of, counters) in value.as_object().into_iter().flatten() {
        for (name, count) in counters.as_object().into_iter().flatten() {
            table.row([of.clone(), name.clone(), count.to_string()]);
        }
    }
    Ok(table.text())
}
