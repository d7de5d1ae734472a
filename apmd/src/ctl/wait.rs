// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl wait`: until the connections are armed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use statemachine::view::Protection;

use super::ask::ask_within;
use super::which;
use super::{Failure, Options, Outcome, number};
use crate::observe::filter::ConnectionFilter;
use crate::observe::model::Status;
use crate::observe::request::Show;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct Wait {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum What {
    /// Until all connections are armed, or all that fit the filters
    Armed {
        /// Seconds to wait at most; exit status 4 after that
        #[arg(short, long, default_value_t = 30.0, value_name = "SECS")]
        timeout: f64,
        /// Connections there must be at least
        #[arg(short, long, default_value_t = 1, value_name = "N")]
        count: usize,
        /// An ID, or: qpn N, device NAME, pid N, command NAME, owner NAME (all must fit)
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
    },
}

impl Wait {
    /// A daemon that is not there yet is waited for, too.
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let What::Armed {
            timeout,
            count,
            filters,
        } = self.what;
        let filter = which::parse(&filters)?;
        if filter.state.is_some() {
            let text = "state: not allowed here: `wait armed` always waits for armed".to_owned();
            return Err(Failure::Usage(text));
        }
        let timeout = number::span(timeout)?;
        let start = Instant::now();
        loop {
            // A daemon that hangs is waited for as one that is not there, and no longer than that.
            let left = timeout
                .saturating_sub(start.elapsed())
                .clamp(PAUSE, options.answer_timeout.max(PAUSE));
            let looked = look(options, &filter, left);
            let sums = looked.as_ref().ok();
            if sums.is_some_and(|sums| sums.armed >= count && sums.armed == sums.total) {
                return Ok(Outcome::Ok);
            }
            if start.elapsed() >= timeout {
                let Some(sums) = sums else {
                    return looked.map(|_| Outcome::Degraded);
                };
                return Err(Failure::TimedOut(format!(
                    "{} of {} connections armed after {} s, want {}: `apmctl conn` says why",
                    sums.armed,
                    sums.total,
                    timeout.as_secs_f64(),
                    count.max(sums.total)
                )));
            }
            sleep(PAUSE);
        }
    }
}

/// Connections that are waited for.
struct Sums {
    armed: usize,
    total: usize,
}

fn look(options: &Options, filter: &ConnectionFilter, left: Duration) -> Result<Sums, Failure> {
    if filter.is_any() {
        let Status { connections, .. } = ask_within(options, Show::Status, left)?;
        return Ok(Sums {
            armed: connections.armed,
            total: connections.total,
        });
    }
    let conns = which::all(options, filter.clone(), left)?;
    let armed = Protection::Armed.to_string();
    let armed = conns
        .iter()
        .filter(|conn| conn.standing.protection == armed);
    Ok(Sums {
        armed: armed.count(),
        total: conns.len(),
    })
}
