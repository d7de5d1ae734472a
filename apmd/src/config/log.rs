// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[log]`: the log.

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[log]`
    Log {
        /// A level, or a filter in the form of `RUST_LOG`, which overrides it.
        level: String = "info".to_owned(),
        /// One line of text or one JSON object an event. Takes effect at start.
        format: LogFormat = LogFormat::Text,
    }
}

/// The form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people and journals.
    Text,
    /// For machines.
    Json,
}

impl Log {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want(
            filter(&self.level).is_some(),
            "level",
            "want error, warn, info, debug, trace, or target=level,...",
        );
    }
}

/// The filter that a configuration's level means: a level, or `TARGET=LEVEL`, or several with commas
/// between them. Not an `EnvFilter`, whose regular expressions are a tenth of a daemon's memory; no
/// event here is told apart by its span.
pub(crate) fn filter(level: &str) -> Option<Targets> {
    // By itself, Targets takes a misspelt level for a target's name.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_known = |word: &str| match word.split_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(word),
    };
    let known = level.split(',').map(str::trim).all(is_known);
    known.then(|| level.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_and_targets() {
        let good = ["info", "debug,apmd::engine=trace", "apmd=off", "ERROR"];
        assert!(good.iter().all(|level| filter(level).is_some()));
        let bad = ["", "=", "=info", "inf", "info,debgu", "apmd=loud"];
        assert!(bad.iter().all(|level| filter(level).is_none()));
    }
}
