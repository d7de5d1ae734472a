// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where paths come from: the sources, and the list that asks them in turn.

pub mod acm;
mod fixed;
mod health;
mod member;
mod path_file;
mod queue;
pub mod sa;
mod sources;
pub mod ssa;

pub use fixed::Static;
pub use health::{Counts, Failure, Health, Lane};
pub use member::{Limits, Member, Plan};
pub use path_file::{PathFile, PathFileError};
pub use sources::Sources;
pub use ssa::{FabricFrom, KnownFabric, Ssa};
pub use statemachine::Origin;

use cm_msgs::sa::PathRecord;
use statemachine::{PathQuery, QueryError};

/// For what a path is looked for. The engine's questions go before all others, and part of what each
/// source may be asked at a time is kept for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Urgency {
    /// The engine wants an alternate.
    Failover,
    /// A client of the served ACM waits.
    Client,
    /// The served ACM looks whether what it knows still holds: only while the engine asks nothing.
    Recheck,
}

/// A question for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// For what.
    pub urgency: Urgency,
    /// What; its number is that of whoever asks.
    pub query: PathQuery,
    /// The one source that may answer, if not all may.
    pub only: Option<Origin>,
}

impl Question {
    /// The engine's.
    pub fn failover(query: PathQuery) -> Self {
        Self {
            urgency: Urgency::Failover,
            query,
            only: None,
        }
    }

    /// Whether `origin` may answer.
    pub fn allows(&self, origin: Origin) -> bool {
        self.only.is_none_or(|only| only == origin)
    }
}

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// For what it was asked.
    pub urgency: Urgency,
    /// The query's number.
    pub query: u32,
    /// The source that answered, or whose error it is; `None` if there was none to ask.
    pub origin: Option<Origin>,
    /// The records, best first.
    pub result: Result<Vec<PathRecord>, QueryError>,
}
