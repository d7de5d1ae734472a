// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine says, in the log: with the names that operators know.

use statemachine::{Level, Trace};
use tracing::field::display;

/// Writes one line. `program` owns the connection that the line is about, which leads to the node `peer`.
pub(super) fn say(
    trace: &Trace,
    program: Option<String>,
    device: Option<&str>,
    peer: Option<&str>,
) {
    let conn = trace
        .conn
        .map(|conn| format!("{}.{}", conn.client, conn.conn));
    let port = trace.port.map(|port| port.port);
    let (from, to) = trace.change().unzip();
    let (from, to) = (from.map(display), to.map(display));
    macro_rules! say {
        ($level:ident) => {
            tracing::$level!(
                target: "apmd::engine", conn, program, device, peer, port, from, to, "{trace}"
            )
        };
    }
    match trace.level() {
        Level::Debug => say!(debug),
        Level::Info => say!(info),
        Level::Warn => say!(warn),
    }
}
