// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair as a library says that it is, and as the kernel has it: the kernel's counts.

use cm_msgs::control::{Cause, QpState, Report, Snapshot};
use cm_msgs::path::Path;

/// A library's report of a queue pair that the kernel, asked afterwards, has so.
pub(super) fn truth(said: &Report, kernel: &Snapshot) -> Report {
    let snapshot = kernels(&said.snapshot, kernel);
    let moved = !snapshot.primary.same_way(&said.snapshot.primary);
    let cause = match said.cause {
        // What was ordered was done to a queue pair that is elsewhere.
        Cause::Done { token } if moved => Cause::Stale { token },
        cause => cause,
    };
    Report { cause, snapshot }
}

/// The kernel's word, with what only the library knows of the same paths.
pub(crate) fn kernels(said: &Snapshot, kernel: &Snapshot) -> Snapshot {
    if !matches!(kernel.qp_state, QpState::Rts | QpState::Sqd) {
        // Its paths may be forgotten, and are not used any more.
        return Snapshot {
            qp_state: kernel.qp_state,
            ..*said
        };
    }
    Snapshot {
        primary: completed(kernel.primary, Some(&said.primary)),
        alternate: kernel
            .alternate
            .map(|path| completed(path, said.alternate.as_ref())),
        ..*kernel
    }
}

/// A peer's GID belongs to its LID: that of another path is not taken.
fn completed(path: Path, said: Option<&Path>) -> Path {
    let Some(said) = said.filter(|said| said.same_way(&path)) else {
        return path;
    };
    let dgid = match path.dgid.is_unspecified() {
        true => said.dgid,
        false => path.dgid,
    };
    Path {
        dgid,
        traffic_class: said.traffic_class,
        hop_limit: said.hop_limit,
        flow_label: said.flow_label,
        ..path
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::control::MigrationState;
    use cm_msgs::{Gid, Lid};

    use super::*;

    fn path(port: u8, dgid: u8) -> Path {
        Path {
            port,
            slid: Lid(port.into()),
            dlid: Lid(0x10 + u16::from(port)),
            dgid: Gid([dgid; 16]),
            ..Path::default()
        }
    }

    fn snapshot(primary: Path, alternate: Option<Path>) -> Snapshot {
        Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Armed,
            primary,
            alternate,
        }
    }

    #[test]
    fn a_gid_goes_with_its_own_path_only() {
        let said = snapshot(path(1, 0xa), Some(path(2, 0xb)));
        let same = snapshot(path(1, 0), Some(path(2, 0)));
        assert_eq!(kernels(&said, &same), said);
        // It has migrated: no path has the other's GID, and none that nobody knows.
        let migrated = snapshot(path(2, 0), Some(path(1, 0)));
        assert_eq!(kernels(&said, &migrated), migrated);
        let told = snapshot(path(1, 0xc), None);
        assert_eq!(kernels(&said, &told), told);
    }

    #[test]
    fn what_was_done_elsewhere_is_stale() {
        let report = |cause| Report {
            cause,
            snapshot: snapshot(path(1, 0xa), Some(path(2, 0xb))),
        };
        let migrated = snapshot(path(2, 0), None);
        let done = Cause::Done { token: 7 };
        let stale = Cause::Stale { token: 7 };
        assert_eq!(truth(&report(done), &migrated).cause, stale);
        let here = snapshot(path(1, 0), None);
        assert_eq!(truth(&report(done), &here).cause, done);
        assert_eq!(truth(&report(Cause::Armed), &migrated).cause, Cause::Armed);
    }

    #[test]
    fn in_error_only_the_state_counts() {
        let said = snapshot(path(1, 0xa), None);
        let broken = Snapshot {
            qp_state: QpState::Error,
            ..snapshot(Path::default(), None)
        };
        let want = Snapshot {
            qp_state: QpState::Error,
            ..said
        };
        assert_eq!(kernels(&said, &broken), want);
    }
}
