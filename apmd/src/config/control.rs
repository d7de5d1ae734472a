// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[control]`: the sockets.

use super::check::Wrongs;
use super::section::section;

/// Stands for all groups.
pub(super) const EVERYBODY: &str = "*";

section! {
    /// `[control]`
    Control {
        /// Group that may use the sockets, or [`EVERYBODY`]; the default one need not exist. The daemon has to
        /// be in it, unless it is root. Takes effect at start.
        group: String = "rdma".to_owned(),
        /// Connections managed at the same time.
        max_connections: usize = statemachine::Config::default().connection_limit,
    }
}

impl Control {
    /// Access mode of the sockets.
    pub(crate) fn mode(&self) -> u32 {
        match self.group.as_str() {
            EVERYBODY => 0o666,
            _ => 0o660,
        }
    }

    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.max_connections, 0..=1_048_576, "max_connections");
    }
}
