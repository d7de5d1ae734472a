// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators are shown.

pub(crate) mod acm;
pub(crate) mod connections;
pub(crate) mod destinations;
pub(crate) mod fabric;
pub(crate) mod model;
pub(crate) mod ports;
pub(crate) mod problems;
pub(crate) mod request;
pub(crate) mod sources;
pub(crate) mod transition;

/// Name of the socket in the runtime directory.
pub(crate) const SOCKET: &str = "observe.sock";

/// Longest piece of an answer in one packet.
pub(crate) const CHUNK: usize = 32 * 1024;
