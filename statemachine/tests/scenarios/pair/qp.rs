// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair with IBA's rules of path migration (IBA 17.2.8.1), and nothing else of one.

use cm_msgs::control::{MigrationState, QpState, Snapshot};
use cm_msgs::path::Path;

use super::is_reverse;

/// Half a second at the pace of the applications' packets.
const RETRIES: u8 = 25;

/// What a QP says by an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Migrated,
    Armed,
    Broken,
}

#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) state: QpState,
    pub(crate) migration: MigrationState,
    pub(crate) primary: Path,
    pub(crate) alternate: Option<Path>,
    lost: u8,
    /// Losses in a row after which it gives its path up.
    pub(crate) retries: u8,
}

impl Qp {
    pub(crate) fn new(primary: Path) -> Self {
        let (state, migration) = (QpState::Rts, MigrationState::Migrated);
        Self {
            state,
            migration,
            primary,
            alternate: None,
            lost: 0,
            retries: RETRIES,
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            qp_state: self.state,
            migration: self.migration,
            primary: self.primary,
            alternate: self
                .alternate
                .filter(|_| self.migration != MigrationState::Migrated),
        }
    }

    /// The bit that this QP's packets carry.
    pub(crate) fn migreq(&self) -> bool {
        self.migration == MigrationState::Migrated
    }

    /// A packet of the peer's came in by the way that is `from` at the peer. Whether it is taken.
    pub(crate) fn receive(&mut self, from: &Path, migreq: bool) -> (bool, Option<Event>) {
        if self.state != QpState::Rts {
            return (false, None);
        }
        if is_reverse(from, &self.primary) {
            if self.migration == MigrationState::Rearm && !migreq {
                self.migration = MigrationState::Armed;
                return (true, Some(Event::Armed));
            }
            return (true, None);
        }
        let armed = self.migration == MigrationState::Armed;
        match self.alternate {
            Some(alternate) if armed && migreq && is_reverse(from, &alternate) => {
                self.migrate();
                (true, Some(Event::Migrated))
            }
            _ => (false, None),
        }
    }

    /// A packet was acknowledged.
    pub(crate) fn is_armed(&self) -> bool {
        self.state == QpState::Rts && self.migration == MigrationState::Armed
    }

    pub(crate) fn acknowledged(&mut self) {
        self.lost = 0;
    }

    /// A packet was not acknowledged in time.
    pub(crate) fn not_acknowledged(&mut self) -> Option<Event> {
        self.lost += 1;
        if self.state != QpState::Rts || self.lost < self.retries {
            return None;
        }
        self.lost = 0;
        if self.migration == MigrationState::Armed {
            self.migrate();
            return Some(Event::Migrated);
        }
        self.state = QpState::Error;
        Some(Event::Broken)
    }

    fn migrate(&mut self) {
        self.primary = self.alternate.expect("armed, so it has an alternate");
        self.migration = MigrationState::Migrated;
        self.lost = 0;
    }

    /// Modify: load an alternate. In state Armed only the path changes.
    pub(crate) fn load(&mut self, alternate: Path) {
        assert_eq!(self.state, QpState::Rts, "alternate loaded outside RTS");
        assert!(
            !alternate.same_way(&self.primary),
            "alternate is the primary"
        );
        self.alternate = Some(alternate);
        if self.migration != MigrationState::Armed {
            self.migration = MigrationState::Rearm;
        }
    }

    /// Modify: migrate. IBA allows that from Armed in RTS only.
    pub(crate) fn order_migration(&mut self) {
        assert_eq!(
            (self.state, self.migration),
            (QpState::Rts, MigrationState::Armed),
            "Migrated set outside Armed and RTS"
        );
        self.migrate();
    }

    /// RTS to SQD, the alternate as primary there, and back to RTS. It stays the alternate as well, and if a packet comes
    /// it is armed; it protects nothing.
    pub(crate) fn move_idle(&mut self) {
        assert_eq!(
            (self.state, self.migration),
            (QpState::Rts, MigrationState::Rearm),
            "moved in SQD though it does not wait for traffic"
        );
        self.primary = self.alternate.expect("in ReArm, so it has an alternate");
        self.lost = 0;
    }
}
