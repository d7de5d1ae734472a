// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps towards a path: from memory, or to the port that has the address, then to the path,
//! and to all who wait.

use std::collections::VecDeque;
use std::time::Duration;

use cm_msgs::acm::{Address, Entry, Status};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid};
use paths::source::{Question, Urgency};
use statemachine::{Origin, PathQuery, QueryError, Random, Time, TokenBucket};

use super::asks::{Asks, Numbers};
use super::cache::{Asking, Cache, Destination, Key, NEVER, Route, RouteOrigin, until};
use super::endpoints::EndpointId;
use super::local::Local;
use super::net::{Location, Lookup, LookupError, PortPartition};
use super::rechecks::Rechecks;
use super::requester::{Requester, User, Waiter};

/// How long claims of other ports are ignored after the hosts were asked about one.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);
/// 16 claims at once, and then 16 a second, are checked before anybody wants the address; others when it is wanted.
type ClaimBudget = TokenBucket<16, 62_500>;
/// How often what is too old is looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// What the resolver goes by.
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

/// What ibacm does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests of the kernel.
    pub kernel_requests: u64,
    /// Paths that were asked about because the fabric had changed.
    pub rechecked: u64,
    /// Destinations dropped because their port had gone or no path led there any more.
    pub dropped: u64,
    /// Addresses that were found at another port than before.
    pub moved: u64,
}

/// A request that waited is answered.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) requester: Requester,
    pub(crate) result: Result<PathRecord, Status>,
}

/// What is known of destinations, and what is asked about them.
#[derive(Debug)]
pub(crate) struct Resolver {
    settings: Settings,
    cache: Cache,
    rechecks: Rechecks,
    claim_budget: ClaimBudget,
    /// To other hosts.
    lookups: Asks<Lookup, Key>,
    /// To the path sources; even numbers.
    questions: Asks<Question, Key>,
    outcomes: VecDeque<Outcome>,
    sweep_at: Time,
    stats: Stats,
}

impl Resolver {
    /// Knows nothing yet. `random` makes the numbers of questions.
    pub(crate) fn new(settings: Settings, mut random: Random) -> Self {
        Self {
            settings,
            cache: Cache::default(),
            rechecks: Rechecks::default(),
            claim_budget: ClaimBudget::default(),
            lookups: Asks::new(Numbers::Even, random.split()),
            questions: Asks::new(Numbers::Even, random),
            outcomes: VecDeque::new(),
            sweep_at: NEVER,
            stats: Stats::default(),
        }
    }

    pub(crate) fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    pub(crate) fn destinations(&self) -> impl Iterator<Item = (&Key, &Destination)> {
        self.cache.iter()
    }

    pub(crate) fn poll_lookup(&mut self) -> Option<Lookup> {
        self.lookups.next()
    }

    pub(crate) fn poll_question(&mut self) -> Option<Question> {
        self.questions.next()
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// When [`Resolver::handle_time`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let times = [
            (self.sweep_at != NEVER).then_some(self.sweep_at),
            self.rechecks.poll_timeout(),
            self.questions.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    pub(crate) fn handle_time(&mut self, now: Time, local: &mut Local) {
        if self.sweep_at <= now {
            self.cache.forget_old(now);
            self.sweep_at = if self.cache.len() == 0 {
                NEVER
            } else {
                now + SWEEP
            };
        }
        while let Some(number) = self.questions.lost(now) {
            self.handle_paths(now, local, number, None, Err(QueryError::Timeout));
        }
        while self.rechecks.settled(now) {
            self.doubt_all(now);
        }
        self.recheck(now, local);
    }

    /// What is known of a destination, if that is an answer; it is wanted.
    pub(crate) fn find(
        &mut self,
        now: Time,
        key: &Key,
        dgid: Gid,
        no_delay: bool,
    ) -> Option<Result<[u8; Entry::LEN], Status>> {
        let known = self.cache.get_mut(key)?;
        known.wanted_at = now;
        let route = known
            .fresh(now)
            .or_else(|| known.settled(now).filter(|_| no_delay));
        match route {
            Some(route) => Some(route_for(route, dgid)),
            None => known.refused(now).map(Err),
        }
    }

    /// Asks for a destination of which nothing is known. Whether an answer will come; if not, it is
    /// known by now.
    ///
    /// # Errors
    /// There are too many destinations.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        local: &mut Local,
        key: Key,
        user: User,
    ) -> Result<bool, Status> {
        if self.sweep_at == NEVER {
            self.sweep_at = now + SWEEP;
        }
        let limit = self.settings.max_destinations;
        let known = self.cache.make(now, key, limit).ok_or(Status::NoMemory)?;
        known.wanted_at = now;
        match known.asking {
            None => self.advance(now, local, key, user)?,
            Some(Asking::Host(number)) => self.lookups.join(user, number, |_| {}),
            Some(Asking::Path(number)) => {
                let wanted = |question: &mut Question| question.urgency = Urgency::Client;
                self.questions.join(user, number, wanted);
            }
        }
        let known = self.cache.get(&key);
        Ok(known.is_some_and(|known| known.asking.is_some()))
    }

