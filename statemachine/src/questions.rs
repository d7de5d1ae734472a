// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to the path sources, and to whoever knows the fabric.

mod lines;
mod of_port;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::sa::PathRecord;

use self::of_port::OfPort;
use crate::id::{ConnId, Payer, PortId};
use crate::input::{Origin, QueryError};
use crate::output::{PathQuery, Query};
use crate::round_robin::key_after;
use crate::time::Time;

/// How long an answer is good for others who ask the same, while no port and no fabric data changes:
/// not all who need a path after an event ask at the same time, since each waits for room.
const RECENT: Duration = Duration::from_secs(1);

/// How long an answer is kept that is not what a peer says: whatever a peer says, a question is not put more often.
const BELIEVED: Duration = Duration::from_millis(50);

/// Recent answers that are kept.
const MAX_RECENT: usize = 256;

/// Whose path query goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Urgency {
    /// The connection was armed, with a peer that has answered, and is not any more or could be better.
    Rearm,
    /// It never was.
    Initial,
}

/// A path that connections wait for.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Question {
    query: PathQuery,
    members: BTreeSet<ConnId>,
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) number: u32,
    pub(crate) result: Arc<Result<Vec<PathRecord>, QueryError>>,
    pub(crate) origin: Option<Origin>,
}

/// Questions that are waited for, and those of them that have not been polled.
///
/// Who asks for a path that another waits for shares its question. Path sources answer a few at a
/// time. Each local port has its own limit, because the SA of one subnet may be silent.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Questions {
    last: u32,
    questions: BTreeMap<u32, Question>,
    /// By what is asked, with no number in it.
    numbers: BTreeMap<PathQuery, u32>,
    /// Path queries that have not been polled, or are under way.
    // Boxed, since a map has room for eleven of them at once.
    ports: BTreeMap<PortId, Box<OfPort>>,
    /// The local port of the last query that was put.
    last_port: Option<PortId>,
    /// Path queries that were under way when nobody waited for them any more.
    withdrawn: VecDeque<u32>,
    /// What is for connections that have not taken it.
    answers: VecDeque<(Answer, BTreeSet<ConnId>)>,
    /// Paths that were found not long ago, and when, by what was asked.
    recent: BTreeMap<PathQuery, (Time, Answer)>,
    assessing: BTreeMap<u32, ConnId>,
    assessments: BTreeMap<u32, Query>,
}

impl Questions {
    /// Asks for paths; the number of the question, and whether nobody had asked it.
    pub(crate) fn paths(
        &mut self,
        now: Time,
        conn: ConnId,
        payer: Payer,
        urgency: Urgency,
        query: PathQuery,
    ) -> (u32, bool) {
        let key = PathQuery { query: 0, ..query };
        if let Some(answer) = self.recent(now, &key) {
            let number = self.number();
            let answer = Answer { number, ..answer };
            self.answers.push_back((answer, BTreeSet::from([conn])));
            return (number, false);
        }
        if let Some(&number) = self.numbers.get(&key)
            && let Some(question) = self.questions.get_mut(&number)
        {
            question.members.insert(conn);
            if let Some(port) = self.ports.get_mut(&key.port) {
                port.join(payer, urgency, number);
            }
            return (number, false);
        }
        let number = self.number();
        self.numbers.insert(key, number);
        let port = self.ports.entry(key.port).or_default();
        port.wait(payer, urgency, number);
        let query = PathQuery {
            query: number,
            ..query
        };
        let members = BTreeSet::from([conn]);
        let question = Question { query, members };
        self.questions.insert(number, question);
        (number, true)
    }

    /// Asks what paths share; the number of the question.
    pub(crate) fn assess(&mut self, conn: ConnId, query: impl FnOnce(u32) -> Query) -> u32 {
        let number = self.number();
        self.assessing.insert(number, conn);
        self.assessments.insert(number, query(number));
        number
    }

    /// What was answered to the same question not long ago.
    fn recent(&self, now: Time, key: &PathQuery) -> Option<Answer> {
        let (at, answer) = self.recent.get(key)?;
        (now - *at < RECENT).then(|| answer.clone())
    }

