// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commit thread does with a queue pair.

use cm_msgs::control::{MigrationState, QpState, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, Qpn};
use nix::errno::Errno;

/// A connected queue pair whose paths can be read and changed.
pub(crate) trait QueuePair: Send + Sync {
    /// What names it to the daemon, and the QP as it is now.
    fn introduce(&self, gids: &KnownGids) -> Result<(Identity, Snapshot), Errno>;
    /// The QP as it is now. Where it does not hold the peer's GID (no GRH), `gids` is asked.
    fn read(&self, gids: &KnownGids) -> Result<Snapshot, Errno>;
    /// Loads an alternate path; in the same modify, the migration state becomes ReArm if `rearm`.
    fn load(&self, alternate: &Path, rearm: bool) -> Result<(), Errno>;
    /// Of the QP what a standing order needs, by one call: every moment counts there, and a port that
    /// has failed may not have its LID any more.
    fn glance(&self) -> Result<Glance, Errno>;
    /// Whether a port of the QP's device carries traffic.
    fn is_port_up(&self, port: u8) -> Result<bool, Errno>;
    /// Sets the migration state to Migrated.
    fn migrate(&self) -> Result<(), Errno>;
    /// From RTS to SQD: what is posted from now on waits. No event tells the application when it is drained.
    fn suspend(&self) -> Result<(), Errno>;
    /// Whether nothing is outstanding in SQD.
    fn is_drained(&self) -> Result<bool, Errno>;
    /// In SQD, gives it this primary path. Its alternate stays what it is.
    fn set_primary(&self, primary: &Path) -> Result<(), Errno>;
    /// From SQD to RTS.
    fn resume(&self) -> Result<(), Errno>;
    /// Whether a path ends at the device where it begins.
    fn leads_back(&self, path: &Path) -> bool;
}

/// A QP's state, and its primary path as the QP itself holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Glance {
    pub(crate) qp_state: QpState,
    pub(crate) migration: MigrationState,
    pub(crate) primary: Address,
}

/// What tells a QP's paths apart without a look at the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) port: u8,
    pub(crate) path_bits: u8,
    pub(crate) dlid: Lid,
}

/// The numbers that name a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) node_guid: Guid,
    pub(crate) qpn: Qpn,
    pub(crate) peer_qpn: Qpn,
}

/// The peer's GIDs by the local port that leads there and the LID: a QP that sends no GRH does not hold them. Another
/// port may be in another subnet, where that LID is another port's.
#[derive(Clone, Default, Debug)]
pub(crate) struct KnownGids(Vec<KnownGid>);

#[derive(Clone, Copy, Debug)]
struct KnownGid {
    port: u8,
    lid: Lid,
    gid: Gid,
}

impl KnownGid {
    fn is_at(&self, port: u8, lid: Lid) -> bool {
        self.port == port && self.lid == lid
    }
}

impl KnownGids {
    /// More than a peer's ports with their LIDs; the oldest goes first.
    const CAPACITY: usize = 32;

    /// A path from this local port to this LID ends at the port with this GID.
    pub(crate) fn learn(&mut self, port: u8, lid: Lid, gid: Gid) {
        if gid.is_unspecified() || !lid.is_unicast() {
            return;
        }
        self.0.retain(|known| !known.is_at(port, lid));
        if self.0.len() == Self::CAPACITY {
            self.0.remove(0);
        }
        self.0.push(KnownGid { port, lid, gid });
    }

    pub(crate) fn get(&self, port: u8, lid: Lid) -> Option<Gid> {
        let known = self.0.iter().find(|known| known.is_at(port, lid));
        known.map(|known| known.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_gids_are_bounded_and_the_newest_wins() {
        let gid = |n: u8| Gid([n; 16]);
        let mut gids = KnownGids::default();
        for lid in 1..=40 {
            gids.learn(1, Lid(lid), gid(lid as u8));
        }
        gids.learn(1, Lid(40), gid(99));
        gids.learn(1, Lid(0), gid(1));
        gids.learn(1, Lid(39), Gid::default());
        assert_eq!(gids.get(1, Lid(40)), Some(gid(99)));
        assert_eq!(gids.get(1, Lid(39)), Some(gid(39)));
        assert_eq!(gids.get(1, Lid(8)), None);
        assert_eq!(gids.get(1, Lid(0)), None);
        assert_eq!(gids.0.len(), KnownGids::CAPACITY);
    }

    #[test]
    fn a_lid_is_another_port_on_another_rail() {
        let gid = |n: u8| Gid([n; 16]);
        let mut gids = KnownGids::default();
        gids.learn(1, Lid(5), gid(1));
        assert_eq!(gids.get(2, Lid(5)), None);
        gids.learn(2, Lid(5), gid(2));
        assert_eq!(gids.get(1, Lid(5)), Some(gid(1)));
        assert_eq!(gids.get(2, Lid(5)), Some(gid(2)));
    }
}
