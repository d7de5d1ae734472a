// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that clients have, verified by subnet administration.

use cm_msgs::acm::Status;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Lid, PKey};
use statemachine::{Origin, PathQuery, QueryError};

use super::endpoints::EndpointId;
use super::resolve::status_of_query;
use super::service::{Answer, Asked, Asker, Service};
use crate::source::{self, Question};

impl Service {
    /// Asks subnet administration, and nobody else, whether there is such a path.
    ///
    /// # Errors
    /// The endpoint has gone, or too many wait.
    pub(super) fn verify(
        &mut self,
        from: EndpointId,
        asker: Asker,
        path: PathRecord,
    ) -> Result<(), Status> {
        let endpoint = self.endpoints.get(from).ok_or(Status::SourceAddress)?;
        if self.waiting >= self.settings.max_waiting {
            return Err(Status::NoMemory);
        }
        self.waiting += 1;
        let (port, pkey) = (endpoint.port, endpoint.pkey);
        let sgid = match self.endpoints.port(port) {
            Some(local) if path.sgid.is_unspecified() => local.status.gid,
            _ => path.sgid,
        };
        let number = self.ask(Asked::Verify(from, asker, path));
        self.count(from, |counters| &mut counters.route_query);
        let query = PathQuery {
            query: number,
            port,
            sgid,
            dgid: path.dgid,
            slid: (path.slid != Lid(0)).then_some(path.slid),
            dlid: (path.dlid != Lid(0)).then_some(path.dlid),
            pkey: if path.pkey == PKey(0) {
                pkey
            } else {
                path.pkey
            },
        };
        self.questions.push_back(Question {
            asker: source::Asker::Acm(number),
            query,
            only: Some(Origin::Sa),
        });
        Ok(())
    }

    /// It has answered.
    pub(super) fn verified(
        &mut self,
        from: EndpointId,
        asker: Asker,
        path: &PathRecord,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        self.waiting -= 1;
        let record = match result {
            Ok(records) => {
                let same = records.into_iter().find(|record| is_same(path, record));
                same.ok_or(Status::NoData)
            }
            Err(error) => Err(status_of_query(error)),
        };
        if record.is_err() {
            self.count(from, |counters| &mut counters.error);
        }
        self.answers.push_back(Answer {
            asker,
            result: record,
        });
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
