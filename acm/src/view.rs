// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations, as they are shown to people.

use std::fmt;
use std::time::Duration;

use cm_msgs::acm::Address;
use cm_msgs::{Gid, Lid};
use statemachine::Time;

use super::cache::{Destination, Key, NEVER, RouteOrigin};
use super::endpoints::EndpointId;

/// What is known of a destination, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is a path.
    Known,
    /// There was a path before the fabric changed, or before another port claimed the address.
    Doubtful,
    /// Somebody is being asked.
    Asking,
    /// There is none.
    Absent,
}

impl State {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Doubtful => "doubtful",
            Self::Asking => "asking",
            Self::Absent => "absent",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Display for RouteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.pad("loopback"),
            Self::File => f.pad("file"),
            Self::Group => f.pad("group"),
            Self::Source(Some(origin)) => origin.fmt(f),
            Self::Source(None) => f.pad("-"),
        }
    }
}

/// A destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownDestination {
    /// The endpoint from which it is seen.
    pub from: EndpointId,
    /// The address.
    pub address: Address,
    /// What is known.
    pub state: State,
    /// Its port.
    pub gid: Option<Gid>,
    /// LID of the path.
    pub dlid: Option<Lid>,
    /// Where the path came from.
    pub origin: Option<RouteOrigin>,
    /// For how long the path is believed, if not for ever.
    pub left: Option<Duration>,
    /// Requests that wait for it.
    pub waiting: usize,
}

impl KnownDestination {
    pub(crate) fn of(key: &Key, known: &Destination, now: Time) -> Self {
        let route = known.route(now);
        let gid = route.map(|route| route.path.dgid);
        Self {
            from: key.from,
            address: key.to,
            state: state(known, now),
            gid: gid.or_else(|| known.gid(now)),
            dlid: route.map(|route| route.path.dlid),
            origin: route.map(|route| route.origin),
            left: route
                .filter(|route| route.until != NEVER)
                .map(|route| route.until - now),
            waiting: known.waiters.len(),
        }
    }
}

fn state(known: &Destination, now: Time) -> State {
    match known.route(now) {
        Some(route) if route.doubtful || known.claimed => State::Doubtful,
        Some(_) => State::Known,
        None if known.asking.is_some() => State::Asking,
        None => State::Absent,
    }
}
