// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections have their paths on which local port, so that an event finds those it
//! concerns without a look at the others.

use alloc::collections::BTreeMap;

use cm_msgs::Guid;
use cm_msgs::control::{MigrationState, Snapshot};

use crate::id::PortId;
use crate::members::{Member, Members};

/// Connections by local port and by need, kept as they change.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct PathIndex {
    primaries: BTreeMap<PortId, Primaries>,
    alternates: BTreeMap<PortId, Members>,
    /// Those of a device that would not survive the loss of their primary.
    exposed: BTreeMap<Guid, Members>,
}

/// Connections with their primary on one port. Apart, since many that are not Armed are not to delay the first that is.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Primaries {
    /// Those that hardware would migrate.
    armed: Members,
    unarmed: Members,
}

impl Primaries {
    fn is_empty(&self) -> bool {
        self.armed.is_empty() && self.unarmed.is_empty()
    }

    fn of(&mut self, migration: MigrationState) -> &mut Members {
        match migration {
            MigrationState::Armed => &mut self.armed,
            MigrationState::Rearm | MigrationState::Migrated => &mut self.unarmed,
        }
    }
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
    /// Armed, with their primary on this port.
    Armed(PortId),
    /// Not Armed, with their primary on this port.
    Unarmed(PortId),
    /// With their alternate on this port.
    Alternates(PortId),
    /// Of this device, and not protected.
    Exposed(Guid),
}

impl Concerned {
    /// All that have their primary on a port.
    pub(crate) fn primaries(port: PortId) -> [Self; 2] {
        [Self::Armed(port), Self::Unarmed(port)]
    }
}

impl PathIndex {
    pub(crate) fn count(&self, id: PortId) -> PathCount {
        let primaries = self.primaries.get(&id);
        PathCount {
            primaries: primaries.map_or(0, |all| all.armed.len() + all.unarmed.len()),
            alternates: self.alternates.get(&id).map_or(0, Members::len),
        }
    }

    /// A connection has these paths.
    pub(crate) fn add(&mut self, member: Member, node_guid: Guid, qp: &Snapshot) {
        let (primary, alternate) = ports(node_guid, qp);
        let primaries = self.primaries.entry(primary).or_default();
        primaries.of(qp.migration).insert(member);
        if let Some(alternate) = alternate {
            put(&mut self.alternates, alternate, member);
        }
    }

    /// A connection has these paths no more.
    pub(crate) fn remove(&mut self, member: Member, node_guid: Guid, qp: &Snapshot) {
        let (primary, alternate) = ports(node_guid, qp);
        if let Some(primaries) = self.primaries.get_mut(&primary) {
            primaries.of(qp.migration).remove(member);
            // Clients may name any device.
            if primaries.is_empty() {
                self.primaries.remove(&primary);
            }
        }
        if let Some(alternate) = alternate {
            take(&mut self.alternates, alternate, member);
        }
    }

    /// A connection that had the paths of `old` has those of `new`.
    pub(crate) fn change(
        &mut self,
        member: Member,
        node_guid: Guid,
        old: &Snapshot,
        new: &Snapshot,
    ) {
        let is_armed = |qp: &Snapshot| qp.migration == MigrationState::Armed;
        if ports(node_guid, old) != ports(node_guid, new) || is_armed(old) != is_armed(new) {
            self.remove(member, node_guid, old);
            self.add(member, node_guid, new);
        }
    }

    /// Whether a connection would not survive the loss of its primary.
    pub(crate) fn expose(&mut self, member: Member, node_guid: Guid, exposed: bool) {
        if exposed {
            put(&mut self.exposed, node_guid, member);
        } else {
            take(&mut self.exposed, node_guid, member);
        }
    }

    /// All ports that connections have their primaries on. Each connection has one primary.
    pub(crate) fn all_ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.primaries.keys().copied()
    }

    /// The ports of a device that connections have their primaries on.
    pub(crate) fn ports_of(&self, node_guid: Guid) -> impl Iterator<Item = PortId> + '_ {
        let ports = self.primaries.range(PortId::of_device(node_guid));
        ports.map(|(&port, _)| port)
    }

    /// Those that are concerned; `None`: there are none.
    pub(crate) fn members(&self, concerned: Concerned) -> Option<&Members> {
        let members = match concerned {
            Concerned::Armed(port) => self.primaries.get(&port).map(|all| &all.armed),
            Concerned::Unarmed(port) => self.primaries.get(&port).map(|all| &all.unarmed),
            Concerned::Alternates(port) => self.alternates.get(&port),
            Concerned::Exposed(node_guid) => self.exposed.get(&node_guid),
        };
        members.filter(|members| !members.is_empty())
    }
}

