// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which alternate is best, as far as is known, and whether another is worth a question.

use alloc::vec::Vec;

use cm_msgs::Gid;
use cm_msgs::control::Mode;
use cm_msgs::path::Path;

use super::overlaps::Overlaps;
use crate::candidate::{Candidate, Doubt, Score, Shared, rank};
use crate::conn::Core;
use crate::conn::doubt::Suspicions;
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::Origin;
use crate::overlap::{Overlap, PathEnds};
use crate::view::Reason;

/// Candidates looked at in one evaluation, the best by ports first: 2 x 2 ports with 8 pairs of LIDs each.
const MAX_ASSESSED: usize = 32;

/// What the choice of an alternate rests on besides the ports.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Choice {
    pub(super) doubts: Suspicions,
    overlaps: Overlaps,
    /// The next evaluation asks for doubtful paths, too.
    pub(super) probing: bool,
    /// What the peer's policy allows, as far as its answers tell.
    peer_mode: Option<Mode>,
}

/// What an evaluation comes to.
pub(super) enum Next {
    /// These may be better than what there is: ask for their paths.
    Ask(Vec<Candidate>),
    /// There is no candidate.
    None,
    /// What would be better is in doubt: try it after a pause.
    Later,
    /// Nothing is better than the alternate that the QP has.
    Content,
}

impl Choice {
    /// The alternate that the QP has, and how good it is, if it would work from here.
    pub(super) fn current(&self, core: &Core, cx: &Context) -> Option<(Path, Score)> {
        let path = *core
            .loaded()
            .filter(|path| core.is_usable(cx, path) && !core.is_suspect(cx, path))
            .filter(|path| !core.distrusted && self.allows(core, cx, path))?;
        Some((path, self.score(core, cx, &path)))
    }

    /// Whether a path would be an improvement on the alternate that the QP has. That alternate by itself is none,
    /// whatever a path source calls its ends.
    pub(super) fn improves(&self, core: &Core, cx: &Context, path: &Path) -> bool {
        let current = self.current(core, cx);
        let score = self.score(core, cx, path);
        let improves = |current: Score| !core.has_loaded(path) && score.beats(current);
        self.allows(core, cx, path) && current.is_none_or(|(_, current)| improves(current))
    }

    /// Whether the policies of both ends allow a path as alternate, as far as is known.
    pub(super) fn allows(&self, core: &Core, cx: &Context, path: &Path) -> bool {
        let peer_allows = |mode: Mode| mode.allows(core.has_same_ports(cx, path));
        core.allows(cx, path) && self.peer_mode.is_none_or(peer_allows)
    }

    /// The peer's policy does not allow this path, and others of its kind: what it allows instead, and
    /// whether that is news. A peer that allows neither kind is not to be asked for the other at once.
    pub(super) fn peer_forbids(&mut self, core: &Core, cx: &Context, path: &Path) -> (Mode, bool) {
        let mode = match core.has_same_ports(cx, path) {
            true => Mode::Port,
            false => Mode::Lid,
        };
        (mode, self.peer_mode.replace(mode).is_none())
    }

    /// The peer's policy may be another than before. Whether it was known.
    pub(super) fn forget_peer_mode(&mut self) -> bool {
        self.peer_mode.take().is_some()
    }

    /// Whose policy is in the way, if one leaves nothing of all that is thinkable.
    pub(super) fn forbidden_by(&self, core: &Core, cx: &Context) -> Option<Reason> {
        let thinkable = rank(core.candidate_pool(cx), |_| Doubt::None);
        let same_ports = |c: &Candidate| c.score.shared == Shared::BothPorts;
        let own = core.policy(cx).mode;
        match (own, self.peer_mode) {
            _ if thinkable.is_empty() => None,
            (_, Some(mode)) if thinkable.iter().any(|c| own.allows(same_ports(c))) => {
                Some(Reason::PeerPolicy(mode))
            }
            _ => Some(Reason::Policy(own)),
        }
    }

