// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection for tests.

use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Register, Role, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Guid, Qpn};

use super::Connection;
use super::qp::Core;
use crate::context::Context;
use crate::id::{ConnId, Payer};

/// An idle connection. It was never armed.
pub(super) fn core(cx: &mut Context) -> Core {
    let register = Register {
        role: Role::Passive,
        opted_in: false,
        node_guid: Guid(1),
        qpn: Qpn(1),
        peer_qpn: Qpn(2),
        policy: PolicyOverride::default(),
        snapshot: Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: Path::default(),
            alternate: None,
        },
    };
    let id = ConnId { client: 1, conn: 1 };
    Connection::new(cx, id, Payer(1), &register, None).core
}
