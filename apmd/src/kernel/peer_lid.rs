// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a queue pair leads.

use cm_msgs::Lid;
use statemachine::PortId;

/// A peer's port, as seen from a local one.
pub(crate) type Way = (PortId, Lid);
