// SPDX-License-Identifier: MIT OR Apache-2.0
//! What thinkable alternates share with the primary inside the fabric.

use alloc::vec::Vec;

use cm_msgs::path::Path;

use super::{Active, Work};
use crate::candidate::Candidate;
use crate::conn::Core;
use crate::context::{ConnAlarm, Context};
use crate::overlap::{Overlap, Way};

/// Candidates looked at in one evaluation, the best by ports first: 2 x 2 ports with 8 LIDs each.
const MAX_WAYS: usize = 32;

/// What was said of ways last, for one primary.
#[derive(Default)]
pub(super) struct Overlaps {
    primary: Path,
    known: Vec<(Way, Option<Overlap>)>,
}

impl Overlaps {
    fn of(&self, primary: &Path, way: &Way) -> Option<Overlap> {
        let known = || self.known.iter().find(|(known, _)| known == way);
        let fits = self.primary.same_way(primary);
        fits.then(known).flatten().and_then(|(_, overlap)| *overlap)
    }

    fn covers(&self, primary: &Path, ways: &[Way]) -> bool {
        let said = |way: &Way| self.known.iter().any(|(known, _)| known == way);
        self.primary.same_way(primary) && ways.iter().all(said)
    }
}

impl Active {
    /// Puts what is known of their overlap into the candidates' scores and sorts them by that.
    /// `None`: it has to be asked for first, which is under way.
    pub(super) fn assess(
        &mut self,
        core: &Core,
        cx: &mut Context,
        mut candidates: Vec<Candidate>,
    ) -> Option<Vec<Candidate>> {
        candidates.truncate(MAX_WAYS);
        let ends = core.endpoints(cx);
        let loaded = core.loaded().map(|path| ends.way_of(path));
        let thinkable = candidates.iter().map(|candidate| ends.way(candidate));
        let ways: Vec<Way> = loaded.into_iter().chain(thinkable).collect();
        if !self.overlaps.covers(&core.qp.primary, &ways) {
            let primary = core.qp.primary;
            let query = cx.assess(core.id, primary, ways.clone());
            cx.set(core.id, ConnAlarm::Work, cx.config.assess_timeout);
            self.work = Work::Assessing {
                query,
                primary,
                ways,
            };
            return None;
        }
        self.rate(core, cx, &mut candidates);
        Some(candidates)
    }

    /// Puts what is known of their overlap into the candidates' scores and sorts them by that.
    pub(super) fn rate(&self, core: &Core, cx: &Context, candidates: &mut [Candidate]) {
        let ends = core.endpoints(cx);
        for candidate in candidates.iter_mut() {
            let way = ends.way(candidate);
            candidate.score.overlap = self.overlaps.of(&core.qp.primary, &way);
        }
        candidates.sort_by_key(|candidate| candidate.score);
    }

    /// What a path of the connection's shares with its primary, where that is known.
    pub(super) fn overlap_of(&self, core: &Core, cx: &Context, path: &Path) -> Option<Overlap> {
        let way = core.endpoints(cx).way_of(path);
        self.overlaps.of(&core.qp.primary, &way)
    }

    pub(in crate::conn) fn assessed(
        &mut self,
        core: &Core,
        cx: &mut Context,
        number: u32,
        overlaps: &[Option<Overlap>],
    ) {
        match core::mem::take(&mut self.work) {
            Work::Assessing {
                query,
                primary,
                ways,
            } if query == number => {
                cx.stop(core.id, ConnAlarm::Work);
                self.note_overlaps(primary, ways, overlaps);
            }
            other => self.work = other,
        }
    }

    /// What was not said, or not in time, is not known.
    pub(super) fn note_overlaps(
        &mut self,
        primary: Path,
        ways: Vec<Way>,
        overlaps: &[Option<Overlap>],
    ) {
        let overlap = |at: usize| overlaps.get(at).copied().flatten();
        let known = ways.into_iter().enumerate();
        let known = known.map(|(at, way)| (way, overlap(at))).collect();
        self.overlaps = Overlaps { primary, known };
    }

    /// What was said of ways is not to be relied on any more.
    pub(in crate::conn) fn fabric_changed(&mut self, core: &Core, cx: &mut Context) {
        self.overlaps = Overlaps::default();
        if let Work::Assessing { .. } = self.work {
            self.drop_work(core, cx);
        }
        self.trigger(core, cx);
    }
}
