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
        return Ok(stale(token, before));
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
        return Ok(stale(token, before));
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

/// An order waited too long to be carried out. `Err`: the QP cannot be read.
pub(crate) fn late(qp: &dyn QueuePair, gids: &KnownGids, token: u32) -> Result<Report, Errno> {
    Ok(stale(token, qp.read(gids)?))
}

/// An order that came too late for the QP: nothing is done.
fn stale(token: u32, snapshot: Snapshot) -> Report {
    let cause = Cause::Stale { token };
    Report { cause, snapshot }
}

pub(crate) fn is_current(snapshot: &Snapshot, primary: &Path) -> bool {
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
        // The daemon may have been shown it in SQD, by the answer to an order, and orders nothing meanwhile.
        same if same == last.migration => {
            let drained = (last.qp_state, now.qp_state) == (QpState::Sqd, QpState::Rts);
            drained.then_some(Cause::Changed)
        }
        MigrationState::Armed => Some(Cause::Armed),
        _ => Some(Cause::Changed),
    }
}

/// An application may drain its send queue for a while; that breaks nothing.
pub(crate) fn is_open(snapshot: &Snapshot) -> bool {
    matches!(snapshot.qp_state, QpState::Rts | QpState::Sqd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::model::{Model, path};

    fn order(alternate: Path) -> Load {
        Load {
            token: 7,
            primary: path(1),
            alternate,
            standing: false,
        }
    }

    fn gids() -> KnownGids {
        let mut gids = KnownGids::default();
        for n in 1..=3 {
            gids.learn(path(n).port, path(n).dlid, path(n).dgid);
        }
        gids
    }

    fn run_load(model: &Model, order: &Load) -> Report {
        load(model, &gids(), order).expect("the model can be read")
    }

    fn run_migrate(model: &Model, primary: Path) -> Report {
        let order = Migrate { token: 8, primary };
        migrate(model, &gids(), &order).expect("the model can be read")
    }

    #[test]
    fn a_load_in_migrated_arms_again() {
        let model = Model::new(path(1));
        let report = run_load(&model, &order(path(2)));
        assert_eq!(report.cause, Cause::Done { token: 7 });
        assert_eq!(report.snapshot.migration, MigrationState::Rearm);
        assert_eq!(report.snapshot.alternate, Some(path(2)));
    }

    #[test]
    fn a_load_in_armed_changes_only_the_path() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let report = run_load(&model, &order(path(3)));
        assert_eq!(report.cause, Cause::Done { token: 7 });
        assert_eq!(report.snapshot.migration, MigrationState::Armed);
        assert_eq!(report.snapshot.alternate, Some(path(3)));
    }

    #[test]
    fn a_load_that_finds_the_qp_armed_meanwhile_is_repeated_without_rearm() {
        let model = Model::new(path(1));
        model.arm(path(2));
        model.set(|qp| qp.migration = MigrationState::Rearm);
        model.before_next_modify(|qp| qp.migration = MigrationState::Armed);
        let report = run_load(&model, &order(path(3)));
        assert_eq!(report.cause, Cause::Done { token: 7 });
        assert_eq!(report.snapshot.migration, MigrationState::Armed);
        assert_eq!(report.snapshot.alternate, Some(path(3)));
    }

    #[test]
    fn a_load_for_another_primary_modifies_nothing() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let before = model.snapshot();
        let stale = Load {
            primary: path(2),
            ..order(path(3))
        };
        let report = run_load(&model, &stale);
        assert_eq!(
            report,
            Report {
                cause: Cause::Stale { token: 7 },
                snapshot: before
            }
        );
        assert_eq!((model.snapshot(), model.modifies()), (before, 0));
    }

    #[test]
    fn a_load_for_a_qp_outside_rts_modifies_nothing() {
        let model = Model::new(path(1));
        model.set(|qp| qp.qp_state = QpState::Error);
        let report = run_load(&model, &order(path(2)));
        assert_eq!(
            (report.cause, model.modifies()),
            (Cause::Stale { token: 7 }, 0)
        );
    }

    #[test]
    fn a_load_overtaken_by_a_migration_is_stale() {
        let model = Model::new(path(1));
        model.arm(path(2));
        model.before_next_modify(|qp| {
            qp.primary = path(2);
            qp.migration = MigrationState::Migrated;
        });
        let report = run_load(&model, &order(path(3)));
        assert_eq!(report.cause, Cause::Stale { token: 7 });
        assert_eq!(report.snapshot.primary, path(2));
    }

    #[test]
    fn a_load_that_verbs_refuse_fails_with_its_errno() {
        let model = Model::new(path(1));
        model.refuse(Errno::EADDRNOTAVAIL);
        let report = run_load(&model, &order(path(2)));
        let errno = Errno::EADDRNOTAVAIL as u8;
        assert_eq!(report.cause, Cause::Failed { token: 7, errno });
        assert_eq!(report.snapshot.migration, MigrationState::Migrated);
    }

    #[test]
    fn an_armed_qp_migrates() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let report = run_migrate(&model, path(1));
        assert_eq!(report.cause, Cause::Done { token: 8 });
        assert_eq!(report.snapshot.primary, path(2));
        assert_eq!(report.snapshot.alternate, None);
    }

    #[test]
    fn only_an_armed_qp_on_the_named_path_migrates() {
        let model = Model::new(path(1));
        assert_eq!(
            run_migrate(&model, path(1)).cause,
            Cause::Stale { token: 8 }
        );
        model.arm(path(2));
        assert_eq!(
            run_migrate(&model, path(3)).cause,
            Cause::Stale { token: 8 }
        );
        model.set(|qp| qp.migration = MigrationState::Rearm);
        assert_eq!(
            run_migrate(&model, path(1)).cause,
            Cause::Stale { token: 8 }
        );
        assert_eq!(model.modifies(), 0);
    }

    #[test]
    fn a_migration_that_the_hardware_does_first_is_done() {
        let model = Model::new(path(1));
        model.arm(path(2));
        model.before_next_modify(|qp| {
            qp.primary = path(2);
            qp.migration = MigrationState::Migrated;
        });
        assert_eq!(run_migrate(&model, path(1)).cause, Cause::Done { token: 8 });
    }

    #[test]
    fn news_are_what_changed() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let armed = model.snapshot();
        let rearm = Snapshot {
            migration: MigrationState::Rearm,
            ..armed
        };
        let migrated = Snapshot {
            migration: MigrationState::Migrated,
            primary: path(2),
            ..armed
        };
        let broken = Snapshot {
            qp_state: QpState::Error,
            ..armed
        };
        let drained = Snapshot {
            qp_state: QpState::Sqd,
            ..armed
        };
        assert_eq!(news(&armed, &armed), None);
        assert_eq!(news(&rearm, &armed), Some(Cause::Armed));
        assert_eq!(news(&armed, &migrated), Some(Cause::PathMigrated));
        // It migrated and was loaded anew by somebody else between two looks.
        assert_eq!(
            news(
                &armed,
                &Snapshot {
                    primary: path(2),
                    ..armed
                }
            ),
            Some(Cause::PathMigrated)
        );
        assert_eq!(news(&armed, &broken), Some(Cause::Broken));
        assert_eq!(news(&broken, &broken), None);
        assert_eq!(news(&armed, &drained), None);
        assert_eq!(news(&drained, &armed), Some(Cause::Changed));
    }
}
