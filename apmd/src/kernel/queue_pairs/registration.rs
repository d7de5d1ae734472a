// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair of the module's as the engine is told of it, and whose it is.

use std::collections::BTreeMap;
use std::iter;
use std::rc::Rc;

use cm_msgs::Lid;
use cm_msgs::control::{PolicyOverride, QpState, Register, Role, Snapshot};
use statemachine::PortId;

use crate::io::apm_module::{KernelQp, LeftAlone};
use crate::registrations::{Sharer, UlpPeer};

/// The LID where a connected queue pair, or the alternate that it has loaded, ends though no port can have it.
/// Any user can make one so; MADs to there would reach whoever listens, or nobody.
pub(crate) fn astray(snapshot: &Snapshot) -> Option<Lid> {
    // Of others the kernel may have forgotten the paths.
    let is_connected = matches!(
        snapshot.qp_state,
        QpState::Rtr | QpState::Rts | QpState::Sqd
    );
    let paths = iter::once(&snapshot.primary).chain(&snapshot.alternate);
    let mut lids = paths.filter(|_| is_connected).map(|path| path.dlid);
    lids.find(|lid| !lid.is_unicast())
}

/// As a library would register it, if it is connected or stays in RTR. The module's word needs no proof; that a path leads
/// to a port is its owner's word, see [`astray`].
pub(super) fn registration(qp: &KernelQp) -> Option<Register> {
    let snapshot = qp.snapshot?;
    let is_connected = match qp.left_alone {
        Some(LeftAlone::ResponderOnly) => snapshot.qp_state == QpState::Rtr,
        _ => snapshot.qp_state == QpState::Rts,
    };
    is_connected.then(|| Register {
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

/// Whose share a queue pair takes; `ports` with their LMC. A subnet manager gives all ports of hosts the same
/// LMC, so a host is not as many as it has LIDs.
pub(super) fn sharer(qp: &KernelQp, register: &Register, ports: &BTreeMap<PortId, u8>) -> Sharer {
    if qp.owner.pid.is_some() {
        return Sharer::User(qp.owner.payer);
    }
    let primary = &register.snapshot.primary;
    let port = PortId::new(qp.node_guid, primary.port);
    let lmc = ports.get(&port).copied().unwrap_or(0);
    Sharer::Ulp {
        name: Rc::from(qp.owner.name.as_str()),
        peer: UlpPeer {
            prefix: primary.sgid.subnet_prefix(),
            lid: primary.dlid.base(lmc),
        },
    }
}
