// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators want done.

use std::time::Duration;

use statemachine::{Command, Input, PortId, Time};

use super::parts::Parts;
use crate::observe::change::{Change, Drained, Ordered, OrderedPage, WITHIN_MAX_MS};
use crate::observe::connections::{self, ConnectionPage};
use crate::observe::filter::ConnectionFilter;
use crate::observe::json;
use crate::observe::model::Conn;
use crate::observe::request::Refused;
use crate::parts::operators::Caller;

/// An operator who wants something done, and what he wants it of.
pub(super) struct Ordering<'a> {
    pub(super) now: Time,
    pub(super) caller: &'a Caller,
    pub(super) parts: &'a mut Parts,
}

impl Ordering<'_> {
    /// What is answered.
    pub(super) fn change(&mut self, change: &Change) -> Vec<u8> {
        let uid = self.caller.peer.uid;
        let pid = self.caller.peer.pid;
        // A user may say how his own connections are to be protected.
        let is_policy = matches!(change, Change::Set { .. });
        if !self.caller.may_change && !is_policy {
            tracing::warn!(uid, pid, ?change, "refused: not permitted");
            let error = "not permitted: only root and members of the group of apmd's socket (see \
                         [control] in apmd.toml) may change anything"
                .to_owned();
            return json(&Refused { error });
        }
        let answer = self.carry_out(change);
        if answer.is_ok() {
            tracing::info!(uid, pid, ?change, "ordered by an operator");
        }
        answer.unwrap_or_else(|refused| json(&refused))
    }

    fn carry_out(&mut self, change: &Change) -> Result<Vec<u8>, Refused> {
        match change {
            Change::Migrate {
                connections,
                within_ms,
            } => {
                let within = Duration::from_millis((*within_ms).min(WITHIN_MAX_MS).into());
                let command = Command::Migrate { within };
                Ok(json(&self.order_some(connections, command)?))
            }
            Change::Rearm { connections } => {
                Ok(json(&self.order_some(connections, Command::Rearm)?))
            }
            Change::Set {
                connections,
                policy,
            } => Ok(json(&self.set_policy(connections, policy)?)),
            Change::Drain { port } => Ok(json(&self.drain(port, true)?)),
            Change::Undrain { port } => Ok(json(&self.drain(port, false)?)),
        }
    }

    fn set_policy(
        &mut self,
        filter: &ConnectionFilter,
        words: &str,
    ) -> Result<ConnectionPage, Refused> {
        let (now, caller) = (self.now, self.caller);
        let input = self.parts.shown(now, caller, false, |conns| {
            connections::set_policy(words, filter, conns, caller.may_change)
        })?;
        self.parts.connections.handle(now, input);
        self.parts.page(now, caller, filter, false)
    }

    /// A page of connections at a time, as they are shown.
    fn order_some(
        &mut self,
        filter: &ConnectionFilter,
        command: Command,
    ) -> Result<OrderedPage, Refused> {
        let page = self.parts.page(self.now, self.caller, filter, false)?;
        let mut ordered = Vec::new();
        for conn in page.connections {
            let refused = why_not(&conn, command);
            if refused.is_none() {
                let id = connections::connection_id(&conn.id)?;
                self.parts
                    .connections
                    .handle(self.now, Input::Command(id, command));
            }
            ordered.push(Ordered {
                id: conn.id,
                refused,
                primary: conn.primary,
                migrations: conn.counters.migrations,
            });
        }
        Ok(OrderedPage {
            ordered,
            next: page.next,
        })
    }

    fn drain(&mut self, name: &str, drained: bool) -> Result<Drained, Refused> {
        let Some(id) = self.port_named(name) else {
            let error = format!(
                "{name}: not a port that apmd manages, such as mlx5_0/1 (see `apmctl port`)"
            );
            return Err(Refused { error });
        };
        self.parts
            .connections
            .handle(self.now, Input::Drain(id, drained));
        let ports = self.parts.connections.engine().ports();
        let port = ports.iter().find(|port| port.id == id);
        if drained && !port.is_some_and(|port| port.drained) {
            let error = format!("{name}: its state is not known yet (see `apmctl port`)");
            return Err(Refused { error });
        }
        let port = name.to_owned();
        Ok(Drained { port, drained })
    }

    fn port_named(&self, name: &str) -> Option<PortId> {
        let (device, number) = name.split_once('/')?;
        let (_, device) = self.parts.ports.devices().by_name(device)?;
        let number: u8 = number.parse().ok()?;
        let mut ports = device.ports.iter().map(|port| port.id);
        ports.find(|id| id.port == number)
    }
}

/// Why a connection cannot do what is wanted.
fn why_not(conn: &Conn, command: Command) -> Option<String> {
    let standing = &conn.standing;
    let can = match command {
        Command::Migrate { .. } => standing.protection == "armed",
        Command::Rearm => !matches!(standing.protection.as_str(), "refused" | "broken"),
    };
    if can {
        return None;
    }
    let reason = standing.reason.as_deref().unwrap_or_default();
    Some(format!("{}: {reason}", standing.protection))
}
