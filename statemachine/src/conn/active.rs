// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side: chooses the alternate, agrees on it with the peer, has it loaded.

use alloc::collections::VecDeque;

use cm_msgs::cm::{self, ApStatus, Apr, Lap};
use cm_msgs::control::{AppEvent, MigrationState};
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid};

use super::Core;
use super::association::{Link, Mraed, Opening, Turn, code_timeout, timeout_code};
use super::doubt::Doubts;
use super::library::{End, Kind, News};
use super::proposal::{ends, fields};
use crate::candidate::{Candidate, Doubt, Score, rank, shared};
use crate::context::{ConnAlarm, Context, Exchange};
use crate::input::{MadSource, PortId, QueryError};
use crate::output::PathQuery;
use crate::trace::{Drop, Way, What};
use crate::view::{AssociationState, Reason};

/// Times that a peer may point to another GID of its own before it is taken for a failure.
const MAX_REDIRECTS: u8 = 2;

/// `EHOSTUNREACH`: what an application is told when there is no alternate.
const NO_ALTERNATE: u8 = 113;

/// A LAP and what it is for.
struct Proposal {
    exchange: Exchange,
    /// The primary that the alternate is for.
    primary: Path,
    alternate: Path,
}

/// What is under way.
#[derive(Default)]
enum Work {
    #[default]
    Idle,
    /// A path source was asked for the first of these.
    Asking {
        query: u32,
        candidate: Candidate,
        rest: VecDeque<Candidate>,
    },
    /// LAP sent.
    Proposing {
        proposal: Proposal,
        rest: VecDeque<Candidate>,
    },
    /// The peer has agreed; the library loads.
    Loading,
    /// It did not work out; again when the timer says.
    Pausing,
}

/// The active side of a connection.
#[derive(Default)]
pub(super) struct Active {
    opening: Opening,
    work: Work,
    /// Evaluations without success in a row.
    failures: u32,
    /// The next evaluation asks for doubtful paths, too.
    probing: bool,
    redirects: u8,
    /// The peer is known to have the same alternate.
    agreed: bool,
    /// The alternate that the QP has is no good, though its port is up.
    distrusted: bool,
    doubts: Doubts,
    /// Why there is no alternate.
    why: Option<Reason>,
    chosen: Option<Candidate>,
    runner_up: Option<Candidate>,
}

impl Active {
    pub(super) fn start(&mut self, core: &mut Core, cx: &mut Context) {
        self.opening.ask(core, cx);
        if core.qp.migration == MigrationState::Rearm {
            cx.set(core.id, ConnAlarm::Rearm, cx.config.rearm_confirm);
        }
    }

    pub(super) fn close(&mut self, core: &mut Core, cx: &mut Context) -> Option<Link> {
        self.drop_work(core, cx);
        self.opening.close(core, cx)
    }

    // ---- what happens ----

    pub(super) fn news(&mut self, core: &mut Core, cx: &mut Context, news: &News) {
        if let Some(left) = &news.left {
            if left.suspect {
                self.doubts
                    .suspect(left.path, cx.now + cx.config.suspect_hold_off);
                self.watch_suspects(core, cx);
            }
            self.why = Some(Reason::JustMigrated);
            self.trigger(core, cx);
            if !matches!(self.work, Work::Loading) {
                self.drop_work(core, cx);
            }
        }
        if news.alternate_broken {
            self.distrusted = true;
            self.trigger(core, cx);
        }
        if let Some((Kind::Load, end)) = news.ended {
            self.loaded(core, cx, end);
        }
        match core.qp.migration {
            MigrationState::Rearm if core.loaded().is_some() => {
                if !cx.is_set(core.id, ConnAlarm::Rearm) {
                    cx.set(core.id, ConnAlarm::Rearm, cx.config.rearm_confirm);
                }
            }
            _ => cx.stop(core.id, ConnAlarm::Rearm),
        }
    }

