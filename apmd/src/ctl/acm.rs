// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl acm`: the served ACM.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome, print};
use crate::observe::acm::{Acm as State, Counters};
use crate::observe::model::Show;

#[derive(Args)]
pub(super) struct Acm {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show endpoints, clients and counters; with -d, the destinations as well
    Show,
}

impl Acm {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        match self.verb {
            Some(Verb::Show) | None => show(options),
        }
    }
}

fn show(options: &Options) -> Result<Outcome, Failure> {
    let state: Option<State> = ask(options, Show::Acm)?;
    let Some(state) = state else {
        return Err(Failure::Failed(
            "acm is not served: set serve = true in [acm] and restart apmd".to_owned(),
        ));
    };
    if options.wants_json() {
        options.print_json(&state)?;
    } else {
        print(&text(&state, options.details))?;
    }
    Ok(Outcome::Ok)
}

fn text(state: &State, details: bool) -> String {
    let mut text = format!(
        "served at {}; kernel {}; {} clients, {} requests waiting, {} destinations\n",
        match state.served_at.as_slice() {
            [] => "-".to_owned(),
            files => files.join(", "),
        },
        if state.kernel { "heard" } else { "not heard" },
        state.clients,
        state.waiting,
        state.destinations.len(),
    );
    text += &counters(&state.counters);
    text += &endpoints(state);
    if details {
        text += &destinations(state);
    }
    text
}

fn counters(counters: &Counters) -> String {
    let Counters {
        resolve,
        kernel,
        error,
        no_data,
        addr_query,
        addr_cache,
        route_query,
        route_cache,
        rechecked,
        dropped,
    } = counters;
    format!(
        "requests {resolve} (kernel {kernel}): {route_cache} known, {addr_cache} addresses known, \
         {no_data} without data, {error} failed\n\
         asked: hosts {addr_query}, paths {route_query}; checked again {rechecked}, dropped {dropped}\n"
    )
}

fn endpoints(state: &State) -> String {
    let mut table = Table::new(&["ENDPOINT", "PKEY", "ADDRESSES"]);
    for endpoint in &state.endpoints {
        table.row(vec![
            format!("{}/{}", endpoint.device, endpoint.port),
            format!("0x{:04x}", endpoint.pkey),
            endpoint.addresses.join(" "),
        ]);
    }
    table.text()
}

fn destinations(state: &State) -> String {
    let mut table = Table::new(&[
        "DESTINATION",
        "KIND",
        "FROM",
        "STATE",
        "GID",
        "LID",
        "ORIGIN",
        "LEFT",
        "WAITING",
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for known in &state.destinations {
        table.row(vec![
            known.address.clone(),
            known.kind.clone(),
            known.from.clone(),
            known.state.clone(),
            or_dash(known.gid.clone()),
            or_dash(known.dlid.map(|lid| lid.to_string())),
            or_dash(known.origin.clone()),
            or_dash(known.seconds_left.map(|left| format!("{left:.0} s"))),
            known.waiting.to_string(),
        ]);
    }
    table.text()
}
