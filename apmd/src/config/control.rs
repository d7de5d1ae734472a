// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[control]`: the sockets.

use serde::{Deserialize, Serialize};

use super::check::Wrongs;

/// `[control]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Control {
    /// Group that may use the sockets; the default one need not exist. Takes effect at start.
    pub(crate) group: String,
    /// Access mode of the sockets. Takes effect at start.
    pub(crate) mode: u32,
    /// Connections looked after at the same time.
    pub(crate) max_connections: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            group: "rdma".to_owned(),
            mode: 0o660,
            max_connections: statemachine::Config::default().connection_limit,
        }
    }
}

impl Control {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_mode(self.mode, "mode");
        wrongs.want_within(self.max_connections, 0..=1_048_576, "max_connections");
    }
}
