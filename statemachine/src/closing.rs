// SPDX-License-Identifier: MIT OR Apache-2.0
//! Associations whose application has gone: DREQ until DREP, or until nobody answers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use cm_msgs::Qpn;
use cm_msgs::cm::Dreq;
use cm_msgs::path::PortAddress;

use crate::conn::CommIds;
use crate::context::{Alarm, Context, Owner, Route};
use crate::exchange::{Exchange, RoundTrip};
use crate::input::MadSource;
use crate::port::same_port;

/// Kept after the connection is gone: a peer that never hears of the end would keep its side open,
/// and propose paths for a QP number that somebody else may have by then.
pub(crate) struct Closing {
    ids: CommIds,
    peer_qpn: Qpn,
    peer_ports: Vec<PortAddress>,
    routes: Vec<Route>,
    exchange: Exchange,
    round_trip: RoundTrip,
}

#[derive(Default)]
pub(crate) struct ClosingTable(BTreeMap<u32, Closing>);

impl ClosingTable {
    /// Starts to close an association. Its communication ID stays taken until that is over.
    pub(crate) fn open(
        &mut self,
        cx: &mut Context,
        ids: CommIds,
        peer_qpn: Qpn,
        peer_ports: Vec<PortAddress>,
        routes: Vec<Route>,
        round_trip: RoundTrip,
    ) {
        cx.comm_ids.insert(ids.local, Owner::Closing);
        let exchange = Exchange::new(cx.transaction(), 0);
        self.0.insert(
            ids.local,
            Closing {
                ids,
                peer_qpn,
                peer_ports,
                routes,
                exchange,
                round_trip,
            },
        );
        self.retry(cx, ids.local);
    }

    /// Sends the next DREQ, or gives up.
    pub(crate) fn retry(&mut self, cx: &mut Context, comm_id: u32) {
        let Some(closing) = self.0.get_mut(&comm_id) else {
            return;
        };
        let Closing {
            ids,
            peer_qpn,
            routes,
            exchange,
            round_trip,
            ..
        } = closing;
        let dreq = || {
            Dreq {
                local_comm_id: ids.local,
                remote_comm_id: ids.remote,
                remote_qpn_eecn: *peer_qpn,
                ..Dreq::default()
            }
            .into()
        };
        match exchange.next(cx, routes, *round_trip, dreq) {
            Some(wait) => cx.timers.set(Alarm::Closing(comm_id), cx.now + wait),
            None => self.free(cx, comm_id),
        }
    }

    /// Whether a MAD for `comm_id` comes from the peer of that association.
    pub(crate) fn knows(&self, cx: &Context, comm_id: u32, source: &MadSource) -> bool {
        let lmc = cx.ports.get(source.port).map_or(0, |port| port.status.lmc);
        self.0.get(&comm_id).is_some_and(|closing| {
            let ports = closing.peer_ports.iter().map(|port| port.lid);
            let sent = closing.routes.iter().map(|route| route.lid);
            ports.chain(sent).any(|lid| same_port(lid, source.lid, lmc))
        })
    }

    /// It is closed.
    pub(crate) fn free(&mut self, cx: &mut Context, comm_id: u32) {
        if self.0.remove(&comm_id).is_some() {
            cx.comm_ids.remove(&comm_id);
            cx.timers.cancel(&Alarm::Closing(comm_id));
        }
    }
}
