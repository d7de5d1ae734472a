// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many descriptors the process may have, and who of its callers may use how many.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Acm;
use crate::server::Budget;

/// What is to be left for devices and operators, and for root's libraries.
const OTHERS: u64 = 256;
/// A library's: its socket, and its process.
const PER_LIBRARY: u64 = 2;

/// What operators may use.
pub(crate) const OPERATORS: Budget = Budget {
    callers: 64,
    root_callers: 8,
    bytes: 16 << 20,
    caller_bytes: 8 << 20,
    send_buffer: None,
};

/// Clients of ACM at the same time: they take half of what there is, at most.
pub(crate) fn acm_clients() -> usize {
    let half = limit().saturating_sub(OTHERS) / 2;
    half.clamp(1, 8192) as usize
}

/// What libraries may use: their descriptors are what others leave.
pub(crate) fn libraries(acm: &Acm) -> Budget {
    let clients = if acm.serve { acm_clients() as u64 } else { 0 };
    let left = limit().saturating_sub(OTHERS + clients) / PER_LIBRARY;
    Budget {
        callers: left.clamp(16, 16_384) as usize,
        root_callers: 32,
        bytes: 16 << 20,
        caller_bytes: 1 << 20,
        send_buffer: Some(16 << 10),
    }
}

fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(limit, _)| limit)
}

/// A descriptor for each library and each client of ACM: as many as the administrator allows.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "descriptor limit not raised");
    }
}
