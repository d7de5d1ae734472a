// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections have their paths on which local port, so that an event finds those it
//! concerns without a look at the others.

use alloc::collections::{BTreeMap, BTreeSet};

use cm_msgs::Guid;
use cm_msgs::control::Snapshot;

use crate::id::{ConnId, PortId};

/// Connections by local port and by need, kept as they change.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct PathIndex {
    primaries: BTreeMap<PortId, BTreeSet<ConnId>>,
    alternates: BTreeMap<PortId, BTreeSet<ConnId>>,
    /// Those of a device that would not survive the loss of their primary.
    exposed: BTreeMap<Guid, BTreeSet<ConnId>>,
}

/// How many paths are on one local port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCount {
    pub(crate) primaries: usize,
    pub(crate) alternates: usize,
}

/// Connections that an event concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Concerned {
    Primaries(PortId),
    Alternates(PortId),
    Exposed(Guid),
    All,
}

impl PathIndex {
    pub(crate) fn count(&self, id: PortId) -> PathCount {
        let len =
            |index: &BTreeMap<PortId, BTreeSet<ConnId>>| index.get(&id).map_or(0, BTreeSet::len);
        PathCount {
            primaries: len(&self.primaries),
            alternates: len(&self.alternates),
        }
    }

    /// A connection has these paths.
    pub(crate) fn add(&mut self, id: ConnId, node_guid: Guid, qp: &Snapshot) {
        let (primary, alternate) = ports(node_guid, qp);
        put(&mut self.primaries, primary, id);
        if let Some(alternate) = alternate {
            put(&mut self.alternates, alternate, id);
        }
    }

    /// A connection has these paths no more.
    pub(crate) fn remove(&mut self, id: ConnId, node_guid: Guid, qp: &Snapshot) {
        let (primary, alternate) = ports(node_guid, qp);
        take(&mut self.primaries, primary, id);
        if let Some(alternate) = alternate {
            take(&mut self.alternates, alternate, id);
        }
    }

    /// A connection that had the paths of `old` has those of `new`.
    pub(crate) fn change(&mut self, id: ConnId, node_guid: Guid, old: &Snapshot, new: &Snapshot) {
        if ports(node_guid, old) != ports(node_guid, new) {
            self.remove(id, node_guid, old);
            self.add(id, node_guid, new);
        }
    }

    /// Whether a connection would not survive the loss of its primary.
    pub(crate) fn expose(&mut self, id: ConnId, node_guid: Guid, exposed: bool) {
        if exposed {
            put(&mut self.exposed, node_guid, id);
        } else {
            take(&mut self.exposed, node_guid, id);
        }
    }

    /// The ports of a device that connections have their primaries on.
    pub(crate) fn ports_of(&self, node_guid: Guid) -> impl Iterator<Item = PortId> + '_ {
        let ports = self.primaries.range(PortId::of_device(node_guid));
        ports.map(|(&port, _)| port)
    }

    /// Those that are concerned; `None` stands for all connections there are.
    pub(crate) fn set(&self, concerned: Concerned) -> Option<&BTreeSet<ConnId>> {
        match concerned {
            Concerned::Primaries(port) => self.primaries.get(&port),
            Concerned::Alternates(port) => self.alternates.get(&port),
            Concerned::Exposed(node_guid) => self.exposed.get(&node_guid),
            Concerned::All => None,
        }
    }
}

fn ports(node_guid: Guid, qp: &Snapshot) -> (PortId, Option<PortId>) {
    let at = |port| PortId::new(node_guid, port);
    (at(qp.primary.port), qp.alternate.map(|path| at(path.port)))
}

fn put<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ConnId>>, key: K, id: ConnId) {
    index.entry(key).or_default().insert(id);
}

fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ConnId>>, key: K, id: ConnId) {
    if let Some(ids) = index.get_mut(&key) {
        ids.remove(&id);
        // Clients may name any device.
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}
