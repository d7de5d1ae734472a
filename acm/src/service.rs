// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service: requests of clients and of the kernel in, answers out, and in between questions to
//! other hosts and to the path sources.

use std::collections::VecDeque;

use cm_msgs::Gid;
use cm_msgs::PKey;
use cm_msgs::acm::{Address, Counters, Entry, Header, Name, Op, Status};
use cm_msgs::sa::PathRecord;
use paths::source::Question;
use statemachine::{FairShare, Origin, PortId, QueryError, Random, Time};

use super::answer::{Answer, path_of, refused, write_path};
use super::asks::Numbers;
use super::cache::Key;
use super::endpoints::{Arrival, Endpoint, EndpointId, Interface, LocalPort, Naming};
use super::info;
use super::kernel;
use super::local::Local;
use super::net::{Location, Lookup, LookupError};
use super::request::ResolveRequest;
use super::requester::{Client, Requester, User, Waiter};
use super::resolver::{Outcome, Resolver, Settings, Stats};
use super::start::{Goal, SourceOf, Start};
use super::verifier::Verifier;
use super::view::KnownDestination;

/// Requests that may wait besides, for the kernel.
const WAITING_OF_KERNEL: usize = 256;

/// The service.
#[derive(Debug)]
pub struct Service {
    local: Local,
    resolver: Resolver,
    verifier: Verifier,
    /// Requests that wait.
    waiting: FairShare<User>,
    answers: VecDeque<Answer>,
    kernel_requests: u64,
}

impl Service {
    /// Knows nothing yet. `random` makes the numbers of questions.
    pub fn new(settings: Settings, mut random: Random) -> Self {
        Self {
            local: Local::default(),
            waiting: FairShare::new(settings.max_waiting, WAITING_OF_KERNEL),
            resolver: Resolver::new(settings, random.split()),
            verifier: Verifier::new(random),
            answers: VecDeque::new(),
            kernel_requests: 0,
        }
    }

