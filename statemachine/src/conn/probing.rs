// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths of a connection are probed, and what it makes of the answers.

use core::time::Duration;

use cm_msgs::path::Path;

use super::qp::Core;
use super::watched::{Watched, WatchedPath};
use super::{Connection, Side};
use crate::candidate::Shared;
use crate::context::Context;
use crate::overlap::Overlap;
use crate::probe::{Finding, PathHealth, ProbePath, Silence};
use crate::time::Time;
use crate::view::{Grade, ProbeView};

/// An answer is no older than that when a primary or an alternate is given up that works.
const JUST_NOW: Duration = Duration::from_millis(4);

/// Whether the armed alternate may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replacement {
    Allowed,
    /// Not until a probe of the primary has come back; one is on its way.
    Deferred,
    /// The primary is suspect, and the alternate is good for it.
    Refused,
}

impl Core {
    /// A path as probes take it; `None`: they cannot, since their answers would need a GRH.
    pub(super) fn probe_path(&self, path: &Path) -> Option<ProbePath> {
        let path = WatchedPath::new(path)?;
        Some(path.of_device(self.node_guid))
    }

    /// The same, of a path that is probed at present.
    fn probed_path(&self, cx: &Context, path: &Path) -> Option<ProbePath> {
        let path = self.probe_path(path)?;
        cx.probes.is_probed(&path).then_some(path)
    }

    pub(super) fn health(&self, cx: &Context, path: &Path) -> PathHealth {
        let path = self.probe_path(path);
        path.map_or(PathHealth::Unknown, |path| cx.probes.health(&path))
    }

    pub(super) fn is_suspect(&self, cx: &Context, path: &Path) -> bool {
        match self.health(cx, path) {
            PathHealth::Suspect => true,
            PathHealth::Verified => false,
            PathHealth::Unknown => {
                let path = WatchedPath::new(path);
                path.is_some() && path == self.watched.suspect
            }
        }
    }

    /// Whether a probe of the path has come back, or none is ever sent: what works is left for nothing less.
    pub(super) fn is_verified(&self, cx: &Context, path: &Path) -> bool {
        let is_probed = !cx.config.verify.is_zero() && self.probe_path(path).is_some();
        !is_probed || self.health(cx, path) == PathHealth::Verified
    }

    /// The alternate, if it is suspect, or was when it was probed last.
    fn suspect_alternate(&self, cx: &Context) -> Option<WatchedPath> {
        let alternate = self.loaded().filter(|path| self.is_suspect(cx, path))?;
        WatchedPath::new(alternate)
    }

    /// Whether a better alternate than the agreed one has to wait, because many MADs get lost or are late. To agree on
    /// another takes long then, and until both ends have loaded it they have different ones: if the primary fails
    /// meanwhile, hardware moves them apart. Late MADs arrive at last, so that time is short: it is worth while if
    /// the alternate shares a port with the primary: without another one the loss of that port ends the connection.
    pub(super) fn must_keep_alternate(&self, cx: &Context) -> bool {
        let paths = [Some(&self.qp.primary), self.loaded()]
            .into_iter()
            .flatten();
        let probed = paths.filter_map(|path| self.probe_path(path));
        let (mut lossy, mut late) = (false, false);
        for path in probed {
            lossy |= cx.probes.is_lossy(&path);
            late |= cx.probes.was_late(&path);
        }
        lossy || (late && !self.ends_with_one_port(cx))
    }

    /// The alternate that the QP has carries packets, as far as probes can tell, and its far port is not
    /// known to be down: what a library needs to know to migrate without being told.
    pub(crate) fn is_alternate_sound(&self, cx: &Context) -> bool {
        self.loaded().is_some_and(|path| {
            self.is_usable(cx, path) && self.health(cx, path) == PathHealth::Verified
        })
    }

    /// Whether a probe of the path came back just now, or none is sent: what works is not given up for a
    /// path that answered a second ago. If not, one is sent.
    pub(super) fn answers_still(&self, cx: &mut Context, path: &Path) -> bool {
        let Some(path) = self.probed_path(cx, path) else {
            return true;
        };
        let answered = cx.probes.answered(&path);
        let still = answered.is_some_and(|at| cx.now - at <= JUST_NOW);
        if !still {
            cx.probes.hasten(cx.now, &path);
        }
        still
    }

