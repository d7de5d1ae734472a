// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of path sources. A question goes to the first source that is not known to fail; when
//! that one fails, knows no path, or is silent for too long, it goes to the next as well, and the
//! first path that comes is the answer. No I/O here: [`Sources::poll_ask`] says whom to ask what.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::sa::PathRecord;
use statemachine::{Origin, PathQuery, PortId, QueryError, Time, Timers};

use super::health::Lane;
use super::member::{Member, Plan, members};
use super::{Answer, Question, Urgency};

/// Questions that are not the engine's and have no answer yet, in all. Each costs some hundred bytes,
/// and more of them would only wait until nobody wants the answer any more.
const OTHERS_MAX: usize = 1024;

/// How long a source that others ask may be silent until it is asked something again, to see whether it still answers:
/// `healthy` must not be shown long after it has stopped.
const LOOK_EVERY: Duration = Duration::from_secs(240);
/// Ports that were last answered at the same time, as after a failure in the fabric, ask up to this much later.
const LOOK_SPREAD: u64 = 120;

/// A question put to one source.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    /// The question it was made for; `None`: a trial of a source that failed.
    question: Option<u32>,
    origin: Origin,
    query: PathQuery,
    /// When it was handed to the source; `None`: it waits.
    sent: Option<Time>,
    urgency: Urgency,
}

/// A question without an answer.
#[derive(Clone, Debug)]
struct Open {
    question: Question,
    /// Whom it was put to so far.
    tried: Vec<Origin>,
    /// The ticket of the last of these.
    current: Option<u32>,
    /// Tickets from which an answer may still come.
    outstanding: usize,
    /// What to answer if there is nothing better.
    error: Option<(Origin, QueryError)>,
}

/// What a moment is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Alarm {
    /// Ask the next source as well.
    Hedge(u32),
    /// A ticket has waited for too long or, once it was handed over, the source has been silent for
    /// too long.
    Deadline(u32),
    /// Try a source again that failed.
    Probe(Origin, Lane),
    /// See whether a source that has not been asked for a while still answers.
    Look(Origin, Lane),
}

/// The list of path sources.
#[derive(Debug)]
pub struct Sources {
    members: Vec<Member>,
    patience: Duration,
    open: BTreeMap<u32, Open>,
    tickets: BTreeMap<u32, Ticket>,
    alarms: Timers<Alarm>,
    answers: VecDeque<Answer>,
    /// Tickets that were handed over and are not waited for any more.
    abandoned: VecDeque<(Origin, u32)>,
    /// Questions of the engine that are open.
    of_engine: usize,
    next_number: u32,
}

