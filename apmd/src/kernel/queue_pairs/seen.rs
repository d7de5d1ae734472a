// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs as operators are shown them.

use cm_msgs::control::Refusal;
use cm_msgs::{Guid, Lid, Qpn};
use statemachine::{ConnId, Time};

use crate::client::Client;
use crate::io::apm_module::KernelQp;
use crate::registrations::{Overdue, State};

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
    /// It leads to this LID, which no port can have.
    Astray(Lid),
    Refused(Refusal),
    NoPort,
    Turnover,
    NoRoom,
    /// Its library may register it.
    Awaited,
    NotConnected,
}

/// How many queue pairs are to be managed, and are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeftOut {
    pub(crate) no_room: usize,
    pub(crate) overdue: Overdue,
}

impl QueuePairs {
    /// How many the module wants managed and are not, by reason. `all_devices`: whether devices that are
    /// not known are to be.
    pub(crate) fn left_out(&self, now: Time, all_devices: bool) -> LeftOut {
        let roomless = self
            .later
            .roomless
            .iter()
            .filter_map(|it| self.all.get(&it));
        let no_room =
            |entry: &&Entry| entry.qp.left_alone.is_none() && self.seen(entry).care == Care::NoRoom;
        let known = self.known_devices();
        let counts = |guid| all_devices || known.contains(&guid);
        LeftOut {
            no_room: roomless.filter(no_room).count(),
            overdue: self.registrations.overdue(now, counts),
        }
    }

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
            _ if let Some(lid) = entry.astray() => Care::Astray(lid),
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
