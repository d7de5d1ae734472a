// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a peer's message is.

use cm_msgs::association::{AssociationError, ReqData};
use cm_msgs::cm::{self, RejReason, Rejected, Req};

use super::Engine;
use crate::config::SERVICE_ID;
use crate::conn::{CommIds, MraReceived};
use crate::context::{Alarm, Owner, Route};
use crate::id::ConnId;
use crate::input::MadSource;
use crate::parked::Parked;
use crate::trace::Drop;

impl Engine {
    pub(super) fn mad(&mut self, source: &MadSource, message: &cm::Message) {
        self.cx.counters.mads_received += 1;
        let comm_id = match message {
            cm::Message::Req(req) => return self.req(source, req),
            cm::Message::Rep(rep) => rep.remote_comm_id,
            cm::Message::Rtu(rtu) => rtu.remote_comm_id,
            cm::Message::Mra(mra) => mra.remote_comm_id,
            cm::Message::Rej(rej) => rej.remote_comm_id,
            cm::Message::Dreq(dreq) => dreq.remote_comm_id,
            cm::Message::Drep(drep) => drep.remote_comm_id,
            cm::Message::Lap(lap) => lap.remote_comm_id,
            cm::Message::Apr(apr) => apr.remote_comm_id,
            cm::Message::Sap(sap) => sap.remote_comm_id,
            cm::Message::Spr(spr) => spr.remote_comm_id,
            cm::Message::SidrReq(_) | cm::Message::SidrRep(_) => {
                return self.cx.drop_mad(source, message.name(), Drop::OutOfPlace);
            }
        };
        match self.cx.comm_ids.get(&comm_id) {
            Some(&Owner::Conn(id)) => match self.conns.get_mut(&id) {
                Some(conn) if !conn.core.is_partition_of(source) => {
                    self.cx.drop_mad(source, message.name(), Drop::Partition);
                }
                Some(conn) => conn.message(&mut self.cx, source, message),
                None => {}
            },
            Some(Owner::Closing) if !self.closing.is_partition_of(comm_id, source) => {
                self.cx.drop_mad(source, message.name(), Drop::Partition);
            }
            Some(Owner::Closing) => self.closing_message(comm_id, source, message),
            Some(&Owner::GivenUp(id)) => self.late_message(id, source, message),
            None => self.stray(source, message),
        }
    }

    /// A message for an association that this end gave up, since the peer did not answer.
    fn late_message(&mut self, id: ConnId, source: &MadSource, message: &cm::Message) {
        let conn = self.conns.get_mut(&id);
        let Some(conn) = conn.filter(|conn| conn.core.is_partition_of(source)) else {
            return self.cx.drop_mad(source, message.name(), Drop::Partition);
        };
        match message {
            cm::Message::Sap(sap) if source.qpn == 1 => conn.late_sap(&mut self.cx, sap),
            cm::Message::Dreq(dreq) => conn.late_dreq(&mut self.cx, source, dreq),
            _ => {}
        }
        self.stray(source, message);
    }

    /// A message for an association that is being closed.
    fn closing_message(&mut self, comm_id: u32, source: &MadSource, message: &cm::Message) {
        if !self.closing.knows(&self.cx, comm_id, source) {
            return self.cx.drop_mad(source, message.name(), Drop::Stranger);
        }
        match message {
            cm::Message::Rej(_) => self.closing.free(&mut self.cx, comm_id),
            cm::Message::Drep(drep) => {
                self.closing
                    .heard(&mut self.cx, comm_id, drep.local_comm_id);
            }
            cm::Message::Dreq(dreq) => {
                self.stray(source, message);
                self.closing
                    .heard(&mut self.cx, comm_id, dreq.local_comm_id);
            }
            _ => self.cx.drop_mad(source, message.name(), Drop::OutOfPlace),
        }
    }