    /// Whether a probe of the primary has come back since then, or none is sent, or it is suspect, or its answers take so
    /// long that none tells how it is now. If not, one is sent.
    fn primary_answers_since(&self, cx: &mut Context, since: Time) -> bool {
        let Some(path) = self.probed_path(cx, &self.qp.primary) else {
            return true;
        };
        if cx.probes.health(&path) == PathHealth::Suspect || cx.probes.is_late(&path) {
            return true;
        }
        let answers = cx.probes.answered(&path).is_some_and(|at| at >= since);
        if !answers {
            cx.probes.hasten(cx.now, &path);
        }
        answers
    }

    /// The peer may have found that one of its paths carries nothing, and much sooner, if this host has more of them.
    pub(super) fn look_at_paths(&self, cx: &mut Context) {
        for path in [Some(&self.qp.primary), self.loaded()] {
            if let Some(path) = path.and_then(|path| self.probe_path(path)) {
                cx.probes.soon(cx.now, &path);
            }
        }
    }

    /// The primary is lost: whether the alternate carries packets again, the next probe tells.
    pub(super) fn hasten_suspect_alternate(&self, cx: &mut Context) {
        let suspect = self.loaded().filter(|path| self.is_suspect(cx, path));
        if let Some(path) = suspect.and_then(|path| self.probe_path(path)) {
            cx.probes.hasten(cx.now, &path);
        }
    }

    /// The alternate that hardware would migrate to, unless it is known that nothing arrives by it.
    fn armed_alternate(&self, cx: &Context) -> Option<&Path> {
        let armed = self.loaded().filter(|_| self.is_armed());
        armed.filter(|path| self.is_usable(cx, path) && !self.leaves_by_hole(cx, path))
    }

    /// Whether the path's local port is silent (no probe over it is answered, of many paths) while the primary's port is
    /// answered.
    fn leaves_by_hole(&self, cx: &Context, path: &Path) -> bool {
        let paths = self.probe_path(path).zip(self.probe_path(&self.qp.primary));
        paths.is_some_and(|(path, primary)| cx.probes.prefer_port(cx.now, primary.port, path.port))
    }

    /// Whether the armed alternate may be given up for this path. One that works is given up for a path that
    /// answers at this moment, if the primary has answered since that was `found`: until both ends have loaded it they
    /// have different alternates, and a primary that fails then moves them apart. One that is suspect is given up for a
    /// path that has answered since, if its silence cannot be chance: MADs of all paths may be late or lost, and then
    /// the alternate is the only one of them that both ends have. If that is not known, probes of both are sent.
    pub(super) fn may_replace_alternate(&self, cx: &mut Context, path: &Path, found: Time) -> bool {
        let Some(alternate) = self.armed_alternate(cx) else {
            return self.may_replace_lost(cx, path, found);
        };
        if !self.is_suspect(cx, alternate) {
            // Both are asked at once, also if the first has not answered.
            let primary = self.primary_answers_since(cx, found);
            return self.answers_still(cx, path) && primary;
        }
        let paths = self.probe_path(path).zip(self.probe_path(alternate));
        let probed = paths.filter(|(path, _)| cx.probes.is_probed(path));
        let Some((path, alternate)) = probed else {
            return true;
        };
        let silence = cx.probes.silence(&alternate, &path);
        if silence != Silence::Hole {
            cx.probes.hasten(cx.now, &path);
        }
        if silence == Silence::PerhapsChance {
            cx.probes.press(cx.now, &alternate);
        }
        silence == Silence::Hole
    }

    /// Whether this path may be loaded in place of an alternate that is armed and would carry nothing at present, mostly
    /// because its port is down. The port may be back before a primary that has failed ends the connection, and hardware
    /// migrates to what is loaded. So it is replaced only by a path that carries packets, or while the primary does: one of
    /// them has answered a probe that was sent since the path was `found`. Both are asked, because with many paths probes
    /// wait for their turn. What leaves by a port over which no probe is answered is not kept: there the primary's is answered.
    fn may_replace_lost(&self, cx: &mut Context, path: &Path, found: Time) -> bool {
        let hole = |path: &Path| self.leaves_by_hole(cx, path);
        if !self.is_armed() || self.loaded().is_some_and(hole) {
            return true;
        }
        self.has_answered_since(cx, path, found)
            || self.has_answered_since(cx, &self.qp.primary, found)
    }

