// SPDX-License-Identifier: MIT OR Apache-2.0
//! What thinkable alternates share with the primary inside the fabric.

use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};
use thin_vec::ThinVec;

use crate::candidate::Candidate;
use crate::conn::qp::Core;
use crate::context::Context;
use crate::overlap::{Overlap, PathEnds};
use crate::trace::PathLids;

/// What was said of a path from some port of the connection's device; `None`: nothing is known.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Said {
    port: u8,
    dgid: Gid,
    /// 0: any of the port's.
    slid: Lid,
    dlid: Lid,
    overlap: Option<Overlap>,
}

impl Said {
    fn new(ends: &PathEnds, overlap: Option<Overlap>) -> Self {
        let PathEnds {
            port,
            dgid,
            slid,
            dlid,
            ..
        } = *ends;
        Self {
            port: port.port,
            dgid,
            slid: slid.unwrap_or_default(),
            dlid: dlid.unwrap_or_default(),
            overlap,
        }
    }

    fn is_of(&self, ends: &PathEnds) -> bool {
        let overlap = self.overlap;
        *self == Self::new(ends, overlap)
    }
}

/// What was said of paths last, for one primary.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Overlaps {
    primary: Option<PathLids>,
    said: ThinVec<Said>,
}

impl Overlaps {
    fn of(&self, primary: &Path, ends: &PathEnds) -> Option<Overlap> {
        let said = || self.said.iter().find(|said| said.is_of(ends));
        let fits = self.is_for(primary);
        fits.then(said).flatten().and_then(|said| said.overlap)
    }

    fn is_for(&self, primary: &Path) -> bool {
        self.primary == Some(PathLids::from(primary))
    }

    /// Whether it was asked for all of these.
    pub(super) fn covers(&self, primary: &Path, paths: &[PathEnds]) -> bool {
        let was_said = |ends: &PathEnds| self.said.iter().any(|said| said.is_of(ends));
        self.is_for(primary) && paths.iter().all(was_said)
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
        primary: &Path,
        paths: &[PathEnds],
        overlaps: &[Option<Overlap>],
    ) {
        let overlap = |at: usize| overlaps.get(at).copied().flatten();
        let paths = paths.iter().enumerate();
        self.said = paths
            .map(|(at, ends)| Said::new(ends, overlap(at)))
            .collect();
        self.said.shrink_to_fit();
        self.primary = Some(PathLids::from(primary));
    }
}