    fn loaded(&mut self, core: &mut Core, cx: &mut Context, end: End) {
        let loading = matches!(self.work, Work::Loading);
        match end {
            End::Done => {
                self.agreed = loading;
                self.distrusted = false;
                self.failures = 0;
                self.why = None;
                if loading {
                    self.work = Work::Idle;
                }
            }
            End::Stale if loading && self.failures == 0 => {
                self.failures += 1;
                self.work = Work::Idle;
            }
            _ if loading => self.fail(core, cx, core.trouble.unwrap_or(Reason::Stale)),
            _ => {}
        }
    }

    pub(super) fn port_changed(&mut self, core: &mut Core, cx: &mut Context, id: PortId) {
        self.doubts.local_port(id.port);
        self.watch_suspects(core, cx);
        self.opening.hurry(core, cx);
        self.trigger(core, cx);
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context, alarm: ConnAlarm) {
        match alarm {
            ConnAlarm::Association => self.opening.timeout(core, cx),
            ConnAlarm::Work => self.work_timeout(core, cx),
            ConnAlarm::Suspect => {
                self.doubts.expire(cx.now);
                self.watch_suspects(core, cx);
                self.trigger(core, cx);
            }
            ConnAlarm::Rearm => {
                // Traffic may be all that is missing; or the peer never loaded its end.
                self.agreed = false;
                self.trigger(core, cx);
                let wait = (cx.config.rearm_confirm * 2).max(cx.now - core.since);
                cx.set(core.id, ConnAlarm::Rearm, wait.min(cx.config.backoff_max));
            }
            ConnAlarm::Order | ConnAlarm::MigrateHold => {}
        }
    }

    fn work_timeout(&mut self, core: &mut Core, cx: &mut Context) {
        match core::mem::take(&mut self.work) {
            Work::Asking {
                candidate,
                rest,
                query,
            } => {
                cx.queries.remove(&query);
                self.no_path(core, cx, candidate, rest, QueryError::Timeout);
            }
            Work::Proposing { proposal, rest } => self.send_lap(core, cx, proposal, rest),
            Work::Pausing => self.probing = true,
            Work::Idle => {}
            Work::Loading => self.work = Work::Loading,
        }
    }

    pub(super) fn message(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        message: &cm::Message,
    ) {
        if !core.knows(cx, source) {
            cx.drop_mad(source, message.name(), Drop::Stranger);
            return;
        }
        let turn = match message {
            cm::Message::Apr(apr) => self.apr(core, cx, source, apr),
            cm::Message::Mra(mra) if mra.message_mraed == Mraed::Lap as u8 => {
                self.lap_mra(core, cx, source, mra)
            }
            _ => self.opening.message(core, cx, source, message),
        };
        match turn {
            Turn::Other => cx.drop_mad(source, message.name(), Drop::OutOfPlace),
            Turn::Handled => {}
            Turn::Opened => {
                let ports = core.peer_ports.clone();
                self.doubts.peer_ports(&ports);
                self.agreed = false;
                self.trigger(core, cx);
            }
            Turn::Lost => self.drop_work(core, cx),
        }
    }

    // ---- what to do ----

    pub(super) fn drive(&mut self, core: &mut Core, cx: &mut Context) {
        if !core.in_rts() {
            return self.drop_work(core, cx);
        }
        if self.opening.link().is_none() {
            return;
        }
        if self.is_outdated(core, cx) {
            self.drop_work(core, cx);
        }
        if let Work::Idle = self.work {
            self.evaluate(core, cx);
        }
    }

    /// Whether what is under way has lost its sense.
    fn is_outdated(&self, core: &Core, cx: &Context) -> bool {
        match &self.work {
            Work::Asking { candidate, .. } => cx
                .ports
                .get(candidate.port)
                .is_none_or(|port| !port.is_up()),
            Work::Proposing { proposal, .. } => {
                !proposal.primary.same_way(&core.qp.primary) || !core.is_up(cx, &proposal.alternate)
            }
            Work::Idle | Work::Loading | Work::Pausing => false,
        }
    }

    /// Something changed that is worth another evaluation without waiting.
    fn trigger(&mut self, core: &Core, cx: &mut Context) {
        self.failures = 0;
        self.redirects = 0;
        if let Work::Pausing = self.work {
            self.drop_work(core, cx);
        }
    }

    fn drop_work(&mut self, core: &Core, cx: &mut Context) {
        cx.stop(core.id, ConnAlarm::Work);
        if let Work::Asking { query, .. } = core::mem::take(&mut self.work) {
            cx.queries.remove(&query);
        }
    }

