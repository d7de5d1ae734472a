// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[control]`: the sockets.

use serde::{Deserialize, Serialize};

use super::{Check, want_mode, want_within};

/// `[control]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Group that may use the sockets, if it exists. Takes effect at start.
    pub group: String,
    /// Access mode of the sockets. Takes effect at start.
    pub mode: u32,
    /// A library may register only queue pairs that the kernel says its process owns.
    pub verify_owner: bool,
    /// Connections looked after at the same time.
    pub max_connections: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            group: "rdma".to_owned(),
            mode: 0o660,
            verify_owner: true,
            max_connections: statemachine::Config::default().connection_limit,
        }
    }
}

impl Control {
    pub(super) fn check(&self) -> Check {
        want_mode(self.mode, "mode")?;
        want_within(self.max_connections, 0..=1_048_576, "max_connections")
    }
}
