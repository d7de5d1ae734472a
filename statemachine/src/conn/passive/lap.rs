// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answering LAPs.

use alloc::boxed::Box;

use cm_msgs::association::{LapData, State};
use cm_msgs::cm::{ApStatus, Apr, Lap, PathFields};
use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};

use super::{Answer, LapState, MAX_TRIPS, Passive, PeerHas, Proposal};
use crate::conn::Core;
use crate::conn::association::{CommIds, MraReceived};
use crate::conn::orders::{OrderEnd, OrderKind, QpChange};
use crate::conn::peer::{is_primary_of, prefers};
use crate::conn::probing::Replacement;
use crate::conn::proposal::reversed;
use crate::context::Context;
use crate::guard::guard;
use crate::input::MadSource;
use crate::port::Port;
use crate::trace::{Drop, PathLids, What};

impl Passive {
    /// Takes a LAP of the open association. False: it is a late copy of one before the last.
    pub(super) fn lap(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        lap: &Lap,
    ) -> bool {
        let Ok(LapData { state, loaded }) = LapData::decode(&lap.private_data) else {
            cx.drop_mad(source, "LAP", Drop::Malformed);
            return true;
        };
        if core.peer.is_past(&state) {
            // Whatever its transaction ID, it was sent before something that was heard already.
            return false;
        }
        self.peer_says(core, cx, source, &state);
        let proposal = Proposal {
            ids: CommIds::from_peer(lap.local_comm_id, lap.remote_comm_id),
            source: *source,
            alternate: lap.alternate,
            state,
            loaded,
            trips: 0,
        };
        match &self.lap {
            // The APR was lost: said again, and nothing is done twice.
            LapState::Answered(answer) if self.lap.is_of(source, &proposal.state) => {
                core.answer(cx, source, answer.apr(core));
            }
            // Still at it: the peer's patience is not to end meanwhile.
            last if last.is_of(source, &proposal.state) => {
                let mra = proposal
                    .ids
                    .mra(MraReceived::Lap, cx.config.retry_first * 4);
                core.answer(cx, source, mra);
            }
            _ if is_announcement(&lap.alternate) => {
                self.refused_lap = None;
                self.answer(core, cx, &proposal, ApStatus::Success);
            }
            _ => {
                core.counters.laps_received += 1;
                let ends = PathLids {
                    port: core.qp.primary.port,
                    slid: lap.alternate.remote_port_lid,
                    dlid: lap.alternate.local_port_lid,
                };
                cx.trace(core.id, What::LapReceived(ends));
                self.lap = LapState::Waiting(Box::new(proposal));
            }
        }
        true
    }

    /// Acts on a LAP that waits. The library is free.
    pub(in crate::conn) fn drive(&mut self, core: &mut Core, cx: &mut Context) {
        match core::mem::take(&mut self.lap) {
            LapState::Waiting(proposal) => self.consider(core, cx, proposal),
            other => self.lap = other,
        }
        if core.in_rts() && !self.is_busy() {
            self.suggestion.drive(core, cx, self.open);
        }
        self.await_proposal(core, cx);
    }

    fn consider(&mut self, core: &mut Core, cx: &mut Context, proposal: Box<Proposal>) {
        if !core.in_rts() {
            return self.answer(core, cx, &proposal, ApStatus::Rejected);
        }
        let alternate = core.loaded();
        let primary = &core.qp.primary;
        if !is_primary_of(primary, &proposal.state)
            || alternate.is_some_and(|path| prefers(&proposal.state, path, primary))
        {
            return self.compare(core, cx, proposal);
        }
        match check(core, cx, &proposal.source, &proposal.alternate) {
            Err(Objection { status, better }) => {
                self.answer_with(core, cx, &proposal, status, better);
            }
            Ok(path) if core.has_loaded(&path) && !core.distrusted => {
                self.peer_has = PeerHas::by(&proposal);
                self.answer(core, cx, &proposal, ApStatus::Success);
            }
            Ok(path) => match self.replacement(core, cx, &path) {
                Replacement::Allowed if !self.lap_orders.try_take(cx.now) => {
                    self.answer(core, cx, &proposal, ApStatus::Rejected);
                }
                Replacement::Allowed => self.load(core, cx, proposal, path),
                Replacement::Deferred => self.lap = LapState::Waiting(proposal),
                Replacement::Refused => self.answer(core, cx, &proposal, ApStatus::Rejected),
            },
        }
    }