    /// A message for no association: the sender is told, where it would wait otherwise.
    fn stray(&mut self, source: &MadSource, message: &cm::Message) {
        let to = Route::from(source);
        let rejected = match message {
            cm::Message::Dreq(dreq) => {
                let ids = CommIds::from_peer(dreq.local_comm_id, dreq.remote_comm_id);
                // Answered though nothing is known of it, or the peer would repeat it until it
                // gives up.
                return self.cx.reply(to, source.transaction_id, ids.drep());
            }
            cm::Message::Rej(rej) => {
                let parked = self.parked.take(|parked| {
                    parked.req.local_comm_id == rej.local_comm_id
                        && self.cx.ports.is_one_sender(&parked.source, source)
                });
                if !parked.is_empty() {
                    for Parked { number, .. } in parked {
                        self.cx.timers.cancel(&Alarm::Parked(number));
                    }
                    return;
                }
                None
            }
            cm::Message::Rep(rep) => {
                let ids = CommIds::from_peer(rep.local_comm_id, rep.remote_comm_id);
                Some((ids, Rejected::Rep))
            }
            cm::Message::Lap(lap) => {
                let ids = CommIds::from_peer(lap.local_comm_id, lap.remote_comm_id);
                Some((ids, Rejected::NoMessage))
            }
            cm::Message::Sap(sap) => {
                let ids = CommIds::from_peer(sap.local_comm_id, sap.remote_comm_id);
                Some((ids, Rejected::NoMessage))
            }
            _ => None,
        };
        // A daemon that was started anew knows nothing of old associations. A peer that is told so
        // opens another at once; one that is not waits for its retries to end.
        if let Some((ids, rejected)) = rejected {
            let rej = ids.rej(rejected, RejReason::InvalidCommId);
            self.cx.reply(to, source.transaction_id, rej);
        }
        self.cx.drop_mad(source, message.name(), Drop::OutOfPlace);
    }

    fn req(&mut self, source: &MadSource, req: &Req) {
        let reject = |reason| {
            let ids = CommIds::from_peer(req.local_comm_id, 0);
            ids.rej(Rejected::Req, reason)
        };
        let to = Route::from(source);
        if req.service_id != SERVICE_ID {
            let rej = reject(RejReason::InvalidServiceId);
            return self.cx.reply(to, source.transaction_id, rej);
        }
        let data = match ReqData::decode(&req.private_data) {
            Ok(data) => ReqData {
                state: data.state.with_primary_at(req.primary.local_port_gid),
                ..data
            },
            Err(error) => {
                self.cx.drop_mad(source, "REQ", Drop::Malformed);
                let rej = reject(match error {
                    AssociationError::Version(_) => RejReason::InvalidClassVersion,
                    _ => RejReason::Unsupported,
                });
                return self.cx.reply(to, source.transaction_id, rej);
            }
        };
        let primary = &req.primary;
        let device =
            self.cx
                .ports
                .device_at(source, primary.remote_port_gid, primary.remote_port_lid);
        let Some(device) = device else {
            let rej = reject(RejReason::InvalidPrimaryGid);
            return self.cx.reply(to, source.transaction_id, rej);
        };
        let id = self.by_qp(device, data.peer_qpn);
        match id.and_then(|id| self.conns.get_mut(&id)) {
            Some(conn) if conn.is_asked_by(source, &self.cx, req, &data) => {
                if !conn.core.is_partition_of(source) {
                    return self.cx.drop_mad(source, "REQ", Drop::Partition);
                }
                conn.req(&mut self.cx, source, req, &data);
            }
            // Not registered yet, or an older connection had that QP.
            _ => self.park(source, req, data),
        }
    }

    fn park(&mut self, source: &MadSource, req: &Req, data: ReqData) {
        let wait = self.cx.config.parked_for;
        let limit = self.cx.config.parked_limit;
        let sender = self.sender(source.port, source.lid);
        let is_peer = self.leads_to(source.port, source.lid);
        let parked = self
            .parked
            .park(*source, req.clone(), data, limit, sender, is_peer);
        let Some(number) = parked else {
            return self.cx.drop_mad(source, "REQ", Drop::Overflow);
        };
        let expiry = self.cx.now + wait;
        self.cx.timers.set(Alarm::Parked(number), expiry);
        let ids = CommIds::from_peer(req.local_comm_id, 0);
        let mra = ids.mra(MraReceived::Req, wait);
        self.cx
            .reply(Route::from(source), source.transaction_id, mra);
    }
}
