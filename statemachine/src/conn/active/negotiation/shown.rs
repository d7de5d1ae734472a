// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a negotiation shows of itself: its candidates, the alternate that it has, and why there is none.

use cm_msgs::path::Path;

use super::{Negotiation, Step};
use crate::candidate::Candidate;
use crate::conn::Core;
use crate::context::Context;
use crate::input::Origin;
use crate::overlap::Overlap;
use crate::trace::PathLids;
use crate::view::Reason;

impl Negotiation {
    /// The candidate that is negotiated, or loaded and good, and the best one besides it.
    pub(in crate::conn) fn ranked(&self, core: &Core, cx: &Context) -> [Option<Candidate>; 2] {
        let choice = &self.search.choice;
        let known = |path: &Path, origin| choice.candidate(core, cx, path, origin);
        let negotiated = match &self.step {
            Step::Searching => self.search.asked_for(),
            Step::Verifying(found) | Step::Waiting(found) => Some(known(&found.path, found.origin)),
            Step::Proposing(proposal) => Some(known(&proposal.alternate, proposal.origin)),
            Step::Loading { origin, .. } => core.orders.loading().map(|path| known(path, *origin)),
            Step::Idle | Step::BackingOff => None,
        };
        let current = || {
            let (path, _) = choice.current(core, cx)?;
            Some(known(&path, self.origin(core)))
        };
        let chosen = negotiated.or_else(current);
        let runner_up = choice.best_besides(core, cx, chosen.as_ref());
        [chosen, runner_up]
    }

    /// Where the record of the alternate that the QP has came from.
    pub(in crate::conn) fn origin(&self, core: &Core) -> Option<Origin> {
        let is_it = |lids: PathLids| {
            core.loaded()
                .is_some_and(|path| PathLids::from(path) == lids)
        };
        let (_, origin) = self.loaded.filter(|(lids, _)| is_it(*lids))?;
        Some(origin)
    }

    /// What the alternate that the QP has shares with the primary.
    pub(in crate::conn) fn overlap(&self, core: &Core, cx: &Context) -> Option<Overlap> {
        self.search.choice.overlap(core, cx, core.loaded()?)
    }

    /// Whether the peer's policy forbids the alternate that the QP has.
    pub(in crate::conn) fn is_forbidden_by_peer(&self, core: &Core, cx: &Context) -> bool {
        let forbids = |path: &Path| !self.search.choice.allows(core, cx, path);
        core.loaded().is_some_and(forbids)
    }

    /// Why there is no alternate, and whether something is being done about it right now.
    pub(in crate::conn::active) fn reason(&self) -> (Reason, bool) {
        match self.step {
            Step::Searching => (Reason::WaitingForPath, true),
            Step::Waiting(_) => (Reason::Queued, true),
            Step::Verifying(_) => (Reason::WaitingForProbe, true),
            Step::Proposing(_) => (Reason::WaitingForApr, true),
            Step::Loading { .. } => (Reason::WaitingForLibrary, true),
            Step::Idle | Step::BackingOff => (self.why.unwrap_or(Reason::JustMigrated), false),
        }
    }
}