    /// Whether a probe of the path that was sent since then has come back, or none is ever sent. If not, one is.
    fn has_answered_since(&self, cx: &mut Context, path: &Path, since: Time) -> bool {
        let Some(path) = self.probed_path(cx, path) else {
            return true;
        };
        let answered = cx.probes.asked(&path).is_some_and(|at| at >= since);
        if !answered {
            cx.probes.hasten(cx.now, &path);
        }
        answered
    }

    /// Whether a path is proposed though no probe of it has come back: it replaces no armed alternate, and the LAP
    /// tries it.
    pub(super) fn may_try_by_lap(&self, cx: &mut Context, path: &Path, found: Time) -> bool {
        self.health(cx, path) != PathHealth::Verified
            && self.armed_alternate(cx).is_none()
            && self.may_replace_lost(cx, path, found)
    }

    /// Whether the armed alternate may be replaced by what the peer proposes. Until the answer gets there, the peer has
    /// the old one: if the primary fails meanwhile, hardware moves the two ends apart. So the primary is to answer
    /// just before. While MADs are late such an answer tells nothing, and while they get lost it takes long to agree:
    /// then an alternate that both ends have stays, if it carries packets. The peer may have proposed another when it
    /// did not. `proposed`: the peer has proposed the one that is armed; of an alternate from before this daemon nobody knows
    /// whether the peer has it.
    pub(super) fn replacement(&self, cx: &mut Context, proposed: bool) -> Replacement {
        let primary = &self.qp.primary;
        let armed = match self.armed_alternate(cx) {
            Some(armed) if !self.distrusted => armed,
            _ => return self.replacement_of_lost(cx),
        };
        let is_shared = proposed && self.peer.is_armed() && !self.is_suspect(cx, armed);
        if self.needs_alternate(cx) || (is_shared && self.must_keep_alternate(cx)) {
            Replacement::Refused
        } else if self.is_suspect(cx, primary) || self.answers_still(cx, primary) {
            Replacement::Allowed
        } else {
            Replacement::Deferred
        }
    }

    /// The same of an alternate that carries nothing at present. Its port may be back before the retries over a primary that
    /// fails just now are used up, so the primary is to answer where there is time to wait for that: while MADs are late
    /// or lost, in which the LAP does not show that it does.
    fn replacement_of_lost(&self, cx: &mut Context) -> Replacement {
        let by_hole = |path: &Path| self.leaves_by_hole(cx, path);
        let may_return = self.is_armed() && !self.distrusted && !self.loaded().is_some_and(by_hole);
        let primary = &self.qp.primary;
        let waits = may_return && self.must_keep_alternate(cx) && !self.is_suspect(cx, primary);
        if waits && !self.answers_still(cx, primary) {
            Replacement::Deferred
        } else {
            Replacement::Allowed
        }
    }

    /// Whether probes say that the primary carries nothing and the alternate does.
    pub(super) fn is_primary_hollow(&self, cx: &Context, alternate: &Path) -> bool {
        let paths = self
            .probe_path(alternate)
            .zip(self.probe_path(&self.qp.primary));
        paths.is_some_and(|(alternate, primary)| cx.probes.prefer(cx.now, &alternate, &primary))
            && self.is_usable(cx, alternate)
    }

    /// Whether the alternate may be needed at any moment, and is good for it, or was when the primary was
    /// not any more, or nothing is known of either: no time for another, since ends that migrate while one of
    /// them has loaded it and the other has not go apart.
    pub(super) fn needs_alternate(&self, cx: &Context) -> bool {
        let outlasts = |path: &Path| {
            let paths = self.probe_path(path).zip(self.probe_path(&self.qp.primary));
            paths.is_some_and(|(path, primary)| {
                cx.probes.outlasts(cx.now, &path, &primary)
                    || cx.probes.fell_together(cx.now, &path, &primary)
            })
        };
        let sound = |path: &Path| {
            self.is_usable(cx, path) && (!self.is_suspect(cx, path) || outlasts(path))
        };
        self.is_armed() && self.is_suspect(cx, &self.qp.primary) && self.loaded().is_some_and(sound)
    }

    fn probe_view(&self, cx: &Context, now: Time, path: &Path) -> ProbeView {
        let answered = self
            .probe_path(path)
            .and_then(|path| cx.probes.answered(&path));
        ProbeView {
            health: self.health(cx, path),
            age: answered.map(|at| now - at),
        }
    }
}