impl Sources {
    /// The sources of `plan`; nothing asked yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            members: members(plan.order, &mut Vec::new()),
            patience: plan.patience,
            open: BTreeMap::new(),
            tickets: BTreeMap::new(),
            alarms: Timers::default(),
            answers: VecDeque::new(),
            abandoned: VecDeque::new(),
            of_engine: 0,
            next_number: 0,
        }
    }

    /// Another list, and a new chance for all. What sources that are no longer on it were asked goes
    /// to the others.
    pub fn set_plan(&mut self, now: Time, plan: Plan) {
        self.patience = plan.patience;
        self.members = members(plan.order, &mut self.members);
        for member in &mut self.members {
            // The operator may just have mended what was wrong.
            member.health.forgive();
        }
        let left: Vec<_> = self
            .tickets
            .iter()
            .filter(|(_, ticket)| !self.members.iter().any(|m| m.origin == ticket.origin))
            .map(|(number, _)| *number)
            .collect();
        for ticket in left {
            self.abandon(ticket);
            self.handle_answer(now, ticket, Err(QueryError::Unreachable));
        }
    }

    /// The sources, in their order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether no source works at all, as far as known.
    pub fn all_fail(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.health.failure().is_some())
    }

    /// Questions without an answer.
    pub fn pending(&self) -> usize {
        self.open.len()
    }

    /// Asks. There will be exactly one answer; of what is not the engine's it is
    /// [`QueryError::Busy`] at once when too much is open.
    pub fn ask(&mut self, now: Time, question: Question) {
        if question.urgency == Urgency::Failover {
            self.of_engine += 1;
        // The engine's questions are as many as its connections, which are bounded elsewhere.
        } else if self.open.len() - self.of_engine >= OTHERS_MAX {
            self.answers.push_back(Answer {
                urgency: question.urgency,
                query: question.query.query,
                origin: None,
                result: Err(QueryError::Busy),
            });
            return;
        }
        let number = self.number();
        let query = question.query;
        for member in &mut self.members {
            if question.allows(member.origin) {
                let lane = lane(member.origin, &query);
                member.health.passed_over(lane, query);
            }
        }
        let open = Open {
            question,
            tried: Vec::new(),
            current: None,
            outstanding: 0,
            error: None,
        };
        self.open.insert(number, open);
        self.advance(now, number);
    }

    /// The engine does not wait for the answer to its query of this number any more: there will be none.
    pub fn withdraw(&mut self, query: u32) {
        let is_it = |question: &Question| {
            question.urgency == Urgency::Failover && question.query.query == query
        };
        let mut open = self.open.iter();
        let Some((&number, _)) = open.find(|(_, open)| is_it(&open.question)) else {
            return;
        };
        self.open.remove(&number);
        self.of_engine -= 1;
        self.alarms.cancel(&Alarm::Hedge(number));
        let of_it = |(_, ticket): &(&u32, &Ticket)| ticket.question == Some(number);
        let tickets: Vec<u32> = { self.tickets.iter().filter(of_it) }
            .map(|it| *it.0)
            .collect();
        for ticket in tickets {
            self.abandon(ticket);
            self.drop_ticket(ticket);
        }
    }

    /// The next question that a source need not answer any more: which source, and the number that it was asked under.
    pub fn poll_abandoned(&mut self) -> Option<(Origin, u32)> {
        self.abandoned.pop_front()
    }

    /// If a source has been asked under this number, it need not answer.
    fn abandon(&mut self, number: u32) {
        if let Some(ticket) = self.tickets.get(&number)
            && ticket.sent.is_some()
        {
            self.abandoned.push_back((ticket.origin, number));
        }
    }

    /// Forgets a ticket that says nothing of its source.
    fn drop_ticket(&mut self, number: u32) {
        let Some(ticket) = self.tickets.remove(&number) else {
            return;
        };
        self.alarms.cancel(&Alarm::Deadline(number));
        let member = self.members.iter_mut().find(|m| m.origin == ticket.origin);
        if let Some(member) = member
            && ticket.sent.is_some()
        {
            member.ended(ticket.lane(), ticket.urgency);
        }
    }

    /// The next thing to ask a source. The query's number is to be given back with the answer.
    pub fn poll_ask(&mut self, now: Time) -> Option<(Origin, PathQuery)> {
        let engine_asks = self.of_engine > 0;
        for member in &mut self.members {
            while let Some(number) = member.next_ticket(engine_asks) {
                let Some(ticket) = self.tickets.get_mut(&number) else {
                    continue;
                };
                // Its question was answered by another source while it waited.
                if ticket.question.is_some_and(|q| !self.open.contains_key(&q)) {
                    self.alarms.cancel(&Alarm::Deadline(number));
                    self.tickets.remove(&number);
                    continue;
                }
                // The source's time runs from now: that the question waited is no fault of its.
                self.alarms
                    .set(Alarm::Deadline(number), now + member.limits.timeout);
                ticket.sent = Some(now);
                member.began(ticket.lane(), ticket.urgency);
                member.health.asked();
                return Some((member.origin, ticket.query));
            }
        }
        None
    }

    /// A source answers what it was asked under this number.
    pub fn handle_answer(
        &mut self,
        now: Time,
        number: u32,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(ticket) = self.tickets.remove(&number) else {
            return;
        };
        self.alarms.cancel(&Alarm::Deadline(number));
        let result = match result {
            Ok(records) if records.is_empty() => Err(QueryError::NoPath),
            result => result,
        };
        self.judge(now, &ticket, &result);
        self.settle(now, number, &ticket, result);
    }

    /// What became of a ticket, which no longer exists, for its question.
    fn settle(
        &mut self,
        now: Time,
        number: u32,
        ticket: &Ticket,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(question) = ticket.question else {
            return;
        };
        let Some(open) = self.open.get_mut(&question) else {
            return;
        };
        open.outstanding -= 1;
        match result {
            Ok(records) => self.finish(question, Some(ticket.origin), Ok(records)),
            Err(error) => {
                open.note(ticket.origin, error);
                if open.current == Some(number) || open.outstanding == 0 {
                    self.advance(now, question);
                }
            }
        }
    }

    /// A source has nobody to ask for what it was asked under this number, though it goes on trying:
    /// the next source is asked at once.
    pub fn handle_absent(&mut self, now: Time, number: u32) {
        if let Some(&ticket) = self.tickets.get(&number) {
            self.suspend(now, &ticket, QueryError::Unreachable);
        }
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// A local port is gone, or reaches no SM.
    pub fn handle_port_lost(&mut self, port: PortId) {
        for member in &mut self.members {
            member.health.lose(Some(port));
        }
    }

    /// What was known of the sources through this local port no longer holds: it has come up, or it has another SM.
    pub fn handle_port_changed(&mut self, port: PortId) {
        for member in &mut self.members {
            member.health.forget(Some(port));
        }
    }

    /// When [`Sources::handle_time`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.alarms.next()
    }

    /// Does what is due.
    pub fn handle_time(&mut self, now: Time) {
        while let Some(alarm) = self.alarms.expired(now) {
            match alarm {
                Alarm::Hedge(question) => self.hedge(now, question),
                Alarm::Deadline(ticket) => self.expire(now, ticket),
                Alarm::Probe(origin, lane) => self.probe(now, origin, lane),
                Alarm::Look(origin, lane) => self.look(now, origin, lane),
            }
        }
    }

    /// How long a source says nothing to what it was asked until it counts as silent. The patience is
    /// that of the question, which a busy loop hands over a little later than it was put.
    fn silence(&self) -> Duration {
        self.patience - self.patience / 8
    }

    /// The source asked last was silent for too long.
    fn hedge(&mut self, now: Time, question: u32) {
        let Some(open) = self.open.get(&question) else {
            return;
        };
        let silent = open.current.and_then(|number| self.tickets.get(&number));
        if let Some(&ticket) = silent
            && ticket.sent.is_some_and(|sent| now - sent >= self.silence())
        {
            self.suspend(now, &ticket, QueryError::Timeout);
        }
        // Suspending the source may have moved the question on already.
        if !self.alarms.is_set(&Alarm::Hedge(question)) {
            self.advance(now, question);
        }
    }

    /// A ticket is too old: its source is silent or, if it has not even been asked, has too much to
    /// do, which says nothing of whether it works.
    fn expire(&mut self, now: Time, number: u32) {
        let Some(&ticket) = self.tickets.get(&number) else {
            return;
        };
        if ticket.sent.is_some() {
            self.abandon(number);
            self.handle_answer(now, number, Err(QueryError::Timeout));
        } else {
            self.tickets.remove(&number);
            self.settle(now, number, &ticket, Err(QueryError::Busy));
        }
    }

    fn probe(&mut self, now: Time, origin: Origin, lane: Lane) {
        let Some(member) = self.members.iter_mut().find(|m| m.origin == origin) else {
            return;
        };
        let Some((query, next)) = member.health.probe(now, lane) else {
            return;
        };
        self.alarms.set(Alarm::Probe(origin, lane), next);
        if !self.is_under_way(origin, lane) {
            self.put(now, origin, query, None, Urgency::Failover);
        }
    }

    /// Whether the source is being asked: that is trial enough, and so is a trial that waits for its turn.
    fn is_under_way(&self, origin: Origin, lane: Lane) -> bool {
        self.tickets.values().any(|ticket| {
            (ticket.sent.is_some() || ticket.question.is_none())
                && (ticket.origin, ticket.lane()) == (origin, lane)
        })
    }

    /// Asks a source that has worked, and has not been asked for a while, its last question again.
    fn look(&mut self, now: Time, origin: Origin, lane: Lane) {
        let member = self.members.iter().find(|m| m.origin == origin);
        let Some(query) = member.and_then(|member| member.health.known_question(lane)) else {
            return;
        };
        // Set first: an answer sets it again, and a question that does not get its turn is never answered.
        self.look_later(now, origin, lane);
        if !self.is_under_way(origin, lane) {
            self.put(now, origin, query, None, Urgency::Recheck);
        }
    }

    /// Sources in this process need no look.
    fn look_later(&mut self, now: Time, origin: Origin, lane: Lane) {
        if matches!(origin, Origin::Sa | Origin::Acm) {
            self.alarms
                .set(Alarm::Look(origin, lane), now + LOOK_EVERY + spread(lane));
        }
    }

    /// What an answer says of the source.
    fn judge(&mut self, now: Time, ticket: &Ticket, result: &Result<Vec<PathRecord>, QueryError>) {
        let Some(member) = self.members.iter_mut().find(|m| m.origin == ticket.origin) else {
            return;
        };
        if ticket.sent.is_some() {
            member.ended(ticket.lane(), ticket.urgency);
        }
        let paths = match result {
            Ok(records) => records.len(),
            Err(QueryError::NoPath) => 0,
            Err(QueryError::Refused) => return member.health.refused(now, ticket.lane()),
            Err(error) => {
                member.health.failed(*error);
                return self.suspend(now, ticket, *error);
            }
        };
        let took = ticket.sent.map_or(Duration::ZERO, |sent| now - sent);
        let (lane, query) = (ticket.lane(), ticket.query);
        member.health.answered(now, lane, query, paths, took);
        self.look_later(now, ticket.origin, lane);
    }

    /// A source fails: it is tried again later, and who waits for it asks the next at once.
    fn suspend(&mut self, now: Time, ticket: &Ticket, error: QueryError) {
        let (origin, lane) = (ticket.origin, ticket.lane());
        let Some(member) = self.members.iter_mut().find(|m| m.origin == origin) else {
            return;
        };
        let Some(probe_at) = member.health.suspend(now, lane, ticket.query, error) else {
            return;
        };
        self.alarms.set(Alarm::Probe(origin, lane), probe_at);
        let stuck: Vec<_> = self
            .tickets
            .values()
            .filter(|ticket| (ticket.origin, ticket.lane()) == (origin, lane))
            .filter_map(|ticket| ticket.question)
            .collect();
        for question in stuck {
            let Some(open) = self.open.get(&question) else {
                continue;
            };
            if open.tried.last() == Some(&origin)
                && let Some(next) = self.working(open)
            {
                self.put_on(now, question, next);
            }
        }
    }

    /// Puts a question to the next source; without one, its answer is what the others say.
    fn advance(&mut self, now: Time, question: u32) {
        let Some(open) = self.open.get(&question) else {
            return;
        };
        let next = self.working(open).or_else(|| self.untried(open));
        match (next, open.outstanding) {
            (Some(origin), _) => self.put_on(now, question, origin),
            (None, 0) => {
                let (origin, error) = match open.error {
                    Some((origin, error)) => (Some(origin), error),
                    None => (None, QueryError::Unreachable),
                };
                self.finish(question, origin, Err(error));
            }
            (None, _) => {}
        }
    }

    /// The next source for a question that is not known to fail.
    fn working(&self, open: &Open) -> Option<Origin> {
        let query = &open.question.query;
        let mut members = self.members.iter();
        let member = members.find(|member| {
            let origin = member.origin;
            open.may_try(origin) && !member.health.is_failing(lane(origin, query))
        })?;
        Some(member.origin)
    }

    /// The next source for a question at all, unless one that knows has said that there is no path.
    fn untried(&self, open: &Open) -> Option<Origin> {
        if open.error.is_some_and(is_final) {
            return None;
        }
        let mut members = self.members.iter();
        let member = members.find(|member| open.may_try(member.origin))?;
        Some(member.origin)
    }

    fn put_on(&mut self, now: Time, question: u32, origin: Origin) {
        let Some(open) = self.open.get_mut(&question) else {
            return;
        };
        open.outstanding += 1;
        open.tried.push(origin);
        self.alarms.set(Alarm::Hedge(question), now + self.patience);
        let Question { query, urgency, .. } = open.question;
        let number = self.put(now, origin, query, Some(question), urgency);
        if let Some(open) = self.open.get_mut(&question) {
            open.current = Some(number);
        }
    }

    fn put(
        &mut self,
        now: Time,
        origin: Origin,
        query: PathQuery,
        question: Option<u32>,
        urgency: Urgency,
    ) -> u32 {
        let number = self.number();
        let Some(member) = self.members.iter_mut().find(|m| m.origin == origin) else {
            return number;
        };
        let deadline = now + member.limits.timeout;
        let ticket = Ticket {
            question,
            origin,
            query: PathQuery {
                query: number,
                ..query
            },
            sent: None,
            urgency,
        };
        member.wait(ticket.lane(), urgency, number);
        self.tickets.insert(number, ticket);
        self.alarms.set(Alarm::Deadline(number), deadline);
        number
    }

    fn finish(
        &mut self,
        question: u32,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(open) = self.open.remove(&question) else {
            return;
        };
        self.alarms.cancel(&Alarm::Hedge(question));
        if open.question.urgency == Urgency::Failover {
            self.of_engine -= 1;
        }
        self.answers.push_back(Answer {
            urgency: open.question.urgency,
            query: open.question.query.query,
            origin,
            result,
        });
    }

    /// A number that no question and no ticket has.
    fn number(&mut self) -> u32 {
        loop {
            let number = self.next_number;
            self.next_number = number.wrapping_add(1);
            if !self.open.contains_key(&number) && !self.tickets.contains_key(&number) {
                return number;
            }
        }
    }
}

