// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transactions with the SA: in flight, asked again, answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::mad::Header;
use cm_msgs::sa::SaMessage;
use statemachine::{Backoff, PortId, Random, Time, Timers};

use super::exits::{Exits, Subnet};
use super::window::{Slot, WindowView, Windows};
use super::{Ask, Failure, Malformed, Response, SaRequest, User};

/// The longest wait for one copy of a request, unless its user wants more for the first.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Copies that are sent by a port's own exit after the SA has told a port that stands in for it that
/// there is no such path.
const TRIES_AFTER_NO: u8 = 3;

/// Kinds of users, each with a queue of its own.
const KINDS: usize = 7;

/// What the client may do at a time, for each port: the SA of one port's subnet may be silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests under way, if they are not lost.
    pub in_flight: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { in_flight: 32 }
    }
}

/// How many of `all` requests that may be under way may be others than path queries. The engine waits for path queries.
fn beside_paths(all: usize) -> usize {
    all.div_ceil(4)
}

/// Path queries go before all others.
const PATHS: usize = 0;
const FABRIC: usize = 1;

fn kind_of(user: User) -> usize {
    match user {
        User::Paths(_) => PATHS,
        User::Fabric(_) => FABRIC,
        User::Join(_) => 2,
        User::Inform(_) => 3,
        User::Service(_) => 4,
        User::Manager(_) => 5,
        User::Node(_) => 6,
    }
}

/// Whether another port may ask in its place. Subscriptions, memberships, services and subnet managers are of the port
/// that asks for them, and the fabric's reader sees to its ports itself.
fn may_stray(ask: &Ask) -> bool {
    kind_of(ask.user) == PATHS
}

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// To be sent.
    Due,
    /// umad waits for the answer to this copy.
    Sent(u32),
    /// The SA is busy, or not there: to be sent again when its timer says.
    Paused,
}

#[derive(Debug)]
struct Transaction {
    ask: Ask,
    stage: Stage,
    tries_left: u8,
    timeouts: Backoff,
    /// Of the next copy.
    timeout: Duration,
    /// The ports by which the copies left.
    exits: Vec<PortId>,
    /// Another port may stand in for the one that it is about.
    may_stray: bool,
}

impl Transaction {
    fn new(ask: Ask) -> Self {
        let first = Duration::from_millis(ask.timeout_ms.into());
        let mut timeouts = Backoff::new(first, first.max(TIMEOUT_MAX));
        Self {
            stage: Stage::Due,
            tries_left: ask.tries.max(1),
            timeout: timeouts.next_delay(),
            timeouts,
            exits: Vec::new(),
            may_stray: may_stray(&ask),
            ask,
        }
    }

    /// The port by which the last copy left.
    fn exit(&self) -> PortId {
        self.exits.last().copied().unwrap_or(self.ask.port)
    }

    fn is_astray(&self) -> bool {
        self.exit() != self.ask.port
    }

    /// The SA knows nothing for the port that stood in. That one may be on another subnet that looks
    /// the same, or in none of the partitions, so the port itself has to ask; but not for long, since
    /// there was a reason not to let it.
    fn ask_by_itself(&mut self) {
        self.may_stray = false;
        self.tries_left = self.tries_left.clamp(1, TRIES_AFTER_NO);
        self.stage = Stage::Due;
        self.timeouts.reset();
        self.timeout = self.timeouts.next_delay();
    }

    /// As if nothing had been sent yet.
    fn start_over(&mut self) {
        self.stage = Stage::Due;
        self.tries_left = self.ask.tries.max(1);
        self.timeouts.reset();
        self.timeout = self.timeouts.next_delay();
        self.exits.clear();
        self.may_stray = may_stray(&self.ask);
    }
}

/// Transactions of one port.
#[derive(Clone, Copy, Default)]
struct Running {
    paths: usize,
    others: usize,
}

impl Running {
    /// One more.
    fn and(self, transaction: &Transaction) -> Self {
        let is_path = kind_of(transaction.ask.user) == PATHS;
        Self {
            paths: self.paths + usize::from(is_path),
            others: self.others + usize::from(!is_path),
        }
    }
}