    /// Whether a path may be loaded now. What this end had before its present alternate the peer may have still: then
    /// the ends have different ones, and the sooner that ends the better.
    fn replacement(&self, core: &Core, cx: &mut Context, path: &Path) -> Replacement {
        match &self.replaced {
            Some(replaced) if replaced.same_way(path) => Replacement::Allowed,
            _ => core.replacement(cx, self.peer_has != PeerHas::Unknown),
        }
    }

    fn load(&mut self, core: &mut Core, cx: &mut Context, proposal: Box<Proposal>, path: Path) {
        core.event(cx, AppEvent::AltRouteResolved, 0);
        self.replaced = core.loaded().copied().map(Box::new);
        self.peer_has = PeerHas::by(&proposal);
        core.load(cx, path);
        self.lap = LapState::Loading(proposal);
    }

    /// One of the two sides has an outdated idea of the primary.
    fn compare(&mut self, core: &mut Core, cx: &mut Context, mut proposal: Box<Proposal>) {
        if proposal.trips >= MAX_TRIPS {
            return self.answer(core, cx, &proposal, ApStatus::Rejected);
        }
        let armed = core
            .qp
            .alternate
            .filter(|_| guard!(OnlyArmed, core.is_armed()));
        let is_there = |path: Path| {
            prefers(&proposal.state, &path, &core.qp.primary)
                && guard!(AlternateUp, core.is_up(cx, &path))
        };
        if armed.is_some_and(is_there) && !core.is_to_and_fro(cx.now) {
            // The peer has migrated, and no packet of it has told the QP yet.
            core.leave_primary(cx);
        } else if !self.lap_orders.try_take(cx.now) {
            return self.answer(core, cx, &proposal, ApStatus::Rejected);
        } else if let Some(path) = self.replaced_on(core, cx, &proposal.state) {
            core.load(cx, path);
        } else {
            core.query(cx);
        }
        proposal.trips += 1;
        self.lap = LapState::Comparing(proposal);
    }

    /// The alternate before the present one, if it is what the peer has migrated to and the QP can
    /// be brought there still.
    fn replaced_on(&self, core: &Core, cx: &Context, state: &State) -> Option<Path> {
        let is_there = |path: &Path| {
            prefers(state, path, &core.qp.primary) && guard!(AlternateUp, core.is_up(cx, path))
        };
        self.replaced
            .as_deref()
            .copied()
            .filter(is_there)
            .filter(|_| guard!(OnlyArmed, core.is_armed()))
    }

    pub(in crate::conn) fn qp_changed(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        change: &QpChange,
    ) {
        if change.abandoned.is_some() {
            self.replaced = None;
            self.peer_has = PeerHas::Unknown;
            if self.refused_lap.take().is_some() {
                // It was answered before this end had followed; now it may be taken.
                core.own.repeat();
                self.suggestion.trigger(core, cx);
            }
            if self.open.is_none() {
                // On another path it may be the lower end.
                self.start(core, cx);
            }
        }
        if change.alternate_broken {
            // The peer, which chooses, is to look again.
            core.own.repeat();
            self.suggestion.trigger(core, cx);
        }
        let Some((kind, end)) = change.ended else {
            return;
        };
        match (core::mem::take(&mut self.lap), kind, end) {
            (LapState::Comparing(proposal), _, OrderEnd::Done | OrderEnd::Stale) => {
                self.lap = LapState::Waiting(proposal);
            }
            (LapState::Loading(proposal), OrderKind::Load, OrderEnd::Done) => {
                self.answer(core, cx, &proposal, ApStatus::Success);
            }
            (LapState::Loading(mut proposal), OrderKind::Load, OrderEnd::Stale)
                if proposal.trips < MAX_TRIPS =>
            {
                proposal.trips += 1;
                self.lap = LapState::Waiting(proposal);
            }
            (LapState::Comparing(proposal) | LapState::Loading(proposal), _, _) => {
                self.answer(core, cx, &proposal, ApStatus::Rejected);
            }
            (other, _, _) => self.lap = other,
        }
    }