impl Ticket {
    fn lane(&self) -> Lane {
        lane(self.origin, &self.query)
    }
}

impl Open {
    fn may_try(&self, origin: Origin) -> bool {
        self.question.allows(origin) && !self.tried.contains(&origin)
    }

    /// Keeps the error that says most.
    fn note(&mut self, origin: Origin, error: QueryError) {
        let weight = |of: (Origin, QueryError)| match of.1 {
            _ if is_final(of) => 2,
            QueryError::NoPath => 0,
            _ => 1,
        };
        let new = (origin, error);
        if self.error.is_none_or(|old| weight(new) > weight(old)) {
            self.error = Some(new);
        }
    }
}

/// Whether it is no use to ask sources that fail: subnet administration and fabric data know every
/// path, while an ACM service or a file know of those that somebody asked for or wrote down.
fn is_final((origin, error): (Origin, QueryError)) -> bool {
    error == QueryError::NoPath && matches!(origin, Origin::Sa | Origin::Ssa)
}

fn lane(origin: Origin, query: &PathQuery) -> Lane {
    match origin {
        Origin::Sa => Some(query.port),
        Origin::Acm | Origin::Ssa | Origin::Static => None,
    }
}

/// Differs between ports, also of different hosts.
fn spread(lane: Lane) -> Duration {
    let number = lane.map_or(0, |port| port.node_guid.0 ^ u64::from(port.port));
    // The upper bits of a product depend on all bits of the factors.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Duration::from_secs(mixed % LOOK_SPREAD)
}
