// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the probed paths of each local port are: counted as they change, since they may be thousands. And when
//! probes over the port were answered.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{PathHealth, ProbePath, REPEAT};
use crate::id::PortId;
use crate::time::Time;

/// Some moments, the last first, each later than the one before by as long as an answer is waited for: so the second one
/// is long enough ago to be judged.
#[derive(Clone, Copy, Debug)]
struct Apart<const N: usize>([Time; N]);

impl<const N: usize> Default for Apart<N> {
    fn default() -> Self {
        Self([Time(0); N])
    }
}

impl<const N: usize> Apart<N> {
    fn add(&mut self, at: Time) {
        if at - self.0[0] >= REPEAT {
            self.0.rotate_right(1);
            self.0[0] = at;
        }
    }

    fn any(&self, is_so: impl Fn(Time) -> bool) -> bool {
        self.0.iter().any(|&at| is_so(at))
    }
}

#[derive(Clone, Debug, Default)]
struct Port {
    verified: u32,
    suspect: u32,
    /// When the latest probe was sent that was answered.
    carried: Time,
    /// When probes were sent that were answered promptly.
    prompt: Apart<4>,
    /// When probes were sent.
    sent: Apart<2>,
    /// Since when it has carried nothing.
    silent: Option<Time>,
    /// Paths that are asked before that is so.
    witnesses: Option<Vec<ProbePath>>,
}

impl Port {
    fn count(&mut self, health: PathHealth) -> Option<&mut u32> {
        match health {
            PathHealth::Unknown => None,
            PathHealth::Verified => Some(&mut self.verified),
            PathHealth::Suspect => Some(&mut self.suspect),
        }
    }
}

/// Local ports that paths lead over of which something is known.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Tally(BTreeMap<PortId, Port>);

impl Tally {
    /// A path of the port is another than before; one that is new, or not probed any more, is unknown.
    pub(super) fn change(&mut self, id: PortId, from: PathHealth, to: PathHealth) {
        let port = self.0.entry(id).or_default();
        if let Some(count) = port.count(from) {
            *count -= 1;
        }
        if let Some(count) = port.count(to) {
            *count += 1;
        }
        if port.verified + port.suspect == 0 {
            self.0.remove(&id);
        }
    }

    /// Whether no path of the port answers, and at least one should.
    pub(super) fn is_suspect(&self, id: PortId) -> bool {
        let port = self.0.get(&id);
        port.is_some_and(|port| port.verified == 0 && port.suspect > 0)
    }

    /// A probe leaves by the port.
    pub(super) fn sent(&mut self, id: PortId, now: Time) {
        if let Some(port) = self.0.get_mut(&id) {
            port.sent.add(now);
        }
    }

    /// Whether no probe over the port was answered that was sent later, and what it means is not known yet.
    pub(super) fn may_be_silent(&self, id: PortId, later_than: Time) -> bool {
        let port = self.0.get(&id);
        port.is_none_or(|port| port.silent.is_none() && port.carried < later_than)
    }

    /// Whether a probe over the port was answered that was sent later.
    pub(super) fn has_carried(&self, id: PortId, later_than: Time) -> bool {
        let port = self.0.get(&id);
        port.is_some_and(|port| port.carried > later_than)
    }

    pub(super) fn set_silent(&mut self, id: PortId, since: Time) {
        let port = self.0.entry(id).or_default();
        port.silent = Some(since);
        port.witnesses = None;
    }

    /// The paths that have been asked since the port last carried a probe.
    pub(super) fn witnesses(&self, id: PortId) -> Option<&[ProbePath]> {
        self.0.get(&id)?.witnesses.as_deref()
    }

    pub(super) fn set_witnesses(&mut self, id: PortId, paths: Vec<ProbePath>) {
        self.0.entry(id).or_default().witnesses = Some(paths);
    }

    /// Since when the port has carried nothing.
    pub(super) fn silent_since(&self, id: PortId) -> Option<Time> {
        self.0.get(&id)?.silent
    }

    /// A probe over the port that was sent then was answered. If it was silent, it is no more; each path over it is
    /// suspect until it answers itself.
    pub(super) fn carried(&mut self, id: PortId, sent: Time, prompt: bool) {
        let Some(port) = self.0.get_mut(&id) else {
            return;
        };
        port.carried = port.carried.max(sent);
        if prompt {
            port.prompt.add(sent);
        }
        port.silent = None;
        port.witnesses = None;
    }

    /// Whether the port is silent and `other` was answered promptly between two probes that it lost.
    pub(super) fn prefer(&self, now: Time, other: PortId, id: PortId) -> bool {
        let (Some(other), Some(port)) = (self.0.get(&other), self.0.get(&id)) else {
            return false;
        };
        let Some(since) = port.silent else {
            return false;
        };
        let is_between =
            |at| since <= at && port.sent.any(|lost| at <= lost && now - lost >= REPEAT);
        other.prompt.any(is_between)
    }
}
