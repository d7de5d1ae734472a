// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a fabric, from one epoch to another. A delta is applied whole or not at all.

use cm_msgs::Lid;

use super::error::{BuildError, check_route, find_port};
use super::{Fabric, NO_LINK, NO_PORT, NodeId, PortId};
use crate::capability::Capability;

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A forwarding table entry.
    Route {
        /// Whose table.
        switch: NodeId,
        /// The destination.
        lid: Lid,
        /// The port, `None` to drop.
        port: Option<u8>,
    },
    /// A link went up or down, or carries another rate or MTU, at both its ends.
    Link {
        /// One of its ends.
        end: (NodeId, u8),
        /// Whether it is up.
        up: bool,
        /// What it carries.
        carries: Capability,
    },
}

/// What changes between two states of a fabric.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    /// The epoch that it can be applied to.
    pub from: u64,
    /// The epoch that it leads to.
    pub to: u64,
    /// In any order; of two changes of one thing the later holds.
    pub changes: Vec<Change>,
}

/// Why a delta was not applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DeltaError {
    #[error("the delta leads from epoch {from} to {to}, but this is epoch {at}; load a snapshot")]
    Epoch { from: u64, to: u64, at: u64 },
    #[error("change {position}: {source}")]
    Change { position: usize, source: BuildError },
    #[error("change {position}: '{port}' has no link; new cables need a snapshot")]
    NoLink { position: usize, port: String },
}

/// A change with its things found.
enum Checked {
    Route(Lid, u32, u8),
    Link(PortId, bool, Capability),
}

impl Fabric {
    /// Applies all of the delta, or nothing if it cannot be.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), DeltaError> {
        if delta.from != self.epoch || delta.to <= delta.from {
            return Err(DeltaError::Epoch {
                from: delta.from,
                to: delta.to,
                at: self.epoch,
            });
        }
        let changes = delta.changes.iter().enumerate();
        let checked: Vec<Checked> = changes
            .map(|(position, change)| self.check(position, change))
            .collect::<Result<_, _>>()?;
        for change in checked {
            match change {
                Checked::Route(lid, rank, port) => self.forwarding.set(lid, rank, port),
                Checked::Link(port, up, carries) => self.set_link(port, up, carries),
            }
        }
        self.epoch = delta.to;
        Ok(())
    }

    fn check(&self, position: usize, change: &Change) -> Result<Checked, DeltaError> {
        let at = |source| DeltaError::Change { position, source };
        match *change {
            Change::Route { switch, lid, port } => {
                let rank = check_route(self, switch, lid, port.unwrap_or(0)).map_err(at)?;
                Ok(Checked::Route(lid, rank, port.unwrap_or(NO_PORT)))
            }
            Change::Link { end, up, carries } => {
                let port = find_port(self, end.0, end.1).map_err(at)?;
                if self.hop(port).peer == NO_LINK {
                    let port = self.name(port).to_string();
                    return Err(DeltaError::NoLink { position, port });
                }
                Ok(Checked::Link(port, up, carries))
            }
        }
    }

    fn set_link(&mut self, port: PortId, up: bool, carries: Capability) {
        let peer = self.hop(port).peer as usize;
        for end in [port.index(), peer] {
            self.hops[end].up = up;
            self.hops[end].carries = carries;
        }
    }
}
