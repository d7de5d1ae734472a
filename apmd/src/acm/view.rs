// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service, as it is shown to people.

use std::fmt;
use std::time::Duration;

use cm_msgs::acm::{Address, Counters};
use cm_msgs::{Gid, Lid};
use statemachine::Time;

use super::cache::{Destination, NEVER, RouteOrigin};
use super::endpoints::{Endpoint, EndpointId};
use super::service::{Service, Stats};

/// What is known of a destination, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is a path.
    Known,
    /// There was a path before the fabric changed.
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
pub struct Known {
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

impl Service {
    /// What was done, as ibacm counts it.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What was done besides.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// An endpoint.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(id)
    }

    /// The name of an endpoint's device.
    pub fn device(&self, id: EndpointId) -> Option<&str> {
        let port = self.endpoints.get(id)?.port;
        Some(&self.endpoints.port(port)?.device)
    }

    /// All destinations, in no order.
    pub fn destinations(&self, now: Time) -> impl Iterator<Item = Known> {
        self.cache.iter().map(move |(key, known)| {
            let route = known.route(now);
            Known {
                from: key.from,
                address: key.to,
                state: state(known, now),
                gid: route
                    .map(|route| route.path.dgid)
                    .or_else(|| known.gid(now)),
                dlid: route.map(|route| route.path.dlid),
                origin: route.map(|route| route.origin),
                left: route
                    .filter(|route| route.until != NEVER)
                    .map(|route| route.until - now),
                waiting: known.waiters.len(),
            }
        })
    }
}

fn state(known: &Destination, now: Time) -> State {
    match known.route(now) {
        Some(route) if route.doubtful => State::Doubtful,
        Some(_) => State::Known,
        None if known.asking.is_some() => State::Asking,
        None => State::Absent,
    }
}
