// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source `acm`: a client of an ACM service's stream protocol (`librdmacm/acm.h`). No I/O here.
//!
//! It asks for a path record by both GIDs, as `ib_acme -f g` does. ibacm takes one message from one
//! `recv`, and drops a client that sends a second request too early: a connection carries one
//! request at a time.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use cm_msgs::acm::{Entry, Flags, Header, Info, MAX_LEN, MessageError, Resolve, Status};
use cm_msgs::sa::PathRecord;
use statemachine::{PathQuery, QueryError, Time};

/// Connections, each for one question at a time.
pub const CONNECTIONS: usize = 2;
/// How long the service may take over a question.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// What is to be done with a connection, by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open it.
    Connect(usize),
    /// Send these bytes at once.
    Send(usize, Vec<u8>),
    /// Close it.
    Close(usize),
}

/// A connection to the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Closed,
    Opening,
    /// Open, and nothing has been asked over it.
    Fresh,
    /// Open, and it was good for an answer before.
    Used,
}

/// A question under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    query: PathQuery,
    tid: u64,
    deadline: Time,
}

#[derive(Clone, Debug)]
struct Slot {
    link: Link,
    asked: Option<Request>,
    input: Vec<u8>,
}

/// The bytes that came are no answer to what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Breach {
    #[error("nothing was asked")]
    Unasked,
    #[error("an answer of {0} bytes, want 16 to {MAX_LEN}")]
    Length(u16),
    #[error("{0} bytes after the answer")]
    More(usize),
    #[error("an answer with the number {found} to request {want}")]
    Number { found: u64, want: u64 },
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// A client of an ACM service.
#[derive(Debug)]
pub struct AcmClient {
    slots: Vec<Slot>,
    timeout: Duration,
    waiting: VecDeque<PathQuery>,
    actions: VecDeque<Action>,
    answers: VecDeque<(u32, Result<Vec<PathRecord>, QueryError>)>,
    next_tid: u64,
}

impl AcmClient {
    /// A client that opens up to `connections` when they are needed, and waits up to `timeout` for
    /// an answer.
    pub fn new(connections: usize, timeout: Duration) -> Self {
        let slot = Slot {
            link: Link::Closed,
            asked: None,
            input: Vec::new(),
        };
        Self {
            slots: vec![slot; connections.max(1)],
            timeout,
            waiting: VecDeque::new(),
            actions: VecDeque::new(),
            answers: VecDeque::new(),
            next_tid: 1,
        }
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        (0..self.slots.len())
            .filter(|number| self.is_open(*number))
            .count()
    }

    /// Whether a connection is open.
    pub fn is_open(&self, number: usize) -> bool {
        let slot = self.slots.get(number);
        slot.is_some_and(|slot| matches!(slot.link, Link::Fresh | Link::Used))
    }

    /// Gives up everything that is asked.
    pub fn abandon(&mut self) {
        let asked = self.slots.iter_mut().filter_map(|slot| slot.asked.take());
        let queries = asked.map(|asked| asked.query).chain(self.waiting.drain(..));
        let unreachable = |query: PathQuery| (query.query, Err(QueryError::Unreachable));
        self.answers.extend(queries.map(unreachable));
    }

    /// Nobody waits for the answer to this query any more. If the service has been asked already, its connection is in use
    /// until it answers or is too late.
    pub fn withdraw(&mut self, query: u32) {
        self.waiting.retain(|waiting| waiting.query != query);
    }

    /// Asks for a path.
    pub fn ask(&mut self, query: PathQuery) {
        self.waiting.push_back(query);
    }

    /// The next answer: the query's number and the paths.
    pub fn poll_answer(&mut self) -> Option<(u32, Result<Vec<PathRecord>, QueryError>)> {
        self.answers.pop_front()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self, now: Time) -> Option<Action> {
        while self.actions.is_empty()
            && let Some(free) = self.free()
            && let Some(query) = self.waiting.pop_front()
        {
            self.start(now, free, query);
        }
        self.actions.pop_front()
    }

    /// A connection is open.
    pub fn handle_open(&mut self, number: usize) {
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        slot.link = Link::Fresh;
        if let Some(asked) = slot.asked {
            self.actions.push_back(send(number, &asked));
        }
    }

    /// A connection cannot be opened, or the service has closed it.
    pub fn handle_closed(&mut self, number: usize) {
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        slot.input.clear();
        let link = std::mem::replace(&mut slot.link, Link::Closed);
        let Some(asked) = slot.asked else {
            return;
        };
        if link == Link::Used {
            // The service was restarted since the last answer: another connection may do.
            slot.link = Link::Opening;
            self.actions.push_back(Action::Connect(number));
        } else {
            slot.asked = None;
            self.answer(&asked.query, Err(QueryError::Unreachable));
        }
    }

    /// Bytes came over a connection.
    pub fn handle_bytes(&mut self, number: usize, bytes: &[u8]) {
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        slot.input.extend_from_slice(bytes);
        match slot.take() {
            Ok(None) => {}
            Ok(Some((asked, message))) => {
                let result = paths(&asked.query, &message);
                self.answer(&asked.query, result);
            }
            Err(breach) => {
                tracing::warn!(%breach, "the ACM service broke the protocol");
                self.close(number, QueryError::Unreachable);
            }
        }
    }

