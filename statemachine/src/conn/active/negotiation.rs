// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a choice to a loaded alternate: the path record is asked for, the peer agrees, the library
//! loads.

mod proposing;
mod shown;

use alloc::boxed::Box;
use core::time::Duration;

use cm_msgs::Gid;
use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;

use super::choice::Next;
use super::proposal::Proposal;
use super::search::Search;
use crate::conn::Core;
use crate::conn::association::ActiveAssociation;
use crate::conn::orders::{OrderEnd, OrderKind, QpChange};
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::{Origin, QueryError};
use crate::overlap::Overlap;
use crate::probe::{Finding, PathHealth, ProbePath};
use crate::time::Time;
use crate::token_bucket::TokenBucket;
use crate::trace::PathLids;
use crate::view::Reason;

/// `EHOSTUNREACH`: what an application is told when there is no alternate.
const NO_ALTERNATE: u8 = 113;

/// Times that a peer may point to another GID of its own before it is taken for a failure. No message of the peer's
/// begins the count again.
const MAX_REDIRECTS: u8 = 2;

/// How long a path that was found is probed before it is proposed all the same: longer than probes take
/// to call it suspect, unless they have to wait for their turn.
const VERIFY_WAIT: Duration = Duration::from_millis(500);

/// What is under way.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
enum Step {
    #[default]
    Idle,
    /// A path is looked for.
    Searching,
    /// There is one: it is probed before it is proposed.
    Verifying(Box<Found>),
    /// There is no room for its LAP.
    Waiting(Box<Found>),
    /// LAP sent.
    Proposing(Box<Proposal>),
    /// The peer has agreed; the library loads.
    Loading {
        ends: PathLids,
        origin: Option<Origin>,
    },
    /// It did not work out; again when the timer says.
    BackingOff,
}

/// A path that may be proposed, and where its record came from.
#[derive(Clone, Copy, Debug)]
struct Found {
    path: Path,
    origin: Option<Origin>,
    /// When it was found.
    at: Time,
}

/// How the active side comes to its alternate.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(in crate::conn) struct Negotiation {
    step: Step,
    search: Search,
    /// Transaction ID of the last LAP. They count up within an association, because the peer tells
    /// a late LAP from a new one by that; where they begin is random.
    lap_transaction: u32,
    /// Evaluations without success in a row.
    failures: u32,
    redirects: u8,
    /// Limits how often a message of the peer's has an alternate looked for at once. A peer whose ports come and go has
    /// each change looked at; one that reports something else with every answer must not have this host ask path
    /// sources and send LAPs as fast as it answers.
    peer_looks: TokenBucket<8, 1_000_000>,
    /// A message of the peer's has asked for a look that was not taken.
    owes_look: bool,
    /// The peer is known to have the same alternate.
    agreed: bool,
    /// The last alternate that was loaded, and where its record came from.
    loaded: Option<(PathLids, Origin)>,
    /// The path that was left by choice: the next alternate, and no question is needed.
    left: Option<Box<Path>>,
    /// Why there is no alternate.
    why: Option<Reason>,
}

impl Negotiation {
    // ---- what happens ----

    /// The association is open: nothing is known of what the peer has.
    pub(super) fn opened(&mut self, core: &Core, cx: &mut Context) {
        self.lap_transaction = cx.transaction();
        self.search.choice.doubts.peer_ports(&core.peer.ports);
        self.search.choice.forget_peer_mode();
        self.confirm(core, cx);
    }

    /// The peer says other things about its ports than before.
    pub(super) fn peer_ports_changed(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.doubts.peer_ports(&core.peer.ports);
        self.peer_trigger(core, cx);
    }

    /// The peer repeats what it said of its ports, whatever path sources say.
    pub(super) fn peer_ports_repeated(&mut self, core: &Core) {
        self.search.choice.doubts.peer_repeats(&core.peer.ports);
    }

    /// The peer would rather have the alternate end at this port of its own.
    pub(super) fn suggested(&mut self, core: &Core, cx: &mut Context, gid: Gid) {
        self.search.choice.doubts.present(gid);
        self.search.choice.forget_peer_mode();
        // A peer that is content has nothing to suggest.
        self.agreed = false;
        self.peer_trigger(core, cx);
    }

