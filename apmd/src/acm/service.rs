// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service: requests in, answers out, and in between questions to other hosts and to the path
//! sources.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::acm::{Address, Counters, Header, Status};
use cm_msgs::sa::PathRecord;
use statemachine::{Origin, PortId, QueryError, Time};

use super::cache::{Cache, Key, NEVER, RouteOrigin};
use super::endpoints::{Endpoint, EndpointId, Endpoints, Interface, LocalPort, Naming};
use super::kernel;
use super::net::Lookup;
use super::rechecks::Rechecks;
use crate::source::Question;

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
pub(super) enum Asked {
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
    pub(super) known: pathdb::Addresses,
    /// Paths, from a file, by the port they start from and the port they lead to.
    pub(super) routes: HashMap<(Gid, Gid), PathRecord>,
    pub(super) asked: HashMap<u32, Asked>,
    next_number: u32,
    pub(super) waiting: usize,
    pub(super) lookups: VecDeque<Lookup>,
    pub(super) questions: VecDeque<Question>,
    pub(super) answers: VecDeque<Answer>,
    pub(super) rechecks: Rechecks,
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
            rechecks: Rechecks::default(),
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
        let Some(was) = self.endpoints.port(id).cloned() else {
            return self.endpoints.set_port(id, port);
        };
        let moved = was.start() != port.start();
        let changed = was.surroundings() != port.surroundings();
        self.endpoints.set_port(id, port);
        let of_port = self.endpoints_of(id);
        if moved {
            self.cache.drop_routes(|key, _| of_port.contains(&key.from));
            self.cache.outdate(|from| of_port.contains(&from));
        } else if changed {
            // Of these nobody is asked.
            self.cache.drop_routes(|key, route| {
                of_port.contains(&key.from) && route.origin == RouteOrigin::Loopback
            });
            self.rechecks
                .add(self.cache.doubt(|from| of_port.contains(&from)));
        }
    }

    /// Something about a port is different: its paths are asked about again.
    pub fn handle_port_event(&mut self, now: Time, id: PortId) {
        let of_port = self.endpoints_of(id);
        let doubtful = self.cache.doubt(|from| of_port.contains(&from));
        self.rechecks.start(now, doubtful);
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
        self.rechecks.start(now, self.cache.doubt(|_| true));
    }

    /// A switch reported that a link of its own has changed. If another did so just before, what
    /// nobody wants is asked about when that is due again, and not for each report.
    pub fn handle_link_report(&mut self, now: Time) {
        let doubtful = self.cache.doubt(|_| true);
        self.rechecks.start_with_report(now, doubtful);
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
        let sweep = (self.sweep_at != NEVER).then_some(self.sweep_at);
        sweep.into_iter().chain(self.rechecks.poll_timeout()).min()
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
        while self.rechecks.settled(now) {
            self.handle_fabric_changed(now);
        }
        self.recheck(now);
    }

    /// What will be known is too old one day.
    pub(super) fn sweep_later(&mut self, now: Time) {
        if self.sweep_at == NEVER {
            self.sweep_at = now + SWEEP;
        }
    }

    /// Asks about paths in doubt, as many as may be.
    pub(super) fn recheck(&mut self, now: Time) {
        while let Some(key) = self.rechecks.next(now, &self.cache) {
            self.stats.rechecked += 1;
            self.advance(now, key);
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

    /// A number for what is asked.
    pub(super) fn ask(&mut self, asked: Asked) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.asked.insert(self.next_number, asked);
        self.next_number
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
