// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service: requests in, answers out, and in between questions to other hosts and to the path
//! sources.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::acm::{Address, Counters, Entry, Header, Status};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid, PKey};
use statemachine::{Origin, PathQuery, PortId, QueryError, Time};

use super::cache::{Asking, Cache, Destination, Key, NEVER, Route, RouteOrigin, Waiter, until};
use super::doubtful::Doubtful;
use super::endpoints::{Endpoint, EndpointId, Endpoints, Interface, LocalPort, Naming};
use super::kernel;
use super::net::{Found, Lookup, LookupError, PortPartition};
use crate::source::{self, Question};

/// How long a path in doubt is given away after nobody could be asked about it.
const DOUBT: Duration = Duration::from_secs(10);
/// Paths in doubt that are asked about at the same time without anybody wanting them.
const RECHECKS: usize = 16;
/// How long after somebody wanted it a path in doubt is still asked about without anybody wanting
/// it. Others are asked about when they are wanted again.
const WANTED: Duration = Duration::from_secs(3600);
/// After a link's change was reported, paths are doubted again this much later, and four and sixteen
/// times as late: switches report before the subnet manager has routed around it, which takes OpenSM
/// a quarter of a second for 1,000 hosts and a dozen seconds for 12,000.
const SETTLE: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
];
/// How often what is too old is looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// What the service goes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long it is believed which port has an address; zero: for ever.
    pub address_timeout: Duration,
    /// How long a path is believed; zero: for ever.
    pub route_timeout: Duration,
    /// How long it is believed that there is no path.
    pub negative: Duration,
    /// The path of an address of this host to itself needs no question.
    pub loopback: bool,
    /// Destinations kept.
    pub max_destinations: usize,
    /// Requests that wait at the same time.
    pub max_waiting: usize,
}

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A client.
    Client {
        /// Its key.
        client: u32,
        /// The header of its request.
        header: Header,
        /// What is to be told with the path.
        with: With,
    },
    /// The kernel.
    Kernel(kernel::Request),
}

/// What an answer to a client says besides the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum With {
    /// Nothing.
    Nothing,
    /// The source that was chosen, where the client left the choice.
    Source(Address),
    /// That the SA knows the path.
    Verification,
}

/// An answer that took a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who asked.
    pub asker: Asker,
    /// The path, or why there is none.
    pub result: Result<PathRecord, Status>,
}

/// What a number stands for that somebody was asked under.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Host(Key),
    Path(Key),
    Verify(EndpointId, Asker, PathRecord),
}

/// The service.
#[derive(Debug)]
pub struct Service {
    pub(super) settings: Settings,
    pub(super) endpoints: Endpoints,
    pub(super) cache: Cache,
    /// Ports of addresses, from a file.
    known: pathdb::Addresses,
    /// Paths, from a file, by the port they start from and the port they lead to.
    routes: HashMap<(Gid, Gid), PathRecord>,
    asked: HashMap<u32, Asked>,
    next_number: u32,
    pub(super) waiting: usize,
    lookups: VecDeque<Lookup>,
    questions: VecDeque<Question>,
    pub(super) answers: VecDeque<Answer>,
    /// When paths are doubted again, the first time last.
    settling: Vec<Time>,
    /// Paths in doubt, to be asked about.
    doubtful: Doubtful,
    rechecking: HashSet<Key>,
    recheck_at: Time,
    sweep_at: Time,
    pub(super) counters: Counters,
    pub(super) stats: Stats,
}

/// What ibacm does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests of the kernel.
    pub kernel_requests: u64,
    /// Paths that were asked about because the fabric had changed.
    pub rechecked: u64,
    /// Destinations dropped because their port had gone or no path led there any more.
    pub dropped: u64,
}

impl Service {
    /// Knows nothing yet. `first_number` should differ from start to start.
    pub fn new(settings: Settings, first_number: u32) -> Self {
        Self {
            settings,
            endpoints: Endpoints::default(),
            cache: Cache::default(),
            known: pathdb::Addresses::default(),
            routes: HashMap::new(),
            asked: HashMap::new(),
            next_number: first_number,
            waiting: 0,
            lookups: VecDeque::new(),
            questions: VecDeque::new(),
            answers: VecDeque::new(),
            settling: Vec::new(),
            doubtful: Doubtful::default(),
            rechecking: HashSet::new(),
            recheck_at: Time(0),
            sweep_at: NEVER,
            counters: Counters::default(),
            stats: Stats::default(),
        }
    }

