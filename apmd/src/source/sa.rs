// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths from subnet administration: SubnAdmGet(PathRecord) by umad. No I/O here; timeouts are
//! umad's, which gives an unanswered request back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::mad::MAD_LEN;
use cm_msgs::sa::{PathMask, PathRecord, ResponseError, SaMad, SaStatus};
use statemachine::{PathQuery, PortId, QueryError, Time};

use super::Found;
use crate::config;

/// The longest wait for one copy of a query.
const TIMEOUT_MAX_MS: u32 = 10_000;

/// A request to send to the SA of a port's subnet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaRequest {
    /// The port to send from.
    pub port: PortId,
    /// The MAD.
    pub mad: [u8; MAD_LEN],
    /// How long umad is to wait for the answer.
    pub timeout_ms: u32,
    /// Lower half of the MAD's transaction ID.
    pub transaction_id: u32,
}

/// Where a query stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// To be sent.
    Due,
    /// umad waits for the answer.
    Sent,
    /// The SA is busy: to be sent again then.
    Paused(Time),
}

#[derive(Debug)]
struct Running {
    query: PathQuery,
    stage: Stage,
    tries_left: u8,
    timeout_ms: u32,
}

/// Queries to subnet administration.
#[derive(Debug)]
pub struct Sa {
    config: config::Sa,
    waiting: VecDeque<PathQuery>,
    /// By the lower half of the transaction ID.
    running: BTreeMap<u32, Running>,
    next_transaction: u32,
    answers: VecDeque<Found>,
}

impl Sa {
    /// Nothing asked yet. `first_transaction` should differ from start to start.
    pub fn new(config: config::Sa, first_transaction: u32) -> Self {
        Self {
            config,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            next_transaction: first_transaction,
            answers: VecDeque::new(),
        }
    }

    /// Asks for a path.
    pub fn ask(&mut self, query: PathQuery) {
        self.waiting.push_back(query);
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Found> {
        self.answers.pop_front()
    }

    /// Other limits from the next query on.
    pub fn set_config(&mut self, config: config::Sa) {
        self.config = config;
    }

    /// Queries waiting or under way.
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// The next request to send.
    pub fn poll_send(&mut self) -> Option<SaRequest> {
        while self.running.len() < self.config.in_flight {
            let Some(query) = self.waiting.pop_front() else {
                break;
            };
            let running = Running {
                query,
                stage: Stage::Due,
                tries_left: self.config.tries,
                timeout_ms: self.config.timeout_ms,
            };
            self.running.insert(self.next_transaction, running);
            self.next_transaction = self.next_transaction.wrapping_add(1);
        }
        let (transaction_id, running) = self
            .running
            .iter_mut()
            .find(|(_, running)| running.stage == Stage::Due)?;
        running.stage = Stage::Sent;
        running.tries_left -= 1;
        Some(SaRequest {
            port: running.query.port,
            mad: request(&running.query, *transaction_id),
            timeout_ms: running.timeout_ms,
            transaction_id: *transaction_id,
        })
    }

    /// A request could not be sent.
    pub fn handle_unsent(&mut self, transaction_id: u32) {
        self.finish(transaction_id, Err(QueryError::Unreachable));
    }

    /// umad gave a request back unanswered.
    pub fn handle_timeout(&mut self, transaction_id: u32) {
        let Some(running) = self.sent(transaction_id) else {
            return;
        };
        running.timeout_ms = running.timeout_ms.saturating_mul(2).min(TIMEOUT_MAX_MS);
        if running.tries_left > 0 {
            running.stage = Stage::Due;
        } else {
            self.finish(transaction_id, Err(QueryError::Timeout));
        }
    }

    /// An SA answered.
    pub fn handle_mad(&mut self, now: Time, mad: &SaMad) {
        let transaction_id = mad.header.transaction_id as u32;
        let Some(running) = self.sent(transaction_id) else {
            return;
        };
        match mad.path_record() {
            Ok(record) => self.finish(transaction_id, Ok(vec![record])),
            Err(ResponseError::Status(SaStatus::Busy | SaStatus::NoResources)) => {
                if running.tries_left > 0 {
                    let pause = Duration::from_millis(running.timeout_ms.into());
                    running.stage = Stage::Paused(now + pause);
                    running.timeout_ms = running.timeout_ms.saturating_mul(2).min(TIMEOUT_MAX_MS);
                } else {
                    self.finish(transaction_id, Err(QueryError::Busy));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "path query");
                self.finish(transaction_id, Err(QueryError::NoPath));
            }
        }
    }

    /// A port can send no more: its queries never come back.
    pub fn handle_port_gone(&mut self, port: PortId) {
        let gone: Vec<_> = self
            .running
            .iter()
            .filter(|(_, running)| running.query.port == port)
            .map(|(transaction_id, _)| *transaction_id)
            .collect();
        for transaction_id in gone {
            self.finish(transaction_id, Err(QueryError::Unreachable));
        }
    }

    /// When the next pause ends.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.running
            .values()
            .filter_map(|running| match running.stage {
                Stage::Paused(until) => Some(until),
                Stage::Due | Stage::Sent => None,
            })
            .min()
    }

    /// Ends the pauses that are over.
    pub fn handle_time(&mut self, now: Time) {
        for running in self.running.values_mut() {
            if matches!(running.stage, Stage::Paused(until) if until <= now) {
                running.stage = Stage::Due;
            }
        }
    }