/// What is to be asked from one port.
#[derive(Debug, Default)]
struct Waiting {
    of_kinds: [VecDeque<Ask>; KINDS],
    /// The kind of user that has the next turn.
    turn: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.of_kinds.iter().all(VecDeque::is_empty)
    }

    /// The next request to begin beside those that run: a path query, or else the other kinds of users have it in turns.
    fn next(&mut self, running: Running, limit: usize) -> Option<Ask> {
        if running.paths + running.others >= limit {
            return None;
        }
        if let Some(ask) = self.of_kinds[PATHS].pop_front() {
            return Some(ask);
        }
        if running.others >= beside_paths(limit) {
            return None;
        }
        let kind = (0..KINDS)
            .map(|step| (self.turn + step) % KINDS)
            .find(|kind| !self.of_kinds[*kind].is_empty())?;
        self.turn = (kind + 1) % KINDS;
        self.of_kinds[kind].pop_front()
    }
}

/// Requests to subnet administration, on all ports.
///
/// Ask, then send what [`poll_send`](Self::poll_send) gives, tell what came of it, and collect
/// [`poll_reply`](Self::poll_reply): every [`Ask`] gets one. Each copy of a request has a
/// transaction ID of its own: umad knows the older copies for as long as it waits for them, and a
/// transfer that came too late must not be mixed with the one that was asked for again.
#[derive(Debug)]
pub struct SaClient {
    limits: Limits,
    waiting: BTreeMap<PortId, Waiting>,
    /// In the order in which they were begun.
    running: BTreeMap<u64, Transaction>,
    begun: u64,
    /// The transactions that umad waits for, by the ID of the copy, and what the copy has of its port's window.
    sent: BTreeMap<u32, (u64, Slot)>,
    windows: Windows,
    /// Those that pause.
    timers: Timers<u64>,
    exits: Exits,
    random: Random,
    replies: VecDeque<(User, Result<Response, Failure>)>,
    absent: VecDeque<User>,
}

impl SaClient {
    /// Nothing asked yet. Transaction IDs come out of `random`, so that nobody can answer a request
    /// that he has not seen.
    pub fn new(limits: Limits, random: Random) -> Self {
        Self {
            windows: Windows::new(limits.in_flight),
            limits,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            begun: 0,
            sent: BTreeMap::new(),
            timers: Timers::default(),
            exits: Exits::default(),
            random,
            replies: VecDeque::new(),
            absent: VecDeque::new(),
        }
    }

    /// Asks.
    pub fn ask(&mut self, ask: Ask) {
        let waiting = self.waiting.entry(ask.port).or_default();
        waiting.of_kinds[kind_of(ask.user)].push_back(ask);
    }

    /// Whoever asked does not wait for the answer any more: there will be none. What has been sent keeps its place in its
    /// port's window until it is answered or lost.
    pub fn withdraw(&mut self, user: User) {
        for waiting in self.waiting.values_mut() {
            waiting.of_kinds[kind_of(user)].retain(|ask| ask.user != user);
        }
        let is_its = |_: &u64, transaction: &mut Transaction| transaction.ask.user == user;
        for (number, _) in self.running.extract_if(.., is_its) {
            self.timers.cancel(&number);
        }
    }

    /// Nothing comes after what is asked now, which is sent at once, however much it is.
    pub fn lift_limits(&mut self) {
        self.limits.in_flight = usize::MAX;
        self.windows.lift();
    }

    /// A port reaches the SA of this subnet, or none. A path query leaves by another port of the same
    /// subnet while its own does not answer.
    pub fn handle_port(&mut self, port: PortId, subnet: Option<Subnet>) {
        self.exits.set(port, subnet);
    }

    /// The next request to send.
    pub fn poll_send(&mut self) -> Option<SaRequest> {
        self.poll_send_around(|_| false)
    }

