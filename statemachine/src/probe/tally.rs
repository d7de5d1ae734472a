// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the probed paths of each local port are: counted as they change, since they may be thousands.

use alloc::collections::BTreeMap;

use super::PathHealth;
use crate::id::PortId;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    verified: u32,
    suspect: u32,
}

impl Counts {
    fn of(&mut self, health: PathHealth) -> Option<&mut u32> {
        match health {
            PathHealth::Unknown => None,
            PathHealth::Verified => Some(&mut self.verified),
            PathHealth::Suspect => Some(&mut self.suspect),
        }
    }
}

/// The paths of each port by what is known of them.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Tally(BTreeMap<PortId, Counts>);

impl Tally {
    /// A path of the port is another than before; one that is new, or not probed any more, is unknown.
    pub(super) fn change(&mut self, port: PortId, from: PathHealth, to: PathHealth) {
        let counts = self.0.entry(port).or_default();
        if let Some(count) = counts.of(from) {
            *count -= 1;
        }
        if let Some(count) = counts.of(to) {
            *count += 1;
        }
        if counts.verified + counts.suspect == 0 {
            self.0.remove(&port);
        }
    }

    /// Whether no path of the port answers, and at least one should.
    pub(super) fn is_suspect(&self, port: PortId) -> bool {
        let counts = self.0.get(&port);
        counts.is_some_and(|counts| counts.verified == 0 && counts.suspect > 0)
    }
}
