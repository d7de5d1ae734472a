// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking for a path: what the candidates share with the primary is asked for, then a path record
//! of one after the other.

use alloc::boxed::Box;
use alloc::vec::Vec;

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid};

use super::choice::{Choice, Next};
use thin_vec::ThinVec;

use crate::candidate::Candidate;
use crate::conn::Core;
use crate::conn::proposal::fit;
use crate::context::{ConnAlarm, Context};
use crate::input::{Origin, QueryError};
use crate::output::PathQuery;
use crate::overlap::{Overlap, PathEnds};
use crate::token_bucket::TokenBucket;
use crate::trace::What;
use crate::view::Reason;

/// How often a connection asks for a path: as many as two searches over four ports with four pairs of LIDs each take
/// and as many redirections, and then three a second. Whatever has it search again and again, a path source that is
/// busy, or knows none, is not asked for all candidates each time.
type QueryPace = TokenBucket<64, 330_000>;

/// A question that waits for its answer.
#[cfg_attr(test, derive(Clone, Debug))]
enum Asked {
    /// Whoever knows the fabric: what these share with the primary.
    Overlaps {
        query: u32,
        primary: Path,
        paths: Vec<PathEnds>,
    },
    /// A path source: the path of this one.
    Path { query: u32, candidate: Candidate },
}

impl Asked {
    fn query(&self) -> u32 {
        match self {
            Self::Overlaps { query, .. } | Self::Path { query, .. } => *query,
        }
    }
}

/// A path that fits, and where its record came from; or why that candidate is nothing.
pub(super) type Found = Result<(Path, Option<Origin>), Reason>;

/// A search for an alternate.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Search {
    pub(super) choice: Choice,
    asked: Option<Box<Asked>>,
    /// Candidates to ask for after the present one, the next of them last.
    rest: ThinVec<Candidate>,
    query_pace: QueryPace,
}