    /// A port of the peer's is said to be in service. Whether that is a reason to look again: a path to it
    /// was not known, or there is no alternate.
    pub(in crate::conn) fn port_in_service(
        &mut self,
        core: &Core,
        cx: &mut Context,
        gid: Gid,
    ) -> bool {
        let was_absent = self.search.choice.doubts.may_be_present(gid);
        let matters = was_absent || self.search.choice.current(core, cx).is_none();
        if matters {
            self.trigger(core, cx);
        }
        matters
    }

    /// What may be an alternate is another thing than before.
    pub(in crate::conn) fn policy_changed(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.forget_peer_mode();
        if let Step::Searching = self.step {
            self.stop(core, cx);
        }
        self.confirm(core, cx);
    }

    /// Where the alternate should lead is another thing than before.
    pub(in crate::conn) fn aim_changed(&mut self, core: &Core, cx: &mut Context) {
        if let Step::Searching = self.step {
            self.stop(core, cx);
        }
        self.trigger(core, cx);
    }

    /// Whether the peer is known to have loaded the alternate that the QP has, and nothing is under way
    /// that would replace it.
    pub(in crate::conn) fn is_settled(&self) -> bool {
        self.agreed && matches!(self.step, Step::Idle | Step::BackingOff)
    }

    /// Whether the peer may have another alternate, or be about to.
    pub(in crate::conn) fn is_unsettled(&self) -> bool {
        !self.agreed || matches!(self.step, Step::Proposing(_) | Step::Loading { .. })
    }

    /// An operator wants everything looked at again.
    pub(super) fn look_again(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.doubts.forget(&core.peer.ports);
        self.search.choice.watch_suspects(core, cx);
        self.search.choice.forget_overlaps();
        self.confirm(core, cx);
    }

    /// Whether the peer's policy may be another than is known, if it is known.
    pub(super) fn peer_may_allow(&mut self, core: &Core, cx: &mut Context) {
        if self.search.choice.forget_peer_mode() {
            self.peer_trigger(core, cx);
        }
    }

    /// Whether a LAP has no answer yet.
    pub(super) fn is_proposing(&self) -> bool {
        matches!(self.step, Step::Proposing(_))
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(&self.step, Step::Proposing(proposal) if proposal.is_in_flight())
    }

    /// The transaction ID of the next LAP.
    pub(super) fn next_transaction(&mut self) -> u32 {
        self.lap_transaction = self.lap_transaction.wrapping_add(1);
        self.lap_transaction
    }

    /// Whether the peer has the same alternate is to be asked (again).
    pub(super) fn confirm(&mut self, core: &Core, cx: &mut Context) {
        self.agreed = false;
        self.trigger(core, cx);
        self.confirm_first(core, cx);
    }

    /// A search for something better, which a silent path source can hold up for half a minute, begins again after the
    /// LAP that makes sure that both ends have the same alternate. Not for each of a peer's suggestions, which may come
    /// faster than a source answers.
    fn confirm_first(&mut self, core: &Core, cx: &mut Context) {
        let looking = matches!(
            self.step,
            Step::Searching | Step::Verifying(_) | Step::Waiting(_)
        );
        if looking && self.search.choice.current(core, cx).is_some() {
            self.stop(core, cx);
        }
    }

    pub(super) fn qp_changed(&mut self, core: &mut Core, cx: &mut Context, change: &QpChange) {
        if let Some(left) = &change.abandoned {
            self.left = left.chosen.then(|| Box::new(left.path));
            if left.suspect {
                self.suspect_path(core, cx, left.path);
                if let Some(path) = core.probe_path(&left.path) {
                    // Whether it is a hole, or was a short one, the next probe tells.
                    cx.probes.hasten(cx.now, &path);
                }
            }
            self.why = Some(Reason::JustMigrated);
            self.trigger(core, cx);
            if !matches!(self.step, Step::Loading { .. }) {
                self.stop(core, cx);
            }
        }
        if change.alternate_broken {
            self.trigger(core, cx);
        }
        if let Some((OrderKind::Load, end)) = change.ended {
            self.loaded(core, cx, end);
        }
    }

