// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[policy]`: when paths are used and left.

use std::fmt;

use cm_msgs::control::{self, PolicyError};
use serde::{Deserialize, Serialize};
use statemachine::PortDown;

use super::check::Wrongs;
use super::millis;
use super::section::section;

section! {
    /// `[policy]`
    Policy {
        /// How long a port must stay up before paths over it are loaded.
        hold_off_ms: u64 = millis(statemachine::Config::default().port_hold_off),
        /// What is done for connections of which nothing else is said.
        default: Words = Words::default(),
    }
}

/// A policy in words: those of `apmctl conn set`, and what is the same for all of a host's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Words {
    /// What `apmctl conn set` may change.
    pub(crate) policy: control::Policy,
    /// What is done for armed connections whose local port goes down.
    pub(crate) port_down: PortDown,
}

impl Default for Words {
    fn default() -> Self {
        let statemachine::Config {
            policy, port_down, ..
        } = statemachine::Config::default();
        Self { policy, port_down }
    }
}

/// Why words are no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WordsError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("port-down: want migrate, order or wait, once")]
    PortDown,
}

/// The word before what is the same for all.
const PORT_DOWN: &str = "port-down";

impl TryFrom<String> for Words {
    type Error = WordsError;

    fn try_from(text: String) -> Result<Self, WordsError> {
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut port_down = PortDown::default();
        if let Some(at) = words.iter().position(|&word| word == PORT_DOWN) {
            let word = words.get(at + 1).and_then(|word| word.parse().ok());
            port_down = word.ok_or(WordsError::PortDown)?;
            words.drain(at..at + 2);
        }
        if words.contains(&PORT_DOWN) {
            return Err(WordsError::PortDown);
        }
        Ok(Self {
            policy: words.join(" ").parse()?,
            port_down,
        })
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {PORT_DOWN} {}", self.policy, self.port_down)
    }
}

impl From<Words> for String {
    fn from(words: Words) -> Self {
        words.to_string()
    }
}

impl Policy {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.hold_off_ms, 0..=600_000, "hold_off_ms");
    }
}
