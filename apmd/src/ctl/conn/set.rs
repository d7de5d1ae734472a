// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn set`: how a connection is to be protected.

use clap::Args;
use cm_msgs::control::PolicyWords;

use crate::ctl::ask::ask;
use crate::ctl::{Failure, Options, Outcome, print};
use crate::observe::change::Change;
use crate::observe::connections::ConnectionPage;
use crate::observe::filter::ConnectionFilter;
use crate::observe::model::Policy;

#[derive(Args)]
pub(super) struct Set {
    /// Its ID, such as 3.1
    #[arg(value_name = "CONN")]
    id: String,
    /// mode any|port|lid, failback stay|prefer PORT, spread on|off, hold-down SECONDS
    #[arg(value_name = "POLICY", required = true)]
    words: Vec<String>,
}

impl Set {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Self { id, words } = self;
        if !id.starts_with(|c: char| c.is_ascii_digit()) {
            let text = format!("\"{id}\" is no connection ID, such as 3.1");
            return Err(Failure::Usage(text));
        }
        PolicyWords::read(words.iter().map(String::as_str))
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let set = Change::Set {
            connections: ConnectionFilter {
                id: Some(id),
                ..ConnectionFilter::default()
            },
            policy: words.join(" "),
        };
        let page: ConnectionPage = ask(options, set)?;
        for warning in page
            .connections
            .iter()
            .flat_map(|conn| &conn.standing.warnings)
        {
            eprintln!("apmctl: warning: {warning}");
        }
        if options.wants_json() {
            options.print_json(&page.connections)?;
        } else {
            for conn in &page.connections {
                print(&format!(
                    "conn {}: {}",
                    conn.id,
                    self::words(&conn.standing.policy)
                ))?;
            }
        }
        Ok(Outcome::Ok)
    }
}

/// A policy, in the words that set it.
pub(super) fn words(policy: &Policy) -> String {
    let Policy {
        mode,
        failback,
        spread,
        hold_down_seconds,
        by_default,
    } = policy;
    format!(
        "mode {mode} failback {failback} spread {} hold-down {hold_down_seconds}{}",
        if *spread { "on" } else { "off" },
        if *by_default { " (by default)" } else { "" },
    )
}
