// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn migrate` and `conn rearm`: an order to connections, and what came of it.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use statemachine::view::Protection;

use super::ask::ask;
use super::which::{self, Filters, brief};
use super::{Failure, Options, Outcome, number};
use crate::observe::change::{Change, Ordered, OrderedPage, WITHIN_MAX_MS};
use crate::observe::connections::no_such_connection;
use crate::observe::filter::ConnectionFilter;
use crate::observe::model;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct Order {
    /// Seconds to wait at most; exit status 4 after that
    #[arg(short, long, default_value_t = 10.0, value_name = "SECS")]
    timeout: f64,
    #[command(flatten)]
    filters: Filters,
}

/// What is ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Migrate,
    Rearm,
}

/// What came of an order to one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Done,
    /// It cannot be done.
    Refused,
    /// It was not done in time.
    TimedOut,
}

#[derive(Serialize)]
struct Told {
    id: String,
    outcome: End,
    text: String,
}

impl Order {
    pub(super) fn run(self, options: &Options, verb: Verb) -> Result<Outcome, Failure> {
        let filter = self.filters.parse()?;
        if filter.is_any() {
            let text =
                "no filter: name an ID, pid N, command NAME, ... (see `apmctl conn`)".to_owned();
            return Err(Failure::Usage(text));
        }
        let timeout = seconds(self.timeout)?;
        let start = Instant::now();
        let ordered = order(options, verb, &filter, timeout)?;
        if ordered.is_empty() {
            let text = format!("no connection fits: {}", self.filters.words());
            return Err(Failure::Failed(text));
        }
        // What the state was is no name for a connection any more.
        let filter = ConnectionFilter {
            state: None,
            ..filter
        };
        let told = loop {
            let now = still_there(options, &filter)?;
            let now: BTreeMap<_, _> = now.iter().map(|conn| (conn.id.as_str(), conn)).collect();
            let over = start.elapsed() >= timeout;
            let look = |order: &Ordered| look(verb, order, now.get(order.id.as_str()).copied());
            let looked: Vec<_> = ordered.iter().map(look).collect();
            if over || looked.iter().all(|(end, _)| *end != End::TimedOut) {
                let told = ordered.into_iter().zip(looked);
                break told
                    .map(|(Ordered { id, .. }, (outcome, text))| Told { id, outcome, text })
                    .collect::<Vec<_>>();
            }
            sleep(PAUSE);
        };
        options.show(&told, || lines(&told))?;
        outcome(&told, verb)
    }
}

/// A span of time for what the daemon is ordered to do, which is an hour's work at most.
pub(super) fn seconds(seconds: f64) -> Result<Duration, Failure> {
    let span = number::span(seconds)?;
    if span > Duration::from_millis(WITHIN_MAX_MS.into()) {
        let text = format!("timeout {seconds}: an hour at most");
        return Err(Failure::Usage(text));
    }
    Ok(span)
}

/// Those that fit, as they are now. A connection that is named and has ended is not there any more;
/// whatever else the daemon refuses says nothing of any connection.
fn still_there(options: &Options, filter: &ConnectionFilter) -> Result<Vec<model::Conn>, Failure> {
    let ended = filter.id.as_deref().map(no_such_connection);
    match which::all(options, filter.clone(), options.answer_timeout) {
        Err(Failure::Failed(error)) if ended.is_some_and(|ended| ended.error == error) => {
            Ok(Vec::new())
        }
        found => found,
    }
}

/// Orders it of all that fit, a page at a time.
fn order(
    options: &Options,
    verb: Verb,
    filter: &ConnectionFilter,
    timeout: Duration,
) -> Result<Vec<Ordered>, Failure> {
    let mut connections = filter.clone();
    let mut all = Vec::new();
    loop {
        let connections_now = connections.clone();
        let change = match verb {
            Verb::Migrate => Change::Migrate {
                connections: connections_now,
                within_ms: u32::try_from(timeout.as_millis()).unwrap_or(WITHIN_MAX_MS),
            },
            Verb::Rearm => Change::Rearm {
                connections: connections_now,
            },
        };
        let page: OrderedPage = ask(options, change)?;
        all.extend(page.ordered);
        match page.next {
            Some(next) => connections.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// What has become of an order so far.
fn look(verb: Verb, order: &Ordered, conn: Option<&model::Conn>) -> (End, String) {
    if let Some(refused) = &order.refused {
        return (End::Refused, refused.clone());
    }
    let Some(conn) = conn else {
        return (End::Refused, "closed meanwhile".to_owned());
    };
    match verb {
        Verb::Migrate => migrated(order, conn),
        Verb::Rearm => rearmed(conn),
    }
}

fn migrated(order: &Ordered, conn: &model::Conn) -> (End, String) {
    if conn.counters.migrations > order.migrations {
        let (from, to) = (brief(&order.primary), brief(&conn.primary));
        return (End::Done, format!("migrated: {from} -> {to}"));
    }
    match &conn.standing.held {
        Some(_) => (End::TimedOut, which::why_held(conn)),
        None => (End::Refused, format!("given up: {}", which::why_held(conn))),
    }
}

fn rearmed(conn: &model::Conn) -> (End, String) {
    let standing = &conn.standing;
    if standing.protection == Protection::Armed.to_string() {
        let alternate = conn.alternate.as_ref();
        let path = alternate.map_or_else(String::new, |alternate| brief(&alternate.path));
        return (End::Done, format!("armed, alternate {path}"));
    }
    let reason = standing.reason.as_deref().unwrap_or_default();
    (End::TimedOut, format!("{}: {reason}", standing.protection))
}

fn lines(told: &[Told]) -> String {
    let line = |told: &Told| format!("conn {}: {}", told.id, told.text);
    told.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn outcome(told: &[Told], verb: Verb) -> Result<Outcome, Failure> {
    let count = |end| told.iter().filter(|told| told.outcome == end).count();
    let (refused, late) = (count(End::Refused), count(End::TimedOut));
    let what = match verb {
        Verb::Migrate => "migrated",
        Verb::Rearm => "armed",
    };
    if refused > 0 {
        let text = format!("{refused} of {} connections not {what}", told.len());
        return Err(Failure::Failed(text));
    }
    if late > 0 {
        let text = format!("{late} of {} connections not {what} in time", told.len());
        return Err(Failure::TimedOut(text));
    }
    Ok(Outcome::Ok)
}
