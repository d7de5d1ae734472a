// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[log]`: the log.

use serde::{Deserialize, Serialize};

use super::{Check, want};

/// `[log]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A level, or a filter in the form of `RUST_LOG`, which overrides it.
    pub level: String,
    /// One line of text or one JSON object an event. Takes effect at start.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people and journals.
    Text,
    /// For machines.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

impl Log {
    pub(super) fn check(&self) -> Check {
        want(
            crate::logging::filter(&self.level).is_ok(),
            "level",
            "want error, warn, info, debug, trace, or target=level,...",
        )
    }
}
