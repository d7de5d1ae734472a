// SPDX-License-Identifier: MIT OR Apache-2.0
//! Giving a QP that waits for traffic its alternate as primary: RTS to SQD, the paths, and back to RTS.
//!
//! In SQD (send queue drained) a QP receives, and takes what is posted without sending it. IBA lets its primary path be
//! changed there, and nowhere else.

use std::thread;
use std::time::Duration;

use cm_msgs::control::{Cause, Migrate, MigrationState, QpState, Report, Snapshot};
use cm_msgs::path::Path;
use nix::errno::Errno;

use crate::order::{self, failed, is_current};
use crate::queue_pair::{KnownGids, QueuePair};

/// Looks at whether the send queue is drained, and the pause between them. What is outstanding over a path that is dead
/// never drains.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// Has the QP leave its primary for its alternate if it still is as the order expects. One that has become Armed migrates.
/// `Err`: the QP cannot be read. `suspended`: set while the QP is in SQD because of this; it may be left there by a
/// device that does not let it go on before its send queue is drained.
pub(crate) fn carry_out(
    qp: &dyn QueuePair,
    gids: &KnownGids,
    order: &Migrate,
    suspended: &mut bool,
) -> Result<Report, Errno> {
    let token = order.token;
    let before = qp.read(gids)?;
    let alternate = match (before.migration, before.alternate) {
        (MigrationState::Rearm, Some(alternate)) if may_go(&before, &alternate, order) => alternate,
        _ => return order::migrate(qp, gids, order),
    };
    let result = leave(qp, &alternate, suspended);
    let snapshot = qp.read(gids)?;
    let moved = snapshot.primary.same_way(&alternate);
    let cause = match result {
        Ok(()) if moved => Cause::Done { token },
        Err(errno) => failed(token, errno),
        Ok(()) => Cause::Stale { token },
    };
    Ok(Report { cause, snapshot })
}

/// An alternate that is the primary itself is what an earlier move has left.
fn may_go(before: &Snapshot, alternate: &Path, order: &Migrate) -> bool {
    is_current(before, &order.primary) && !alternate.same_way(&before.primary)
}

fn leave(qp: &dyn QueuePair, alternate: &Path, suspended: &mut bool) -> Result<(), Errno> {
    qp.suspend()?;
    *suspended = true;
    let moved = wait_until_drained(qp).and_then(|()| qp.set_primary(alternate));
    let resumed = resume(qp, suspended);
    moved.and(resumed)
}

fn wait_until_drained(qp: &dyn QueuePair) -> Result<(), Errno> {
    for _ in 0..LOOKS {
        if qp.is_drained()? {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(Errno::ETIMEDOUT)
}

/// Lets a QP go on that was stopped in SQD, if it is there still.
pub(crate) fn resume(qp: &dyn QueuePair, suspended: &mut bool) -> Result<(), Errno> {
    let result = match qp.glance()?.qp_state {
        QpState::Sqd => qp.resume(),
        _ => Ok(()),
    };
    *suspended = result.is_err();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::model::{Model, path};

    fn waiting() -> Model {
        let model = Model::new(path(1));
        model.set(|qp| {
            qp.migration = MigrationState::Rearm;
            qp.alternate = Some(path(2));
        });
        model
    }

    fn gids() -> KnownGids {
        let mut gids = KnownGids::default();
        for n in 1..=3 {
            gids.learn(path(n).port, path(n).dlid, path(n).dgid);
        }
        gids
    }

    fn run(model: &Model, primary: u8) -> (Report, bool) {
        let order = Migrate {
            token: 7,
            primary: path(primary),
        };
        let mut suspended = false;
        let report = carry_out(model, &gids(), &order, &mut suspended);
        (report.expect("the model can be read"), suspended)
    }

    #[test]
    fn a_qp_that_waits_for_traffic_gets_its_alternate_as_primary_once() {
        let model = waiting();
        let (report, suspended) = run(&model, 1);
        assert_eq!(report.cause, Cause::Done { token: 7 });
        let Snapshot {
            qp_state,
            migration,
            primary,
            alternate,
        } = report.snapshot;
        assert_eq!((qp_state, migration), (QpState::Rts, MigrationState::Rearm));
        assert_eq!((primary, alternate), (path(2), Some(path(2))));
        assert!(!suspended);
        assert_eq!(
            run(&model, 2).0.cause,
            Cause::Stale { token: 7 },
            "there is no other"
        );
    }

    #[test]
    fn one_that_has_become_armed_migrates() {
        let model = waiting();
        model.arm(path(2));
        let (report, _) = run(&model, 1);
        assert_eq!(report.cause, Cause::Done { token: 7 });
        assert_eq!(report.snapshot.migration, MigrationState::Migrated);
        assert_eq!(report.snapshot.primary, path(2));
    }

    #[test]
    fn another_primary_another_state_or_no_alternate_is_left_alone() {
        let model = waiting();
        assert_eq!(run(&model, 2).0.cause, Cause::Stale { token: 7 });
        model.set(|qp| qp.qp_state = QpState::Sqd);
        assert_eq!(
            run(&model, 1).0.cause,
            Cause::Stale { token: 7 },
            "the owner's"
        );
        model.set(|qp| (qp.qp_state, qp.alternate) = (QpState::Rts, None));
        assert_eq!(run(&model, 1).0.cause, Cause::Stale { token: 7 });
        assert_eq!(model.modifies(), 0);
    }

    /// As mlx5 has it: no way from RTS to SQD.
    #[test]
    fn a_device_that_refuses_has_the_qp_as_it_was() {
        let model = waiting();
        model.refuse(Errno::EINVAL);
        let before = model.snapshot();
        let (report, suspended) = run(&model, 1);
        let errno = Errno::EINVAL as u8;
        assert_eq!(report.cause, Cause::Failed { token: 7, errno });
        assert_eq!((model.snapshot(), suspended), (before, false));
    }

    #[test]
    fn one_that_does_not_drain_goes_on_as_it_was() {
        let model = waiting();
        model.never_drains(true);
        let before = model.snapshot();
        let (report, suspended) = run(&model, 1);
        let errno = Errno::ETIMEDOUT as u8;
        assert_eq!(report.cause, Cause::Failed { token: 7, errno });
        assert_eq!((model.snapshot(), suspended), (before, false));
    }

    #[test]
    fn one_that_is_not_let_go_before_it_has_drained_is_resumed_later() {
        let model = waiting();
        model.never_drains(true);
        model.resumes_drained_only();
        let (report, mut suspended) = run(&model, 1);
        assert!(matches!(report.cause, Cause::Failed { .. }));
        assert_eq!(report.snapshot.qp_state, QpState::Sqd);
        assert!(suspended);
        assert!(resume(&model, &mut suspended).is_err() && suspended);
        model.never_drains(false);
        assert!(resume(&model, &mut suspended).is_ok() && !suspended);
        assert_eq!(model.snapshot().qp_state, QpState::Rts);
    }
}
