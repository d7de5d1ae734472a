// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where paths come from: the sources, and the list that asks them in turn.

pub mod acm;
mod fixed;
mod health;
mod member;
mod path_file;
pub mod sa;
mod sources;
mod ssa;

pub use fixed::Static;
pub use health::{Counts, Failure, Health, Lane};
pub use member::{Limits, Member, Plan};
pub use path_file::{PathFile, PathFileError};
pub use sources::Sources;
pub use ssa::{FabricFrom, Known, Ssa};
pub use statemachine::Origin;

use cm_msgs::sa::PathRecord;
use statemachine::{PathQuery, QueryError};

/// Who wants to know a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Asker {
    /// The engine.
    Engine,
    /// A request of the served ACM, by its number.
    Acm(u32),
}

/// A question for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Who asks.
    pub asker: Asker,
    /// What; its number is the asker's.
    pub query: PathQuery,
    /// The one source that may answer, if not all may.
    pub only: Option<Origin>,
}

impl Question {
    /// Whether `origin` may answer.
    pub fn allows(&self, origin: Origin) -> bool {
        self.only.is_none_or(|only| only == origin)
    }
}

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who asked.
    pub asker: Asker,
    /// The query's number.
    pub query: u32,
    /// The source that answered, or whose error it is; `None` if there was none to ask.
    pub origin: Option<Origin>,
    /// The records, best first.
    pub result: Result<Vec<PathRecord>, QueryError>,
}