fn ports(node_guid: Guid, qp: &Snapshot) -> (PortId, Option<PortId>) {
    let at = |port| PortId::new(node_guid, port);
    (at(qp.primary.port), qp.alternate.map(|path| at(path.port)))
}

fn put<K: Ord>(index: &mut BTreeMap<K, Members>, key: K, member: Member) {
    index.entry(key).or_default().insert(member);
}

fn take<K: Ord>(index: &mut BTreeMap<K, Members>, key: K, member: Member) {
    if let Some(ids) = index.get_mut(&key) {
        ids.remove(member);
        // Clients may name any device.
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConnId, Payer};
    use alloc::vec::Vec;
    use cm_msgs::Lid;
    use cm_msgs::control::QpState;
    use cm_msgs::path::Path;

    #[test]
    fn an_event_finds_the_connections_that_it_concerns_and_no_others() {
        let id = |conn| Member {
            payer: Payer(1),
            far: Lid(1),
            id: ConnId { client: 1, conn },
        };
        let port = |guid, port| PortId::new(Guid(guid), port);
        let path = |port| Path {
            port,
            ..Path::default()
        };
        let qp = |primary, alternate: Option<u8>| Snapshot {
            qp_state: QpState::Rts,
            migration: match alternate {
                Some(_) => MigrationState::Armed,
                None => MigrationState::Migrated,
            },
            primary: path(primary),
            alternate: alternate.map(path),
        };
        let mut index = PathIndex::default();
        index.add(id(1), Guid(1), &qp(1, Some(2)));
        index.add(id(2), Guid(1), &qp(1, None));
        index.add(id(3), Guid(2), &qp(1, Some(1)));
        index.expose(id(2), Guid(1), true);
        let ids = |index: &PathIndex, concerned| -> Vec<u32> {
            let members = index.members(concerned).into_iter();
            members.flat_map(Members::ids).map(|id| id.conn).collect()
        };
        assert_eq!(ids(&index, Concerned::Armed(port(1, 1))), [1]);
        assert_eq!(ids(&index, Concerned::Unarmed(port(1, 1))), [2]);
        assert!(index.members(Concerned::Unarmed(port(2, 1))).is_none());
        assert_eq!(ids(&index, Concerned::Alternates(port(1, 2))), [1]);
        assert_eq!(ids(&index, Concerned::Exposed(Guid(1))), [2]);
        assert!(index.ports_of(Guid(1)).eq([port(1, 1)]));
        assert!(index.all_ports().eq([port(1, 1), port(2, 1)]));
        index.change(id(1), Guid(1), &qp(1, Some(2)), &qp(2, None));
        index.expose(id(2), Guid(1), false);
        index.expose(id(1), Guid(1), true);
        assert_eq!(ids(&index, Concerned::Unarmed(port(1, 1))), [2]);
        assert!(index.members(Concerned::Armed(port(1, 1))).is_none());
        assert_eq!(ids(&index, Concerned::Unarmed(port(1, 2))), [1]);
        assert!(index.members(Concerned::Alternates(port(1, 2))).is_none());
        assert_eq!(ids(&index, Concerned::Exposed(Guid(1))), [1]);
        assert!(index.ports_of(Guid(1)).eq([port(1, 1), port(1, 2)]));
        let count = index.count(port(2, 1));
        assert_eq!((count.primaries, count.alternates), (1, 1));
        let waits = Snapshot {
            migration: MigrationState::Rearm,
            ..qp(1, Some(1))
        };
        index.change(id(3), Guid(2), &qp(1, Some(1)), &waits);
        assert_eq!(ids(&index, Concerned::Unarmed(port(2, 1))), [3]);
        assert!(index.members(Concerned::Armed(port(2, 1))).is_none());
        index.remove(id(3), Guid(2), &waits);
        assert!(index.all_ports().eq([port(1, 1), port(1, 2)]));
        let count = index.count(port(2, 1));
        assert_eq!((count.primaries, count.alternates), (0, 0));
    }
}
