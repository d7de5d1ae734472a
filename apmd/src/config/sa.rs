// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[sa]`: questions to subnet administration.

use serde::{Deserialize, Serialize};

use super::{Check, want};

/// `[sa]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sa {
    /// Path queries under way at the same time.
    pub in_flight: usize,
    /// Wait for the answer to the first copy of a query; doubles with every further copy.
    pub timeout_ms: u32,
    /// Copies of a query before it is given up.
    pub tries: u8,
}

impl Default for Sa {
    fn default() -> Self {
        Self {
            in_flight: 32,
            timeout_ms: 200,
            tries: 5,
        }
    }
}

impl Sa {
    pub(super) fn check(&self) -> Check {
        want(self.in_flight > 0, "in_flight", "want at least 1")?;
        want(self.timeout_ms > 0, "timeout_ms", "want at least 1")?;
        want(self.tries > 0, "tries", "want at least 1")
    }
}