    /// Other settings from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.waiting.set_limit(settings.max_waiting);
        self.resolver.set_settings(settings);
    }

    /// Ports of addresses, from a file.
    pub fn set_known(&mut self, known: pathdb::Addresses) {
        self.local.addresses = known;
    }

    /// Paths, from a file.
    pub fn set_routes(&mut self, routes: Vec<PathRecord>) {
        self.local.set_routes(routes);
    }

    /// What this host's ports are called; `None`: after the host, as `ib_acme -A` does it.
    pub fn set_names(&mut self, namings: Option<Vec<Naming>>, host: Option<Name>) {
        self.local.endpoints.set_names(namings, host);
        self.resolver.forget_moved(&self.local);
    }

    /// The addresses of this host's IPoIB interfaces.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>) {
        self.local.endpoints.set_interfaces(interfaces);
        self.resolver.forget_moved(&self.local);
    }

    /// The next address that has come to an endpoint, which other hosts are to be told.
    pub fn poll_arrival(&mut self) -> Option<Arrival> {
        self.local.endpoints.poll_arrival()
    }

    /// The next address that this host does not have any more, to be asked for before
    /// [`Service::poll_arrival`].
    pub fn poll_departure(&mut self) -> Option<Address> {
        self.local.endpoints.poll_departure()
    }

    /// Something says that the port `gid` has an address in a partition: a question that its host asked,
    /// or the kernel's neighbour table. Nobody has proven it.
    pub fn handle_claim(&mut self, now: Time, pkey: PKey, address: Address, gid: Gid) {
        for from in self.local.endpoints.in_partition(pkey) {
            let key = Key { from, to: address };
            self.resolver.handle_claim(now, &key, gid);
        }
    }

    /// The endpoint that has an address, if its port is up.
    pub fn owner(&self, address: &Address) -> Option<&Endpoint> {
        self.local.endpoints.owner(address)
    }

    /// Endpoints that answer for something, and whose ports are up.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.local.endpoints.listed(None)
    }

    /// An endpoint.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.local.endpoints.get(id)
    }

    /// The name of an endpoint's device.
    pub fn device(&self, id: EndpointId) -> Option<&str> {
        let port = self.local.endpoints.get(id)?.port;
        Some(&self.local.endpoints.port(port)?.device)
    }

    /// A port is (now) like this.
    pub fn handle_port(&mut self, id: PortId, port: LocalPort) {
        let endpoints = &mut self.local.endpoints;
        let Some(was) = endpoints.port(id).cloned() else {
            return endpoints.set_port(id, port);
        };
        let moved = was.start() != port.start();
        let changed = was.surroundings() != port.surroundings();
        endpoints.set_port(id, port);
        let of_port = endpoints.on(id);
        if moved {
            self.resolver.drop_from(&of_port);
        } else if changed {
            self.resolver.doubt_surroundings(&of_port);
        }
    }

    /// Something about a port is different: its paths are asked about again.
    pub fn handle_port_event(&mut self, now: Time, id: PortId) {
        let of_port = self.local.endpoints.on(id);
        self.resolver.doubt_from(now, &of_port);
    }

    /// A port has gone.
    pub fn handle_port_gone(&mut self, id: PortId) {
        let of_port = self.local.endpoints.on(id);
        self.local.endpoints.remove_port(id);
        self.resolver.drop_from(&of_port);
    }

    /// The fabric has changed: every path is asked about again before it is given away, or a little
    /// later, as far as anybody can be asked.
    pub fn handle_fabric_changed(&mut self, now: Time) {
        self.resolver.doubt_all(now);
    }

    /// A switch reported that a link of its own has changed.
    pub fn handle_link_report(&mut self, now: Time) {
        self.resolver.handle_link_report(now);
    }

    /// A port has left the fabric.
    pub fn handle_gid_gone(&mut self, gid: Gid) {
        self.resolver.handle_gid_gone(gid);
    }

    /// Forgets all destinations that nobody waits for; how many.
    pub fn flush(&mut self) -> usize {
        self.resolver.flush()
    }

    /// A client has gone.
    pub fn handle_client_gone(&mut self, gone: u32) {
        let is_gone = |requester: &Requester| matches!(requester, Requester::Client { client, .. } if client.key == gone);
        self.answers.retain(|answer| !is_gone(&answer.requester));
        // Those that wait are found out when their answers come.
    }

    /// Takes the request `message` of a client, of which `header` is the beginning. The answer is
    /// added to `out`, or comes later from [`Service::poll_answer`].
    pub fn handle_request(
        &mut self,
        now: Time,
        client: Client,
        header: &Header,
        message: &[u8],
        source_of: &mut SourceOf<'_>,
        out: &mut Vec<u8>,
    ) {
        let body = message.get(Header::LEN..).unwrap_or(&[]);
        match header.op {
            Op::Resolve => self.resolve_request(now, client, header, body, source_of, out),
            Op::Perf => info::perf_request(&self.local.endpoints, header, body, out),
            Op::Endpoint => info::endpoint_request(&self.local.endpoints, header, out),
            Op::Other(_) => out.extend(header.answer(Status::Invalid).encode()),
        }
    }

    fn resolve_request(
        &mut self,
        now: Time,
        client: Client,
        header: &Header,
        body: &[u8],
        source_of: &mut SourceOf<'_>,
        out: &mut Vec<u8>,
    ) {
        let start = ResolveRequest::read(body);
        let start = start.and_then(|request| Start::of(request, &self.local, source_of));
        let Start { from, extra, goal } = match start {
            Ok(start) => start,
            Err(status) => {
                self.local.endpoints.count_request(None);
                self.local.endpoints.count_failure(None, status);
                out.extend(header.answer(status).encode());
                return;
            }
        };
        let requester = Requester::Client {
            client,
            header: *header,
            extra,
        };
        match self.begin(now, from, goal, requester) {
            Some(Ok(entry)) => write_path(header, &entry, extra, out),
            Some(Err(status)) => out.extend(refused(header, status).encode()),
            None => {}
        }
    }

    /// A path request of the kernel.
    pub fn handle_kernel(&mut self, now: Time, request: kernel::Request) {
        self.kernel_requests += 1;
        let requester = Requester::Kernel(request);
        let start = match request.needs_sa() {
            true => Err(Status::NoData),
            false => Start::of_path(&self.local, &request.path, false),
        };
        let found = match start {
            Ok(start) => self.begin(now, start.from, start.goal, requester),
            Err(status) => {
                self.local.endpoints.count_request(None);
                self.local.endpoints.count_failure(None, status);
                Some(Err(status))
            }
        };
        if let Some(found) = found {
            let result = found.map(|entry| path_of(&entry));
            self.answers.push_back(Answer { requester, result });
        }
    }

    /// The answer, unless it comes later.
    fn begin(
        &mut self,
        now: Time,
        from: EndpointId,
        goal: Goal,
        requester: Requester,
    ) -> Option<Result<[u8; Entry::LEN], Status>> {
        let found = match goal {
            Goal::Resolve { to, dgid, no_delay } => {
                self.local.endpoints.count_request(Some(from));
                let waiter = Waiter { requester, dgid };
                self.resolve(now, Key { from, to }, no_delay, waiter)
            }
            Goal::Verify(path) => {
                self.local.endpoints.count_request(None);
                self.verify(now, from, requester, path).err().map(Err)
            }
        };
        match found {
            Some(Ok(_)) => {
                let endpoints = &mut self.local.endpoints;
                endpoints.count(from, |counters| &mut counters.route_cache);
            }
            Some(Err(status)) => self.local.endpoints.count_failure(Some(from), status),
            None => {}
        }
        found
    }

    fn resolve(
        &mut self,
        now: Time,
        key: Key,
        no_delay: bool,
        waiter: Waiter,
    ) -> Option<Result<[u8; Entry::LEN], Status>> {
        let dgid = waiter.dgid;
        if let Some(found) = self.resolver.find(now, &key, dgid, no_delay) {
            return Some(found);
        }
        let user = waiter.requester.user();
        match self.resolver.ask(now, &mut self.local, key, user) {
            Err(status) => Some(Err(status)),
            Ok(false) => {
                let found = self.resolver.find(now, &key, dgid, no_delay);
                Some(found.unwrap_or(Err(Status::NoData)))
            }
            Ok(true) if no_delay => Some(Err(Status::NoData)),
            Ok(true) if !self.may_wait(user) => Some(Err(Status::NoMemory)),
            Ok(true) => {
                self.resolver.wait(&key, waiter);
                None
            }
        }
    }

    fn verify(
        &mut self,
        now: Time,
        from: EndpointId,
        requester: Requester,
        path: PathRecord,
    ) -> Result<(), Status> {
        let user = requester.user();
        if !self.may_wait(user) {
            return Err(Status::NoMemory);
        }
        let local = &mut self.local;
        let asked = self.verifier.verify(now, local, from, requester, path);
        asked.inspect_err(|_| self.waiting.give_back(user, 1))
    }

    /// Whether another request of the user may wait; then it does.
    fn may_wait(&mut self, user: User) -> bool {
        self.waiting.take(user, 1, user.is_privileged())
    }

    /// The next question to other hosts.
    pub fn poll_lookup(&mut self) -> Option<Lookup> {
        self.resolver.poll_lookup()
    }

    /// The next question to the path sources.
    pub fn poll_question(&mut self) -> Option<Question> {
        self.resolver
            .poll_question()
            .or_else(|| self.verifier.poll_question())
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let Outcome { requester, result } = self
            .resolver
            .poll_outcome()
            .or_else(|| self.verifier.poll_outcome())?;
        self.waiting.give_back(requester.user(), 1);
        Some(Answer { requester, result })
    }

    /// Other hosts answered, or did not.
    pub fn handle_lookup(&mut self, now: Time, number: u32, result: Result<Location, LookupError>) {
        let local = &mut self.local;
        self.resolver.handle_lookup(now, local, number, result);
    }

    /// The path sources answered.
    pub fn handle_paths(
        &mut self,
        now: Time,
        number: u32,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let local = &mut self.local;
        match Numbers::of(number) {
            Numbers::Even => self
                .resolver
                .handle_paths(now, local, number, origin, result),
            Numbers::Odd => self.verifier.handle_paths(local, number, result),
        }
    }

    /// When [`Service::handle_time`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let times = [self.resolver.poll_timeout(), self.verifier.poll_timeout()];
        times.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_time(&mut self, now: Time) {
        self.resolver.handle_time(now, &mut self.local);
        self.verifier.handle_time(now, &mut self.local);
    }

    /// What was done, as ibacm counts it.
    pub fn counters(&self) -> Counters {
        self.local.endpoints.counters()
    }

    /// What was done besides.
    pub fn stats(&self) -> Stats {
        Stats {
            kernel_requests: self.kernel_requests,
            ..self.resolver.stats()
        }
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.total()
    }

    /// All destinations, in no order.
    pub fn destinations(&self, now: Time) -> impl Iterator<Item = KnownDestination> {
        let destinations = self.resolver.destinations();
        destinations.map(move |(key, known)| KnownDestination::of(key, known, now))
    }
}