    /// A request waits for the answer to what was asked.
    pub(crate) fn wait(&mut self, key: &Key, waiter: Waiter) {
        if let Some(known) = self.cache.get_mut(key) {
            known.waiters.push(waiter);
        }
    }

    /// Takes the next step towards a path: finds the port, or asks for it; then the path.
    ///
    /// # Errors
    /// The user has asked too much.
    fn advance(
        &mut self,
        now: Time,
        local: &mut Local,
        key: Key,
        user: User,
    ) -> Result<(), Status> {
        if self.settings.loopback
            && let Some(path) = local.loopback(key.from, &key.to)
        {
            self.settle(now, local, key, path, RouteOrigin::Loopback);
            return Ok(());
        }
        let Some(pkey) = local.endpoints.get(key.from).map(|endpoint| endpoint.pkey) else {
            self.refuse(now, local, key, Status::SourceAddress);
            return Ok(());
        };
        let gid = match key.to {
            Address::Gid(gid) => Some(gid),
            Address::Lid(lid) => {
                return self.ask_path(now, local, key, user, Gid::default(), Some(lid));
            }
            Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => {
                let known = self.cache.get(&key).filter(|known| !known.claimed);
                let cached = || known?.gid(now);
                let own = local.own_gid(&key.to);
                own.or_else(|| local.listed(&key.to, pkey)).or_else(cached)
            }
        };
        match gid {
            Some(gid) => self.ask_path(now, local, key, user, gid, None),
            None => self.ask_hosts(now, local, key, user),
        }
    }

    fn ask_hosts(
        &mut self,
        now: Time,
        local: &mut Local,
        key: Key,
        user: User,
    ) -> Result<(), Status> {
        let endpoint = local.endpoints.get(key.from);
        let source = endpoint.and_then(|endpoint| endpoint.addresses.first());
        let Some((endpoint, source)) = endpoint.zip(source.map(|own| own.address)) else {
            self.refuse(now, local, key, Status::NoData);
            return Ok(());
        };
        let endpoint = PortPartition {
            port: endpoint.port,
            pkey: endpoint.pkey,
        };
        let known = self.cache.get(&key).filter(|known| known.claimed);
        let lookup = |number| Lookup {
            number,
            endpoint,
            source,
            destination: key.to,
            held_by: known.and_then(|known| known.gid(now)),
        };
        let number = self.lookups.add(now, user, key, lookup);
        self.asking(local, key, number.map(Asking::Host))
    }

    fn ask_path(
        &mut self,
        now: Time,
        local: &mut Local,
        key: Key,
        user: User,
        dgid: Gid,
        dlid: Option<Lid>,
    ) -> Result<(), Status> {
        let endpoint = local.endpoints.get(key.from);
        let port = endpoint.and_then(|endpoint| local.endpoints.port(endpoint.port));
        let Some((endpoint, port)) = endpoint.zip(port) else {
            self.refuse(now, local, key, Status::SourceAddress);
            return Ok(());
        };
        let known = self.cache.get(&key).and_then(|known| known.route(now));
        let in_doubt = known.is_some_and(|route| route.doubtful);
        if let Some(route) = local.route(port, dgid, endpoint.pkey).filter(|_| !in_doubt) {
            self.settle(now, local, key, route, RouteOrigin::File);
            return Ok(());
        }
        let urgency = match user {
            User::Recheck => Urgency::Recheck,
            _ => Urgency::Client,
        };
        let question = |number| Question {
            urgency,
            query: PathQuery {
                query: number,
                port: endpoint.port,
                sgid: port.status.gid,
                dgid,
                slid: None,
                dlid,
                pkey: endpoint.pkey,
            },
            only: None,
        };
        let number = self.questions.add(now, user, key, question);
        self.asking(local, key, number.map(Asking::Path))
    }

    /// So much is asked now, unless the user had asked too much.
    fn asking(
        &mut self,
        local: &mut Local,
        key: Key,
        asking: Option<Asking>,
    ) -> Result<(), Status> {
        let asking = asking.ok_or(Status::NoMemory)?;
        local.endpoints.count(
            key.from,
            match asking {
                Asking::Host(_) => |counters| &mut counters.addr_query,
                Asking::Path(_) => |counters| &mut counters.route_query,
            },
        );
        if let Some(known) = self.cache.get_mut(&key) {
            known.asking = Some(asking);
            known.outdated = false;
        }
        Ok(())
    }

