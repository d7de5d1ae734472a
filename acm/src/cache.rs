// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of destinations.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::acm::{Address, Entry, Flags, Status};
use cm_msgs::sa::PathRecord;
use statemachine::{Origin, Time};

use super::endpoints::EndpointId;
use super::requester::Waiter;

/// A moment that does not come.
pub(super) const NEVER: Time = Time(u64::MAX);

/// A destination as one endpoint of this host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) from: EndpointId,
    pub(super) to: Address,
}

/// Where a path came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteOrigin {
    /// The destination is this very port.
    Loopback,
    /// The file of routes.
    File,
    /// The multicast group of the destination's answer.
    Group,
    /// A path source.
    Source(Option<Origin>),
}

/// A path to a destination.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The path, as clients get it.
    pub(super) entry: [u8; Entry::LEN],
    pub(super) path: PathRecord,
    pub(super) origin: RouteOrigin,
    pub(super) until: Time,
    /// The fabric has changed since.
    pub(super) doubtful: bool,
}

impl Route {
    pub(super) fn new(path: PathRecord, origin: RouteOrigin, until: Time) -> Self {
        Self {
            entry: Entry::path(Flags::WHOLE_PATH, path).encode(),
            path,
            origin,
            until,
            doubtful: false,
        }
    }
}

/// What is being asked for a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asking {
    /// Other hosts, whose it is.
    Host(u32),
    /// The path sources.
    Path(u32),
}

/// What is known of a destination.
#[derive(Debug, Default)]
pub(super) struct Destination {
    /// Its port, if that is known, and until when it holds.
    pub(super) gid: Option<(Gid, Time)>,
    pub(super) route: Option<Route>,
    /// That there is none, and until when that holds.
    pub(super) refused: Option<(Status, Time)>,
    pub(super) asking: Option<Asking>,
    /// Doubt was cast since it was asked for: the answer may be older.
    pub(super) outdated: bool,
    /// Another port has said that it has the address, or the kernel's neighbour table does: the other
    /// hosts are asked before anything is given away.
    pub(super) claimed: bool,
    /// Claims are ignored before: the hosts have just been asked about one.
    pub(super) claims_from: Time,
    /// When somebody last wanted it.
    pub(super) wanted_at: Time,
    /// Not to be checked again before.
    pub(super) checked_until: Time,
    pub(super) waiters: Vec<Waiter>,
}

impl Destination {
    /// The path, unless it is too old.
    pub(super) fn route(&self, now: Time) -> Option<&Route> {
        self.route.as_ref().filter(|route| now < route.until)
    }

    /// The path, unless it is too old or leads to a port that may not have the address any more.
    pub(super) fn settled(&self, now: Time) -> Option<&Route> {
        self.route(now).filter(|_| !self.claimed)
    }

    /// The path, if it can be given away as it is.
    pub(super) fn fresh(&self, now: Time) -> Option<&Route> {
        self.settled(now)
            .filter(|route| !route.doubtful || now < self.checked_until)
    }

    /// Why there is none, as far as that was found out lately.
    pub(super) fn refused(&self, now: Time) -> Option<Status> {
        let (status, until) = self.refused?;
        (now < until).then_some(status)
    }

    /// The port, if it is known.
    pub(super) fn gid(&self, now: Time) -> Option<Gid> {
        let (gid, until) = self.gid?;
        (now < until).then_some(gid)
    }

    /// Forgets where it is. Whether a path is forgotten with it.
    pub(super) fn forget_port(&mut self) -> bool {
        self.gid = None;
        self.claimed = false;
        self.route.take().is_some()
    }

    fn is_idle(&self) -> bool {
        self.asking.is_none() && self.waiters.is_empty()
    }

    fn is_empty(&self, now: Time) -> bool {
        let known = self.route(now).is_some() || self.gid(now).is_some();
        self.is_idle() && !known && self.refused(now).is_none()
    }
}

