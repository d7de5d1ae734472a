// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a choice to a loaded alternate: the path record is asked for, the peer agrees, the library
//! loads.

use cm_msgs::Gid;
use cm_msgs::cm::{ApStatus, Apr, Mra};
use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;

use super::choice::Next;
use super::proposal::Proposal;
use super::search::Search;
use crate::candidate::Candidate;
use crate::conn::Core;
use crate::conn::association::{ActiveAssociation, CommIds, Outcome, code_timeout};
use crate::conn::orders::{OrderEnd, OrderKind, QpChange};
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::{MadSource, Origin, QueryError};
use crate::overlap::Overlap;
use crate::trace::{PathLids, What};
use crate::view::Reason;

/// `EHOSTUNREACH`: what an application is told when there is no alternate.
const NO_ALTERNATE: u8 = 113;

/// Times that a peer may point to another GID of its own before it is taken for a failure.
const MAX_REDIRECTS: u8 = 2;

/// What is under way.
#[derive(Default)]
enum Step {
    #[default]
    Idle,
    /// A path is looked for.
    Searching,
    /// LAP sent.
    Proposing(Proposal),
    /// The peer has agreed; the library loads.
    Loading { origin: Option<Origin> },
    /// It did not work out; again when the timer says.
    BackingOff,
}

/// How the active side comes to its alternate.
#[derive(Default)]
pub(in crate::conn) struct Negotiation {
    step: Step,
    search: Search,
    /// Transaction ID of the last LAP. They count up within an association, because the peer tells
    /// a late LAP from a new one by that; where they begin is random.
    lap_transaction: u32,
    /// Evaluations without success in a row.
    failures: u32,
    redirects: u8,
    /// The peer is known to have the same alternate.
    agreed: bool,
    /// The last alternate that was loaded, and where its record came from.
    loaded: Option<(Path, Origin)>,
    /// Why there is no alternate.
    why: Option<Reason>,
}

impl Negotiation {
    // ---- what happens ----

    /// The association is open: nothing is known of what the peer has.
    pub(super) fn opened(&mut self, core: &Core, cx: &mut Context) {
        self.lap_transaction = cx.transaction();
        self.search.choice.doubts.peer_ports(&core.peer.ports);
        self.confirm(core, cx);
    }

    /// The peer says other things about its ports than before.
    pub(super) fn peer_ports_changed(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.doubts.peer_ports(&core.peer.ports);
        self.trigger(core, cx);
    }

    /// The peer would rather have the alternate end at this port of its own.
    pub(super) fn suggested(&mut self, core: &Core, cx: &mut Context, gid: Gid) {
        self.search.choice.doubts.present(gid);
        self.trigger(core, cx);
    }

    /// Whether a LAP has no answer yet.
    pub(super) fn is_proposing(&self) -> bool {
        matches!(self.step, Step::Proposing(_))
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
    }

