// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log: tracing events as lines on stderr, filtered by level.

use statemachine::Time;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat, log};
use crate::journal::{self, Prioritized};
use crate::log_limit::LogLimit;

/// Changes the level of a log that runs.
pub(crate) struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    limit: LogLimit,
}

/// `RUST_LOG` if it is set and good, else the configuration's level.
fn effective(config: &Log) -> Targets {
    let asked = std::env::var("RUST_LOG").ok();
    let asked = asked.and_then(|level| log::filter(&level));
    asked
        .or_else(|| log::filter(&config.level))
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

/// Starts the log. Where it goes to the journal, this adds the time and wants the priority.
pub(crate) fn start(config: &Log) -> LogHandle {
    let (filter, handle) = reload::Layer::new(effective(config));
    let limit = LogLimit::new();
    let registry = tracing_subscriber::registry().with(filter);
    let registry = registry.with(limit.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    match (config.format, journal::is_stderr()) {
        (LogFormat::Json, false) => registry.with(lines.json()).init(),
        (LogFormat::Json, true) => {
            let format = format().json().without_time();
            let lines = lines.fmt_fields(JsonFields::new());
            registry
                .with(lines.event_format(Prioritized(format)))
                .init();
        }
        (LogFormat::Text, true) => {
            let format = format().without_time().with_target(false);
            registry
                .with(lines.event_format(Prioritized(format)))
                .init();
        }
        (LogFormat::Text, false) => registry.with(lines.with_target(false)).init(),
    }
    LogHandle {
        filter: handle,
        limit,
    }
}

impl LogHandle {
    /// Takes over a new level.
    pub(crate) fn reload(&self, config: &Log) {
        if let Err(error) = self.filter.reload(effective(config)) {
            tracing::warn!(%error, "log level not changed");
        }
    }

    /// When lines that were left out are to be counted in the log.
    pub(crate) fn poll_timeout(&self, now: Time) -> Option<Time> {
        self.limit.due_in().map(|delay| now + delay)
    }

    /// Counts them, if it is time to.
    pub(crate) fn handle_time(&self) {
        self.limit.log_left_out();
    }
}
