// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking for the best path.

use alloc::collections::VecDeque;

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;

use super::{Active, Work};
use crate::candidate::{Candidate, Score, rank, shared};
use crate::conn::Core;
use crate::context::{ConnAlarm, Context};
use crate::input::{Origin, QueryError};
use crate::output::PathQuery;
use crate::trace::What;
use crate::view::Reason;

/// `EHOSTUNREACH`: what an application is told when there is no alternate.
const NO_ALTERNATE: u8 = 113;

impl Active {
    /// The alternate that the QP has, and how good it is, if it would work from here.
    pub(super) fn current(&self, core: &Core, cx: &Context) -> Option<(Path, Score)> {
        let path = *core
            .loaded()
            .filter(|path| core.is_up(cx, path) && !self.distrusted)?;
        Some((path, self.score(core, cx, &path)))
    }

    /// How good a path is as this connection's alternate.
    fn score(&self, core: &Core, cx: &Context, path: &Path) -> Score {
        Score {
            doubt: self.doubts.of_path(path),
            shared: shared(&core.qp.primary, path, core.lmc(cx)),
            overlap: self.overlap_of(core, cx, path),
            tie: 0,
        }
    }

    pub(super) fn evaluate(&mut self, core: &mut Core, cx: &mut Context) {
        let current = self.current(core, cx);
        if let Some((path, _)) = current
            && !self.agreed
        {
            self.probing = false;
            return self.propose(core, cx, path, self.origin(core), VecDeque::new());
        }
        let ranked = rank(core.endpoints(cx), |candidate| {
            self.doubts.of_candidate(candidate)
        });
        let Some(mut ranked) = self.assess(core, cx, ranked) else {
            return;
        };
        let probing = core::mem::take(&mut self.probing);
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
            .any(|c| c.score.shares_less(score) && !c.score.beats(score));
        ranked.retain(|c| c.score.beats(score) || (probing && c.score.shares_less(score)));
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

    pub(super) fn explain(&mut self, core: &Core, cx: &mut Context, why: Reason) {
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

    pub(in crate::conn) fn paths(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        number: u32,
        result: Result<&[PathRecord], QueryError>,
        origin: Option<Origin>,
    ) {
        match core::mem::take(&mut self.work) {
            Work::Asking {
                query,
                candidate,
                rest,
            } if query == number => {
                cx.stop(core.id, ConnAlarm::Work);
                match result {
                    Ok(records) => {
                        let candidate = Candidate {
                            origin,
                            ..candidate
                        };
                        self.records(core, cx, candidate, rest, records);
                    }
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
        let path = records
            .iter()
            .find_map(|record| core.fit(cx, &candidate, record));
        let Some(path) = path else {
            return self.next(core, cx, rest, Reason::NoFittingPath);
        };
        core.learn(path.dgid, path.dlid, core.lmc(cx));
        // A source cannot clear a suspicion, because it may not have noticed either; and it may
        // lead to other LIDs than it was asked for.
        let current = self.current(core, cx);
        let score = self.score(core, cx, &path);
        if current.is_some_and(|(_, current)| !score.beats(current)) {
            return self.next(core, cx, rest, Reason::NoFittingPath);
        }
        self.chosen = Some(candidate);
        core.event(cx, AppEvent::AltRouteResolved, 0);
        self.propose(core, cx, path, candidate.origin, rest);
    }

    pub(super) fn no_path(
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
    pub(super) fn next(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        rest: VecDeque<Candidate>,
        why: Reason,
    ) {
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

    pub(super) fn fail(&mut self, core: &mut Core, cx: &mut Context, why: Reason) {
        self.explain(core, cx, why);
        self.pause(core, cx);
    }

    pub(super) fn pause(&mut self, core: &mut Core, cx: &mut Context) {
        let pause = cx.pause(self.failures);
        self.failures += 1;
        self.work = Work::Pausing;
        cx.set(core.id, ConnAlarm::Work, pause);
    }
}
