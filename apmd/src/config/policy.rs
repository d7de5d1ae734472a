// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[policy]`: when paths are used and left.

use super::check::Wrongs;
use super::millis;
use super::section::section;

section! {
    /// `[policy]`
    Policy {
        /// How long a port must stay up before paths over it are loaded.
        hold_off_ms: u64 = millis(statemachine::Config::default().port_hold_off),
        /// Migrate armed connections when their local port goes down, without waiting for the
        /// hardware's retries.
        migrate_on_port_down: bool = statemachine::Config::default().migrate_on_port_down,
    }
}

impl Policy {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.hold_off_ms, 0..=600_000, "hold_off_ms");
    }
}