    /// The next request to send, where nothing passes the ports that are suspect, as far as is known.
    pub fn poll_send_around(&mut self, is_suspect: impl Fn(PortId) -> bool) -> Option<SaRequest> {
        self.begin();
        let exits = &self.exits;
        let exit = |transaction: &Transaction| match transaction.may_stray {
            true => exits.choose(transaction.ask.port, &transaction.exits, &is_suspect),
            false => transaction.ask.port,
        };
        let due = self.running.iter_mut();
        let mut due = due.filter(|(_, transaction)| transaction.stage == Stage::Due);
        let (number, transaction, exit, is_path) = due.find_map(|(&number, transaction)| {
            let exit = exit(transaction);
            let is_path = kind_of(transaction.ask.user) == PATHS;
            let has_room = self.windows.has_room(exit, is_path);
            has_room.then_some((number, transaction, exit, is_path))
        })?;
        let copy = self.random.nonzero_u32();
        self.sent
            .insert(copy, (number, self.windows.take(exit, is_path)));
        transaction.stage = Stage::Sent(copy);
        transaction.tries_left -= 1;
        transaction.ask.mad.header.transaction_id = copy.into();
        let own = transaction.ask.port;
        transaction.exits.push(exit);
        if exit != own {
            tracing::debug!(
                port = own.port,
                by = exit.port,
                "path query goes by another port"
            );
        }
        Some(SaRequest {
            port: exit,
            mad: transaction.ask.mad.encode(),
            timeout_ms: u32::try_from(transaction.timeout.as_millis()).unwrap_or(u32::MAX),
            transaction_id: copy,
        })
    }

