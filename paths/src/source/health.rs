// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a path source is doing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use statemachine::{Backoff, PathQuery, PortId, QueryError, Time};

/// First pause before a source that fails is asked on trial; doubles with every trial that fails.
const PROBE_FIRST: Duration = Duration::from_millis(500);
/// The longest such pause.
const PROBE_MAX: Duration = Duration::from_secs(30);

/// A way to a source that can fail by itself: each local port's for the SA, which is asked through
/// that port; one for all for a source that is asked through none.
pub type Lane = Option<PortId>;

/// Why a lane is not asked first, and when it is tried again.
#[derive(Clone, Debug)]
struct Failing {
    since: Time,
    error: QueryError,
    /// The question that failed last: asked again on trial, if there is no other.
    query: PathQuery,
    /// The last question that went elsewhere, if it is another one.
    other: Option<PathQuery>,
    trials: Backoff,
    probe_at: Time,
}

/// How many questions ended how.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Asked, trials included.
    pub asked: u64,
    /// Answered with a path.
    pub answered: u64,
    /// Paths in these answers.
    pub paths: u64,
    /// Answered that there is none.
    pub no_path: u64,
    /// Not answered in time.
    pub timed_out: u64,
    /// Failed otherwise: busy, unreachable or refused.
    pub failed: u64,
}

/// Why, and since when, a source fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Since when.
    pub since: Time,
    /// The last error.
    pub error: QueryError,
}

/// How a path source is doing.
#[derive(Clone, Default, Debug)]
pub struct Health {
    failing: BTreeMap<Lane, Failing>,
    good: BTreeSet<Lane>,
    /// The question that each lane answered last: it is asked again when the lane has not been used for long.
    questions: BTreeMap<Lane, PathQuery>,
    counts: Counts,
    latency: Option<Duration>,
    answered_at: Option<Time>,
    last_error: Option<QueryError>,
}

impl Health {
    /// How many questions ended how.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How long the last answer took.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// When it last answered, be it with a refusal.
    pub fn answered_at(&self) -> Option<Time> {
        self.answered_at
    }

    /// The last error, whether it is over or not.
    pub fn last_error(&self) -> Option<QueryError> {
        self.last_error
    }

    /// Since when the source fails, and why; `None` while one of its lanes is good, or nothing is
    /// known.
    pub fn failure(&self) -> Option<Failure> {
        if !self.good.is_empty() {
            return None;
        }
        let first = self.failing.values().min_by_key(|failing| failing.since)?;
        Some(Failure {
            since: first.since,
            error: first.error,
        })
    }

    /// The local ports through which the source cannot be asked.
    pub fn failing_ports(&self) -> impl Iterator<Item = PortId> {
        self.failing.keys().copied().flatten()
    }

    /// Whether a lane is known to fail.
    pub fn is_failing(&self, lane: Lane) -> bool {
        self.failing.contains_key(&lane)
    }

    /// A question is put.
    pub(super) fn asked(&mut self) {
        self.counts.asked += 1;
    }

    /// A lane answered `query`, after `took`, with `paths` paths, or that there is none (0).
    pub(super) fn answered(
        &mut self,
        now: Time,
        lane: Lane,
        query: PathQuery,
        paths: usize,
        took: Duration,
    ) {
        self.failing.remove(&lane);
        self.good.insert(lane);
        self.questions.insert(lane, query);
        self.latency = Some(took);
        self.answered_at = Some(now);
        self.counts.paths += paths as u64;
        *match paths {
            0 => &mut self.counts.no_path,
            _ => &mut self.counts.answered,
        } += 1;
    }

    /// A lane answered, but not with what was asked for: the question may be to blame, so others
    /// still go there.
    pub(super) fn refused(&mut self, now: Time, lane: Lane) {
        self.failing.remove(&lane);
        self.answered_at = Some(now);
        self.last_error = Some(QueryError::Refused);
        self.counts.failed += 1;
    }

    /// A question of a lane failed for good.
    pub(super) fn failed(&mut self, error: QueryError) {
        *match error {
            QueryError::Timeout => &mut self.counts.timed_out,
            _ => &mut self.counts.failed,
        } += 1;
    }

    /// A lane does not work, as `query` showed. When it is to be tried again, if that is news.
    pub(super) fn suspend(
        &mut self,
        now: Time,
        lane: Lane,
        query: PathQuery,
        error: QueryError,
    ) -> Option<Time> {
        self.good.remove(&lane);
        self.last_error = Some(error);
        if let Some(failing) = self.failing.get_mut(&lane) {
            failing.error = error;
            return None;
        }
        let mut trials = Backoff::new(PROBE_FIRST, PROBE_MAX);
        let probe_at = now + trials.next_delay();
        let failing = Failing {
            since: now,
            error,
            query,
            other: None,
            trials,
            probe_at,
        };
        self.failing.insert(lane, failing);
        Some(probe_at)
    }

    /// A question goes elsewhere if this lane fails. The next trial is with that one: the lane may
    /// fail with some questions only.
    pub(super) fn passed_over(&mut self, lane: Lane, query: PathQuery) {
        if let Some(failing) = self.failing.get_mut(&lane)
            && !is_same(&failing.query, &query)
        {
            failing.other = Some(query);
        }
    }

    /// The trial of a lane, if it is due, and when the next one is.
    pub(super) fn probe(&mut self, now: Time, lane: Lane) -> Option<(PathQuery, Time)> {
        let failing = self.failing.get_mut(&lane)?;
        if failing.probe_at > now {
            return None;
        }
        failing.probe_at = now + failing.trials.next_delay();
        failing.query = failing.other.take().unwrap_or(failing.query);
        Some((failing.query, failing.probe_at))
    }

    /// The question with which to see whether a lane still answers; `None` unless it did before. One that fails is
    /// tried anyway.
    pub(super) fn known_question(&self, lane: Lane) -> Option<PathQuery> {
        let question = self.questions.get(&lane).copied();
        question.filter(|_| !self.is_failing(lane))
    }

    /// A lane is not there to be asked.
    pub(super) fn lose(&mut self, lane: Lane) {
        self.forget(lane);
        self.questions.remove(&lane);
    }

    /// What is known of a lane no longer holds.
    pub(super) fn forget(&mut self, lane: Lane) {
        self.failing.remove(&lane);
        self.good.remove(&lane);
    }

    /// No lane is known to fail any more.
    pub(super) fn forgive(&mut self) {
        self.failing.clear();
    }
}

/// Whether two questions differ in their numbers at most.
fn is_same(one: &PathQuery, other: &PathQuery) -> bool {
    let numbered = PathQuery {
        query: one.query,
        ..*other
    };
    *one == numbered
}
