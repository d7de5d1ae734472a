// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log: tracing events as lines on stderr, filtered by level.

use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// Changes the level of a log that runs.
pub struct LogHandle(reload::Handle<EnvFilter, Registry>);

/// The filter that a configuration's level means.
///
/// # Errors
/// The text is no filter.
pub fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(level)
}

/// `RUST_LOG` if it is set and good, else the configuration's level.
fn effective(config: &Log) -> EnvFilter {
    EnvFilter::try_from_default_env()
        .or_else(|_| filter(&config.level))
        .unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Starts the log. Under systemd the journal adds the time.
pub fn start(config: &Log) -> LogHandle {
    let (filter, handle) = reload::Layer::new(effective(config));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    match (config.format, journal) {
        (LogFormat::Json, _) => registry.with(lines.json()).init(),
        (LogFormat::Text, true) => registry
            .with(lines.without_time().with_target(false))
            .init(),
        (LogFormat::Text, false) => registry.with(lines.with_target(false)).init(),
    }
    LogHandle(handle)
}

impl LogHandle {
    /// Takes over a new level.
    pub fn reload(&self, config: &Log) {
        if let Err(error) = self.0.reload(effective(config)) {
            tracing::warn!(%error, "log level not changed");
        }
    }
}