    fn score(&self, core: &Core, cx: &Context, path: &Path) -> Score {
        Score {
            doubt: worst(self.doubts.of_path(path), core.is_drained(cx, path)),
            astray: core.is_astray(cx, path.port, path.dgid),
            shared: core.candidate_pool(cx).shared(path),
            overlap: self.overlaps.of_path(core, cx, path),
            dead_end: false,
            tie: 0,
        }
    }

    /// A path that is used or negotiated, as the candidate that it was.
    pub(super) fn candidate(
        &self,
        core: &Core,
        cx: &Context,
        path: &Path,
        origin: Option<Origin>,
    ) -> Candidate {
        Candidate {
            port: PortId::new(core.node_guid, path.port),
            sgid: path.sgid,
            dgid: path.dgid,
            slid: Some(path.slid),
            dlid: Some(path.dlid),
            score: self.score(core, cx, path),
            origin,
        }
    }

    /// The best candidate besides this one.
    pub(super) fn best_besides(
        &self,
        core: &Core,
        cx: &Context,
        chosen: Option<&Candidate>,
    ) -> Option<Candidate> {
        let mut candidates = self.candidates(core, cx);
        self.overlaps.rate(core, cx, &mut candidates);
        let mut others = candidates.into_iter();
        others.find(|other| chosen.is_none_or(|chosen| !other.may_be(chosen)))
    }

