// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel module knows a peer by.

use cm_msgs::Lid;
use statemachine::PortId;

/// A LID of a peer, as seen from a local port.
pub(crate) type PeerLid = (PortId, Lid);
