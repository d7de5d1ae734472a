// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[policy]`: what to do by itself.

use serde::{Deserialize, Serialize};

/// `[policy]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Migrate armed connections when their local port goes down, without waiting for the
    /// hardware's retries.
    pub migrate_on_port_down: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            migrate_on_port_down: statemachine::Config::default().migrate_on_port_down,
        }
    }
}
