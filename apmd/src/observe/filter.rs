// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of which connections or destinations an operator speaks, as JSON. Described in `docs/apmctl.md`; keys
//! are added, never changed.

use serde::{Deserialize, Serialize};

/// Which connections; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConnectionFilter {
    pub(crate) id: Option<String>,
    pub(crate) qpn: Option<u32>,
    pub(crate) device: Option<String>,
    pub(crate) pid: Option<i32>,
    pub(crate) command: Option<String>,
    /// How `protection` begins.
    pub(crate) state: Option<String>,
    /// Go on behind this connection: `next` of the page before.
    pub(crate) after: Option<String>,
}

impl ConnectionFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// Which destinations; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DestinationFilter {
    /// The address: a name, an IP address, a GID or a LID.
    pub(crate) address: Option<String>,
    /// The local device, or device and port such as `mlx5_0/1`, from which it is seen.
    pub(crate) from: Option<String>,
    /// How its state begins.
    pub(crate) state: Option<String>,
}

impl DestinationFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}