    /// Other settings from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Ports of addresses, from a file.
    pub fn set_known(&mut self, known: pathdb::Addresses) {
        self.known = known;
    }

    /// Paths, from a file.
    pub fn set_routes(&mut self, routes: Vec<PathRecord>) {
        let routes = routes.into_iter();
        self.routes = routes
            .map(|route| ((route.sgid, route.dgid), route))
            .collect();
    }

    /// What this host's ports are called; `None`: after the host, as `ib_acme -A` does it.
    pub fn set_names(&mut self, namings: Option<Vec<Naming>>, host: Option<cm_msgs::acm::Name>) {
        self.endpoints.set_names(namings, host);
        self.forget_moved();
    }

    /// The addresses of this host's IPoIB interfaces.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>) {
        self.endpoints.set_interfaces(interfaces);
        self.forget_moved();
    }

    /// Forgets what was known of addresses that have come to this host, or left it.
    fn forget_moved(&mut self) {
        let endpoints = &self.endpoints;
        self.cache.drop_routes(|key, route| {
            let owner = endpoints.owner(&key.to);
            let gid = owner
                .and_then(|owner| endpoints.port(owner.port))
                .map(|port| port.status.gid);
            match route.origin {
                RouteOrigin::Loopback => owner.is_none_or(|owner| owner.id != key.from),
                _ => gid.is_some_and(|gid| gid != route.path.dgid),
            }
        });
    }

    /// The endpoint that has an address, if its port is up.
    pub fn owner(&self, address: &Address) -> Option<&Endpoint> {
        self.endpoints.owner(address)
    }

    /// Endpoints that answer for something, and whose ports are up.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.listed(None)
    }

    /// A port is (now) like this.
    pub fn handle_port(&mut self, id: PortId, port: LocalPort) {
        let was = self.endpoints.port(id).map(|was| was.status.clone());
        let now = port.status.clone();
        self.endpoints.set_port(id, port);
        let Some(was) = was else {
            return;
        };
        let of_port = self.endpoints_of(id);
        if (was.lid, was.gid, was.mtu) != (now.lid, now.gid, now.mtu) {
            self.cache.drop_routes(|key, _| of_port.contains(&key.from));
            self.cache.outdate(|from| of_port.contains(&from));
        } else if (was.active, was.sm_lid) != (now.active, now.sm_lid) {
            let doubtful = self.cache.doubt(|from| of_port.contains(&from));
            self.doubtful.extend(doubtful);
        }
    }

    /// Something about a port is different: its paths are asked about again.
    pub fn handle_port_event(&mut self, now: Time, id: PortId) {
        let of_port = self.endpoints_of(id);
        let doubtful = self.cache.doubt(|from| of_port.contains(&from));
        self.doubtful.extend(doubtful);
        self.recheck_at = now;
    }

    /// A port has gone.
    pub fn handle_port_gone(&mut self, id: PortId) {
        let of_port = self.endpoints_of(id);
        self.endpoints.remove_port(id);
        self.cache.drop_routes(|key, _| of_port.contains(&key.from));
    }

    fn endpoints_of(&self, id: PortId) -> Vec<EndpointId> {
        let all = self.endpoints.in_order();
        all.filter(|endpoint| endpoint.port == id)
            .map(|endpoint| endpoint.id)
            .collect()
    }

    /// The fabric has changed: every path is asked about again before it is given away, or a little
    /// later, as far as anybody can be asked.
    pub fn handle_fabric_changed(&mut self, now: Time) {
        self.doubtful.extend(self.cache.doubt(|_| true));
        self.recheck_at = now;
    }

    /// A switch reported that a link of its own has changed. If another did so just before, what
    /// nobody wants is asked about when that is due again, and not for each report.
    pub fn handle_link_report(&mut self, now: Time) {
        let soon = now + SETTLE[0];
        let due = self.settling.last().copied().filter(|at| *at < soon);
        self.handle_fabric_changed(now);
        self.recheck_at = due.unwrap_or(now);
        self.settling = SETTLE.iter().rev().map(|pause| now + *pause).collect();
        self.settling.extend(due);
    }

    /// A port has left the fabric.
    pub fn handle_gid_gone(&mut self, gid: Gid) {
        self.stats.dropped += self.cache.drop_port(gid) as u64;
    }

    /// Forgets all destinations that nobody waits for; how many.
    pub fn flush(&mut self) -> usize {
        self.cache.clear()
    }

    /// A client has gone.
    pub fn handle_client_gone(&mut self, gone: u32) {
        let is_gone =
            |asker: &Asker| matches!(asker, Asker::Client { client, .. } if *client == gone);
        self.answers.retain(|answer| !is_gone(&answer.asker));
        // Those that wait are found out when their answers come.
    }

    /// The next question to other hosts.
    pub fn poll_lookup(&mut self) -> Option<Lookup> {
        self.lookups.pop_front()
    }

    /// The next question to the path sources.
    pub fn poll_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// When [`Service::handle_time`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let room = self.rechecking.len() < RECHECKS;
        let recheck = (room && !self.doubtful.is_empty()).then_some(self.recheck_at);
        let sweep = (self.sweep_at != NEVER).then_some(self.sweep_at);
        let settle = self.settling.last().copied();
        [recheck, sweep, settle].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_time(&mut self, now: Time) {
        if self.sweep_at <= now {
            self.cache.forget_old(now);
            self.sweep_at = if self.cache.len() == 0 {
                NEVER
            } else {
                now + SWEEP
            };
        }
        while self.settling.pop_if(|at| *at <= now).is_some() {
            self.handle_fabric_changed(now);
        }
        if self.recheck_at <= now {
            self.recheck(now);
        }
    }

    fn recheck(&mut self, now: Time) {
        while self.rechecking.len() < RECHECKS
            && let Some(key) = self.doubtful.pop()
        {
            let due = self.cache.get(&key).is_some_and(|known| {
                known.asking.is_none()
                    && now < known.wanted_at + WANTED
                    && known.route.as_ref().is_some_and(|route| route.doubtful)
            });
            if due {
                self.stats.rechecked += 1;
                self.rechecking.insert(key);
                self.advance(now, key);
            }
        }
    }

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
        } else if self.sweep_at == NEVER {
            self.sweep_at = now + SWEEP;
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
    fn advance(&mut self, now: Time, key: Key) {
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

    /// Where an address is, if that is known without asking.
    fn port_of(&self, now: Time, key: Key, pkey: PKey) -> Option<Port> {
        match key.to {
            Address::Gid(gid) => return Some(Port::Gid(gid)),
            Address::Lid(lid) => return Some(Port::Lid(lid)),
            Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => {}
        }
        let own = self.endpoints.owner(&key.to);
        let own = own.and_then(|owner| self.endpoints.port(owner.port));
        let own = own.map(|port| port.status.gid);
        let cached = || self.cache.get(&key)?.gid(now);
        own.or_else(|| self.listed(&key.to, pkey))
            .or_else(cached)
            .map(Port::Gid)
    }

    /// The port of an address by the file.
    pub(super) fn listed(&self, address: &Address, pkey: PKey) -> Option<Gid> {
        let listed = |address: pathdb::Address| {
            let mut entries = self.known.find(&address);
            let entry = entries.find(|entry| (entry.pkey.0 ^ pkey.0) & 0x7fff == 0)?;
            Some(Gid(entry.gid.0))
        };
        match address {
            Address::Ip(ip) => listed(IpAddr::V4(*ip).into()),
            Address::Ip6(ip) => listed(IpAddr::V6(*ip).into()),
            // As it is written, and then without regard to case: the file has it in one way.
            Address::Name(name) => {
                let name = name.to_string();
                let written = name.parse().ok().and_then(listed);
                written.or_else(|| name.to_ascii_lowercase().parse().ok().and_then(listed))
            }
            Address::Gid(_) | Address::Lid(_) => None,
        }
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
        if let Some(known) = self.cache.get_mut(&key) {
            known.asking = Some(Asking::Host(number));
        }
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
        if let Some(known) = self.cache.get_mut(&key) {
            known.asking = Some(Asking::Path(number));
            known.outdated = false;
        }
    }

    fn ask(&mut self, asked: Asked) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.asked.insert(self.next_number, asked);
        self.next_number
    }

    /// Asks subnet administration, and nobody else, whether there is such a path.
    ///
    /// # Errors
    /// The endpoint has gone, or too many wait.
    pub(super) fn verify(
        &mut self,
        from: EndpointId,
        asker: Asker,
        path: PathRecord,
    ) -> Result<(), Status> {
        let endpoint = self.endpoints.get(from).ok_or(Status::SourceAddress)?;
        if self.waiting >= self.settings.max_waiting {
            return Err(Status::NoMemory);
        }
        self.waiting += 1;
        let (port, pkey) = (endpoint.port, endpoint.pkey);
        let sgid = match self.endpoints.port(port) {
            Some(local) if path.sgid.is_unspecified() => local.status.gid,
            _ => path.sgid,
        };
        let number = self.ask(Asked::Verify(from, asker, path));
        self.count(from, |counters| &mut counters.route_query);
        let query = PathQuery {
            query: number,
            port,
            sgid,
            dgid: path.dgid,
            slid: (path.slid != Lid(0)).then_some(path.slid),
            dlid: (path.dlid != Lid(0)).then_some(path.dlid),
            pkey: if path.pkey == PKey(0) {
                pkey
            } else {
                path.pkey
            },
        };
        self.questions.push_back(Question {
            asker: source::Asker::Acm(number),
            query,
            only: Some(Origin::Sa),
        });
        Ok(())
    }

    /// Other hosts answered, or did not.
    pub fn handle_lookup(&mut self, now: Time, number: u32, result: Result<Found, LookupError>) {
        let Some(Asked::Host(key)) = self.asked.remove(&number) else {
            return;
        };
        if let Some(known) = self.cache.get_mut(&key) {
            known.asking = None;
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
    pub fn handle_paths(
        &mut self,
        now: Time,
        number: u32,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        match self.asked.remove(&number) {
            Some(Asked::Path(key)) => self.path_answered(now, key, origin, result),
            Some(Asked::Verify(from, asker, path)) => self.verified(from, asker, &path, result),
            Some(Asked::Host(_)) | None => {}
        }
    }

    fn path_answered(
        &mut self,
        now: Time,
        key: Key,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(known) = self.cache.get_mut(&key) else {
            return;
        };
        known.asking = None;
        if known.outdated {
            return self.advance(now, key);
        }
        let found = result.and_then(|records| records.into_iter().next().ok_or(QueryError::NoPath));
        match found {
            Ok(path) => self.settle(now, key, path, RouteOrigin::Source(origin)),
            Err(QueryError::NoPath) => {
                if known.route.take().is_some() {
                    self.stats.dropped += 1;
                }
                // The address may be at another port by now.
                known.gid = None;
                self.refuse(now, key, Status::NoData);
            }
            Err(error) => self.unanswered(now, key, error),
        }
        if self.recheck_at <= now {
            self.recheck(now);
        }
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
        if let Some(known) = self.cache.get_mut(&key) {
            known.checked_until = now + DOUBT;
        }
        self.recheck_at = now + DOUBT;
        self.doubtful.extend([key]);
        self.complete(key, &Ok(old));
    }

    fn verified(
        &mut self,
        from: EndpointId,
        asker: Asker,
        path: &PathRecord,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        self.waiting -= 1;
        let record = match result {
            Ok(records) => {
                let same = records.into_iter().find(|record| is_same(path, record));
                same.ok_or(Status::NoData)
            }
            Err(error) => Err(status_of_query(error)),
        };
        if record.is_err() {
            self.count(from, |counters| &mut counters.error);
        }
        self.answers.push_back(Answer {
            asker,
            result: record,
        });
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
        self.rechecking.remove(&key);
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

    /// Counts for the service and for an endpoint.
    pub(super) fn count(&mut self, id: EndpointId, which: fn(&mut Counters) -> &mut u64) {
        *which(&mut self.counters) += 1;
        if let Some(counters) = self.endpoints.counters(id) {
            *which(counters) += 1;
        }
    }

    /// Counts a request that failed.
    pub(super) fn count_failure(&mut self, id: Option<EndpointId>, status: Status) {
        let which: fn(&mut Counters) -> &mut u64 = match status {
            Status::NoData => |counters| &mut counters.no_data,
            _ => |counters| &mut counters.error,
        };
        match id {
            Some(id) => self.count(id, which),
            None => *which(&mut self.counters) += 1,
        }
    }
}

/// Where an address is.
enum Port {
    Gid(Gid),
    Lid(Lid),
}

/// The path for one who wants it to lead to a certain port.
fn route_for(route: &Route, dgid: Gid) -> Result<[u8; Entry::LEN], Status> {
    if dgid.is_unspecified() || dgid == route.path.dgid {
        Ok(route.entry)
    } else {
        Err(Status::NoData)
    }
}

/// Whether `record` is the path that a client has, as far as it says.
fn is_same(path: &PathRecord, record: &PathRecord) -> bool {
    let same = |said: u64, is: u64| said == 0 || said == is;
    same(path.dlid.0.into(), record.dlid.0.into())
        && same(path.slid.0.into(), record.slid.0.into())
        && same(path.sl.into(), record.sl.into())
        && same(path.mtu.into(), record.mtu.into())
        && same(path.rate.into(), record.rate.into())
}

fn status_of_query(error: QueryError) -> Status {
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
