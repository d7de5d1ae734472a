// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps towards a path: from memory, or to the port that has the address, then to the path,
//! and to all who wait.

use cm_msgs::acm::{Address, Entry, Status};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid, PKey};
use statemachine::{Origin, PathQuery, PortId, QueryError, Time};

use super::cache::{Asking, Destination, Key, NEVER, Route, RouteOrigin, Waiter, until};
use super::endpoints::EndpointId;
use super::locate::Port;
use super::net::{Found, Lookup, LookupError, PortPartition};
use super::service::{Answer, Asked, Service};
use crate::source::{self, Question};

impl Service {
    /// The path to an address, now or later.
    pub(super) fn resolve(
        &mut self,
        now: Time,
        key: Key,
        no_delay: bool,
        waiter: Waiter,
    ) -> Option<Result<[u8; Entry::LEN], Status>> {
        if let Some(known) = self.cache.get_mut(&key) {
            known.wanted_at = now;
            if let Some(found) = Self::cached(now, known, no_delay, waiter.dgid) {
                return Some(found);
            }
        } else {
            self.sweep_later(now);
        }
        let limit = self.settings.max_destinations;
        let Some(known) = self.cache.make(now, key, limit) else {
            return Some(Err(Status::NoMemory));
        };
        known.wanted_at = now;
        if known.asking.is_none() {
            self.advance(now, key);
        }
        let known = self.cache.get(&key)?;
        if let Some(found) = Self::cached(now, known, no_delay, waiter.dgid) {
            return Some(found);
        }
        if no_delay {
            return Some(Err(Status::NoData));
        }
        if self.waiting >= self.settings.max_waiting {
            return Some(Err(Status::NoMemory));
        }
        self.waiting += 1;
        self.cache.get_mut(&key)?.waiters.push(waiter);
        None
    }

    fn cached(
        now: Time,
        known: &Destination,
        no_delay: bool,
        dgid: Gid,
    ) -> Option<Result<[u8; Entry::LEN], Status>> {
        let route = known
            .fresh(now)
            .or_else(|| known.route(now).filter(|_| no_delay));
        match route {
            Some(route) => Some(route_for(route, dgid)),
            None => known.refused(now).map(Err),
        }
    }

    /// Takes the next step towards a path: finds the port, or asks for it; then the path.
    pub(super) fn advance(&mut self, now: Time, key: Key) {
        let Some(endpoint) = self.endpoints.get(key.from) else {
            return self.refuse(now, key, Status::SourceAddress);
        };
        let (from, pkey) = (endpoint.port, endpoint.pkey);
        if self.settings.loopback && self.is_own(endpoint.id, &key.to) {
            let route = self.loopback(from, pkey);
            return self.settle(now, key, route, RouteOrigin::Loopback);
        }
        match self.port_of(now, key, pkey) {
            Some(Port::Gid(gid)) => self.ask_path(now, key, gid, None),
            Some(Port::Lid(lid)) => self.ask_path(now, key, Gid::default(), Some(lid)),
            None => self.ask_hosts(now, key),
        }
    }

    fn is_own(&self, endpoint: EndpointId, address: &Address) -> bool {
        let owner = self.endpoints.owner(address);
        owner.is_some_and(|owner| owner.id == endpoint)
    }

    fn loopback(&self, port: PortId, pkey: PKey) -> PathRecord {
        let Some(port) = self.endpoints.port(port) else {
            return PathRecord::default();
        };
        PathRecord {
            dgid: port.status.gid,
            sgid: port.status.gid,
            dlid: port.status.lid,
            slid: port.status.lid,
            reversible: true,
            pkey,
            mtu: port.status.mtu,
            rate: port.rate,
            ..PathRecord::default()
        }
    }

    fn ask_hosts(&mut self, now: Time, key: Key) {
        let endpoint = self.endpoints.get(key.from);
        let source = endpoint.and_then(|endpoint| endpoint.addresses.first());
        let Some((endpoint, source)) = endpoint.zip(source.map(|own| own.address)) else {
            return self.refuse(now, key, Status::NoData);
        };
        let endpoint = PortPartition {
            port: endpoint.port,
            pkey: endpoint.pkey,
        };
        let number = self.ask(Asked::Host(key));
        self.lookups.push_back(Lookup {
            number,
            endpoint,
            source,
            destination: key.to,
        });
        self.count(key.from, |counters| &mut counters.addr_query);
        self.asking(key, Asking::Host(number));
    }

    fn ask_path(&mut self, now: Time, key: Key, dgid: Gid, dlid: Option<Lid>) {
        let endpoint = self.endpoints.get(key.from);
        let local = endpoint.and_then(|endpoint| self.endpoints.port(endpoint.port));
        let Some((endpoint, local)) = endpoint.zip(local) else {
            return self.refuse(now, key, Status::SourceAddress);
        };
        let (port, pkey) = (endpoint.port, endpoint.pkey);
        let (sgid, slid) = (local.status.gid, local.status.lid);
        let known = self.cache.get(&key).and_then(|known| known.route(now));
        let in_doubt = known.is_some_and(|route| route.doubtful);
        if let Some(route) = self.routes.get(&(sgid, dgid))
            && route.slid == slid
            && !in_doubt
        {
            let route = PathRecord {
                pkey,
                packet_life_time: local.subnet_timeout,
                ..*route
            };
            return self.settle(now, key, route, RouteOrigin::File);
        }
        let number = self.ask(Asked::Path(key));
        let query = PathQuery {
            query: number,
            port,
            sgid,
            dgid,
            slid: None,
            dlid,
            pkey,
        };
        self.questions.push_back(Question {
            asker: source::Asker::Acm(number),
            query,
            only: None,
        });
        self.count(key.from, |counters| &mut counters.route_query);
        self.asking(key, Asking::Path(number));
    }