    fn loaded(&mut self, core: &mut Core, cx: &mut Context, end: OrderEnd) {
        let loading = matches!(self.step, Step::Loading { .. });
        match end {
            OrderEnd::Done => {
                self.settled(loading);
                if let Step::Loading { ends, origin } = self.step {
                    let loaded = core.loaded().map(PathLids::from);
                    self.loaded = loaded.zip(origin);
                    self.step = Step::Idle;
                    self.search.drop_rest();
                    if loaded.is_none_or(|loaded| loaded == ends) {
                        self.failures = 0;
                        self.redirects = 0;
                    } else {
                        // Its port's LID is another than the path source says: so would be the next path's.
                        self.agreed = false;
                        self.back_off(core, cx);
                    }
                }
            }
            // The QP may have migrated between the order and its execution: what it has now is in
            // the report, so a second try is not one with the same ideas.
            OrderEnd::Stale if loading && self.failures == 0 => {
                self.failures += 1;
                self.step = Step::Idle;
            }
            _ if loading => self.fail(core, cx, core.orders.trouble().unwrap_or(Reason::Stale)),
            _ => {}
        }
    }

    /// The QP has an alternate; whether the peer has the same. That an end confirms what both have is no progress,
    /// which would end the pauses after failures.
    fn settled(&mut self, agreed: bool) {
        self.agreed = agreed;
        self.why = None;
    }

    pub(super) fn port_changed(&mut self, core: &Core, cx: &mut Context, id: PortId) {
        self.search.choice.doubts.local_port(id.port);
        self.search.choice.watch_suspects(core, cx);
        // A silent path source can hold up the search for a lesser one for half a minute.
        if self.search.is_outdone(core, cx) {
            self.stop(core, cx);
        }
        self.trigger(core, cx);
    }

    /// A path is no longer suspect.
    pub(super) fn suspicion_over(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.doubts.expire(cx.now);
        self.search.choice.watch_suspects(core, cx);
        self.trigger(core, cx);
    }

    fn suspect_path(&mut self, core: &Core, cx: &mut Context, path: Path) {
        let until = cx.now + cx.config.suspect_hold_off;
        self.search.choice.doubts.suspect(path, until);
        self.search.choice.watch_suspects(core, cx);
    }

    pub(super) fn timeout(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
    ) {
        match core::mem::take(&mut self.step) {
            Step::Searching => {
                if let Some(why) = self.search.timeout(core, cx) {
                    self.next(core, cx, why);
                }
            }
            // No probe could be sent in time.
            Step::Verifying(found) if core.may_try_by_lap(cx, &found.path, found.at) => {
                self.propose_found(core, cx, association, *found);
            }
            Step::Verifying(found) => {
                cx.set(core.id, ConnAlarm::Negotiation, VERIFY_WAIT);
                self.step = Step::Verifying(found);
            }
            Step::Proposing(proposal) => self.send_lap(core, cx, association, proposal),
            Step::BackingOff => self.search.choice.probing = true,
            Step::Idle => {}
            other @ (Step::Waiting(_) | Step::Loading { .. }) => self.step = other,
        }
    }

    /// What paths share is not to be relied on any more.
    pub(in crate::conn) fn fabric_changed(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.forget_overlaps();
        if self.search.is_assessing() {
            self.stop(core, cx);
        }
        self.trigger(core, cx);
    }

    /// Something changed that is worth another evaluation without waiting.
    fn trigger(&mut self, core: &Core, cx: &mut Context) {
        self.redirects = 0;
        self.owes_look = false;
        self.evaluate_again(core, cx);
    }

    /// The peer says so.
    fn peer_trigger(&mut self, core: &Core, cx: &mut Context) {
        self.owes_look = !self.peer_looks.try_take(cx.now);
        if !self.owes_look {
            self.evaluate_again(core, cx);
        }
    }

    fn evaluate_again(&mut self, core: &Core, cx: &mut Context) {
        self.failures = 0;
        if let Step::BackingOff = self.step {
            self.stop(core, cx);
        }
    }

    /// Nothing is under way any more.
    pub(super) fn stop(&mut self, core: &Core, cx: &mut Context) {
        cx.stop(core.id, ConnAlarm::Negotiation);
        match core::mem::take(&mut self.step) {
            Step::Searching => self.search.stop(core, cx),
            Step::Proposing(proposal) => proposal.take_back(cx),
            Step::Idle
            | Step::Verifying(_)
            | Step::Waiting(_)
            | Step::Loading { .. }
            | Step::BackingOff => {}
        }
    }

