// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths from subnet administration: SubnAdmGet(PathRecord).

use cm_msgs::sa::{PathMask, PathRecord, SaMad};
use statemachine::{PathQuery, QueryError};

use crate::config;
use crate::sa::{Ask, Failure, Response, User};

/// What to ask the SA for a query.
pub fn ask(query: &PathQuery, config: &config::Sa) -> Ask {
    Ask {
        user: User::Paths(query.query),
        port: query.port,
        mad: request(query),
        timeout_ms: config.timeout_ms,
        tries: config.tries,
    }
}

/// The paths that the SA replied with.
///
/// # Errors
/// There are none, or it could not be asked.
pub fn paths(reply: Result<Response, Failure>) -> Result<Vec<PathRecord>, QueryError> {
    let paths = reply.and_then(|response| Ok(response.decode()?.collect()));
    paths.map_err(|failure| {
        tracing::debug!(error = %failure, "path query");
        match failure {
            Failure::Timeout => QueryError::Timeout,
            Failure::Busy => QueryError::Busy,
            Failure::Unreachable => QueryError::Unreachable,
            Failure::Status(_) | Failure::Malformed(_) => QueryError::NoPath,
        }
    })
}

fn request(query: &PathQuery) -> SaMad {
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
    SaMad::get_path(0, &record, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::sa::{Record, SaStatus};
    use cm_msgs::{Gid, Guid, Lid, PKey};
    use statemachine::PortId;

    const QUERY: PathQuery = PathQuery {
        query: 7,
        port: PortId {
            node_guid: Guid(9),
            port: 1,
        },
        sgid: Gid([1; 16]),
        dgid: Gid([2; 16]),
        slid: None,
        dlid: Some(Lid(5)),
        pkey: PKey(0xffff),
    };

    #[test]
    fn a_query_becomes_a_request() {
        let ask = ask(&QUERY, &config::Sa::default());
        assert_eq!((ask.user, ask.port), (User::Paths(7), QUERY.port));
        assert_eq!((ask.timeout_ms, ask.tries), (200, 5));
        let record = PathRecord::decode(ask.mad.data.first_chunk().unwrap());
        assert_eq!(
            (record.sgid, record.dgid, record.dlid),
            (Gid([1; 16]), Gid([2; 16]), Lid(5))
        );
        assert_eq!(
            ask.mad.component_mask & (PathMask::DLID | PathMask::SLID).bits(),
            1 << 4
        );
    }

    #[test]
    fn a_response_becomes_paths() {
        let record = PathRecord {
            dlid: Lid(5),
            ..PathRecord::default()
        };
        let response = Response {
            attribute: PathRecord::ATTRIBUTE,
            record_len: 200,
            data: [&record.encode()[..], &[0; 136]].concat(),
        };
        assert_eq!(paths(Ok(response)), Ok(vec![record]));
    }

    #[test]
    fn failures_say_whether_asking_again_helps() {
        let refused = Failure::Status(SaStatus::NoRecords);
        for (failure, error) in [
            (Failure::Timeout, QueryError::Timeout),
            (Failure::Busy, QueryError::Busy),
            (Failure::Unreachable, QueryError::Unreachable),
            (refused, QueryError::NoPath),
        ] {
            assert_eq!(paths(Err(failure)), Err(error));
        }
    }
}
