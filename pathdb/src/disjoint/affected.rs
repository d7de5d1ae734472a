// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths a delta can have changed, without walking any.

use super::Path;
use crate::fabric::{Change, Delta, Fabric, PortId};

/// The LIDs of which a path can have changed: a path to a LID follows that LID's row of the
/// forwarding tables only, so it changes with an entry of that row, with a link that the row leads
/// over, or with the link of the port where it begins, whose LID is the path's other.
pub(super) struct Affected {
    lids: Vec<bool>,
}

impl Affected {
    /// By a delta that has been applied.
    pub(super) fn by(fabric: &Fabric, delta: &Delta) -> Self {
        let mut affected = Self {
            lids: vec![false; usize::from(u16::MAX) + 1],
        };
        let mut crossed = Vec::new();
        for change in &delta.changes {
            match *change {
                Change::Route { lid, .. } => affected.lids[usize::from(lid.0)] = true,
                Change::Link { end, .. } => {
                    let port = fabric.port_of(end.0, end.1);
                    let peer = port.and_then(|port| fabric.peer(port));
                    crossed.extend(port.into_iter().chain(peer));
                }
            }
        }
        for port in crossed {
            affected.crossing(fabric, port);
        }
        affected
    }

    /// Adds what leaves by a port.
    fn crossing(&mut self, fabric: &Fabric, port: PortId) {
        let own = fabric.port(port).lids.into_iter();
        for lid in own.flat_map(|range| range.iter()) {
            self.lids[usize::from(lid.0)] = true;
        }
        let Some(rank) = fabric.rank(fabric.port(port).node) else {
            return;
        };
        let number = fabric.port_number(port);
        for (lid, _) in fabric.lids() {
            self.lids[usize::from(lid.0)] |= fabric.forwarding().get(lid, rank) == number;
        }
    }

    /// Whether a path, in either direction, can have changed.
    pub(super) fn has(&self, path: Path) -> bool {
        self.lids[usize::from(path.slid.0)] || self.lids[usize::from(path.dlid.0)]
    }
}