impl Connection {
    /// Has the paths probed that matter now, and no others. Without a daemon at the peer, nobody could
    /// be told of what comes of it.
    pub(super) fn watch_paths(&mut self, cx: &mut Context) {
        let mut wanted = Watched::with_suspect(self.core.suspect_alternate(cx));
        if !cx.config.verify.is_zero() && self.peer_speaks() && self.core.in_rts() {
            let core = &self.core;
            let up = |path: &&Path| core.is_up(cx, path);
            let mut add = |path: Option<&Path>| {
                wanted.add(path.filter(up).and_then(WatchedPath::new));
            };
            add(Some(&core.qp.primary));
            add(core.loaded());
            if let Side::Active(active) = &self.side {
                add(active.negotiation.verifying());
                add(active.negotiation.suspect(core, cx));
            }
        }
        let Core {
            id,
            node_guid,
            watched: old,
            ..
        } = &self.core;
        for watched in wanted.iter().filter(|path| !old.has(path)) {
            let path = watched.of_device(*node_guid);
            cx.probes.watch(cx.now, path, *id);
            // Where others use it, its next answer would be no news.
            if let Side::Active(active) = &self.side
                && active.negotiation.doubts(&self.core, &path)
            {
                cx.probes.hasten(cx.now, &path);
            }
        }
        for path in old.iter().filter(|path| !wanted.has(path)) {
            cx.probes.unwatch(path.of_device(*node_guid), *id);
        }
        self.core.watched = wanted;
    }

    pub(super) fn unwatch_paths(&mut self, cx: &mut Context) {
        let old = core::mem::take(&mut self.core.watched);
        for path in old.iter() {
            let path = path.of_device(self.core.node_guid);
            cx.probes.unwatch(path, self.core.id);
        }
    }

    /// Something became of a path that it uses.
    pub(crate) fn probed(&mut self, cx: &mut Context, path: &ProbePath, finding: Finding) {
        self.catch_up(cx);
        let core = &mut self.core;
        let is = |other: &Path| core.probe_path(other).as_ref() == Some(path);
        let (is_primary, is_alternate) = (is(&core.qp.primary), core.loaded().is_some_and(is));
        if finding == Finding::Loss {
            // Whether the other path answers meanwhile decides between a hole and a silent peer.
            if is_primary && let Some(path) = core.loaded().and_then(|path| core.probe_path(path)) {
                cx.probes.hasten(cx.now, &path);
            }
            return;
        }
        if is_alternate
            && matches!(finding, Finding::Answer { .. })
            && let Some(primary) = core.probe_path(&core.qp.primary)
            && cx.probes.health(&primary) == PathHealth::Suspect
        {
            // The peer may have been silent and speak again: then the primary answers now, too.
            cx.probes.hasten(cx.now, &primary);
        }
        match &mut self.side {
            Side::Active(active) => {
                if is_primary || is_alternate {
                    core.compare_idle_paths(cx);
                }
                active.negotiation.probed(core, cx, path, finding);
            }
            Side::Passive(passive)
                if (is_primary || is_alternate) && finding == Finding::Suspect =>
            {
                passive.path_suspect(core, cx);
            }
            Side::Passive(_) => {}
        }
        self.drive(cx);
    }

    fn peer_speaks(&self) -> bool {
        match &self.side {
            Side::Active(active) => active.is_open(),
            Side::Passive(passive) => passive.is_open(),
        }
    }

    /// What the alternate covers.
    pub(super) fn grade(&self, cx: &Context, overlap: Option<Overlap>) -> Option<Grade> {
        let core = &self.core;
        let alternate = core.loaded()?;
        Some(if !core.is_alternate_sound(cx) {
            Grade::Unverified
        } else if core.candidate_pool(cx).shared(alternate) != Shared::Neither {
            Grade::SamePort
        } else {
            match overlap {
                Some(overlap) if !overlap.is_none() => Grade::SameSwitch(overlap),
                _ => Grade::Full,
            }
        })
    }

    /// What the active side knows of the alternate's overlap with the primary.
    pub(super) fn overlap(&self, cx: &Context) -> Option<Overlap> {
        match &self.side {
            Side::Active(active) => active.negotiation.overlap(&self.core, cx),
            Side::Passive(_) => None,
        }
    }

    /// What probes say of primary and alternate.
    pub(super) fn probe_views(&self, cx: &Context, now: Time) -> (ProbeView, ProbeView) {
        let core = &self.core;
        let of = |path: &Path| core.probe_view(cx, now, path);
        (
            of(&core.qp.primary),
            core.loaded().map(of).unwrap_or_default(),
        )
    }
}
