// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[policy]`: when paths are used and left.

use serde::{Deserialize, Serialize};

use super::check::Wrongs;
use super::millis;

/// `[policy]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Policy {
    /// How long a port must stay up before paths over it are loaded.
    pub(crate) hold_off_ms: u64,
    /// Migrate armed connections when their local port goes down, without waiting for the
    /// hardware's retries.
    pub(crate) migrate_on_port_down: bool,
}

impl Default for Policy {
    fn default() -> Self {
        let engine = statemachine::Config::default();
        Self {
            hold_off_ms: millis(engine.port_hold_off),
            migrate_on_port_down: engine.migrate_on_port_down,
        }
    }
}

impl Policy {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.hold_off_ms, 0..=600_000, "hold_off_ms");
    }
}