    /// The answer to this question contradicts what the peer says; the peer's LID may have changed since. It is not
    /// reused, unless it has only just come.
    pub(crate) fn disbelieve(&mut self, now: Time, query: PathQuery) {
        let key = PathQuery { query: 0, ..query };
        let is_old = |(at, _): &(Time, Answer)| now - *at >= BELIEVED;
        if self.recent.get(&key).is_some_and(is_old) {
            self.recent.remove(&key);
        }
    }

    /// What was answered before may be true no more.
    pub(crate) fn forget_recent(&mut self) {
        self.recent.clear();
    }

    fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// The next assessment to ask for, and who asks. They are answered from memory and hold
    /// nothing up.
    pub(crate) fn poll_assessment(&mut self) -> Option<(ConnId, Query)> {
        let (number, query) = self.assessments.pop_first()?;
        Some((*self.assessing.get(&number)?, query))
    }

    /// The next path to ask for.
    pub(crate) fn poll_paths(&mut self) -> Option<PathQuery> {
        for _ in 0..self.ports.len() {
            let id = key_after(&self.ports, self.last_port)?;
            self.last_port = Some(id);
            let number = self.ports.get_mut(&id).and_then(|port| port.next());
            if let Some(question) = number.and_then(|number| self.questions.get(&number)) {
                return Some(question.query);
            }
        }
        None
    }

    /// The next query that was put and that nobody waits for any more.
    pub(crate) fn poll_withdrawn(&mut self) -> Option<u32> {
        self.withdrawn.pop_front()
    }

    /// No answer came in time. Those who asked are told in turn.
    pub(crate) fn timed_out(&mut self, now: Time, number: u32) {
        if self.questions.contains_key(&number) {
            self.withdrawn.push_back(number);
            self.answered(now, number, Err(QueryError::Timeout), None);
        }
    }

    /// Paths were answered. Those who asked are told in turn.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        number: u32,
        result: Result<Vec<PathRecord>, QueryError>,
        origin: Option<Origin>,
    ) {
        let Some((Question { query, members }, _)) = self.forget(number) else {
            return;
        };
        let found = result.as_ref().is_ok_and(|paths| !paths.is_empty());
        let result = Arc::new(result);
        let answer = Answer {
            number,
            result,
            origin,
        };
        if found {
            self.recent.retain(|_, (at, _)| now - *at < RECENT);
            if self.recent.len() < MAX_RECENT {
                let key = PathQuery { query: 0, ..query };
                self.recent.insert(key, (now, answer.clone()));
            }
        }
        self.answers.push_back((answer, members));
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The next who is to be told an answer.
    pub(crate) fn next_answer(&mut self) -> Option<(ConnId, Answer)> {
        let (answer, members) = self.answers.front_mut()?;
        let id = members.pop_first()?;
        let answer = answer.clone();
        if members.is_empty() {
            self.answers.pop_front();
        }
        Some((id, answer))
    }

    /// What paths share was answered. Who asked, if that is not over.
    pub(crate) fn assessed(&mut self, number: u32) -> Option<ConnId> {
        self.assessments.remove(&number);
        self.assessing.remove(&number)
    }

    /// A connection does not wait for the answer any more. Whether others do.
    pub(crate) fn leave(&mut self, conn: ConnId, number: u32) -> bool {
        if self.assessing.contains_key(&number) {
            self.assessed(number);
        } else if let Some(question) = self.questions.get_mut(&number) {
            question.members.remove(&conn);
            if !question.members.is_empty() {
                return true;
            }
            if let Some((_, true)) = self.forget(number) {
                self.withdrawn.push_back(number);
            }
        } else {
            self.answers.retain_mut(|(answer, members)| {
                if answer.number == number {
                    members.remove(&conn);
                }
                !members.is_empty()
            });
        }
        false
    }

    /// It is not waited for any more. What it was, and whether it was under way.
    fn forget(&mut self, number: u32) -> Option<(Question, bool)> {
        let question = self.questions.remove(&number)?;
        let key = PathQuery {
            query: 0,
            ..question.query
        };
        self.numbers.remove(&key);
        let port = self.ports.get_mut(&key.port);
        let was_under_way = port.is_some_and(|port| port.remove(number));
        if self
            .ports
            .get(&key.port)
            .is_some_and(|port| port.is_empty())
        {
            self.ports.remove(&key.port);
        }
        Some((question, was_under_way))
    }
}

#[cfg(test)]
mod tests;
