// SPDX-License-Identifier: MIT OR Apache-2.0
//! Agreeing with the peer: LAP and APR.

use alloc::collections::VecDeque;

use cm_msgs::cm::{ApStatus, Apr, Lap, Mra};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};

use super::{Active, Proposal, Work};
use crate::candidate::{Candidate, rank};
use crate::conn::Core;
use crate::conn::association::{Link, Turn, code_timeout, timeout_code};
use crate::conn::proposal::{ends, fields};
use crate::context::{ConnAlarm, Context, Exchange};
use crate::input::{MadSource, Origin};
use crate::trace::{Ends, What};
use crate::view::Reason;

/// Times that a peer may point to another GID of its own before it is taken for a failure.
const MAX_REDIRECTS: u8 = 2;

impl Active {
    /// Proposes a path to the peer.
    pub(super) fn propose(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        alternate: Path,
        origin: Option<Origin>,
        rest: VecDeque<Candidate>,
    ) {
        core.counters.laps_sent += 1;
        cx.trace(core.id, What::LapSent(Ends::from(&alternate)));
        self.agreed = false;
        let exchange = Exchange::new(cx.transaction(), 0);
        let proposal = Proposal {
            exchange,
            primary: core.qp.primary,
            alternate,
            origin,
        };
        self.send_lap(core, cx, proposal, rest);
    }

    pub(super) fn send_lap(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        mut proposal: Proposal,
        rest: VecDeque<Candidate>,
    ) {
        let Some(link) = self.opening.link() else {
            return;
        };
        let routes = core.routes(cx);
        let remote_cm_response_timeout = timeout_code(cx.config.retry_first);
        let lap = || {
            Lap {
                local_comm_id: link.local,
                remote_comm_id: link.remote,
                remote_qpn_eecn: core.peer_qpn,
                remote_cm_response_timeout,
                alternate: fields(&proposal.alternate),
                private_data: ends(&proposal.primary).encode(),
            }
            .into()
        };
        match proposal.exchange.next(cx, &routes, lap) {
            Some(wait) => {
                cx.set(core.id, ConnAlarm::Work, wait);
                self.work = Work::Proposing { proposal, rest };
            }
            None => {
                // Perhaps the peer has forgotten the association, and its answers with it.
                self.explain(core, cx, Reason::NoApr);
                self.opening.ask(core, cx);
            }
        }
    }

    /// The peer needs longer.
    pub(super) fn lap_mra(
        &mut self,
        core: &Core,
        cx: &mut Context,
        source: &MadSource,
        mra: &Mra,
    ) -> Turn {
        let link = Link {
            local: mra.remote_comm_id,
            remote: mra.local_comm_id,
        };
        match &self.work {
            Work::Proposing { proposal, .. }
                if self.opening.link() == Some(link)
                    && proposal.exchange.transaction == source.transaction_id =>
            {
                let wait = code_timeout(mra.service_timeout).min(cx.config.order_timeout);
                cx.set(core.id, ConnAlarm::Work, wait);
                Turn::Handled
            }
            _ => Turn::Other,
        }
    }

    pub(super) fn apr(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        apr: &Apr,
    ) -> Turn {
        let link = Link {
            local: apr.remote_comm_id,
            remote: apr.local_comm_id,
        };
        if self.opening.link() != Some(link) {
            return Turn::Other;
        }
        match core::mem::take(&mut self.work) {
            Work::Proposing { proposal, rest }
                if proposal.exchange.transaction == source.transaction_id =>
            {
                cx.stop(core.id, ConnAlarm::Work);
                cx.trace(core.id, What::AprReceived(apr.status()));
                match apr.status() {
                    ApStatus::Success => self.accepted(core, cx, proposal),
                    status => self.declined(core, cx, &proposal, rest, status, apr.better_gid()),
                }
                Turn::Handled
            }
            other => {
                self.work = other;
                Turn::Other
            }
        }
    }

    fn accepted(&mut self, core: &mut Core, cx: &mut Context, proposal: Proposal) {
        if core.has_loaded(&proposal.alternate) {
            self.agreed = true;
            self.distrusted = false;
            self.failures = 0;
            self.why = None;
        } else if core.order.is_none() && proposal.primary.same_way(&core.qp.primary) {
            core.load(cx, proposal.alternate);
            let origin = proposal.origin;
            self.work = Work::Loading { origin };
        }
    }

    fn declined(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        proposal: &Proposal,
        rest: VecDeque<Candidate>,
        status: ApStatus,
        better: Option<Gid>,
    ) {
        let why = Reason::Apr(status);
        let dgid = proposal.alternate.dgid;
        match status {
            ApStatus::InvalidCommId => {
                self.explain(core, cx, why);
                self.opening.ask(core, cx);
            }
            ApStatus::InvalidGid | ApStatus::InvalidLid => {
                if core.has_loaded(&proposal.alternate) {
                    self.distrusted = true;
                }
                self.doubts.declined(dgid);
                match better {
                    Some(gid) if self.redirects < MAX_REDIRECTS => {
                        self.redirects += 1;
                        self.redirect(core, cx, gid, rest, why);
                    }
                    _ => self.next(core, cx, rest, why),
                }
            }
            // The two sides may have different ideas of the primary: see what is true here.
            ApStatus::Rejected | ApStatus::IsCurrent => {
                self.fail(core, cx, why);
                if core.order.is_none() {
                    core.query(cx);
                }
            }
            _ => self.next(core, cx, rest, why),
        }
    }

    /// The peer would rather have the alternate end at `gid`.
    fn redirect(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        gid: Gid,
        mut rest: VecDeque<Candidate>,
        why: Reason,
    ) {
        self.doubts.present(gid);
        if !core.peer_ports.iter().any(|port| port.gid == gid) {
            core.learn(gid, Lid(0), 0);
        }
        let mut ranked = rank(core.endpoints(cx), |candidate| {
            self.doubts.of_candidate(candidate)
        });
        self.rate(core, cx, &mut ranked);
        rest.retain(|candidate| candidate.dgid != gid);
        for candidate in ranked
            .into_iter()
            .rev()
            .filter(|candidate| candidate.dgid == gid)
        {
            rest.push_front(candidate);
        }
        rest.truncate(cx.config.candidate_limit);
        self.next(core, cx, rest, why);
    }
}
