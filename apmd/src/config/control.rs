// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[control]`: the sockets.

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[control]`
    Control {
        /// Group that may use the sockets; the default one need not exist. Takes effect at start.
        group: String = "rdma".to_owned(),
        /// Access mode of the sockets. Takes effect at start.
        mode: u32 = 0o660,
        /// Connections looked after at the same time.
        max_connections: usize = statemachine::Config::default().connection_limit,
    }
}

impl Control {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_mode(self.mode, "mode");
        wrongs.want_within(self.max_connections, 0..=1_048_576, "max_connections");
    }
}