    /// What was asked for a destination is answered. Whether the answer holds: if doubt was cast
    /// while it was under way, it is asked for once more.
    fn answered(&mut self, now: Time, local: &mut Local, key: Key) -> bool {
        let Some(known) = self.cache.get_mut(&key) else {
            return false;
        };
        known.asking = None;
        let outdated = known.outdated;
        if outdated {
            let user = self.waiting_user(&key);
            let next = self.advance(now, local, key, user);
            self.end_unless(next, local, key);
        }
        !outdated
    }

    /// Whose share it is taken from to ask on.
    fn waiting_user(&self, key: &Key) -> User {
        let known = self.cache.get(key);
        let waiter = known.and_then(|known| known.waiters.first());
        waiter.map_or(User::Recheck, |waiter| waiter.requester.user())
    }

    fn end_unless(&mut self, next: Result<(), Status>, local: &mut Local, key: Key) {
        if let Err(status) = next {
            self.complete(local, key, &Err(status));
        }
    }

    /// Other hosts answered, or did not.
    pub(crate) fn handle_lookup(
        &mut self,
        now: Time,
        local: &mut Local,
        number: u32,
        result: Result<Location, LookupError>,
    ) {
        let Some(key) = self.lookups.done(number) else {
            return;
        };
        if !self.answered(now, local, key) {
            return;
        }
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.not_found(now, local, key, error),
        };
        let until = until(now, self.settings.address_timeout);
        let until = found.until.map_or(until, |heard| heard.min(until));
        if let Some(old) = self.located(now, &key, found.gid, until) {
            return self.complete(local, key, &Ok(old));
        }
        match found.path {
            Some(path) => self.settle(now, local, key, path, RouteOrigin::Group),
            None => {
                let user = self.waiting_user(&key);
                let next = self.ask_path(now, local, key, user, found.gid, None);
                self.end_unless(next, local, key);
            }
        }
    }

    /// Nobody says where an address is; if another port has claimed it, it is not where it was, either.
    fn not_found(&mut self, now: Time, local: &mut Local, key: Key, error: LookupError) {
        if let Some(known) = self.cache.get_mut(&key)
            && known.claimed
        {
            known.claims_from = now + CLAIM_PAUSE;
            self.stats.dropped += u64::from(known.forget_port());
        }
        self.refuse(now, local, key, status_of_lookup(error));
    }

    /// The port `gid` has the address, until `until`. The path there, if another port's claim was all that
    /// spoke against it.
    fn located(&mut self, now: Time, key: &Key, gid: Gid, until: Time) -> Option<Route> {
        let known = self.cache.get_mut(key)?;
        let was = known.gid(now);
        let claimed = std::mem::take(&mut known.claimed);
        if claimed {
            known.claims_from = now + CLAIM_PAUSE;
        }
        if was.is_some_and(|was| was != gid) {
            self.stats.moved += 1;
            known.route = None;
        }
        known.gid = Some((gid, until));
        known.fresh(now).filter(|_| claimed).cloned()
    }

    /// The port `gid` says that it has an address. If another one is known to have it, the hosts are asked
    /// before that is given away again, or now, if somebody may want it.
    pub(crate) fn handle_claim(&mut self, now: Time, key: &Key, gid: Gid) {
        let Some(known) = self.cache.get_mut(key) else {
            return;
        };
        let is_news = known.gid(now).is_some_and(|was| was != gid) && now >= known.claims_from;
        if !is_news || known.claimed {
            return;
        }
        known.claimed = true;
        known.outdated = true;
        if self.claim_budget.try_take(now) {
            self.rechecks.add([*key]);
        }
    }

    /// The path sources answered.
    pub(crate) fn handle_paths(
        &mut self,
        now: Time,
        local: &mut Local,
        number: u32,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(key) = self.questions.done(number) else {
            return;
        };
        if !self.answered(now, local, key) {
            return;
        }
        let found = result.and_then(|records| records.into_iter().next().ok_or(QueryError::NoPath));
        match found {
            Ok(path) => self.settle(now, local, key, path, RouteOrigin::Source(origin)),
            Err(QueryError::NoPath) => {
                if let Some(known) = self.cache.get_mut(&key) {
                    // The address may be at another port by now.
                    self.stats.dropped += u64::from(known.forget_port());
                }
                self.refuse(now, local, key, Status::NoData);
            }
            Err(error) => self.unanswered(now, local, key, error),
        }
        self.recheck(now, local);
    }

    /// Nobody could be asked for a path: the old one stays, if there is one.
    fn unanswered(&mut self, now: Time, local: &mut Local, key: Key, error: QueryError) {
        let known = self.cache.get(&key).and_then(|known| known.route(now));
        let Some(old) = known.cloned() else {
            return self.refuse(now, local, key, status_of_query(error));
        };
        let again = self.rechecks.put_off(now, key);
        if let Some(known) = self.cache.get_mut(&key) {
            known.checked_until = again;
        }
        self.complete(local, key, &Ok(old));
    }

    /// There is a path.
    fn settle(
        &mut self,
        now: Time,
        local: &mut Local,
        key: Key,
        path: PathRecord,
        origin: RouteOrigin,
    ) {
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
            known.claimed = false;
        }
        self.complete(local, key, &Ok(route));
    }

    /// There is none.
    fn refuse(&mut self, now: Time, local: &mut Local, key: Key, status: Status) {
        let until = now + self.settings.negative;
        if let Some(known) = self.cache.get_mut(&key) {
            known.refused = Some((status, until));
        }
        self.complete(local, key, &Err(status));
    }

    /// Answers all who wait.
    fn complete(&mut self, local: &mut Local, key: Key, result: &Result<Route, Status>) {
        self.rechecks.done(&key);
        let Some(known) = self.cache.get_mut(&key) else {
            return;
        };
        for waiter in std::mem::take(&mut known.waiters) {
            let result = match result {
                Ok(route) => route_for(route, waiter.dgid).map(|_| route.path),
                Err(status) => Err(*status),
            };
            if let Err(status) = result {
                local.endpoints.count_failure(Some(key.from), status);
            }
            self.outcomes.push_back(Outcome {
                requester: waiter.requester,
                result,
            });
        }
    }

    /// Asks about paths in doubt, as many as may be.
    fn recheck(&mut self, now: Time, local: &mut Local) {
        while let Some(key) = self.rechecks.next(now, &self.cache) {
            self.stats.rechecked += 1;
            if self.advance(now, local, key, User::Recheck).is_err() {
                self.rechecks.done(&key);
                self.rechecks.put_off(now, key);
            }
        }
    }

    /// Every path is asked about again before it is given away, or a little later.
    pub(crate) fn doubt_all(&mut self, now: Time) {
        self.rechecks.start(now, self.cache.doubt(|_| true));
    }

    /// A switch reported that a link of its own has changed. If another did so just before, what
    /// nobody wants is asked about when that is due again, and not for each report.
    pub(crate) fn handle_link_report(&mut self, now: Time) {
        let doubtful = self.cache.doubt(|_| true);
        self.rechecks.start_with_report(now, doubtful);
    }

    /// Something about a port is different: its paths are asked about again.
    pub(crate) fn doubt_from(&mut self, now: Time, from: &[EndpointId]) {
        let doubtful = self.cache.doubt(|id| from.contains(&id));
        self.rechecks.start(now, doubtful);
    }

    /// Paths from these endpoints start elsewhere now: they are wrong.
    pub(crate) fn drop_from(&mut self, from: &[EndpointId]) {
        self.cache.drop_routes(|key, _| from.contains(&key.from));
        self.cache.outdate(|id| from.contains(&id));
    }

    /// What paths from these endpoints may depend on is different. Of a path of a port to itself
    /// nobody is asked.
    pub(crate) fn doubt_surroundings(&mut self, from: &[EndpointId]) {
        self.cache.drop_routes(|key, route| {
            from.contains(&key.from) && route.origin == RouteOrigin::Loopback
        });
        self.rechecks.add(self.cache.doubt(|id| from.contains(&id)));
    }

    /// Forgets what was known of addresses that have come to this host, or left it.
    pub(crate) fn forget_moved(&mut self, local: &Local) {
        self.cache.drop_routes(|key, route| {
            let owner = local.endpoints.owner(&key.to);
            match route.origin {
                RouteOrigin::Loopback => owner.is_none_or(|owner| owner.id != key.from),
                _ => {
                    let gid = local.own_gid(&key.to);
                    gid.is_some_and(|gid| gid != route.path.dgid)
                }
            }
        });
    }

    /// A port has left the fabric.
    pub(crate) fn handle_gid_gone(&mut self, gid: Gid) {
        self.stats.dropped += self.cache.drop_port(gid) as u64;
    }

    /// Forgets all destinations that nobody waits for; how many.
    pub(crate) fn flush(&mut self) -> usize {
        self.cache.clear()
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

pub(crate) fn status_of_query(error: QueryError) -> Status {
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
