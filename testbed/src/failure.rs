// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a drill fails.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Why a drill fails: one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Failure {
    /// Something did not happen.
    #[error("not within {} s: {what}; last seen: {seen}", limit.as_secs())]
    Timeout {
        /// What should have happened.
        what: String,
        /// How long it was waited for.
        limit: Duration,
        /// What was seen instead.
        seen: String,
    },
    /// A command could not be run.
    #[error("{command}: {source}")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A command failed.
    #[error("{command}: {status}: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The last line of its complaint.
        stderr: String,
    },
    /// A file of the drill's own could not be written or read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// Output that is not as documented.
    #[error("{source_name}: {problem}")]
    Output {
        /// Whose output.
        source_name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What the drill is there to show is not so.
    #[error("{0}")]
    NotShown(String),
}

impl Failure {
    /// What the drill is there to show is not so.
    pub fn not_shown(why: impl Into<String>) -> Self {
        Self::NotShown(why.into())
    }
}

/// Fails a drill unless `holds`.
///
/// # Errors
/// [`Failure::NotShown`] with `why` otherwise.
pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(Failure::not_shown(why()))
    }
}
