// SPDX-License-Identifier: MIT OR Apache-2.0
//! The active side: chooses the alternate, agrees on it with the peer, has it loaded.

mod assess;
mod propose;
mod search;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use cm_msgs::cm;
use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;

use self::assess::Overlaps;
use super::Core;
use super::association::{Link, Mraed, Opening, Turn};
use super::doubt::Doubts;
use super::library::{End, Kind, News};
use crate::candidate::Candidate;
use crate::context::{ConnAlarm, Context, Exchange};
use crate::input::{MadSource, Origin, PortId, QueryError};
use crate::overlap::{Overlap, Way};
use crate::trace::Drop;
use crate::view::{AssociationState, Reason};

/// A LAP and what it is for.
struct Proposal {
    exchange: Exchange,
    /// The primary that the alternate is for.
    primary: Path,
    alternate: Path,
    /// Where its record came from.
    origin: Option<Origin>,
}

/// What is under way.
#[derive(Default)]
enum Work {
    #[default]
    Idle,
    /// Whoever knows the fabric was asked what these share with the primary.
    Assessing {
        query: u32,
        primary: Path,
        ways: Vec<Way>,
    },
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
    Loading { origin: Option<Origin> },
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
    overlaps: Overlaps,
    /// The last alternate that was loaded, and where its record came from.
    loaded: Option<(Path, Origin)>,
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
            if !matches!(self.work, Work::Loading { .. }) {
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
        let loading = matches!(self.work, Work::Loading { .. });
        match end {
            End::Done => {
                if let Work::Loading { origin } = self.work {
                    self.loaded = core.loaded().copied().zip(origin);
                }
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
            Work::Assessing {
                query,
                primary,
                ways,
            } => {
                cx.assessments.remove(&query);
                self.note_overlaps(primary, ways, &[]);
            }
            Work::Proposing { proposal, rest } => self.send_lap(core, cx, proposal, rest),
            Work::Pausing => self.probing = true,
            Work::Idle => {}
            loading @ Work::Loading { .. } => self.work = loading,
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
            Work::Idle | Work::Assessing { .. } | Work::Loading { .. } | Work::Pausing => false,
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
        match core::mem::take(&mut self.work) {
            Work::Asking { query, .. } => cx.queries.remove(&query),
            Work::Assessing { query, .. } => cx.assessments.remove(&query),
            _ => None,
        };
    }

    fn watch_suspects(&self, core: &Core, cx: &mut Context) {
        match self.doubts.next() {
            Some(until) => cx.set(core.id, ConnAlarm::Suspect, until - cx.now),
            None => cx.stop(core.id, ConnAlarm::Suspect),
        }
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

    /// Where the record of the alternate that the QP has came from.
    pub(super) fn origin(&self, core: &Core) -> Option<Origin> {
        let (_, origin) = self.loaded.filter(|(path, _)| core.has_loaded(path))?;
        Some(origin)
    }

    /// What the alternate that the QP has shares with the primary.
    pub(super) fn overlap(&self, core: &Core, cx: &Context) -> Option<Overlap> {
        self.overlap_of(core, cx, core.loaded()?)
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
            Work::Assessing { .. } | Work::Asking { .. } => (Reason::WaitingForPath, true),
            Work::Proposing { .. } => (Reason::WaitingForApr, true),
            Work::Loading { .. } => (Reason::WaitingForLibrary, true),
            Work::Idle | Work::Pausing => (self.why.unwrap_or(Reason::JustMigrated), false),
        }
    }
}
