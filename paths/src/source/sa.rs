// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths from subnet administration: SubnAdmGet(PathRecord) for one, or SubnAdmGetTable for all
//! between two ports.

use cm_msgs::sa::{PathRecord, Record, SaMad, SaStatus};
use statemachine::{PathQuery, QueryError};

use crate::sa::{Ask, Failure, Response, User};

/// As many paths as a question can ask for (7 bits).
const NUMB_PATH_MAX: u8 = 127;

/// What to ask the SA for a query from a port with this LMC.
pub fn ask(query: &PathQuery, lmc: u8) -> Ask {
    let mad = request(query, wants_all(query, lmc));
    Ask::new(User::Paths(query.query), query.port, mad)
}

/// All paths between two ports (SubnAdmGetTable), where the local one has several LIDs and the
/// question leaves them open.
fn wants_all(query: &PathQuery, lmc: u8) -> bool {
    let open = query.slid.is_none() || query.dlid.is_none();
    open && lmc > 0
}

/// The paths that the SA replied with, in its order of preference.
///
/// # Errors
/// There are none, or it could not be asked.
pub fn paths(reply: Result<Response, Failure>) -> Result<Vec<PathRecord>, QueryError> {
    let paths = reply.and_then(|response| {
        let mut paths: Vec<PathRecord> = response.decode()?.collect();
        paths.sort_by_key(|path| path.preference);
        Ok(paths)
    });
    paths.map_err(|failure| {
        tracing::debug!(error = %failure, "path query");
        match failure {
            Failure::Timeout => QueryError::Timeout,
            Failure::Busy => QueryError::Busy,
            Failure::Absent | Failure::Unreachable => QueryError::Unreachable,
            // OpenSM says the latter of a GID that is no port's.
            Failure::Status(SaStatus::NoRecords | SaStatus::InvalidGid) => QueryError::NoPath,
            Failure::Status(SaStatus::NoResources) => QueryError::Busy,
            Failure::Status(_) | Failure::Malformed(_) => QueryError::Refused,
        }
    })
}

fn request(query: &PathQuery, all: bool) -> SaMad {
    // Reversible, since acknowledgements go the way back; in the connection's own partition, since
    // the SA would choose any that both ports are in.
    let mut path = PathRecord::any()
        .sgid(query.sgid)
        .pkey(query.pkey)
        .reversible(true)
        .numb_path(if all { NUMB_PATH_MAX } else { 1 });
    // A destination may be known by its LID alone.
    if !query.dgid.is_unspecified() {
        path = path.dgid(query.dgid);
    }
    if let Some(slid) = query.slid {
        path = path.slid(slid);
    }
    if let Some(dlid) = query.dlid {
        path = path.dlid(dlid);
    }
    match all {
        true => SaMad::get_table(0, &path),
        false => SaMad::get(0, &path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::sa::Record;
    use cm_msgs::{Gid, Guid, Lid, PKey, mad};
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
        let ask = ask(&QUERY, 0);
        assert_eq!((ask.user, ask.port), (User::Paths(7), QUERY.port));
        let record = PathRecord::decode(ask.mad.data.first_chunk().unwrap());
        assert_eq!(
            (record.sgid, record.dgid, record.dlid),
            (Gid([1; 16]), Gid([2; 16]), Lid(5))
        );
        assert_eq!(ask.mad.sa.component_mask & (1 << 4 | 1 << 5), 1 << 4);
    }

    #[test]
    fn all_paths_are_asked_for_where_lids_are_open() {
        let open = PathQuery {
            dlid: None,
            ..QUERY
        };
        let closed = PathQuery {
            slid: Some(Lid(3)),
            ..QUERY
        };
        for (query, lmc, all) in [
            (open, 0, false),
            (open, 1, true),
            (QUERY, 1, true),
            (closed, 1, false),
        ] {
            let mad = ask(&query, lmc).mad;
            let (method, numb_path) = match all {
                true => (mad::METHOD_GET_TABLE, 127),
                false => (mad::METHOD_GET, 1),
            };
            let record = PathRecord::decode(mad.data.first_chunk().unwrap());
            assert_eq!((mad.header.method, record.numb_path), (method, numb_path));
        }
    }

    #[test]
    fn a_table_is_in_the_order_of_preference() {
        let record = |dlid, preference| PathRecord {
            dlid: Lid(dlid),
            preference,
            ..PathRecord::default()
        };
        let records = [record(6, 1), record(5, 0), record(7, 0)];
        let response = Response {
            attribute: PathRecord::ATTRIBUTE,
            record_len: 64,
            data: records.map(|record| record.encode()).concat(),
        };
        let paths = paths(Ok(response)).unwrap();
        assert_eq!(
            paths.iter().map(|path| path.dlid.0).collect::<Vec<_>>(),
            [5, 7, 6]
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
        let status = Failure::Status;
        let cut_short = Response {
            attribute: PathRecord::ATTRIBUTE,
            record_len: 8,
            data: vec![0; 8],
        };
        let malformed = cut_short.decode::<PathRecord>().map(|_| ()).unwrap_err();
        for (failure, error) in [
            (Failure::Timeout, QueryError::Timeout),
            (Failure::Busy, QueryError::Busy),
            (Failure::Unreachable, QueryError::Unreachable),
            (Failure::Absent, QueryError::Unreachable),
            (status(SaStatus::NoRecords), QueryError::NoPath),
            (status(SaStatus::InvalidGid), QueryError::NoPath),
            (status(SaStatus::NoResources), QueryError::Busy),
            (status(SaStatus::RequestDenied), QueryError::Refused),
            (status(SaStatus::TooManyRecords), QueryError::Refused),
            (status(SaStatus::Redirect), QueryError::Refused),
            (Failure::Malformed(malformed), QueryError::Refused),
        ] {
            assert_eq!(paths(Err(failure)), Err(error));
        }
    }
}
