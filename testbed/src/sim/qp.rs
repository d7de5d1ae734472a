// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair with retries and IBA's rules of path migration (IBA 17.2.8.1).

use cm_msgs::control::{MigrationState, QpState, Snapshot};
use cm_msgs::path::Path;

/// Losses in a row after which a QP gives its path up: with a packet every 20 ms half a second, as
/// with ACK timeout 14 and 7 retries.
const RETRIES: u16 = 25;

/// What a QP says by an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is on its alternate now.
    Migrated,
    /// A ReArm QP is Armed.
    Armed,
    /// Its retries are used up.
    Broken,
}

/// A modify that IBA forbids in the QP's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Illegal {
    /// An alternate can be loaded in RTS (and SQD) only.
    #[error("alternate loaded outside RTS")]
    LoadOutsideRts,
    /// It would protect nothing.
    #[error("the primary loaded as alternate")]
    LoadOfPrimary,
    /// MIGRATED is set from Armed only.
    #[error("MIGRATED set outside Armed and RTS")]
    MigrateOutsideArmed,
    /// Only a QP that waits for traffic is moved in SQD.
    #[error("another primary in SQD outside ReArm and RTS")]
    MoveOutsideRearm,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Its state.
    pub state: QpState,
    /// Its path migration state.
    pub migration: MigrationState,
    /// The path it uses.
    pub primary: Path,
    /// The path loaded last.
    pub alternate: Option<Path>,
    /// Losses in a row after which it gives its path up.
    pub retries: u16,
    lost: u16,
}

/// Whether `other` is this path seen from its other end, by its LIDs.
fn is_reverse(path: &Path, other: &Path) -> bool {
    path.slid == other.dlid && path.dlid == other.slid
}

impl Qp {
    /// As the connection manager leaves it.
    pub fn new(primary: Path) -> Self {
        Self {
            state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary,
            alternate: None,
            retries: RETRIES,
            lost: 0,
        }
    }

    /// The alternate, if it counts: in state Migrated it does not.
    pub fn loaded(&self) -> Option<Path> {
        self.alternate
            .filter(|_| self.migration != MigrationState::Migrated)
    }

    /// It answers: in SQD, too, where it sends nothing of its own.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }

    /// In RTS, and its alternate is armed.
    pub fn is_armed(&self) -> bool {
        self.state == QpState::Rts && self.migration == MigrationState::Armed
    }

    /// As `ibv_query_qp` tells it: without a GRH the remote GID does not show.
    pub fn snapshot(&self) -> Snapshot {
        let hide = |path: Path| Path {
            dgid: cm_msgs::Gid::default(),
            ..path
        };
        Snapshot {
            qp_state: self.state,
            migration: self.migration,
            primary: hide(self.primary),
            alternate: self.loaded(),
        }
    }

    /// The bit that its packets carry.
    pub fn migreq(&self) -> bool {
        self.migration == MigrationState::Migrated
    }

    /// A packet of the peer's came in by this port, and by the way that is `from` at the peer. Whether it is taken.
    pub fn receive(&mut self, port: u8, from: &Path, migreq: bool) -> (bool, Option<Event>) {
        if !self.is_alive() {
            return (false, None);
        }
        let comes_by = |path: &Path| path.port == port && is_reverse(from, path);
        if comes_by(&self.primary) {
            if self.migration == MigrationState::Rearm && !migreq {
                self.migration = MigrationState::Armed;
                return (true, Some(Event::Armed));
            }
            return (true, None);
        }
        match self.alternate {
            Some(alternate)
                if self.migration == MigrationState::Armed && migreq && comes_by(&alternate) =>
            {
                self.go_over(alternate);
                (true, Some(Event::Migrated))
            }
            _ => (false, None),
        }
    }

    /// A packet was acknowledged.
    pub fn acknowledged(&mut self) {
        self.lost = 0;
    }

    /// A packet was not acknowledged in time.
    pub fn not_acknowledged(&mut self) -> Option<Event> {
        self.lost += 1;
        if self.state != QpState::Rts || self.lost < self.retries {
            return None;
        }
        self.lost = 0;
        if let (true, Some(alternate)) = (self.is_armed(), self.alternate) {
            self.go_over(alternate);
            return Some(Event::Migrated);
        }
        self.state = QpState::Error;
        Some(Event::Broken)
    }

    fn go_over(&mut self, alternate: Path) {
        self.primary = alternate;
        self.migration = MigrationState::Migrated;
        self.lost = 0;
    }

    /// Modify: load an alternate. In state Armed only the path changes.
    pub fn load(&mut self, alternate: Path) -> Result<(), Illegal> {
        if self.state != QpState::Rts {
            return Err(Illegal::LoadOutsideRts);
        }
        if alternate.same_way(&self.primary) {
            return Err(Illegal::LoadOfPrimary);
        }
        self.alternate = Some(alternate);
        if self.migration != MigrationState::Armed {
            self.migration = MigrationState::Rearm;
        }
        Ok(())
    }

    /// Modify: migrate.
    pub fn migrate(&mut self) -> Result<(), Illegal> {
        match self.alternate {
            Some(alternate) if self.is_armed() => {
                self.go_over(alternate);
                Ok(())
            }
            _ => Err(Illegal::MigrateOutsideArmed),
        }
    }

    /// RTS to SQD, the alternate as primary there, and back to RTS. It stays the alternate as well, and if a packet comes
    /// it is armed; it protects nothing.
    pub fn move_idle(&mut self) -> Result<(), Illegal> {
        let waits = self.state == QpState::Rts && self.migration == MigrationState::Rearm;
        match self.alternate {
            Some(alternate) if waits => {
                self.primary = alternate;
                self.lost = 0;
                Ok(())
            }
            _ => Err(Illegal::MoveOutsideRearm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Lid;

    fn path(slid: u16, dlid: u16) -> Path {
        Path {
            slid: Lid(slid),
            dlid: Lid(dlid),
            ..Path::default()
        }
    }

    #[test]
    fn an_illegal_modify_is_refused() {
        let mut qp = Qp::new(path(1, 2));
        assert_eq!(qp.migrate(), Err(Illegal::MigrateOutsideArmed));
        assert_eq!(qp.load(path(1, 2)), Err(Illegal::LoadOfPrimary));
        assert_eq!(qp.load(path(3, 4)), Ok(()));
        assert_eq!(qp.migrate(), Err(Illegal::MigrateOutsideArmed), "ReArm");
        qp.receive(0, &path(2, 1), false);
        assert_eq!(qp.migrate(), Ok(()));
        qp.state = QpState::Error;
        assert_eq!(qp.load(path(1, 2)), Err(Illegal::LoadOutsideRts));
    }

    #[test]
    fn retries_end_in_migration_when_armed_and_in_death_when_not() {
        let mut qp = Qp::new(path(1, 2));
        assert_eq!(qp.load(path(3, 4)), Ok(()));
        qp.receive(0, &path(2, 1), false);
        let last = |qp: &mut Qp| (0..RETRIES).filter_map(|_| qp.not_acknowledged()).last();
        assert_eq!(last(&mut qp), Some(Event::Migrated));
        assert_eq!(last(&mut qp), Some(Event::Broken));
    }
}
