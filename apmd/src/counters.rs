// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened to the daemon outside the engine.

use serde::{Deserialize, Serialize};

/// What happened to the daemon outside the engine, since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DaemonCounters {
    /// MADs received that did not decode, or came from another QP than QP1.
    pub malformed_mads: u64,
    /// Packets of libraries that did not decode or broke the protocol.
    pub malformed_control: u64,
    /// Packets of operators that are no request.
    pub malformed_requests: u64,
    /// Libraries that connected.
    pub clients: u64,
    /// Of these, gone again.
    pub clients_gone: u64,
    /// Clients of ACM that connected.
    pub acm_clients: u64,
    /// Clients of ACM that were refused, because there were too many.
    pub acm_clients_refused: u64,
    /// Clients of ACM that broke the protocol.
    pub malformed_acm: u64,
    /// Registrations of queue pairs that are not the process's.
    pub not_owner: u64,
    /// MADs that could not be sent.
    pub unsent_mads: u64,
    /// Port losses told by verbs events.
    pub losses_by_verbs: u64,
    /// Port losses told by netlink and found true.
    pub losses_by_netlink: u64,
    /// Port losses found by reading PortInfo without being told of a loss.
    pub losses_by_check: u64,
    /// Configurations read again.
    pub reloads: u64,
    /// Configurations that were no good and were not taken.
    pub failed_reloads: u64,
}
