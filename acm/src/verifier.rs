// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that clients have, verified by subnet administration.

use std::collections::VecDeque;

use cm_msgs::acm::Status;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Lid, PKey};
use paths::source::{Question, Urgency};
use statemachine::{Origin, PathQuery, QueryError, Random, Time};

use super::asks::{Asks, Numbers};
use super::endpoints::EndpointId;
use super::local::Local;
use super::requester::Requester;
use super::resolver::{Outcome, status_of_query};

#[derive(Debug)]
struct Verification {
    from: EndpointId,
    requester: Requester,
    path: PathRecord,
}

/// The verifications that are asked for.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// To the path sources; odd numbers.
    questions: Asks<Question, Verification>,
    outcomes: VecDeque<Outcome>,
}

impl Verifier {
    /// `random` makes the numbers of questions.
    pub(crate) fn new(random: Random) -> Self {
        Self {
            questions: Asks::new(Numbers::Odd, random),
            outcomes: VecDeque::new(),
        }
    }

    /// Asks subnet administration, and nobody else, whether there is such a path: when the engine
    /// asks nothing.
    ///
    /// # Errors
    /// The endpoint has gone, or the user has asked too much.
    pub(crate) fn verify(
        &mut self,
        now: Time,
        local: &mut Local,
        from: EndpointId,
        requester: Requester,
        path: PathRecord,
    ) -> Result<(), Status> {
        let endpoint = local.endpoints.get(from).ok_or(Status::SourceAddress)?;
        let port = endpoint.port;
        let pkey = match path.pkey {
            PKey(0) => endpoint.pkey,
            pkey => pkey,
        };
        let sgid = match local.endpoints.port(port) {
            Some(local) if path.sgid.is_unspecified() => local.status.gid,
            _ => path.sgid,
        };
        let question = |query| Question {
            urgency: Urgency::Recheck,
            query: PathQuery {
                query,
                port,
                sgid,
                dgid: path.dgid,
                slid: (path.slid != Lid(0)).then_some(path.slid),
                dlid: (path.dlid != Lid(0)).then_some(path.dlid),
                pkey,
            },
            only: Some(Origin::Sa),
        };
        let user = requester.user();
        let verification = Verification {
            from,
            requester,
            path,
        };
        let asked = self.questions.add(now, user, verification, question);
        asked.ok_or(Status::NoMemory)?;
        local
            .endpoints
            .count(from, |counters| &mut counters.route_query);
        Ok(())
    }

    pub(crate) fn poll_question(&mut self) -> Option<Question> {
        self.questions.next()
    }

    /// Subnet administration has answered.
    pub(crate) fn handle_paths(
        &mut self,
        local: &mut Local,
        number: u32,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        let Some(asked) = self.questions.done(number) else {
            return;
        };
        let result = match result {
            Ok(records) => {
                let mut records = records.into_iter();
                let same = records.find(|record| is_same(&asked.path, record));
                same.ok_or(Status::NoData)
            }
            Err(error) => Err(status_of_query(error)),
        };
        if result.is_err() {
            local
                .endpoints
                .count(asked.from, |counters| &mut counters.error);
        }
        self.outcomes.push_back(Outcome {
            requester: asked.requester,
            result,
        });
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// When [`Verifier::handle_time`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.questions.poll_timeout()
    }

    pub(crate) fn handle_time(&mut self, now: Time, local: &mut Local) {
        while let Some(number) = self.questions.lost(now) {
            self.handle_paths(local, number, Err(QueryError::Timeout));
        }
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
