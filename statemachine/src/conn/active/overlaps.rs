// SPDX-License-Identifier: MIT OR Apache-2.0
//! What thinkable alternates share with the primary inside the fabric.

use alloc::vec::Vec;

use cm_msgs::path::Path;

use crate::candidate::Candidate;
use crate::conn::qp::Core;
use crate::context::Context;
use crate::overlap::{Overlap, PathEnds};
use crate::trace::PathLids;

/// What was said of paths last, for one primary.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Overlaps {
    primary: Option<PathLids>,
    known: Vec<(PathEnds, Option<Overlap>)>,
}

impl Overlaps {
    fn of(&self, primary: &Path, ends: &PathEnds) -> Option<Overlap> {
        let known = || self.known.iter().find(|(known, _)| known == ends);
        let fits = self.is_for(primary);
        fits.then(known).flatten().and_then(|(_, overlap)| *overlap)
    }

    fn is_for(&self, primary: &Path) -> bool {
        self.primary == Some(PathLids::from(primary))
    }

    /// Whether it was asked for all of these.
    pub(super) fn covers(&self, primary: &Path, paths: &[PathEnds]) -> bool {
        let said = |ends: &PathEnds| self.known.iter().any(|(known, _)| known == ends);
        self.is_for(primary) && paths.iter().all(said)
    }

    /// What a path of the connection's shares with its primary, where that is known.
    pub(super) fn of_path(&self, core: &Core, cx: &Context, path: &Path) -> Option<Overlap> {
        let ends = core.candidate_pool(cx).ends_of(path);
        self.of(&core.qp.primary, &ends)
    }

    /// Puts what is known of their overlap into the candidates' scores and sorts them by that.
    pub(super) fn rate(&self, core: &Core, cx: &Context, candidates: &mut [Candidate]) {
        let pool = core.candidate_pool(cx);
        for candidate in candidates.iter_mut() {
            let ends = pool.ends(candidate);
            candidate.score.overlap = self.of(&core.qp.primary, &ends);
        }
        candidates.sort_by_key(|candidate| candidate.score);
    }

    /// Takes an answer in. What was not said, or not in time, is not known.
    pub(super) fn answered(
        &mut self,
        primary: Path,
        paths: Vec<PathEnds>,
        overlaps: &[Option<Overlap>],
    ) {
        let overlap = |at: usize| overlaps.get(at).copied().flatten();
        let known = paths.into_iter().enumerate();
        self.known = known.map(|(at, ends)| (ends, overlap(at))).collect();
        self.primary = Some(PathLids::from(&primary));
    }
}