    /// Something is being asked for a destination.
    fn asking(&mut self, key: Key, asking: Asking) {
        if let Some(known) = self.cache.get_mut(&key) {
            known.asking = Some(asking);
            known.outdated = false;
        }
    }

    /// It is answered. Whether the answer holds: if doubt was cast while it was under way, it is
    /// asked for once more.
    fn answered(&mut self, now: Time, key: Key) -> bool {
        let Some(known) = self.cache.get_mut(&key) else {
            return false;
        };
        known.asking = None;
        if known.outdated {
            self.advance(now, key);
            return false;
        }
        true
    }

    /// Other hosts answered, or did not.
    pub fn handle_lookup(&mut self, now: Time, number: u32, result: Result<Found, LookupError>) {
        let Some(Asked::Host(key)) = self.asked.remove(&number) else {
            return;
        };
        if !self.answered(now, key) {
            return;
        }
        match result {
            Ok(found) => {
                let Found { gid, path, .. } = found;
                let until = until(now, self.settings.address_timeout);
                let until = found.until.map_or(until, |heard| heard.min(until));
                if let Some(known) = self.cache.get_mut(&key) {
                    known.gid = Some((gid, until));
                }
                match path {
                    Some(path) => self.settle(now, key, path, RouteOrigin::Group),
                    None => self.ask_path(now, key, gid, None),
                }
            }
            Err(error) => self.refuse(now, key, status_of_lookup(error)),
        }
    }

    /// The path sources answered.
    pub(super) fn path_answered(
        &mut self,
        now: Time,
        key: Key,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        if !self.answered(now, key) {
            return;
        }
        let found = result.and_then(|records| records.into_iter().next().ok_or(QueryError::NoPath));
        match found {
            Ok(path) => self.settle(now, key, path, RouteOrigin::Source(origin)),
            Err(QueryError::NoPath) => {
                if let Some(known) = self.cache.get_mut(&key) {
                    self.stats.dropped += u64::from(known.route.take().is_some());
                    // The address may be at another port by now.
                    known.gid = None;
                }
                self.refuse(now, key, Status::NoData);
            }
            Err(error) => self.unanswered(now, key, error),
        }
        self.recheck(now);
    }

    /// Nobody could be asked for a path: the old one stays, if there is one.
    fn unanswered(&mut self, now: Time, key: Key, error: QueryError) {
        let old = self
            .cache
            .get(&key)
            .and_then(|known| known.route(now))
            .cloned();
        let Some(old) = old else {
            return self.refuse(now, key, status_of_query(error));
        };
        let again = self.rechecks.put_off(now, key);
        if let Some(known) = self.cache.get_mut(&key) {
            known.checked_until = again;
        }
        self.complete(key, &Ok(old));
    }

    /// There is a path.
    fn settle(&mut self, now: Time, key: Key, path: PathRecord, origin: RouteOrigin) {
        let until = match origin {
            RouteOrigin::Loopback => NEVER,
            _ => until(now, self.settings.route_timeout),
        };
        // No longer than the address is known to be there.
        let gid = self.cache.get(&key).and_then(|known| known.gid);
        let gid = gid.filter(|(gid, held)| *gid == path.dgid && now < *held);
        let until = gid.map_or(until, |(_, held)| held.min(until));
        let route = Route::new(path, origin, until);
        if let Some(known) = self.cache.get_mut(&key) {
            known.route = Some(route.clone());
            known.refused = None;
        }
        self.complete(key, &Ok(route));
    }

    /// There is none.
    fn refuse(&mut self, now: Time, key: Key, status: Status) {
        let until = now + self.settings.negative;
        if let Some(known) = self.cache.get_mut(&key) {
            known.refused = Some((status, until));
        }
        self.complete(key, &Err(status));
    }

    /// Answers all who wait.
    fn complete(&mut self, key: Key, result: &Result<Route, Status>) {
        self.rechecks.done(&key);
        let Some(known) = self.cache.get_mut(&key) else {
            return;
        };
        let waiters = std::mem::take(&mut known.waiters);
        self.waiting -= waiters.len();
        for waiter in waiters {
            let result = match result {
                Ok(route) => route_for(route, waiter.dgid).map(|_| route.path),
                Err(status) => Err(*status),
            };
            if let Err(status) = result {
                self.count_failure(Some(key.from), status);
            }
            let asker = waiter.asker;
            self.answers.push_back(Answer { asker, result });
        }
    }
}

/// The path for one who wants it to lead to a certain port.
fn route_for(route: &Route, dgid: Gid) -> Result<[u8; Entry::LEN], Status> {
    if dgid.is_unspecified() || dgid == route.path.dgid {
        Ok(route.entry)
    } else {
        Err(Status::NoData)
    }
}

pub(super) fn status_of_query(error: QueryError) -> Status {
    match error {
        QueryError::Timeout | QueryError::Busy => Status::TimedOut,
        _ => Status::NoData,
    }
}

fn status_of_lookup(error: LookupError) -> Status {
    match error {
        LookupError::Unanswered => Status::TimedOut,
        LookupError::Busy => Status::NoMemory,
        LookupError::NotReady | LookupError::NoCommonGroup => Status::NoData,
        LookupError::Refused(status) => Status::from(status),
    }
}
