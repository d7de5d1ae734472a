// SPDX-License-Identifier: MIT OR Apache-2.0
//! What thinkable alternates share with the primary inside the fabric.

use alloc::sync::Arc;

use cm_msgs::path::Path;

use crate::assessment::Assessment;
use crate::candidate::Candidate;
use crate::conn::qp::Core;
use crate::context::Context;
use crate::overlap::{Overlap, PathEnds};

/// What was said of paths last, for one primary.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Overlaps(Option<Arc<Assessment>>);

impl Overlaps {
    fn of(&self, primary: &Path, ends: &PathEnds) -> Option<Overlap> {
        self.for_primary(primary)?.of(ends)
    }

    fn for_primary(&self, primary: &Path) -> Option<&Assessment> {
        let known = self.0.as_deref();
        known.filter(|known| known.is_for(primary))
    }

    /// Whether it was asked for all of these.
    pub(super) fn covers(&self, primary: &Path, paths: &[PathEnds]) -> bool {
        self.for_primary(primary)
            .is_some_and(|known| known.covers(paths))
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

    /// Takes an answer in.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        primary: &Path,
        paths: &[PathEnds],
        overlaps: &[Option<Overlap>],
    ) {
        let mut known = Arc::new(Assessment::new(primary, paths, overlaps));
        cx.assessments.share(&mut known);
        self.0 = Some(known);
    }
}
