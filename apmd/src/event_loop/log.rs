// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine says, in the log: with the names that operators know.

use statemachine::{ConnId, Level, Trace};
use tracing::field::display;

use super::parts::Parts;
use crate::observe::filter::owner;

impl Parts {
    /// One line. A connection is named with its program and its device.
    pub(super) fn log(&self, trace: &Trace) {
        let conn = trace
            .conn
            .map(|conn| format!("{}.{}", conn.client, conn.conn));
        let program = trace.conn.and_then(|conn| self.program(conn));
        let device = self.device_of(trace);
        let port = trace.port.map(|port| port.port);
        let (from, to) = trace.change().unzip();
        let (from, to) = (from.map(display), to.map(display));
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: "apmd::engine", conn, program, device, port, from, to, "{trace}"
                )
            };
        }
        match trace.level() {
            Level::Debug => say!(debug),
            Level::Info => say!(info),
            Level::Warn => say!(warn),
        }
    }

    /// Whose a connection is: a program, as its command and process ID, or a kernel module.
    fn program(&self, id: ConnId) -> Option<String> {
        let client = self.client(id)?;
        let command = client.command.as_deref().unwrap_or("?");
        Some(owner(command, client.peer.pid))
    }

    /// The device that a line is about.
    fn device_of(&self, trace: &Trace) -> Option<&str> {
        let of_port = trace.port.map(|port| port.node_guid);
        let engine = self.connections.engine();
        let of_conn = trace
            .conn
            .and_then(|id| Some(engine.identities_in(id..=id).next()?.node_guid));
        let device = self.ports.devices().by_guid(of_port.or(of_conn)?)?;
        Some(&device.name)
    }
}
