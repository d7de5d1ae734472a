// SPDX-License-Identifier: MIT OR Apache-2.0
//! What probes of two paths tell together: whether one of them is a hole, or MADs are lost or late on both.

use core::time::Duration;

use super::{PATIENCE_IF_LATE, PathHealth, PathState, ProbePath, Probes};
use crate::time::Time;

/// How long a path is taken to be better than one that failed before it, though it does not answer: where
/// many MADs are lost, many in a row are possible.
const LASTED: Duration = Duration::from_secs(5);
/// Paths of which probes began to be lost within this time, that of a probe, fell together.
const TOGETHER: Duration = Duration::from_secs(1);

/// Why a suspect path is silent, as far as another path's answers tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Silence {
    /// It carries nothing, and the other one does.
    Hole,
    /// The other one is answered late, or not always: so the silence may be chance.
    PerhapsChance,
    /// The other one has not been answered often enough to tell.
    Unexplained,
}

impl Probes {
    /// Whether the path is suspect though `other` was answered promptly between two probes of it that
    /// were lost: so the far end was there to answer, and is to be reached by the other one only. The same
    /// between two probes over a silent port, if another path over the other one's port was answered.
    pub(crate) fn prefer(&self, now: Time, other: &ProbePath, path: &ProbePath) -> bool {
        let by_port = self.tally.prefer(now, other.port, path.port);
        let (Some(path), Some(other)) = (self.paths.get(path), self.paths.get(other)) else {
            return false;
        };
        let by_probes = || {
            let lost = path.lost_at(now);
            let meanwhile = |lost: Time| {
                let mut prompt = other.prompt.iter();
                prompt.any(|&at| path.began <= at && at <= lost)
            };
            lost.is_some_and(meanwhile)
        };
        path.is_suspect() && other.health == PathHealth::Verified && (by_port || by_probes())
    }

    /// Whether the path is suspect though `other` was answered since, and not long ago: whatever became of
    /// that one, it has lasted longer.
    pub(crate) fn outlasts(&self, now: Time, other: &ProbePath, path: &ProbePath) -> bool {
        let (Some(path), Some(other)) = (self.paths.get(path), self.paths.get(other)) else {
            return false;
        };
        let lasted = |at: Time| path.began <= at && now - at < LASTED;
        path.is_suspect() && other.answered().is_some_and(lasted)
    }

    /// Returns why the suspect `path` is silent. It is a hole if `other` has been answered since `path` lost its first
    /// probe, and either `other`'s latest probes all came back promptly, or three times as many probes of `path` are lost
    /// as make a path suspect (at most [`PATIENCE_IF_LATE`], unless more than that make it suspect).
    pub(crate) fn silence(&self, path: &ProbePath, other: &ProbePath) -> Silence {
        let (Some(path), Some(other)) = (self.paths.get(path), self.paths.get(other)) else {
            return Silence::Unexplained;
        };
        let since = |at: Time| path.began <= at;
        let answered = other.asked().is_some_and(since);
        let is_fair = is_answered_throughout(path, other);
        let patience = other.loss.patience().max(path.loss.patience());
        // How much is lost is known late.
        let least = match other.lateness.is_late() {
            true => PATIENCE_IF_LATE,
            false => PATIENCE_IF_LATE.min(3 * patience),
        };
        if answered && (is_fair || path.unanswered >= patience.max(least)) {
            Silence::Hole
        } else if answered && (other.lateness.is_late() || other.loss.clean() == 0) {
            Silence::PerhapsChance
        } else {
            Silence::Unexplained
        }
    }

    /// Whether the path is suspect while the latest probes of `other` all came back promptly: MADs are not lost or late, and
    /// the far end is there to answer.
    pub(crate) fn is_hole_beside(&self, path: &ProbePath, other: &ProbePath) -> bool {
        let (Some(path), Some(other)) = (self.paths.get(path), self.paths.get(other)) else {
            return false;
        };
        path.is_suspect()
            && other.health == PathHealth::Verified
            && is_answered_throughout(path, other)
    }

    /// Whether both are suspect, and since the same time, not long ago: paths that share nothing do not fail
    /// together, so it may be that MADs are lost or that nobody answers them, and nothing is known of the paths.
    pub(crate) fn fell_together(&self, now: Time, one: &ProbePath, other: &ProbePath) -> bool {
        let (Some(one), Some(other)) = (self.paths.get(one), self.paths.get(other)) else {
            return false;
        };
        let (first, last) = (one.began.min(other.began), one.began.max(other.began));
        one.is_suspect() && other.is_suspect() && last - first < TOGETHER && now - first < LASTED
    }
}

/// Whether the latest probes of `other` were sent since `path` lost its first one, and all came back promptly.
fn is_answered_throughout(path: &PathState, other: &PathState) -> bool {
    other.prompt.iter().all(|&at| path.began <= at)
        && usize::from(other.loss.clean()) >= other.prompt.len()
}