    /// Begins what may be under way.
    fn begin(&mut self) {
        let limit = self.limits.in_flight;
        for (&port, waiting) in &mut self.waiting {
            let of_port = |transaction: &&Transaction| transaction.ask.port == port;
            let running = self.running.values().filter(of_port);
            let mut running = running.fold(Running::default(), Running::and);
            while let Some(ask) = waiting.next(running, limit) {
                let transaction = Transaction::new(ask);
                running = running.and(&transaction);
                self.running.insert(self.begun, transaction);
                self.begun += 1;
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// A request could not be sent.
    pub fn handle_unsent(&mut self, transaction_id: u32) {
        let Some((number, slot)) = self.sent.remove(&transaction_id) else {
            return;
        };
        self.windows.release(slot);
        let mut running = self.running.get(&number).into_iter();
        if running.any(Transaction::is_astray) {
            self.lost(number);
        } else {
            self.finish(number, Err(Failure::Unreachable));
        }
    }

    /// umad gave a request back unanswered.
    pub fn handle_timeout(&mut self, transaction_id: u32) {
        if let Some((number, slot)) = self.sent.remove(&transaction_id) {
            self.windows.lost(slot);
            self.lost(number);
        }
    }

    /// The last copy was lost.
    fn lost(&mut self, number: u64) {
        let Some(transaction) = self.running.get_mut(&number) else {
            return;
        };
        // The time over which a table is sent says nothing of the port.
        if kind_of(transaction.ask.user) != FABRIC {
            self.exits.heard(transaction.exit(), false);
        }
        if transaction.tries_left > 0 {
            transaction.timeout = transaction.timeouts.next_delay();
            transaction.stage = Stage::Due;
        } else {
            self.finish(number, Err(Failure::Timeout));
        }
    }

    /// An SA answered: `message` is umad's whole payload.
    ///
    /// # Errors
    /// The message makes no sense. If it answers a request, who asked is told so as well.
    pub fn handle_response(&mut self, now: Time, message: &[u8]) -> Result<(), Malformed> {
        let sent = transaction_id(message).and_then(|id| self.sent.remove(&id));
        let Some((number, slot)) = sent else {
            return SaMessage::decode(message).map(drop).map_err(Into::into);
        };
        let Some(transaction) = self.running.get_mut(&number) else {
            self.windows.release(slot);
            return Ok(());
        };
        self.exits.heard(transaction.exit(), true);
        let result = response(&transaction.ask.mad.header, message);
        match result {
            Err(Failure::Busy) => self.windows.lost(slot),
            _ => self.windows.answered(slot),
        }
        if transaction.is_astray() && is_no(&result) {
            transaction.ask_by_itself();
            return Ok(());
        }
        if let Err(failure @ (Failure::Busy | Failure::Absent)) = result
            && transaction.tries_left > 0
        {
            if failure == Failure::Absent {
                self.absent.push_back(transaction.ask.user);
            }
            self.timers.set(number, now + transaction.timeout);
            transaction.stage = Stage::Paused;
            transaction.timeout = transaction.timeouts.next_delay();
            return Ok(());
        }
        let malformed = match &result {
            Err(Failure::Malformed(malformed)) => Err(*malformed),
            _ => Ok(()),
        };
        self.finish(number, result);
        malformed
    }

    /// A port can send no more: its requests never come back.
    pub fn handle_port_gone(&mut self, port: PortId) {
        let of_port = |(number, transaction): (&u64, &Transaction)| {
            (transaction.ask.port == port).then_some(*number)
        };
        let gone: Vec<_> = self.running.iter().filter_map(of_port).collect();
        for number in gone {
            self.finish(number, Err(Failure::Unreachable));
        }
        let sent = self.sent.iter();
        let by_it = sent.filter(|(_, (_, slot))| slot.port() == port);
        let lost: Vec<_> = by_it.map(|(copy, _)| *copy).collect();
        for copy in lost {
            self.handle_timeout(copy);
        }
    }

    /// Another subnet manager has taken over on a port, or the same has started anew: what was asked
    /// of the old one is asked of the new one at once. Whose requests these are.
    pub fn handle_sm_changed(&mut self, port: PortId) -> Vec<User> {
        self.exits.heard(port, true);
        self.windows.forget(port);
        let mut users = Vec::new();
        for (number, transaction) in &mut self.running {
            if [transaction.ask.port, transaction.exit()].contains(&port) {
                if let Stage::Sent(copy) = transaction.stage
                    && let Some((_, slot)) = self.sent.remove(&copy)
                {
                    self.windows.release(slot);
                }
                self.timers.cancel(number);
                transaction.start_over();
                users.push(transaction.ask.user);
            }
        }
        users
    }

    /// How many requests may be under way by each port that has had one.
    pub fn windows(&self) -> impl Iterator<Item = WindowView> {
        self.windows.views()
    }

    /// The next reply.
    pub fn poll_reply(&mut self) -> Option<(User, Result<Response, Failure>)> {
        self.replies.pop_front()
    }

    /// Whose request nobody was there to answer. It is sent again after a pause; who has another
    /// source need not wait for that.
    pub fn poll_absent(&mut self) -> Option<User> {
        self.absent.pop_front()
    }

    /// When the next pause ends.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Ends the pauses that are over.
    pub fn handle_time(&mut self, now: Time) {
        while let Some(number) = self.timers.expired(now) {
            if let Some(transaction) = self.running.get_mut(&number) {
                transaction.stage = Stage::Due;
            }
        }
    }

    fn finish(&mut self, number: u64, result: Result<Response, Failure>) {
        if let Some(Transaction { ask, stage, .. }) = self.running.remove(&number) {
            if let Stage::Sent(copy) = stage
                && let Some((_, slot)) = self.sent.remove(&copy)
            {
                self.windows.release(slot);
            }
            self.timers.cancel(&number);
            self.replies.push_back((ask.user, result));
        }
    }
}

/// The lower half of a message's transaction ID: umad has its own number in the upper half.
fn transaction_id(message: &[u8]) -> Option<u32> {
    let header = Header::decode(message.first_chunk()?);
    Some(header.transaction_id as u32)
}

/// The response to `request` that `message` is.
fn response(request: &Header, message: &[u8]) -> Result<Response, Failure> {
    let message = SaMessage::decode(message)?;
    let answers = message.expect_answer_to(request);
    answers.map_err(|error| Failure::of(request, error))?;
    Ok(Response::new(&message)?)
}

/// Whether the SA says that there is nothing, or that it says nothing.
fn is_no(result: &Result<Response, Failure>) -> bool {
    match result {
        Ok(response) => response.data.is_empty(),
        Err(failure) => matches!(failure, Failure::Status(_)),
    }
}

#[cfg(test)]
mod tests;
