// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where paths come from.

mod sa;

pub use sa::{Sa, SaRequest};

use cm_msgs::sa::PathRecord;
use statemachine::{Input, Origin, PathQuery, QueryError};

/// The answer to a [`PathQuery`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The query's number.
    pub query: u32,
    /// The records, best first.
    pub result: Result<Vec<PathRecord>, QueryError>,
}

impl From<Answer> for Input {
    fn from(Answer { query, result }: Answer) -> Self {
        Self::Paths {
            query,
            result,
            origin: Some(Origin::Sa),
        }
    }
}

/// Something that knows paths. Every query gets one answer, sooner or later.
pub trait Source {
    /// Asks for a path.
    fn ask(&mut self, query: PathQuery);

    /// The next answer.
    fn poll_answer(&mut self) -> Option<Answer>;
}