    pub(super) fn qp_changed(&mut self, core: &mut Core, cx: &mut Context, change: &QpChange) {
        if let Some(left) = &change.abandoned {
            if left.suspect {
                let until = cx.now + cx.config.suspect_hold_off;
                self.search.choice.doubts.suspect(left.path, until);
                self.search.choice.watch_suspects(core, cx);
            }
            self.why = Some(Reason::JustMigrated);
            self.trigger(core, cx);
            if !matches!(self.step, Step::Loading { .. }) {
                self.stop(core, cx);
            }
        }
        if change.alternate_broken {
            self.search.choice.distrusted = true;
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
                if let Step::Loading { origin } = self.step {
                    self.loaded = core.loaded().copied().zip(origin);
                    self.step = Step::Idle;
                }
                self.settled(loading);
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

    /// The QP has an alternate; whether the peer has the same.
    fn settled(&mut self, agreed: bool) {
        self.agreed = agreed;
        self.search.choice.distrusted = false;
        self.failures = 0;
        self.why = None;
    }

    pub(super) fn port_changed(&mut self, core: &Core, cx: &mut Context, id: PortId) {
        self.search.choice.doubts.local_port(id.port);
        self.search.choice.watch_suspects(core, cx);
        self.trigger(core, cx);
    }

    /// A path is no longer suspect.
    pub(super) fn suspicion_over(&mut self, core: &Core, cx: &mut Context) {
        self.search.choice.doubts.expire(cx.now);
        self.search.choice.watch_suspects(core, cx);
        self.trigger(core, cx);
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
            Step::Proposing(proposal) => self.send_lap(core, cx, association, proposal),
            Step::BackingOff => self.search.choice.probing = true,
            Step::Idle => {}
            loading @ Step::Loading { .. } => self.step = loading,
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
        self.failures = 0;
        self.redirects = 0;
        if let Step::BackingOff = self.step {
            self.stop(core, cx);
        }
    }

    /// Nothing is under way any more.
    pub(super) fn stop(&mut self, core: &Core, cx: &mut Context) {
        cx.stop(core.id, ConnAlarm::Negotiation);
        match core::mem::take(&mut self.step) {
            Step::Searching => self.search.stop(cx),
            Step::Proposing(proposal) => proposal.take_back(cx),
            Step::Idle | Step::Loading { .. } | Step::BackingOff => {}
        }
    }

    // ---- the choice ----

    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
    ) {
        if self.is_outdated(core, cx) {
            self.stop(core, cx);
        }
        if let Step::Idle = self.step {
            self.evaluate(core, cx, association);
        }
    }

    /// Whether what is under way has lost its sense.
    fn is_outdated(&self, core: &Core, cx: &Context) -> bool {
        match &self.step {
            Step::Searching => self.search.is_outdated(cx),
            Step::Proposing(proposal) => {
                !proposal.fits(core) || !core.is_usable(cx, &proposal.alternate)
            }
            Step::Idle | Step::Loading { .. } | Step::BackingOff => false,
        }
    }

    fn evaluate(&mut self, core: &mut Core, cx: &mut Context, association: &mut ActiveAssociation) {
        // What the QP has comes first: until the peer confirms it, it may protect one end only.
        if let Some((path, _)) = self.search.choice.current(core, cx)
            && !self.agreed
        {
            self.search.clear();
            let origin = self.origin(core);
            return self.propose(core, cx, association, path, origin);
        }
        match self.search.begin(core, cx) {
            None | Some(Next::Ask(_)) => self.step = Step::Searching,
            Some(Next::None) => self.explain(core, cx, no_candidate(core, cx)),
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
            Some(Ok((path, origin))) => self.propose(core, cx, association, path, origin),
            Some(Err(why)) => self.next(core, cx, why),
            None => {}
        }
    }

    /// That candidate was nothing: the next, or a pause.
    fn next(&mut self, core: &mut Core, cx: &mut Context, why: Reason) {
        self.step = Step::Idle;
        if self.search.ask_next(core, cx) {
            self.step = Step::Searching;
        } else if self.agreed && self.search.choice.current(core, cx).is_some() {
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

    fn explain(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        // The application hears of it once, not with every further try.
        let first = matches!(self.why, None | Some(Reason::JustMigrated));
        if first && core.loaded().is_none() {
            core.event(cx, AppEvent::AltRouteError, NO_ALTERNATE);
        }
        self.why = Some(why);
    }

    // ---- LAP and APR ----

    /// Proposes a path to the peer.
    fn propose(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        alternate: Path,
        origin: Option<Origin>,
    ) {
        core.counters.laps_sent += 1;
        cx.trace(core.id, What::LapSent(PathLids::from(&alternate)));
        self.agreed = false;
        let transaction = self.next_transaction();
        // A LAP of before, whoever repeats it, is told from this one.
        core.own.advance();
        let proposal = Proposal::new(core, transaction, alternate, origin);
        self.send_lap(core, cx, association, proposal);
    }

    fn send_lap(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        mut proposal: Proposal,
    ) {
        self.step = Step::Idle;
        let Some(ids) = association.ids() else {
            return;
        };
        match proposal.send(core, cx, ids) {
            Some(wait) => {
                cx.set(core.id, ConnAlarm::Negotiation, wait);
                self.step = Step::Proposing(proposal);
            }
            None => {
                // Perhaps the peer has forgotten the association, and its answers with it.
                self.explain(core, cx, Reason::NoApr);
                association.ask(core, cx);
            }
        }
    }

    /// The peer needs longer.
    pub(super) fn mra(
        &mut self,
        core: &Core,
        cx: &mut Context,
        association: &ActiveAssociation,
        source: &MadSource,
        mra: &Mra,
    ) -> Outcome {
        let ids = CommIds::from_peer(mra.local_comm_id, mra.remote_comm_id);
        match &self.step {
            Step::Proposing(proposal)
                if association.ids() == Some(ids)
                    && proposal.is_answered_by(source.transaction_id) =>
            {
                // A peer cannot hold a connection up for longer than a library could.
                let wait = code_timeout(mra.service_timeout);
                let wait = wait.clamp(cx.config.retry_first, cx.config.order_timeout);
                cx.set(core.id, ConnAlarm::Negotiation, wait);
                Outcome::Handled
            }
            _ => Outcome::Other,
        }
    }

    pub(super) fn apr(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        source: &MadSource,
        apr: &Apr,
    ) -> Outcome {
        match core::mem::take(&mut self.step) {
            Step::Proposing(proposal) if proposal.is_answered_by(source.transaction_id) => {
                proposal.answered(core, cx);
                cx.stop(core.id, ConnAlarm::Negotiation);
                cx.trace(core.id, What::AprReceived(apr.status()));
                match apr.status() {
                    ApStatus::Success => self.accepted(core, cx, proposal),
                    _ => self.declined(core, cx, association, &proposal, apr),
                }
                Outcome::Handled
            }
            other => {
                self.step = other;
                Outcome::Other
            }
        }
    }

    fn accepted(&mut self, core: &mut Core, cx: &mut Context, proposal: Proposal) {
        if core.has_loaded(&proposal.alternate) {
            self.settled(true);
        } else if core.orders.outstanding().is_none() && proposal.fits(core) {
            core.load(cx, proposal.alternate);
            let origin = proposal.origin;
            self.step = Step::Loading { origin };
        }
    }

    fn declined(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        proposal: &Proposal,
        apr: &Apr,
    ) {
        let why = Reason::Apr(apr.status());
        match apr.status() {
            ApStatus::InvalidCommId => {
                self.explain(core, cx, why);
                association.ask(core, cx);
            }
            ApStatus::InvalidGid | ApStatus::InvalidLid => {
                if core.has_loaded(&proposal.alternate) {
                    self.search.choice.distrusted = true;
                }
                self.search.choice.doubts.declined(proposal.alternate.dgid);
                if let Some(gid) = apr.better_gid().filter(|_| self.redirects < MAX_REDIRECTS) {
                    self.redirects += 1;
                    self.search.redirect(core, cx, gid);
                }
                self.next(core, cx, why);
            }
            // The two sides may have different ideas of the primary: see what is true here.
            ApStatus::Rejected | ApStatus::IsCurrent => {
                self.fail(core, cx, why);
                if core.orders.outstanding().is_none() {
                    core.query(cx);
                }
            }
            _ => self.next(core, cx, why),
        }
    }

    // ---- what to show ----

    pub(in crate::conn) fn chosen(&self) -> Option<Candidate> {
        self.search.choice.chosen
    }

    pub(in crate::conn) fn runner_up(&self) -> Option<Candidate> {
        self.search.choice.runner_up
    }

    /// Where the record of the alternate that the QP has came from.
    pub(in crate::conn) fn origin(&self, core: &Core) -> Option<Origin> {
        let (_, origin) = self.loaded.filter(|(path, _)| core.has_loaded(path))?;
        Some(origin)
    }

    /// What the alternate that the QP has shares with the primary.
    pub(in crate::conn) fn overlap(&self, core: &Core, cx: &Context) -> Option<Overlap> {
        self.search.choice.overlap(core, cx, core.loaded()?)
    }

    pub(in crate::conn) fn distrusts_alternate(&self) -> bool {
        self.search.choice.distrusted
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    pub(super) fn reason(&self) -> (Reason, bool) {
        match self.step {
            Step::Searching => (Reason::WaitingForPath, true),
            Step::Proposing(_) => (Reason::WaitingForApr, true),
            Step::Loading { .. } => (Reason::WaitingForLibrary, true),
            Step::Idle | Step::BackingOff => (self.why.unwrap_or(Reason::JustMigrated), false),
        }
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