    // ---- the choice ----

    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
    ) {
        let needed = self.agreed && core.needs_alternate(cx);
        let looking = matches!(
            self.step,
            Step::Searching | Step::Verifying(_) | Step::Waiting(_)
        );
        if self.is_outdated(core, cx) || (needed && looking) {
            self.stop(core, cx);
        }
        if needed {
            return;
        }
        if let Step::Verifying(found) = &self.step {
            let found = **found;
            self.verify(core, cx, association, found);
        }
        match &self.step {
            Step::Idle if core.has_room(cx) => self.evaluate(core, cx, association),
            Step::Waiting(found) => {
                let found = **found;
                self.propose_found(core, cx, association, found);
            }
            _ => {}
        }
    }

    /// Both ends have the same alternate, and it is no bad one.
    fn has_agreed(&self, core: &Core, cx: &Context) -> bool {
        self.agreed && self.search.choice.current(core, cx).is_some()
    }

    /// Whether what is under way has lost its sense.
    fn is_outdated(&self, core: &Core, cx: &Context) -> bool {
        match &self.step {
            Step::Searching => self.search.is_outdated(cx),
            // The alternate that was suspect may have answered meanwhile: as long as the ends do not have
            // the same one, the connection has none.
            Step::Verifying(found) | Step::Waiting(found) => {
                let path = &found.path;
                let waits = matches!(self.step, Step::Waiting(_));
                !core.is_usable(cx, path)
                    || !self.search.choice.improves(core, cx, path)
                    || (waits && core.is_suspect(cx, path))
            }
            Step::Proposing(proposal) => {
                let path = &proposal.alternate;
                !proposal.fits(core)
                    || !core.is_usable(cx, path)
                    || !self.search.choice.allows(core, cx, path)
                    || core.is_suspect(cx, path)
            }
            Step::Idle | Step::Loading { .. } | Step::BackingOff => false,
        }
    }

    fn evaluate(&mut self, core: &mut Core, cx: &mut Context, association: &mut ActiveAssociation) {
        if self.owes_look && !self.peer_looks.try_take(cx.now) {
            self.step = Step::BackingOff;
            let wait = self.peer_looks.next_token() - cx.now;
            return cx.set(core.id, ConnAlarm::Negotiation, wait);
        }
        self.owes_look = false;
        // What the QP has comes first: until the peer confirms it, it may protect one end only.
        if let Some((path, _)) = self.search.choice.current(core, cx)
            && !self.agreed
        {
            self.search.clear();
            let origin = self.origin(core);
            return self.propose(core, cx, association, path, origin);
        }
        if let Some(left) = self.left.take()
            && self.search.choice.improves(core, cx, &left)
            && core.is_usable(cx, &left)
        {
            return self.propose(core, cx, association, *left, None);
        }
        if self.has_agreed(core, cx) && core.must_keep_alternate(cx) {
            return self.check_later(core, cx);
        }
        match self.search.begin(core, cx, self.failures) {
            None | Some(Next::Ask(_)) => self.step = Step::Searching,
            Some(Next::None) => {
                let forbidden = self.search.choice.forbidden_by(core, cx);
                let why = forbidden.unwrap_or_else(|| no_candidate(core, cx));
                self.explain(core, cx, why);
            }
            Some(Next::Later) => self.back_off(core, cx),
            Some(Next::Content) => {}
        }
    }

    pub(in crate::conn) fn assessed(
        &mut self,
        core: &Core,
        cx: &mut Context,
        number: u32,
        overlaps: &[Option<Overlap>],
    ) {
        if self.search.assessed(core, cx, number, overlaps) {
            self.step = Step::Idle;
        }
    }

    pub(super) fn paths(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        number: u32,
        result: Result<&[PathRecord], QueryError>,
        origin: Option<Origin>,
    ) {
        match self.search.paths(core, cx, number, result, origin) {
            Some(Ok((path, origin))) => {
                let at = cx.now;
                self.verify(core, cx, association, Found { path, origin, at });
            }
            Some(Err(why)) => self.next(core, cx, why),
            None => {}
        }
    }

    /// The peer is asked, if there is room.
    fn propose_found(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        found: Found,
    ) {
        if core.has_room(cx) {
            self.propose(core, cx, association, found.path, found.origin);
        } else {
            self.step = Step::Waiting(Box::new(found));
        }
    }

    /// Proposes a path once a probe of it has come back, and again if it replaces an armed alternate. The paths
    /// of a connection are probed from the next look at them on, so that one that is new has no answer yet.
    fn verify(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        found: Found,
    ) {
        let path = found.path;
        let probed = !cx.config.verify.is_zero() && core.probe_path(&path).is_some();
        match core.health(cx, &path) {
            PathHealth::Suspect => {
                self.suspect_path(core, cx, path);
                cx.stop(core.id, ConnAlarm::Negotiation);
                self.next(core, cx, Reason::PathSuspect);
            }
            PathHealth::Unknown if probed => {
                if !matches!(self.step, Step::Verifying(_)) {
                    self.step = Step::Verifying(Box::new(found));
                    cx.set(core.id, ConnAlarm::Negotiation, VERIFY_WAIT);
                }
            }
            PathHealth::Verified if !core.may_replace_alternate(cx, &path, found.at) => {
                self.step = Step::Verifying(Box::new(found));
                cx.set(core.id, ConnAlarm::Negotiation, VERIFY_WAIT);
            }
            PathHealth::Unknown | PathHealth::Verified => {
                cx.stop(core.id, ConnAlarm::Negotiation);
                self.propose_found(core, cx, association, found);
            }
        }
    }

    /// The path that is probed before it is proposed.
    pub(in crate::conn) fn verifying(&self) -> Option<&Path> {
        match &self.step {
            Step::Verifying(found) => Some(&found.path),
            _ => None,
        }
    }

    /// Whether the path is one that is suspected.
    pub(in crate::conn) fn doubts(&self, core: &Core, path: &ProbePath) -> bool {
        let mut suspects = self.search.choice.doubts.suspects();
        suspects.any(|suspect| core.probe_path(suspect).as_ref() == Some(path))
    }

    /// A path to which the connection could return, when it carries packets again: the best of them.
    pub(in crate::conn) fn suspect<'a>(&'a self, core: &Core, cx: &Context) -> Option<&'a Path> {
        let other = |path: &Path| {
            core.is_up(cx, path)
                && !path.same_way(&core.qp.primary)
                && !core.loaded().is_some_and(|loaded| loaded.same_way(path))
        };
        self.search.choice.best_suspect(core, cx, other)
    }

    /// Something became of a path of the connection's.
    pub(in crate::conn) fn probed(
        &mut self,
        core: &Core,
        cx: &mut Context,
        path: &ProbePath,
        finding: Finding,
    ) {
        let is_it = |other: &Path| core.probe_path(other).as_ref() == Some(path);
        match finding {
            Finding::Loss | Finding::StillSuspect => {}
            Finding::Suspect => {
                if let Some(&alternate) = core.loaded().filter(|path| is_it(path)) {
                    self.suspect_path(core, cx, alternate);
                    self.trigger(core, cx);
                }
            }
            Finding::Answer { was_suspect } => {
                let cleared = self.search.choice.doubts.verified(is_it);
                self.search.choice.watch_suspects(core, cx);
                if cleared || was_suspect {
                    self.trigger(core, cx);
                }
            }
        }
    }

    /// That candidate was nothing: the next, or a pause.
    fn next(&mut self, core: &mut Core, cx: &mut Context, why: Reason) {
        self.step = Step::Idle;
        if self.search.ask_next(core, cx) {
            self.step = Step::Searching;
        } else if self.has_agreed(core, cx) {
            // It was an improvement that was looked for, and there is none now.
            self.back_off(core, cx);
        } else {
            self.fail(core, cx, why);
        }
    }

    fn fail(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        self.explain(core, cx, why);
        self.back_off(core, cx);
    }

    fn back_off(&mut self, core: &Core, cx: &mut Context) {
        let delay = cx.backoff_delay(self.failures);
        self.failures += 1;
        self.step = Step::BackingOff;
        cx.set(core.id, ConnAlarm::Negotiation, delay);
    }

    /// Whether an improvement may be looked for is to be checked again. Nobody is asked for that, so the pause need
    /// not grow.
    fn check_later(&mut self, core: &Core, cx: &mut Context) {
        let delay = cx.backoff_delay(0);
        self.step = Step::BackingOff;
        cx.set(core.id, ConnAlarm::Negotiation, delay);
    }

    fn explain(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        // The application hears of it once, not with every further try.
        let first = matches!(self.why, None | Some(Reason::JustMigrated));
        if first && core.loaded().is_none() {
            core.event(cx, AppEvent::AltRouteError, NO_ALTERNATE);
        }
        self.why = Some(why);
    }
}

/// Why there is no candidate at all: only a port can change that.
fn no_candidate(core: &Core, cx: &Context) -> Reason {
    let mut ports = cx.ports.of_device(core.node_guid);
    let primary = core.qp.primary.port;
    match ports.any(|port| port.is_up() && !port.is_settled() && port.id.port != primary) {
        true => Reason::PortSettling,
        false => Reason::NoSecondPort,
    }
}
