// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs as operators are shown them.

use cm_msgs::control::Refusal;
use cm_msgs::{Guid, Qpn};
use statemachine::ConnId;

use crate::client::Client;
use crate::io::apm_module::KernelQp;
use crate::registrations::State;

use super::{Entry, QueuePairs, Whose};

/// A queue pair, and what becomes of it here.
pub(crate) struct Seen<'a> {
    pub(crate) qp: &'a KernelQp,
    pub(crate) client: &'a Client,
    pub(crate) care: Care,
}

/// What becomes of a queue pair that the module does not leave alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Care {
    /// The engine has it as this connection.
    Connection(ConnId),
    Refused(Refusal),
    NoPort,
    Turnover,
    NoRoom,
    /// Its library may register it.
    Awaited,
    NotConnected,
}

impl QueuePairs {
    /// All, in the order of their devices and numbers, from behind this one.
    pub(crate) fn after(&self, after: Option<(Guid, Qpn)>) -> impl Iterator<Item = Seen<'_>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let range = self.by_number.range((from, Unbounded));
        range.filter_map(|(_, cookie)| self.all.get(cookie).map(|entry| self.seen(entry)))
    }

    fn seen<'a>(&'a self, entry: &'a Entry) -> Seen<'a> {
        let state = self.registrations.get(entry.id()).map(|found| found.state);
        let care = match (self.claims.of(entry.number()), state, entry.whose) {
            (Some(id), _, _) => Care::Connection(id),
            (_, Some(State::Accepted(_)), Whose::Refused(refusal)) => Care::Refused(refusal),
            (_, Some(State::Accepted(_)), _) => Care::Connection(entry.id()),
            (_, Some(State::NoPort), _) => Care::NoPort,
            (_, Some(State::Turnover), _) => Care::Turnover,
            (_, _, Whose::NoRoom) => Care::NoRoom,
            (_, _, Whose::Asked | Whose::Awaited) => Care::Awaited,
            _ => Care::NotConnected,
        };
        Seen {
            qp: &entry.qp,
            client: &entry.client,
            care,
        }
    }
}
