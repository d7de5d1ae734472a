// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carrying out the daemon's orders, and telling what happened to a QP.

use cm_msgs::control::{Cause, Load, Migrate, MigrationState, QpState, Report, Snapshot};
use cm_msgs::path::Path;
use nix::errno::Errno;

use crate::queue_pair::{KnownGids, QueuePair};

/// Loads an alternate path if the QP still is as the order expects. `Err`: the QP cannot be read.
pub(crate) fn load(qp: &dyn QueuePair, gids: &KnownGids, order: &Load) -> Result<Report, Errno> {
    let token = order.token;
    let before = qp.read(gids)?;
    if !is_current(&before, &order.primary) {
        return Ok(Report {
            cause: Cause::Stale { token },
            snapshot: before,
        });
    }
    let result = load_in(qp, gids, before.migration, &order.alternate);
    let snapshot = qp.read(gids)?;
    let cause = match result {
        Err(errno) => failed(token, errno),
        // It migrated between our reading and our modify: what was loaded was not meant for it.
        Ok(()) if !is_current(&snapshot, &order.primary) => Cause::Stale { token },
        Ok(()) => Cause::Done { token },
    };
    Ok(Report { cause, snapshot })
}

/// In Armed only the path may be changed; from the other states it goes to ReArm. A QP that was
/// read as ReArm may have become Armed before the modify, which then fails.
fn load_in(
    qp: &dyn QueuePair,
    gids: &KnownGids,
    migration: MigrationState,
    alternate: &Path,
) -> Result<(), Errno> {
    let armed = MigrationState::Armed;
    qp.load(alternate, migration != armed).or_else(|errno| {
        let armed_meanwhile = migration != armed && qp.read(gids)?.migration == armed;
        if armed_meanwhile {
            qp.load(alternate, false)
        } else {
            Err(errno)
        }
    })
}

/// Migrates an armed QP if it still is as the order expects.
pub(crate) fn migrate(
    qp: &dyn QueuePair,
    gids: &KnownGids,
    order: &Migrate,
) -> Result<Report, Errno> {
    let token = order.token;
    let before = qp.read(gids)?;
    if !is_current(&before, &order.primary) || before.migration != MigrationState::Armed {
        return Ok(Report {
            cause: Cause::Stale { token },
            snapshot: before,
        });
    }
    let result = qp.migrate();
    let snapshot = qp.read(gids)?;
    let moved = !snapshot.primary.same_way(&before.primary);
    let cause = match result {
        // An error does not matter if the hardware was faster.
        Err(errno) if !moved => failed(token, errno),
        _ => Cause::Done { token },
    };
    Ok(Report { cause, snapshot })
}

fn is_current(snapshot: &Snapshot, primary: &Path) -> bool {
    snapshot.qp_state == QpState::Rts && snapshot.primary.same_way(primary)
}

/// The cause of an order that an error stopped.
pub(crate) fn failed(token: u32, errno: Errno) -> Cause {
    Cause::Failed {
        token,
        errno: u8::try_from(errno as i32).unwrap_or(u8::MAX),
    }
}

/// What has happened to a QP between two readings, if the daemon should know.
pub(crate) fn news(last: &Snapshot, now: &Snapshot) -> Option<Cause> {
    if !is_open(now) {
        return is_open(last).then_some(Cause::Broken);
    }
    let moved = !now.primary.same_way(&last.primary);
    if moved || (last.migration, now.migration) == (MigrationState::Armed, MigrationState::Migrated)
    {
        return Some(Cause::PathMigrated);
    }
    match now.migration {
        same if same == last.migration => None,
        MigrationState::Armed => Some(Cause::Armed),
        _ => Some(Cause::Query),
    }
}

/// An application may drain its send queue for a while; that breaks nothing.
fn is_open(snapshot: &Snapshot) -> bool {
    matches!(snapshot.qp_state, QpState::Rts | QpState::Sqd)
}
