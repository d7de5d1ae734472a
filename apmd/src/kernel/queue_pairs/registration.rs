// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair of the module's as the engine is told of it.

use cm_msgs::control::{PolicyOverride, QpState, Register, Role, Snapshot};

use crate::io::apm_module::KernelQp;

/// As a library would register it, if it is connected. The module's word needs no proof.
pub(super) fn registration(qp: &KernelQp) -> Option<Register> {
    let snapshot = qp.snapshot?;
    (snapshot.qp_state == QpState::Rts).then(|| Register {
        role: qp.role.unwrap_or_else(|| role_without_cm(qp, &snapshot)),
        opted_in: false,
        node_guid: qp.node_guid,
        qpn: qp.qpn,
        peer_qpn: qp.peer_qpn,
        policy: PolicyOverride::default(),
        snapshot,
    })
}

/// Where no connection manager says who called whom, the end with the lower LID and QPN is active: both
/// ends know both pairs.
fn role_without_cm(qp: &KernelQp, snapshot: &Snapshot) -> Role {
    let Snapshot { primary, .. } = snapshot;
    if (primary.slid, qp.qpn) < (primary.dlid, qp.peer_qpn) {
        Role::Active
    } else {
        Role::Passive
    }
}
