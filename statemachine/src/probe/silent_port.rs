// SPDX-License-Identifier: MIT OR Apache-2.0
//! What probes of many paths tell of the local port that they have in common.
//!
//! A host with many paths probes each of them seldom, and where a port carries nothing it would take long to lose as
//! many probes of each as make a path suspect. So a port is judged like a path, by the probes of all paths over it: once
//! enough of them have lost one, to enough far ports, and none was answered since, it is *silent* and all of them are
//! suspect. With fewer paths than that there is no need, since each is probed every second.
//!
//! Peers that fall silent together, as those behind a dead switch do, do not mean that the port has failed. So paths to some
//! other far ports are asked first, drawn at random, and one answer is enough. And a primary over a silent port is left
//! only if another port was answered meanwhile.
//!
//! Far ports count, since one of them has as many paths as there are pairs of LIDs, service levels and partitions.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::{Lid, PKey};

use super::far_ports::FarPort;
use super::state::PathState;
use super::{APART, CLOSER, Finding, PathHealth, ProbePath, Probes, REPEAT};
use crate::id::PortId;
use crate::time::Time;

/// Paths over a port that must have lost a probe, at least.
const ENOUGH: usize = 16;
/// Far ports that these must lead to, or all that there are.
const FAR_PORTS: usize = 16;
/// Other far ports that are asked before a port is silent.
const WITNESSES: usize = 16;

/// Time until `patience` copies of a probe, sent one after the other, count as lost.
fn time_of(patience: u8) -> Duration {
    REPEAT * APART.into() + CLOSER * patience.saturating_sub(APART).into()
}

impl Probes {
    /// The paths over a local port.
    pub(super) fn over(&self, port: PortId) -> impl Iterator<Item = (&ProbePath, &PathState)> {
        let end = |slid, dlid, sl, pkey| ProbePath {
            port,
            slid: Lid(slid),
            dlid: Lid(dlid),
            sl,
            pkey: PKey(pkey),
        };
        let last = end(u16::MAX, u16::MAX, u8::MAX, u16::MAX);
        self.paths.range(end(0, 0, 0, 0)..=last)
    }

    /// Whether the port is silent though one over `other` was answered promptly between two probes that it lost.
    pub(crate) fn prefer_port(&self, now: Time, other: PortId, port: PortId) -> bool {
        self.tally.prefer(now, other, port)
    }

    /// A path over the port has lost a probe.
    pub(super) fn judge_port(&mut self, now: Time, port: PortId) {
        let Some(since) = self.port_silence(now, port) else {
            return;
        };
        if !self.all_witnesses_lost(now, port) {
            return;
        }
        let paths: Vec<ProbePath> = self.over(port).map(|(path, _)| *path).collect();
        for path in paths {
            if let Some(state) = self.paths.get_mut(&path)
                && !state.is_suspect()
            {
                if state.unanswered == 0 {
                    state.began = since;
                }
                self.tally.change(port, state.health, PathHealth::Suspect);
                state.health = PathHealth::Suspect;
                self.findings.push_back((path, Finding::Suspect));
            }
        }
        self.tally.set_silent(port, since);
    }

    /// Since when the port has carried nothing, if enough of its paths have lost a probe since, to enough far ports.
    fn port_silence(&self, now: Time, port: PortId) -> Option<Time> {
        let tells_loss =
            |(path, state): &(&ProbePath, &PathState)| self.tells_loss(now, path, state);
        let lost = || self.over(port).filter(tells_loss);
        let count = lost().count();
        if count < ENOUGH {
            return None;
        }
        let since = lost().map(|(_, state)| state.began).min()?;
        let patience = self.patience_with_port(now, port)?;
        let enough = count >= patience.into() && now - since >= time_of(patience);
        enough.then_some(since)
    }

