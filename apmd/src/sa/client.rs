// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transactions with the SA: in flight, asked again, answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::mad::Header;
use cm_msgs::sa::SaMessage;
use statemachine::{PortId, Time};

use super::{Ask, Failure, Malformed, Response, SaRequest, User};

/// The longest wait for one copy of a request, unless its user wants more for the first.
const TIMEOUT_MAX_MS: u32 = 10_000;

/// Kinds of users, each with a queue of its own.
const KINDS: usize = 4;

/// What the client may do at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests under way.
    pub in_flight: usize,
}

impl Limits {
    /// Requests under way of one kind of users: reading the whole fabric leaves room for others.
    fn of_kind(self, kind: usize) -> usize {
        if kind == kind_of(User::Fabric(0)) {
            self.in_flight.div_ceil(2)
        } else {
            self.in_flight
        }
    }
}

fn kind_of(user: User) -> usize {
    match user {
        User::Paths(_) => 0,
        User::Fabric(_) => 1,
        User::Join(_) => 2,
        User::Inform(_) => 3,
    }
}

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// To be sent.
    Due,
    /// umad waits for the answer to this copy.
    Sent(u32),
    /// The SA is busy, or not there: to be sent again then.
    Paused(Time),
}

#[derive(Debug)]
struct Transaction {
    ask: Ask,
    stage: Stage,
    tries_left: u8,
    timeout_ms: u32,
}

impl Transaction {
    fn new(ask: Ask) -> Self {
        let mut transaction = Self {
            stage: Stage::Due,
            tries_left: 0,
            timeout_ms: 0,
            ask,
        };
        transaction.start_over();
        transaction
    }

    /// As if nothing had been sent yet.
    fn start_over(&mut self) {
        self.stage = Stage::Due;
        self.tries_left = self.ask.tries.max(1);
        self.timeout_ms = self.ask.timeout_ms;
    }

    fn double(&mut self) {
        let most = self.ask.timeout_ms.max(TIMEOUT_MAX_MS);
        self.timeout_ms = self.timeout_ms.saturating_mul(2).min(most);
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
    waiting: [VecDeque<Ask>; KINDS],
    /// The kind of users whose turn is next.
    turn: usize,
    /// In the order in which they were begun.
    running: BTreeMap<u64, Transaction>,
    begun: u64,
    next_copy: u32,
    replies: VecDeque<(User, Result<Response, Failure>)>,
    absent: VecDeque<User>,
}

impl SaClient {
    /// Nothing asked yet. `first_transaction` should differ from start to start.
    pub fn new(limits: Limits, first_transaction: u32) -> Self {
        Self {
            limits,
            waiting: Default::default(),
            turn: 0,
            running: BTreeMap::new(),
            begun: 0,
            next_copy: first_transaction,
            replies: VecDeque::new(),
            absent: VecDeque::new(),
        }
    }

    /// Other limits from the next request on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Requests waiting or under way.
    pub fn pending(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum::<usize>() + self.running.len()
    }

    /// Asks.
    pub fn ask(&mut self, ask: Ask) {
        self.waiting[kind_of(ask.user)].push_back(ask);
    }

    /// The next request to send.
    pub fn poll_send(&mut self) -> Option<SaRequest> {
        while self.running.len() < self.limits.in_flight
            && let Some(ask) = self.next_waiting()
        {
            self.running.insert(self.begun, Transaction::new(ask));
            self.begun += 1;
        }
        let transaction = self
            .running
            .values_mut()
            .find(|transaction| transaction.stage == Stage::Due)?;
        let copy = self.next_copy;
        self.next_copy = self.next_copy.wrapping_add(1);
        transaction.stage = Stage::Sent(copy);
        transaction.tries_left -= 1;
        transaction.ask.mad.header.transaction_id = copy.into();
        Some(SaRequest {
            port: transaction.ask.port,
            mad: transaction.ask.mad.encode(),
            timeout_ms: transaction.timeout_ms,
            transaction_id: copy,
        })
    }

    /// The next request to begin: the kinds of users have it in turns.
    fn next_waiting(&mut self) -> Option<Ask> {
        let kind = (0..KINDS)
            .map(|step| (self.turn + step) % KINDS)
            .find(|kind| !self.waiting[*kind].is_empty() && self.has_room(*kind))?;
        self.turn = (kind + 1) % KINDS;
        self.waiting[kind].pop_front()
    }

    fn has_room(&self, kind: usize) -> bool {
        let of_kind = |transaction: &&Transaction| kind_of(transaction.ask.user) == kind;
        self.running.values().filter(of_kind).count() < self.limits.of_kind(kind)
    }

    /// A request could not be sent.
    pub fn handle_unsent(&mut self, transaction_id: u32) {
        if let Some(number) = self.sent(transaction_id) {
            self.finish(number, Err(Failure::Unreachable));
        }
    }

    /// umad gave a request back unanswered.
    pub fn handle_timeout(&mut self, transaction_id: u32) {
        let Some(number) = self.sent(transaction_id) else {
            return;
        };
        let Some(transaction) = self.running.get_mut(&number) else {
            return;
        };
        if transaction.tries_left > 0 {
            transaction.double();
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
        let Some(number) = transaction_id(message).and_then(|id| self.sent(id)) else {
            return SaMessage::decode(message).map(drop).map_err(Into::into);
        };
        let Some(transaction) = self.running.get_mut(&number) else {
            return Ok(());
        };
        let result = response(&transaction.ask.mad.header, message);
        if let Err(failure @ (Failure::Busy | Failure::Absent)) = result
            && transaction.tries_left > 0
        {
            if failure == Failure::Absent {
                self.absent.push_back(transaction.ask.user);
            }
            let pause = Duration::from_millis(transaction.timeout_ms.into());
            transaction.stage = Stage::Paused(now + pause);
            transaction.double();
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
    }

    /// Another subnet manager has taken over on a port, or the same has started anew: what was asked
    /// of the old one is asked of the new one at once. Whose requests these are.
    pub fn handle_sm_changed(&mut self, port: PortId) -> Vec<User> {
        let mut users = Vec::new();
        for transaction in self.running.values_mut() {
            if transaction.ask.port == port {
                transaction.start_over();
                users.push(transaction.ask.user);
            }
        }
        users
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
        self.running
            .values()
            .filter_map(|transaction| match transaction.stage {
                Stage::Paused(until) => Some(until),
                Stage::Due | Stage::Sent(_) => None,
            })
            .min()
    }

    /// Ends the pauses that are over.
    pub fn handle_time(&mut self, now: Time) {
        for transaction in self.running.values_mut() {
            if matches!(transaction.stage, Stage::Paused(until) if until <= now) {
                transaction.stage = Stage::Due;
            }
        }
    }

    /// The transaction whose copy under way has this ID.
    fn sent(&self, transaction_id: u32) -> Option<u64> {
        self.running
            .iter()
            .find(|(_, transaction)| transaction.stage == Stage::Sent(transaction_id))
            .map(|(number, _)| *number)
    }

    fn finish(&mut self, number: u64, result: Result<Response, Failure>) {
        if let Some(Transaction { ask, .. }) = self.running.remove(&number) {
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

#[cfg(test)]
mod tests;