    fn sent(&mut self, transaction_id: u32) -> Option<&mut Running> {
        self.running
            .get_mut(&transaction_id)
            .filter(|running| running.stage == Stage::Sent)
    }

    fn finish(&mut self, transaction_id: u32, result: Result<Vec<PathRecord>, QueryError>) {
        if let Some(Running { query, .. }) = self.running.remove(&transaction_id) {
            self.answers.push_back(Found {
                query: query.query,
                result,
            });
        }
    }
}

fn request(query: &PathQuery, transaction_id: u32) -> [u8; MAD_LEN] {
    let mut record = PathRecord {
        sgid: query.sgid,
        dgid: query.dgid,
        pkey: query.pkey,
        reversible: true,
        numb_path: 1,
        ..PathRecord::default()
    };
    let mut mask = PathMask::SGID
        | PathMask::DGID
        | PathMask::PKEY
        | PathMask::REVERSIBLE
        | PathMask::NUMB_PATH;
    if let Some(slid) = query.slid {
        record.slid = slid;
        mask = mask | PathMask::SLID;
    }
    if let Some(dlid) = query.dlid {
        record.dlid = dlid;
        mask = mask | PathMask::DLID;
    }
    SaMad::get_path(transaction_id.into(), &record, mask).encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::{Gid, Guid, Lid, PKey, mad};

    const PORT: PortId = PortId {
        node_guid: Guid(9),
        port: 1,
    };

    fn query(number: u32) -> PathQuery {
        PathQuery {
            query: number,
            port: PORT,
            sgid: Gid([1; 16]),
            dgid: Gid([2; 16]),
            slid: None,
            dlid: Some(Lid(5)),
            pkey: PKey(0xffff),
        }
    }

    fn sa() -> Sa {
        Sa::new(config::Sa::default(), 100)
    }

    fn answer(request: &SaRequest, status: u16) -> SaMad {
        let mut mad = SaMad::decode(&request.mad).unwrap();
        mad.header.method = mad::METHOD_GET_RESP;
        mad.header.status = status;
        // umad has put its own number into the upper half.
        mad.header.transaction_id |= 0xabcd << 32;
        mad
    }

    #[test]
    fn a_query_becomes_a_request_and_its_answer_an_answer() {
        let mut sa = sa();
        sa.ask(query(7));
        let request = sa.poll_send().unwrap();
        let mad = SaMad::decode(&request.mad).unwrap();
        let record = PathRecord::decode(mad.data.first_chunk().unwrap());
        assert_eq!(
            (record.sgid, record.dgid, record.dlid),
            (Gid([1; 16]), Gid([2; 16]), Lid(5))
        );
        assert_eq!(
            mad.component_mask & (PathMask::DLID | PathMask::SLID).bits(),
            1 << 4
        );
        assert_eq!(sa.poll_send(), None);
        sa.handle_mad(Time(0), &answer(&request, 0));
        assert_eq!(
            sa.poll_answer(),
            Some(Found {
                query: 7,
                result: Ok(vec![record])
            })
        );
        assert_eq!((sa.poll_answer(), sa.pending()), (None, 0));
    }

    #[test]
    fn silence_is_asked_again_with_doubling_waits() {
        let mut sa = sa();
        sa.ask(query(7));
        let mut waits = Vec::new();
        while let Some(request) = sa.poll_send() {
            waits.push(request.timeout_ms);
            sa.handle_timeout(request.transaction_id);
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200]);
        assert_eq!(
            sa.poll_answer(),
            Some(Found {
                query: 7,
                result: Err(QueryError::Timeout)
            })
        );
    }

    #[test]
    fn busy_is_asked_again_after_a_pause() {
        let mut sa = sa();
        sa.ask(query(7));
        let request = sa.poll_send().unwrap();
        sa.handle_mad(Time(0), &answer(&request, 1));
        assert_eq!(
            (sa.poll_send(), sa.poll_timeout()),
            (None, Some(Time(200_000)))
        );
        sa.handle_time(Time(199_999));
        assert_eq!(sa.poll_send(), None);
        sa.handle_time(Time(200_000));
        let again = sa.poll_send().unwrap();
        assert_eq!(again.timeout_ms, 400);
        sa.handle_mad(Time(0), &answer(&again, 0x0300));
        assert_eq!(sa.poll_answer().unwrap().result, Err(QueryError::NoPath));
    }

    #[test]
    fn no_more_than_allowed_are_under_way() {
        let mut sa = sa();
        (0..40).for_each(|number| sa.ask(query(number)));
        let sent: Vec<_> = std::iter::from_fn(|| sa.poll_send()).collect();
        assert_eq!((sent.len(), sa.pending()), (32, 40));
        sa.handle_unsent(sent[0].transaction_id);
        assert_eq!(
            sa.poll_answer().unwrap().result,
            Err(QueryError::Unreachable)
        );
        assert_eq!(std::iter::from_fn(|| sa.poll_send()).count(), 1);
    }

    #[test]
    fn late_answers_and_lost_ports() {
        let mut sa = sa();
        sa.ask(query(7));
        let request = sa.poll_send().unwrap();
        sa.handle_port_gone(PortId { port: 2, ..PORT });
        assert_eq!(sa.poll_answer(), None);
        sa.handle_port_gone(PORT);
        assert_eq!(
            sa.poll_answer().unwrap().result,
            Err(QueryError::Unreachable)
        );
        sa.handle_mad(Time(0), &answer(&request, 0));
        sa.handle_timeout(request.transaction_id);
        assert_eq!(sa.poll_answer(), None);
    }
}
