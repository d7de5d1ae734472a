// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the kernel module `apm` and of the queue pairs that it tells of (sans-IO).

mod claims;
mod discovery;
mod health;
mod host_kernel;
mod orders;
mod peer_lid;
mod peers;
mod presence;
mod queue_pairs;
mod reports;
mod resync;
mod search;
mod traps;

pub(crate) use health::{ASKED_EVERY, Health};
pub(crate) use host_kernel::HostKernel;
pub(crate) use orders::TOKENS;
pub(crate) use peer_lid::PeerLid;
pub(crate) use peers::{Peers, Told};
pub(crate) use presence::{Presence, Unusable};
pub(crate) use queue_pairs::{CLIENT, Care, LeftOut, Output, QueuePairs, Seen, astray, kernels};
pub(crate) use reports::Reports;
pub(crate) use resync::Resync;
pub(crate) use search::Search;
pub(crate) use traps::{Surroundings, Trap, Traps};
