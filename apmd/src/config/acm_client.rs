// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[acm_client]`: the ACM service that is asked for paths.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Check, want, want_within};
use crate::io::acm_stream::Place;

/// `[acm_client]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmClient {
    /// Where the service listens: the path of a Unix socket, or `tcp:PORT` of this host; empty:
    /// where ibacm does.
    pub socket: String,
    /// Connections, each for one question at a time.
    pub connections: usize,
    /// How long the service may take over a question.
    pub timeout_ms: u64,
}

impl Default for AcmClient {
    fn default() -> Self {
        Self {
            socket: String::new(),
            connections: 2,
            timeout_ms: 10_000,
        }
    }
}

impl AcmClient {
    pub(super) fn check(&self) -> Check {
        want(
            self.socket.is_empty() || self.place().is_some(),
            "socket",
            "want a path that begins with a slash, or tcp:PORT, or nothing",
        )?;
        want_within(self.connections, 1..=64, "connections")?;
        want_within(self.timeout_ms, 1..=600_000, "timeout_ms")
    }

    fn place(&self) -> Option<Place> {
        if let Some(port) = self.socket.strip_prefix("tcp:") {
            return port.parse().ok().filter(|port| *port != 0).map(Place::Tcp);
        }
        let absolute = self.socket.starts_with('/');
        absolute.then(|| Place::Unix(self.socket.clone().into()))
    }

    /// Where the service may listen, in the order in which to try.
    pub fn places(&self) -> Vec<Place> {
        self.place().map_or_else(Place::usual, |place| vec![place])
    }

    /// How long the service may take over a question.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