    /// Of the suspected paths for which this holds, the one that would be the best alternate.
    pub(super) fn best_suspect<'a>(
        &'a self,
        core: &Core,
        cx: &Context,
        wanted: impl Fn(&Path) -> bool,
    ) -> Option<&'a Path> {
        let paths = self.doubts.suspects().filter(|path| wanted(path));
        paths.min_by_key(|path| Score {
            doubt: Doubt::None,
            ..self.score(core, cx, path)
        })
    }

    /// What a path of the connection's shares with its primary, where that is known.
    pub(super) fn overlap(&self, core: &Core, cx: &Context, path: &Path) -> Option<Overlap> {
        self.overlaps.of_path(core, cx, path)
    }

    /// A path source knows no path of a candidate.
    pub(super) fn no_path(&mut self, core: &Core, cx: &mut Context, candidate: &Candidate) {
        self.doubts.no_path(candidate);
        self.watch_suspects(core, cx);
    }

    /// Sets the timer for the end of the next suspicion.
    pub(super) fn watch_suspects(&self, core: &Core, cx: &mut Context) {
        match self.doubts.next() {
            Some(until) => cx.set(core.id, ConnAlarm::Suspect, until - cx.now),
            None => cx.stop(core.id, ConnAlarm::Suspect),
        }
    }

    fn rank(&self, core: &Core, cx: &Context) -> Vec<Candidate> {
        let doubt = |candidate: &Candidate| {
            let drained = cx.ports.is_drained(candidate.port) || core.peer.drains(candidate.dgid);
            worst(self.doubts.of_candidate(candidate), drained)
        };
        let mut candidates = rank(core.candidate_pool(cx), doubt);
        let modes = [Some(core.policy(cx).mode), self.peer_mode];
        for mode in modes.into_iter().flatten() {
            candidates.retain(|c| mode.allows(c.score.shared == Shared::BothPorts));
        }
        let dead_ends = self.dead_ends(core, cx);
        for candidate in &mut candidates {
            candidate.score.astray = core.is_astray(cx, candidate.port.port, candidate.dgid);
            candidate.score.dead_end = dead_ends.contains(&candidate.dgid);
        }
        candidates.sort_by_key(|candidate| candidate.score);
        candidates
    }

    /// The remote ports of paths that are silent though their local ports carry other paths.
    fn dead_ends(&self, core: &Core, cx: &Context) -> Vec<Gid> {
        let fails_remotely = |path: &&Path| {
            let probed = core.probe_path(path);
            probed.is_some_and(|path| cx.probes.fails_remotely(&path))
        };
        let paths = self.doubts.suspects().filter(fails_remotely);
        paths.map(|path| path.dgid).collect()
    }

    /// The thinkable alternates, the best by ports first, as many as are looked at.
    pub(super) fn candidates(&self, core: &Core, cx: &Context) -> Vec<Candidate> {
        let mut candidates = self.rank(core, cx);
        candidates.truncate(MAX_ASSESSED);
        candidates
    }

    /// Returns the candidates to ask for after `failures` evaluations without success. Without an alternate, half of
    /// the places go to lower-ranked candidates in turn. Otherwise dead candidates could take all places for good, since
    /// a peer may name any number of ports.
    pub(super) fn candidates_after(
        &self,
        core: &Core,
        cx: &Context,
        failures: u32,
    ) -> Vec<Candidate> {
        if failures == 0 || self.current(core, cx).is_some() {
            return self.candidates(core, cx);
        }
        let mut best = self.rank(core, cx);
        let limit = cx.config.candidate_limit;
        let mut others = best.split_off(best.len().min(limit / 2));
        let places = limit - best.len();
        let turn = (failures as usize).wrapping_mul(places);
        let first = turn.checked_rem(others.len()).unwrap_or(0);
        others.rotate_left(first);
        best.extend(others.into_iter().take(places));
        best
    }

    /// The thinkable alternates that end at `gid`, the best first.
    pub(super) fn candidates_to(&self, core: &Core, cx: &Context, gid: Gid) -> Vec<Candidate> {
        let mut ranked = self.rank(core, cx);
        self.overlaps.rate(core, cx, &mut ranked);
        ranked.retain(|candidate| candidate.dgid == gid);
        ranked
    }

    /// The paths, the loaded one and these, of which it has to be asked what they share with the
    /// primary. `None`: that is known of all.
    pub(super) fn unassessed(
        &self,
        core: &Core,
        cx: &Context,
        candidates: &[Candidate],
    ) -> Option<Vec<PathEnds>> {
        let pool = core.candidate_pool(cx);
        let loaded = core.loaded().map(|path| pool.ends_of(path));
        let thinkable = candidates.iter().map(|candidate| pool.ends(candidate));
        let paths: Vec<PathEnds> = loaded.into_iter().chain(thinkable).collect();
        let covered = self.overlaps.covers(&core.qp.primary, &paths);
        (!covered).then_some(paths)
    }

    /// What paths share with a primary, as it was answered.
    pub(super) fn assessed(
        &mut self,
        cx: &mut Context,
        primary: &Path,
        paths: &[PathEnds],
        overlaps: &[Option<Overlap>],
    ) {
        self.overlaps.answered(cx, primary, paths, overlaps);
    }

    /// What paths share has to be asked anew.
    pub(super) fn forget_overlaps(&mut self) {
        self.overlaps = Overlaps::default();
    }

    /// Which of the candidates to ask for.
    pub(super) fn next(
        &mut self,
        core: &Core,
        cx: &Context,
        mut candidates: Vec<Candidate>,
    ) -> Next {
        self.overlaps.rate(core, cx, &mut candidates);
        let probing = core::mem::take(&mut self.probing);
        let limit = cx.config.candidate_limit;
        let Some((_, score)) = self.current(core, cx) else {
            candidates.truncate(limit);
            return match candidates.is_empty() {
                true => Next::None,
                false => Next::Ask(candidates),
            };
        };
        // That a port is drained is no doubt that another try would settle.
        let in_doubt = |c: &Candidate| {
            c.score.leads_better(score) && !c.score.beats(score) && c.score.doubt != Doubt::Drained
        };
        let doubtful = candidates.iter().any(in_doubt);
        candidates.retain(|c| c.score.beats(score) || (probing && in_doubt(c)));
        candidates.truncate(limit);
        match candidates.is_empty() {
            false => Next::Ask(candidates),
            true if doubtful => Next::Later,
            true => Next::Content,
        }
    }
}

/// A path over a drained port is better than one that may not work at all.
fn worst(doubt: Doubt, drained: bool) -> Doubt {
    match drained {
        true => doubt.max(Doubt::Drained),
        false => doubt,
    }
}