    /// The patience with a local port that has lost probes to enough far ports: the median of these. What a single path has
    /// lost of late may be less than the port does, by chance; and one peer that answers late, or few probes, delays
    /// nothing.
    fn patience_with_port(&self, now: Time, port: PortId) -> Option<u8> {
        let crowded = self.is_crowded(now, port);
        // Each far port that ever answered, with the longest patience with a path to it that has lost a probe.
        let mut far_ports: BTreeMap<FarPort, Option<u8>> = BTreeMap::new();
        let answered = |(_, state): &(&ProbePath, &PathState)| state.answered().is_some();
        for (path, state) in self.over(port).filter(answered) {
            let is_lost = self.has_lost(now, path, state);
            let patience = is_lost.then(|| state.patience(crowded));
            let longest = far_ports.entry(self.far_ports.of(path)).or_default();
            *longest = patience.max(*longest);
        }
        let enough = FAR_PORTS.min(far_ports.len());
        let mut lost: Vec<u8> = far_ports.into_values().flatten().collect();
        lost.sort_unstable();
        let median = lost.get(lost.len() / 2).copied();
        median.filter(|_| lost.len() >= enough)
    }

    /// Whether the path has lost a probe, and was answered before: one that never was may lead to where nobody is.
    fn tells_loss(&self, now: Time, path: &ProbePath, state: &PathState) -> bool {
        state.answered().is_some() && self.has_lost(now, path, state)
    }

    /// Whether the path has lost a probe since its port last carried one.
    fn has_lost(&self, now: Time, path: &ProbePath, state: &PathState) -> bool {
        let is_lost = state.unanswered > 0 && now - state.began >= REPEAT;
        is_lost && self.tally.may_be_silent(path.port, state.began)
    }

    /// Whether the witnesses have lost a probe, too. They are drawn if that has not been done yet, and asked before any
    /// others: these go to paths that have lost some already, as a rule.
    fn all_witnesses_lost(&mut self, now: Time, port: PortId) -> bool {
        if self.tally.witnesses(port).is_none() {
            let drawn = self.draw_witnesses(port);
            for path in &drawn {
                self.schedule.set_first(*path, now, &self.far_ports);
            }
            self.tally.set_witnesses(port, drawn);
        }
        let mut witnesses = self.tally.witnesses(port).into_iter().flatten();
        // One that is not probed any more cannot tell.
        witnesses.all(|path| {
            let state = self.paths.get(path);
            state.is_none_or(|state| self.has_lost(now, path, state))
        })
    }

    /// Draws some far ports at random, and a path to each, of the paths whose last probe was answered. However many paths
    /// lead to a far port, it is as likely as any other.
    fn draw_witnesses(&mut self, port: PortId) -> Vec<ProbePath> {
        let mut far_ports: BTreeMap<FarPort, Vec<ProbePath>> = BTreeMap::new();
        for (path, state) in self.over(port) {
            if state.health == PathHealth::Verified && state.unanswered == 0 {
                let paths = far_ports.entry(self.far_ports.of(path)).or_default();
                paths.push(*path);
            }
        }
        let mut left: Vec<Vec<ProbePath>> = far_ports.into_values().collect();
        let mut below = |count: usize| self.random.below(count as u32) as usize;
        let mut drawn = Vec::new();
        while drawn.len() < WITNESSES && !left.is_empty() {
            let paths = left.swap_remove(below(left.len()));
            drawn.push(paths[below(paths.len())]);
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;
    use crate::id::ConnId;
    use crate::random::Random;

    /// How long it takes from its first probe until a path is suspect that never answers.
    fn time_until_suspect(is_crowded: bool) -> Duration {
        let path = ProbePath {
            port: PortId::new(Guid(1), 1),
            slid: Lid(1),
            dlid: Lid(2),
            sl: 0,
            pkey: PKey::DEFAULT_FULL,
        };
        let mut probes = Probes::new(Random::new([1; 32]));
        probes.watch(Time(0), path, ConnId { client: 1, conn: 1 });
        let (mut now, mut first) = (Time(0), None);
        while probes.health(&path) != PathHealth::Suspect {
            now.0 += 1_000;
            if is_crowded {
                probes.crowded(now, path.port);
            }
            probes.due(now, Duration::from_secs(1));
            if probes.poll(|_| true).is_some() {
                first.get_or_insert(now);
            }
        }
        now - first.expect("one was sent")
    }

    /// Probes of many paths at once are no more reliable than as many of one.
    #[test]
    fn a_port_takes_as_long_to_be_silent_as_one_path_to_be_suspect() {
        for (patience, is_crowded) in [(6, false), (super::super::PATIENCE_IF_LATE, true)] {
            assert_eq!(time_of(patience), time_until_suspect(is_crowded));
        }
    }
}
