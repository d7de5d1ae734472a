// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LAP that proposes a path, and what the peer says to it.

use alloc::boxed::Box;

use cm_msgs::cm::{ApStatus, Apr, Mra};
use cm_msgs::path::Path;

use super::{MAX_REDIRECTS, Negotiation, Step};
use crate::conn::Core;
use crate::conn::active::proposal::Proposal;
use crate::conn::association::{ActiveAssociation, CommIds, Outcome, code_timeout};
use crate::context::{ConnAlarm, Context};
use crate::input::{MadSource, Origin};
use crate::trace::{PathLids, What};
use crate::view::Reason;

impl Negotiation {
    /// Proposes a path to the peer.
    pub(super) fn propose(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        alternate: Path,
        origin: Option<Origin>,
    ) {
        core.counters.laps_sent += 1;
        cx.trace(core.id, What::LapSent(PathLids::from(&alternate)));
        let settles = !self.agreed || core.distrusted;
        self.agreed = false;
        let transaction = self.next_transaction();
        // A LAP of before, whoever repeats it, is told from this one.
        core.own.advance();
        let proposal = Box::new(Proposal::new(core, transaction, alternate, origin, settles));
        self.send_lap(core, cx, association, proposal);
    }

    pub(super) fn send_lap(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        association: &mut ActiveAssociation,
        mut proposal: Box<Proposal>,
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
            // It is there, and its library is not.
            None if proposal.was_put_off() => self.fail(core, cx, Reason::PeerLibrarySilent),
            None => {
                // Perhaps the peer has forgotten the association, and its answers with it.
                core.round_trip.unanswered(cx);
                self.explain(core, cx, Reason::NoApr);
                association.reopen(core, cx, Reason::NoApr);
            }
        }
    }

    /// The peer needs longer.
    pub(in crate::conn::active) fn mra(
        &mut self,
        core: &Core,
        cx: &mut Context,
        association: &ActiveAssociation,
        source: &MadSource,
        mra: &Mra,
    ) -> Outcome {
        let ids = CommIds::from_peer(mra.local_comm_id, mra.remote_comm_id);
        match &mut self.step {
            Step::Proposing(proposal)
                if association.ids() == Some(ids)
                    && proposal.is_answered_by(source.transaction_id) =>
            {
                proposal.put_off();
                // A peer cannot hold a connection up for longer than a library could.
                let wait = code_timeout(mra.service_timeout);
                let wait = wait.clamp(cx.config.retry_first, cx.config.order_timeout);
                cx.set(core.id, ConnAlarm::Negotiation, wait);
                Outcome::Handled
            }
            _ => Outcome::Other,
        }
    }

    pub(in crate::conn::active) fn apr(
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
                    ApStatus::Success => {
                        association.works();
                        self.accepted(core, cx, &proposal);
                    }
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

    fn accepted(&mut self, core: &mut Core, cx: &mut Context, proposal: &Proposal) {
        if core.has_loaded(&proposal.alternate) {
            core.distrust(cx, false);
            self.settled(true);
            if !proposal.settles {
                // Nothing has changed: proposed again, nothing would either.
                self.back_off(core, cx);
            }
        } else if core.orders.outstanding().is_none() && proposal.fits(core) {
            core.load(cx, proposal.alternate);
            let Proposal {
                alternate, origin, ..
            } = *proposal;
            let ends = PathLids::from(&alternate);
            self.step = Step::Loading { ends, origin };
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
                association.reopen(core, cx, why);
            }
            ApStatus::InvalidGid | ApStatus::InvalidLid => {
                if core.has_loaded(&proposal.alternate) {
                    core.distrust(cx, true);
                }
                self.search.choice.doubts.declined(proposal.alternate.dgid);
                if apr.status() == ApStatus::InvalidGid {
                    let Path { port, dgid, .. } = proposal.alternate;
                    self.search.leave_out(port, dgid);
                }
                if let Some(gid) = apr.better_gid().filter(|_| self.redirects < MAX_REDIRECTS) {
                    self.redirects += 1;
                    self.search.redirect(core, cx, gid);
                }
                self.next(core, cx, why);
            }
            ApStatus::Unsupported => {
                let choice = &mut self.search.choice;
                let (mode, is_news) = choice.peer_forbids(core, cx, &proposal.alternate);
                // What is left to ask for may be of the same kind.
                self.search.clear();
                self.next(core, cx, Reason::PeerPolicy(mode));
                if is_news {
                    // Of the other kind there may be one: no pause before that.
                    self.stop(core, cx);
                }
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
}