impl Search {
    /// Searches for a path better than the current alternate, after `failures` evaluations without success. Returns
    /// `None` while a path assessment is outstanding.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        failures: u32,
    ) -> Option<Next> {
        self.rest = ThinVec::new();
        let candidates = self.choice.candidates_after(core, cx, failures);
        if let Some(paths) = self.choice.unassessed(core, cx, &candidates) {
            let primary = core.qp.primary;
            let query = cx.assess(core.id, primary, paths.clone());
            self.asked = Some(Box::new(Asked::Overlaps {
                query,
                primary,
                paths,
            }));
            return None;
        }
        let next = self.choice.next(core, cx, candidates);
        if let Next::Ask(candidates) = next {
            self.rest = candidates.into_iter().rev().collect();
            return match self.ask_next(core, cx) {
                true => None,
                false => Some(Next::Later),
            };
        }
        Some(next)
    }

    /// Asks for a path of the next candidate, if there is one and it is not too soon.
    pub(super) fn ask_next(&mut self, core: &mut Core, cx: &mut Context) -> bool {
        if !self.query_pace.has_token(cx.now) {
            self.drop_rest();
            return false;
        }
        let Some(candidate) = self.rest.pop() else {
            return false;
        };
        if self.rest.is_empty() {
            self.drop_rest();
        }
        self.query_pace.take(cx.now);
        core.counters.queries += 1;
        cx.trace(core.id, What::Candidate(candidate));
        let query = cx.ask(core.id, core.payer, core.urgency(), |number| {
            question(core, &candidate, number)
        });
        self.asked = Some(Box::new(Asked::Path { query, candidate }));
        true
    }

    /// The peer would rather have the alternate end at `gid`: that is asked for first.
    pub(super) fn redirect(&mut self, core: &mut Core, cx: &Context, gid: Gid) {
        self.choice.doubts.present(gid);
        if !core.peer.ports.iter().any(|port| port.gid == gid) {
            core.learn(cx, gid, Lid(0), 0);
        }
        self.rest.retain(|candidate| candidate.dgid != gid);
        let first = self.choice.candidates_to(core, cx, gid);
        let others = core::mem::take(&mut self.rest);
        let all = first.into_iter().chain(others.into_iter().rev());
        self.rest = all.take(cx.config.candidate_limit).collect();
        self.rest.reverse();
    }

    /// There is no path between these ports, by whichever LIDs.
    pub(super) fn leave_out(&mut self, port: u8, dgid: Gid) {
        let same = |c: &Candidate| c.port.port == port && c.dgid == dgid;
        self.rest.retain(|candidate| !same(candidate));
    }

    /// A path source answers. `None`: to a question that is not waited for any more.
    pub(super) fn paths(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        number: u32,
        result: Result<&[PathRecord], QueryError>,
        origin: Option<Origin>,
    ) -> Option<Found> {
        let asked = self.asked.take_if(|asked| asked.query() == number);
        let Some(Asked::Path { candidate, .. }) = asked.map(|asked| *asked) else {
            return None;
        };
        cx.stop(core.id, ConnAlarm::Negotiation);
        Some(match result {
            Ok([]) => Err(self.no_path(core, cx, candidate, QueryError::NoPath)),
            Err(error) => Err(self.no_path(core, cx, candidate, error)),
            Ok(records) => self.records(
                core,
                cx,
                Candidate {
                    origin,
                    ..candidate
                },
                records,
            ),
        })
    }

    fn records(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        candidate: Candidate,
        records: &[PathRecord],
    ) -> Found {
        self.choice.doubts.present(candidate.dgid);
        let port = cx.ports.get(candidate.port);
        let primary = &core.qp.primary;
        let path = port.and_then(|port| {
            let mut records = records.iter();
            records.find_map(|record| fit(primary, port, &candidate, record))
        });
        let path = path.ok_or(Reason::NoFittingPath)?;
        if core.leads_to_anothers(cx, &path) {
            cx.disbelieve(question(core, &candidate, 0));
            return Err(Reason::PortOfAnother);
        }
        let lmc = port.map_or(0, |port| port.status.lmc);
        if core.peer.reported_elsewhere(&path, lmc) {
            cx.disbelieve(question(core, &candidate, 0));
            return Err(Reason::OtherLid);
        }
        // A source cannot clear a suspicion, because it may not have noticed either; and it may
        // lead to other LIDs than it was asked for.
        if !self.choice.improves(core, cx, &path) {
            return Err(Reason::NoFittingPath);
        }
        // Not before: what the peer says is out of service would be none to the alternate that is loaded,
        // because of a source that has not noticed.
        core.learn(cx, path.dgid, path.dlid, lmc);
        core.event(cx, AppEvent::AltRouteResolved, 0);
        Ok((path, candidate.origin))
    }

    fn no_path(
        &mut self,
        core: &Core,
        cx: &mut Context,
        candidate: Candidate,
        error: QueryError,
    ) -> Reason {
        cx.counters.queries_failed += 1;
        cx.trace(core.id, What::NoPath(candidate, error));
        match error {
            QueryError::NoPath => self.choice.no_path(core, cx, &candidate),
            // So it would be for other LIDs of the same ports.
            QueryError::Busy => self.leave_out(candidate.port.port, candidate.dgid),
            _ => {}
        }
        Reason::NoPath(error)
    }

    /// What paths share was answered. Whether that was waited for: it is time to begin again.
    pub(super) fn assessed(
        &mut self,
        core: &Core,
        cx: &mut Context,
        number: u32,
        overlaps: &[Option<Overlap>],
    ) -> bool {
        let asked = self.asked.take_if(|asked| asked.query() == number);
        let Some(Asked::Overlaps { primary, paths, .. }) = asked.map(|asked| *asked) else {
            return false;
        };
        cx.stop(core.id, ConnAlarm::Negotiation);
        self.choice.assessed(cx, &primary, &paths, overlaps);
        true
    }

    /// Nobody answered. Why that candidate is nothing, if it was asked for.
    pub(super) fn timeout(&mut self, core: &Core, cx: &mut Context) -> Option<Reason> {
        let asked = self.asked.take()?;
        cx.withdraw(core.id, asked.query());
        match *asked {
            Asked::Overlaps { primary, paths, .. } => {
                // To choose without that knowledge is better than not to choose.
                self.choice.assessed(cx, &primary, &paths, &[]);
                None
            }
            Asked::Path { candidate, .. } => {
                Some(self.no_path(core, cx, candidate, QueryError::Timeout))
            }
        }
    }

    /// The candidate whose path a source was asked for.
    pub(super) fn asked_for(&self) -> Option<Candidate> {
        match self.asked.as_deref() {
            Some(Asked::Path { candidate, .. }) => Some(*candidate),
            _ => None,
        }
    }

    pub(super) fn is_assessing(&self) -> bool {
        matches!(self.asked.as_deref(), Some(Asked::Overlaps { .. }))
    }

    /// Whether the candidate that is asked for cannot be used any more, or is in doubt and was not when it was asked
    /// for: the source may not have noticed that the peer's port went down, and there may be a better one.
    pub(super) fn is_outdated(&self, cx: &Context) -> bool {
        match self.asked.as_deref() {
            Some(Asked::Path { candidate, .. }) => {
                let port = cx.ports.get(candidate.port);
                let doubt = self.choice.doubts.of_candidate(candidate);
                port.is_none_or(|port| !port.is_up()) || doubt > candidate.score.doubt
            }
            _ => false,
        }
    }

    /// Whether a candidate is better than the one that a path source was asked for.
    pub(super) fn is_outdone(&self, core: &Core, cx: &Context) -> bool {
        let Some(asked) = self.asked_for() else {
            return false;
        };
        let best = self.choice.candidates(core, cx).into_iter().next();
        best.is_some_and(|best| best.score.beats(asked.score))
    }

    /// The answer is not waited for any more.
    pub(super) fn stop(&mut self, core: &Core, cx: &mut Context) {
        if let Some(asked) = self.asked.take() {
            cx.withdraw(core.id, asked.query());
        }
    }

    /// There is nothing else to ask for.
    pub(super) fn clear(&mut self) {
        self.choice.probing = false;
        self.drop_rest();
    }

    /// The next evaluation begins again. There may be 100,000 searches that have ended.
    pub(super) fn drop_rest(&mut self) {
        self.rest = ThinVec::new();
    }
}

/// The question for the path of a candidate.
fn question(core: &Core, candidate: &Candidate, number: u32) -> PathQuery {
    PathQuery {
        query: number,
        port: candidate.port,
        sgid: candidate.sgid,
        dgid: candidate.dgid,
        slid: candidate.slid,
        dlid: candidate.dlid,
        pkey: core.qp.primary.pkey,
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;
    use crate::candidate::Score;
    use crate::id::PortId;

    #[test]
    fn a_search_that_has_ended_keeps_no_candidates() {
        let candidate = Candidate {
            port: PortId::new(Guid(1), 2),
            sgid: Gid::default(),
            dgid: Gid::default(),
            slid: None,
            dlid: None,
            score: Score::BEST,
            origin: None,
        };
        let mut search = Search {
            rest: [candidate; 3].into_iter().collect(),
            ..Search::default()
        };
        search.clear();
        assert_eq!(search.rest.capacity(), 0);
    }
}