    fn answer(&mut self, core: &mut Core, cx: &mut Context, to: &Proposal, status: ApStatus) {
        self.answer_with(core, cx, to, status, None);
    }

    fn answer_with(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        to: &Proposal,
        status: ApStatus,
        better: Option<Gid>,
    ) {
        let answer = Answer {
            ids: to.ids,
            transaction: to.source.transaction_id,
            sequence: to.state.sequence,
            status,
            better,
        };
        self.refused_lap = (status != ApStatus::Success).then_some(status);
        cx.trace(core.id, What::AprSent(status));
        core.answer(cx, &to.source, answer.apr(core));
        self.lap = LapState::Answered(answer);
    }
}

impl Answer {
    /// The APR, with how this end is now.
    fn apr(&self, core: &Core) -> Apr {
        let mut apr = Apr {
            local_comm_id: self.ids.local,
            remote_comm_id: self.ids.remote,
            ar_status: self.status.into(),
            private_data: core.own.state().encode(),
            ..Apr::default()
        };
        if let Some(gid) = self.better {
            apr.set_better_gid(gid);
        }
        apr
    }
}

impl LapState {
    /// Whether a LAP that is not past is answered as a copy of the last one. Each new proposal comes with a later state,
    /// and its copies with that or one that is later still. One with the same state and another transaction ID proposes
    /// nothing new: it asks how this end is, or somebody has forged it, and then its ID must not become the measure for
    /// later ones.
    fn is_of(&self, source: &MadSource, state: &State) -> bool {
        let (transaction, sequence) = match self {
            Self::None => return false,
            Self::Waiting(last) | Self::Comparing(last) | Self::Loading(last) => {
                (last.source.transaction_id, last.state.sequence)
            }
            Self::Answered(answer) => (answer.transaction, answer.sequence),
        };
        source.transaction_id == transaction || state.sequence == sequence
    }
}

/// Whether a LAP proposes nothing.
fn is_announcement(alternate: &PathFields) -> bool {
    alternate.local_port_lid == Lid(0) && alternate.remote_port_lid == Lid(0)
}

/// Why a proposed alternate is not taken.
struct Objection {
    status: ApStatus,
    /// A port of ours that would do.
    better: Option<Gid>,
}

impl From<ApStatus> for Objection {
    fn from(status: ApStatus) -> Self {
        Self {
            status,
            better: None,
        }
    }
}

/// The proposed alternate from this end, if this end can use it.
fn check(
    core: &Core,
    cx: &Context,
    source: &MadSource,
    fields: &PathFields,
) -> Result<Path, Objection> {
    let mut ports = cx.ports.of_device(core.node_guid);
    let port = ports
        .clone()
        .find(|port| port.status.gid == fields.remote_port_gid)
        .ok_or(ApStatus::InvalidGid)?;
    let primary = &core.qp.primary;
    // A QP has one path MTU and one partition for both of its paths (IBA 17.2.8).
    let usable = |port: &Port| {
        guard!(AlternatePortUp, port.is_up())
            && port.has_pkey(primary.pkey)
            && port.status.mtu >= primary.mtu
    };
    if !usable(port) {
        let better = ports.find(|other| usable(other) && other.id.port != primary.port);
        let better = better.map(|port| port.status.gid);
        return Err(Objection {
            status: ApStatus::InvalidGid,
            better,
        });
    }
    // What a peer names goes into the QP as it is.
    if !port.has_lid(fields.remote_port_lid) || !fields.local_port_lid.is_unicast() {
        return Err(ApStatus::InvalidLid.into());
    }
    let path = reversed(primary, port, fields);
    // An alternate ends at a port that is known to be the peer's.
    if !core.leads_to_peer(cx, &path) || core.is_named_anothers(cx, &path, source) {
        return Err(ApStatus::InvalidGid.into());
    }
    if path.same_way(primary) {
        return Err(ApStatus::IsCurrent.into());
    }
    if !core.allows(cx, &path) {
        return Err(ApStatus::Unsupported.into());
    }
    Ok(path)
}
