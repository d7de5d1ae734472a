// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators are shown.

pub(crate) mod acm;
pub(crate) mod change;
pub(crate) mod connections;
pub(crate) mod destinations;
pub(crate) mod fabric;
pub(crate) mod filter;
pub(crate) mod impossible;
pub(crate) mod model;
pub(crate) mod ports;
pub(crate) mod problems;
pub(crate) mod queue_pairs;
pub(crate) mod request;
pub(crate) mod sources;
pub(crate) mod transition;

use serde::Serialize;

/// Name of the socket in the runtime directory.
pub(crate) const SOCKET: &str = "observe.sock";

/// Longest piece of an answer in one packet.
pub(crate) const CHUNK: usize = 32 * 1024;

/// As it goes to who asked.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| {
        tracing::error!(%error, "answer not written");
        Vec::new()
    })
}
