// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that cannot be managed: the reason, and the answer to a REQ.

use cm_msgs::Guid;
use cm_msgs::association::{self, RepData};
use cm_msgs::cm::{FailoverAccepted, Rep, Req};
use cm_msgs::control::{QpState, Refusal, Snapshot};

use super::association::CommIds;
use super::passive;
use super::qp::Core;
use crate::context::{Context, Route};
use crate::input::MadSource;
use crate::trace::Drop;

/// Why a connection with this queue pair cannot be managed, if so. One in RTR is registered only if it stays there.
pub(super) fn reason(cx: &Context, node_guid: Guid, qp: &Snapshot) -> Option<Refusal> {
    if qp.qp_state == QpState::Rtr {
        return Some(Refusal::ReceivesOnly);
    }
    let Some(port) = cx.ports.of_path(node_guid, qp.primary.port) else {
        return Some(Refusal::NoDevice);
    };
    let status = &port.status;
    if !status.infiniband {
        Some(Refusal::NotInfiniBand)
    } else if !status.apm {
        Some(Refusal::NoApm)
    } else if status.device_ports < 2 && status.lmc == 0 {
        Some(Refusal::OnePath)
    } else {
        None
    }
}

/// A REQ for a connection that cannot be managed. Either end may be asked, whichever would open the association: the
/// active one never does, and without an answer the peer would only know that nobody asks it.
pub(super) fn answer_req(
    core: &Core,
    cx: &mut Context,
    source: &MadSource,
    req: &Req,
    refusal: Refusal,
) {
    // Anybody can send a REQ. The peer's may come from a port of its own that is not known here.
    if !core.knows(cx, source) && !cx.refusals_elsewhere.try_take(cx.now) {
        return cx.drop_mad(source, "REQ", Drop::Stranger);
    }
    let ids = CommIds::from_peer(req.local_comm_id, 0);
    let rep = rep(core, ids, refusal);
    cx.reply(Route::from(source), source.transaction_id, rep);
}

fn rep(core: &Core, ids: CommIds, refusal: Refusal) -> Rep {
    let (failover, refusal) = match refusal {
        Refusal::OnePath => (
            FailoverAccepted::Rejected,
            association::Refusal::NoSecondPath,
        ),
        Refusal::NoDevice
        | Refusal::NotInfiniBand
        | Refusal::NoApm
        | Refusal::GlobalRoute
        | Refusal::GrhRequired => (
            FailoverAccepted::NotSupported,
            association::Refusal::DeviceCannot,
        ),
        Refusal::NotOwner | Refusal::Full | Refusal::Contradicted => {
            (FailoverAccepted::Rejected, association::Refusal::Policy)
        }
        Refusal::ReceivesOnly => (
            FailoverAccepted::Rejected,
            association::Refusal::ReceivesOnly,
        ),
    };
    let data = RepData {
        state: core.own.state(),
        refusal: Some(refusal),
    };
    Rep {
        failover_accepted: failover.into(),
        private_data: data.encode(),
        ..passive::rep(core, ids)
    }
}