    fn watch_suspects(&self, core: &Core, cx: &mut Context) {
        match self.doubts.next() {
            Some(until) => cx.set(core.id, ConnAlarm::Suspect, until - cx.now),
            None => cx.stop(core.id, ConnAlarm::Suspect),
        }
    }

    /// The alternate that the QP has, and how good it is, if it would work from here.
    fn current(&self, core: &Core, cx: &Context) -> Option<(Path, Score)> {
        let path = *core
            .loaded()
            .filter(|path| core.is_up(cx, path) && !self.distrusted)?;
        let shared = shared(&core.qp.primary, &path, core.lmc(cx));
        Some((
            path,
            Score {
                doubt: self.doubts.of_path(&path),
                shared,
                tie: 0,
            },
        ))
    }

    fn evaluate(&mut self, core: &mut Core, cx: &mut Context) {
        let probing = core::mem::take(&mut self.probing);
        let current = self.current(core, cx);
        if let Some((path, _)) = current
            && !self.agreed
        {
            return self.propose(core, cx, path, VecDeque::new());
        }
        let mut ranked = rank(core.endpoints(cx), |candidate| {
            self.doubts.of_candidate(candidate)
        });
        self.runner_up = ranked.get(1).copied();
        let Some((_, score)) = current else {
            ranked.truncate(cx.config.candidate_limit);
            return match ranked.is_empty() {
                true => self.nowhere_to_go(core, cx),
                false => self.ask(core, cx, ranked.into()),
            };
        };
        let doubtful = ranked
            .iter()
            .any(|c| c.score.shared < score.shared && !c.score.beats(score));
        ranked.retain(|c| c.score.beats(score) || (probing && c.score.shared < score.shared));
        ranked.truncate(cx.config.candidate_limit);
        if !ranked.is_empty() {
            self.ask(core, cx, ranked.into());
        } else if doubtful {
            self.pause(core, cx);
        }
    }

    /// No candidate at all: only a port can change that.
    fn nowhere_to_go(&mut self, core: &Core, cx: &mut Context) {
        let settling = cx
            .ports
            .of_device(core.node_guid)
            .any(|port| port.is_up() && !port.is_settled() && port.id.port != core.qp.primary.port);
        let why = if settling {
            Reason::PortSettling
        } else {
            Reason::NoSecondPort
        };
        self.explain(core, cx, why);
    }

    fn explain(&mut self, core: &Core, cx: &mut Context, why: Reason) {
        let first = matches!(self.why, None | Some(Reason::JustMigrated));
        if first && core.loaded().is_none() {
            core.event(cx, AppEvent::AltRouteError, NO_ALTERNATE);
        }
        self.why = Some(why);
    }

    /// Asks for a path of the first candidate.
    fn ask(&mut self, core: &mut Core, cx: &mut Context, mut candidates: VecDeque<Candidate>) {
        let Some(candidate) = candidates.pop_front() else {
            return;
        };
        core.counters.queries += 1;
        cx.trace(core.id, What::Candidate(candidate));
        let pkey = core.qp.primary.pkey;
        let Candidate {
            port,
            sgid,
            dgid,
            slid,
            dlid,
            ..
        } = candidate;
        let query = cx.ask(core.id, |query| PathQuery {
            query,
            port,
            sgid,
            dgid,
            slid,
            dlid,
            pkey,
        });
        cx.set(core.id, ConnAlarm::Work, cx.config.query_timeout);
        self.chosen = Some(candidate);
        self.work = Work::Asking {
            query,
            candidate,
            rest: candidates,
        };
    }

    pub(super) fn paths(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        number: u32,
        result: Result<&[PathRecord], QueryError>,
    ) {
        match core::mem::take(&mut self.work) {
            Work::Asking {
                query,
                candidate,
                rest,
            } if query == number => {
                cx.stop(core.id, ConnAlarm::Work);
                match result {
                    Ok(records) => self.records(core, cx, candidate, rest, records),
                    Err(error) => self.no_path(core, cx, candidate, rest, error),
                }
            }
            other => self.work = other,
        }
    }