/// All destinations.
#[derive(Debug, Default)]
pub(super) struct Cache {
    destinations: HashMap<Key, Destination>,
    /// Added since the last look for what is too old.
    added: usize,
}

impl Cache {
    /// A destination.
    pub(super) fn get(&self, key: &Key) -> Option<&Destination> {
        self.destinations.get(key)
    }

    /// A destination.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Destination> {
        self.destinations.get_mut(key)
    }

    /// A destination, made if need be; `None` if there are `limit` already and all are in use.
    pub(super) fn make(&mut self, now: Time, key: Key, limit: usize) -> Option<&mut Destination> {
        if self.destinations.len() >= limit && !self.destinations.contains_key(&key) {
            self.make_room(now, limit);
        }
        let full = self.destinations.len() >= limit;
        match self.destinations.entry(key) {
            Slot::Occupied(known) => Some(known.into_mut()),
            Slot::Vacant(_) if full => None,
            Slot::Vacant(new) => {
                self.added += 1;
                Some(new.insert(Destination::default()))
            }
        }
    }

    /// Looks for what is too old, but not for every request anew; else any one goes that nobody
    /// waits for.
    fn make_room(&mut self, now: Time, limit: usize) {
        if self.added > limit / 8 {
            self.forget_old(now);
        }
        if self.destinations.len() >= limit {
            let mut idle = self
                .destinations
                .iter()
                .filter(|(_, known)| known.is_idle());
            if let Some(key) = idle.next().map(|(key, _)| *key) {
                self.destinations.remove(&key);
            }
        }
    }

    /// Forgets what is too old.
    pub(super) fn forget_old(&mut self, now: Time) {
        self.added = 0;
        self.destinations.retain(|_, known| !known.is_empty(now));
    }

    /// Forgets the paths that are `wrong`, and where they lead.
    pub(super) fn drop_routes(&mut self, wrong: impl Fn(&Key, &Route) -> bool) {
        for (key, known) in &mut self.destinations {
            if known.route.as_ref().is_some_and(|route| wrong(key, route)) {
                known.forget_port();
            }
        }
    }

    /// Casts doubt on the paths of the endpoints in question, and tells which.
    pub(super) fn doubt(&mut self, in_question: impl Fn(EndpointId) -> bool) -> Vec<Key> {
        let mut doubtful = Vec::new();
        for (key, known) in &mut self.destinations {
            if !in_question(key.from) {
                continue;
            }
            known.refused = None;
            known.checked_until = Time(0);
            known.outdated = true;
            if let Some(route) = &mut known.route
                && route.origin != RouteOrigin::Loopback
            {
                route.doubtful = true;
                doubtful.push(*key);
            }
        }
        doubtful
    }

    /// What is being asked for the endpoints in question is asked for once more.
    pub(super) fn outdate(&mut self, in_question: impl Fn(EndpointId) -> bool) {
        for (key, known) in &mut self.destinations {
            known.outdated |= in_question(key.from);
        }
    }

    /// Forgets all that leads to a port.
    pub(super) fn drop_port(&mut self, gid: Gid) -> usize {
        let before = self.destinations.len();
        self.destinations.retain(|key, known| {
            let leads = known.gid.is_some_and(|(known, _)| known == gid)
                || known
                    .route
                    .as_ref()
                    .is_some_and(|route| route.path.dgid == gid)
                || key.to == Address::Gid(gid);
            if leads {
                known.forget_port();
                known.outdated = true;
            }
            !(leads && known.is_idle())
        });
        before - self.destinations.len()
    }

    /// Forgets everything that nobody waits for; how much it was.
    pub(super) fn clear(&mut self) -> usize {
        let before = self.destinations.len();
        self.destinations.retain(|_, known| !known.is_idle());
        before - self.destinations.len()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.destinations.len()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Destination)> {
        self.destinations.iter()
    }
}

/// When something that holds for `duration` ends; zero is for ever.
pub(super) fn until(now: Time, duration: Duration) -> Time {
    if duration.is_zero() {
        NEVER
    } else {
        now + duration
    }
}
