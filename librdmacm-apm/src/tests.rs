// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the unit tests have in common.

pub(crate) mod model;

use cm_msgs::control::PeerPort;
use cm_msgs::{Guid, Lid, PKey};

use crate::peers::FarPort;

/// A peer's port, as seen from the one port that there is.
pub(crate) fn peer(lid: u16) -> FarPort {
    FarPort {
        port: PeerPort {
            node_guid: Guid(1),
            port: 1,
            lid: Lid(lid),
        },
        pkey: PKey::DEFAULT_FULL,
    }
}
