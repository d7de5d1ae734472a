// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened to the daemon outside the engine, since its start. Each part counts its own.

use serde::{Deserialize, Serialize};
use statemachine::PresenceCounters;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct PortCounters {
    /// MADs received that did not decode, or came from another QP than QP1.
    pub(crate) malformed_mads: u64,
    /// Association MADs that were not handled: their senders sent them faster than that can be done.
    pub(crate) discarded_mads: u64,
    /// MADs that could not be sent.
    pub(crate) unsent_mads: u64,
    /// Port losses told by verbs events.
    pub(crate) losses_by_verbs: u64,
    /// Port losses told by netlink and found true.
    pub(crate) losses_by_netlink: u64,
    /// Port losses found by reading PortInfo without being told of a loss.
    pub(crate) losses_by_check: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct LibraryCounters {
    /// Libraries that connected.
    pub(crate) clients: u64,
    /// Of these, gone again.
    pub(crate) clients_gone: u64,
    /// Libraries that were refused, because there were too many of their user.
    pub(crate) clients_refused: u64,
    /// Packets that did not decode or broke the protocol.
    pub(crate) malformed_control: u64,
    /// Registrations of queue pairs that are not the process's.
    pub(crate) not_owner: u64,
    /// Registrations and reports that contradict what the kernel says.
    pub(crate) contradicted: u64,
    /// Connections that were made before their library had an answer about their peer, and so with rdma_cm's ACK timeout.
    #[serde(default)]
    pub(crate) late_peer_answers: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct AcmCounters {
    /// Clients of ACM that connected.
    pub(crate) acm_clients: u64,
    /// Clients of ACM that were refused, because there were too many.
    pub(crate) acm_clients_refused: u64,
    /// Clients of ACM that broke the protocol.
    pub(crate) malformed_acm: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct ConfigurationCounters {
    /// Configurations read again.
    pub(crate) reloads: u64,
    /// Configurations that were refused.
    pub(crate) failed_reloads: u64,
}

/// All of them, as operators see them: one list.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct DaemonCounters {
    #[serde(flatten)]
    pub(crate) ports: PortCounters,
    #[serde(flatten)]
    pub(crate) libraries: LibraryCounters,
    #[serde(flatten)]
    pub(crate) peers: PresenceCounters,
    /// Packets of operators that are no request.
    pub(crate) malformed_requests: u64,
    #[serde(flatten)]
    pub(crate) acm: AcmCounters,
    #[serde(flatten)]
    pub(crate) configuration: ConfigurationCounters,
}
