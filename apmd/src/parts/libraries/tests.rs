// SPDX-License-Identifier: MIT OR Apache-2.0
use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Role, Snapshot};
use cm_msgs::path::Path as QpPath;
use cm_msgs::{Gid, Guid, Lid, Qpn};

use super::*;

pub(super) fn register() -> Register {
    Register {
        role: Role::Active,
        opted_in: false,
        node_guid: Guid(1),
        qpn: Qpn(0x11),
        peer_qpn: Qpn(0x22),
        policy: PolicyOverride::default(),
        snapshot: Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: QpPath {
                port: 1,
                slid: Lid(4),
                dlid: Lid(9),
                sgid: Gid([1; 16]),
                ..QpPath::default()
            },
            alternate: None,
        },
    }
}