    fn records(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        candidate: Candidate,
        rest: VecDeque<Candidate>,
        records: &[PathRecord],
    ) {
        if records.is_empty() {
            return self.no_path(core, cx, candidate, rest, QueryError::NoPath);
        }
        self.doubts.present(candidate.dgid);
        // A path source cannot clear a suspicion: it may not have noticed either.
        let suspect = self.doubts.of_candidate(&candidate) == Doubt::Suspect;
        let pointless = suspect && self.current(core, cx).is_some();
        let path = records
            .iter()
            .find_map(|record| core.fit(cx, &candidate, record));
        match path.filter(|_| !pointless) {
            Some(path) => {
                core.learn(path.dgid, path.dlid, core.lmc(cx));
                core.event(cx, AppEvent::AltRouteResolved, 0);
                self.propose(core, cx, path, rest);
            }
            None => self.next(core, cx, rest, Reason::NoFittingPath),
        }
    }

    fn no_path(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        candidate: Candidate,
        rest: VecDeque<Candidate>,
        error: QueryError,
    ) {
        cx.counters.queries_failed += 1;
        cx.trace(core.id, What::NoPath(candidate, error));
        if error == QueryError::NoPath {
            self.doubts.no_path(&candidate);
            self.watch_suspects(core, cx);
        }
        self.next(core, cx, rest, Reason::NoPath(error));
    }

    /// That candidate was nothing: the next, or a pause.
    fn next(&mut self, core: &mut Core, cx: &mut Context, rest: VecDeque<Candidate>, why: Reason) {
        self.work = Work::Idle;
        if !rest.is_empty() {
            self.ask(core, cx, rest);
        } else if self.current(core, cx).is_some_and(|_| self.agreed) {
            // It was an improvement that was looked for, and there is none now.
            self.pause(core, cx);
        } else {
            self.fail(core, cx, why);
        }
    }

    fn fail(&mut self, core: &mut Core, cx: &mut Context, why: Reason) {
        self.explain(core, cx, why);
        self.pause(core, cx);
    }

    fn pause(&mut self, core: &mut Core, cx: &mut Context) {
        let pause = cx.pause(self.failures);
        self.failures += 1;
        self.work = Work::Pausing;
        cx.set(core.id, ConnAlarm::Work, pause);
    }

    /// Proposes a path to the peer.
    fn propose(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        alternate: Path,
        rest: VecDeque<Candidate>,
    ) {
        core.counters.laps_sent += 1;
        cx.trace(core.id, What::LapSent(Way::from(&alternate)));
        self.agreed = false;
        let exchange = Exchange::new(cx.transaction(), 0);
        let proposal = Proposal {
            exchange,
            primary: core.qp.primary,
            alternate,
        };
        self.send_lap(core, cx, proposal, rest);
    }

    fn send_lap(
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
    fn lap_mra(
        &mut self,
        core: &Core,
        cx: &mut Context,
        source: &MadSource,
        mra: &cm::Mra,
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

    fn apr(&mut self, core: &mut Core, cx: &mut Context, source: &MadSource, apr: &Apr) -> Turn {
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
            self.work = Work::Loading;
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
        let ranked = rank(core.endpoints(cx), |candidate| {
            self.doubts.of_candidate(candidate)
        });
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

    // ---- what to show ----

    pub(super) fn view(&self) -> (AssociationState, Option<Link>) {
        self.opening.view()
    }

    pub(super) fn chosen(&self) -> Option<Candidate> {
        self.chosen
    }

    pub(super) fn runner_up(&self) -> Option<Candidate> {
        self.runner_up
    }

    pub(super) fn distrusts_alternate(&self) -> bool {
        self.distrusted
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    pub(super) fn reason(&self) -> (Reason, bool) {
        if let Some(reason) = self.opening.reason() {
            return (reason, false);
        }
        match self.work {
            Work::Asking { .. } => (Reason::WaitingForPath, true),
            Work::Proposing { .. } => (Reason::WaitingForApr, true),
            Work::Loading => (Reason::WaitingForLibrary, true),
            Work::Idle | Work::Pausing => (self.why.unwrap_or(Reason::JustMigrated), false),
        }
    }
}
