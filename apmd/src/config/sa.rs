// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[sa]`: questions to subnet administration.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Check, want_within};
use crate::sa::Limits;

/// The longest wait for one copy of a question.
const TIMEOUT_MAX_MS: u32 = 10_000;

/// `[sa]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sa {
    /// Requests under way at the same time.
    pub in_flight: usize,
    /// Wait for the answer to the first copy of a path query; doubles with every further copy.
    pub timeout_ms: u32,
    /// Copies of a path query before it is given up.
    pub tries: u8,
    /// When to ask for all paths between two ports (SubnAdmGetTable) and not for one.
    pub all_paths: AllPaths,
}

/// When to ask for all paths between two ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllPaths {
    /// Where the local port has several LIDs (LMC) and the question leaves them open.
    Lmc,
    /// Wherever the question leaves LIDs open.
    Always,
    /// Nowhere.
    Never,
}

impl Default for Sa {
    fn default() -> Self {
        Self {
            in_flight: 32,
            timeout_ms: 200,
            tries: 5,
            all_paths: AllPaths::Lmc,
        }
    }
}

impl Sa {
    /// The limits of the SA client.
    pub fn limits(&self) -> Limits {
        Limits {
            in_flight: self.in_flight,
        }
    }

    pub(super) fn check(&self) -> Check {
        want_within(self.in_flight, 1..=1024, "in_flight")?;
        want_within(self.timeout_ms, 1..=TIMEOUT_MAX_MS, "timeout_ms")?;
        want_within(self.tries, 1..=15, "tries")
    }

    /// The longest wait for the answer to copy number `copy` (from 0) of a question, milliseconds.
    pub fn wait_ms(&self, copy: u8) -> u32 {
        let doubled = u64::from(self.timeout_ms) << copy.min(32);
        u32::try_from(doubled).map_or(TIMEOUT_MAX_MS, |ms| ms.min(TIMEOUT_MAX_MS))
    }

    /// How long a question may take with all its copies, and a pause before each that a busy SA
    /// asks for.
    pub fn longest(&self) -> Duration {
        let waits = (0..self.tries).map(|copy| u64::from(self.wait_ms(copy)));
        Duration::from_millis(waits.sum::<u64>() * 2)
    }
}