    /// When [`AcmClient::handle_time`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let asked = self.slots.iter().filter_map(|slot| slot.asked);
        asked.map(|asked| asked.deadline).min()
    }

    /// Gives up what is not answered in time. The connection is closed, because it would not be
    /// good for another request before the answer.
    pub fn handle_time(&mut self, now: Time) {
        for number in 0..self.slots.len() {
            let late = |asked: Request| asked.deadline <= now;
            if self.slots[number].asked.is_some_and(late) {
                self.close(number, QueryError::Timeout);
            }
        }
    }

    fn free(&self) -> Option<usize> {
        let idle = |slot: &Slot| slot.asked.is_none();
        let open = |slot: &Slot| idle(slot) && slot.link != Link::Closed;
        let mut slots = self.slots.iter();
        let open = slots.position(open);
        open.or_else(|| self.slots.iter().position(idle))
    }

    fn start(&mut self, now: Time, number: usize, query: PathQuery) {
        let asked = Request {
            query,
            tid: self.next_tid,
            deadline: now + self.timeout,
        };
        // Counting is enough: it tells answers apart on a connection of our own.
        self.next_tid += 1;
        let slot = &mut self.slots[number];
        slot.asked = Some(asked);
        let action = match slot.link {
            Link::Closed => {
                slot.link = Link::Opening;
                Action::Connect(number)
            }
            Link::Opening => return,
            Link::Fresh | Link::Used => send(number, &asked),
        };
        self.actions.push_back(action);
    }

    fn close(&mut self, number: usize, error: QueryError) {
        let slot = &mut self.slots[number];
        slot.link = Link::Closed;
        slot.input.clear();
        self.actions.push_back(Action::Close(number));
        if let Some(asked) = slot.asked.take() {
            self.answer(&asked.query, Err(error));
        }
    }

    fn answer(&mut self, query: &PathQuery, result: Result<Vec<PathRecord>, QueryError>) {
        self.answers.push_back((query.query, result));
    }
}

impl Slot {
    /// The answer, once it is there as a whole.
    fn take(&mut self) -> Result<Option<(Request, Resolve)>, Breach> {
        let Some(asked) = self.asked else {
            return Err(Breach::Unasked);
        };
        let Some(head) = self.input.first_chunk() else {
            return Ok(None);
        };
        let length = Header::decode(head).length;
        let len = usize::from(length);
        if !(Header::LEN..=MAX_LEN).contains(&len) {
            return Err(Breach::Length(length));
        }
        let Some(bytes) = self.input.get(..len) else {
            return Ok(None);
        };
        let message = Resolve::decode(bytes)?;
        let more = self.input.len() - len;
        if more > 0 {
            return Err(Breach::More(more));
        }
        // ibacm marks only the answers to some other operations as such.
        if message.tid != asked.tid {
            let (found, want) = (message.tid, asked.tid);
            return Err(Breach::Number { found, want });
        }
        self.input.clear();
        self.asked = None;
        self.link = Link::Used;
        Ok(Some((asked, message)))
    }
}

/// The request for an entry's path.
fn send(number: usize, asked: &Request) -> Action {
    let query = &asked.query;
    let path = PathRecord {
        sgid: query.sgid,
        dgid: query.dgid,
        slid: query.slid.unwrap_or_default(),
        dlid: query.dlid.unwrap_or_default(),
        pkey: query.pkey,
        reversible: true,
        numb_path: 1,
        ..PathRecord::default()
    };
    let mut message = Resolve::empty(asked.tid);
    message.push(Entry::path(Flags::default(), path));
    Action::Send(number, message.encode(&mut [0; MAX_LEN]).to_vec())
}

/// What an answer says. That the service knows no path, or does not know the port, is no failure of
/// the service; that the SA does not answer it, is.
fn paths(query: &PathQuery, answer: &Resolve) -> Result<Vec<PathRecord>, QueryError> {
    match answer.status {
        Status::Success => {}
        Status::TimedOut => return Err(QueryError::Timeout),
        Status::NoMemory => return Err(QueryError::Busy),
        status => {
            tracing::debug!(dgid = %query.dgid, %status, "the ACM service knows no path");
            return Err(QueryError::NoPath);
        }
    }
    let paths = answer
        .entries()
        .iter()
        .filter_map(|entry| match entry.info {
            Info::Path(path) => Some(path),
            Info::Address(_) | Info::Other(_) => None,
        });
    let fitting: Vec<_> = paths.filter(|path| fits(query, path)).collect();
    match fitting.is_empty() {
        true => Err(QueryError::NoPath),
        false => Ok(fitting),
    }
}

/// Whether a record is for what was asked. A service that keeps paths by destination may give one
/// from another source LID.
fn fits(query: &PathQuery, path: &PathRecord) -> bool {
    path.sgid == query.sgid
        && path.dgid == query.dgid
        && query.slid.is_none_or(|slid| slid == path.slid)
        && query.dlid.is_none_or(|dlid| dlid == path.dlid)
}
