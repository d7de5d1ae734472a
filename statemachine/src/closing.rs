// SPDX-License-Identifier: MIT OR Apache-2.0
//! Associations whose application has gone: DREQ until DREP, or until nobody answers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use cm_msgs::association::DreqData;
use cm_msgs::cm::Dreq;
use cm_msgs::{PKey, Qpn};

use crate::conn::CommIds;
use crate::context::{Alarm, Context, Owner, Route};
use crate::exchange::{Exchange, RoundTrip};
use crate::id::ConnId;
use crate::input::MadSource;
use crate::output::Order;
use crate::schedule::{Claim, Flight, Waiter};

/// Kept after the connection is gone: a peer that never hears of the end would keep its side open,
/// and propose paths for a QP number that somebody else may have by then.
#[cfg_attr(test, derive(Clone, Debug))]
struct Closing {
    ended: Ended,
    exchange: Exchange,
    /// Its DREQ, while it counts among the messages in flight.
    flight: Option<Box<Flight>>,
}

/// What is left of a connection that had an association.
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Ended {
    pub(crate) ids: CommIds,
    /// What its DREQ is charged to.
    pub(crate) claim: Claim,
    pub(crate) peer_qpn: Qpn,
    /// The connection's partition.
    pub(crate) pkey: PKey,
    pub(crate) routes: Vec<Route>,
    pub(crate) round_trip: RoundTrip,
    /// Its name, if its application disconnected. The peer's application is to hear of it, and this
    /// one that the peer has.
    pub(crate) disconnected: Option<ConnId>,
}

#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct ClosingTable {
    table: BTreeMap<u32, Closing>,
}

impl ClosingTable {
    /// Starts to close an association. Its communication ID stays taken until that is over.
    pub(crate) fn open(&mut self, cx: &mut Context, ended: Ended) {
        let comm_id = ended.ids.local;
        cx.comm_ids.insert(comm_id, Owner::Closing);
        let exchange = Exchange::new(cx.transaction(), 0);
        let closing = Closing {
            ended,
            exchange,
            flight: None,
        };
        let claim = closing.ended.claim;
        self.table.insert(comm_id, closing);
        if cx.schedule.has_room(&claim) {
            self.retry(cx, comm_id);
        } else {
            cx.schedule.wait(claim, Waiter::Closing(comm_id));
        }
    }

    /// Sends the next DREQ, or gives up.
    pub(crate) fn retry(&mut self, cx: &mut Context, comm_id: u32) {
        let Some(closing) = self.table.get_mut(&comm_id) else {
            return;
        };
        let Closing {
            ended,
            exchange,
            flight,
        } = closing;
        let Ended {
            ids,
            claim,
            peer_qpn,
            routes,
            round_trip,
            disconnected,
            ..
        } = ended;
        let dreq = || {
            Dreq {
                local_comm_id: ids.local,
                remote_comm_id: ids.remote,
                remote_qpn_eecn: *peer_qpn,
                private_data: DreqData {
                    disconnected: disconnected.is_some(),
                }
                .encode(),
            }
            .into()
        };
        match exchange.next(cx, claim, routes, *round_trip, dreq) {
            Some(wait) => {
                let requests = u8::from(!exchange.has_yielded());
                cx.schedule.in_flight(flight, *claim, requests);
                cx.timers.set(Alarm::Closing(comm_id), cx.now + wait);
            }
            None => self.free(cx, comm_id),
        }
    }

    /// Whether a MAD for `comm_id` came in the partition of that association.
    pub(crate) fn is_partition_of(&self, comm_id: u32, source: &MadSource) -> bool {
        let closing = self.table.get(&comm_id);
        closing.is_some_and(|closing| source.is_in(closing.ended.pkey))
    }

    /// Whether a MAD for `comm_id` comes from the peer of that association.
    pub(crate) fn knows(&self, cx: &Context, comm_id: u32, source: &MadSource) -> bool {
        let Some(Closing { ended, .. }) = self.table.get(&comm_id) else {
            return false;
        };
        let from = cx.ports.end(source.port, source.lid);
        let mut routes = ended.routes.iter();
        from.is_some() && routes.any(|route| cx.ports.end(route.port, route.lid) == from)
    }

    /// The peer knows of the end: it says so, by the name it had for the association.
    pub(crate) fn heard(&mut self, cx: &mut Context, comm_id: u32, remote: u32) {
        let ended = self.table.get(&comm_id).map(|closing| &closing.ended);
        let Some(ended) = ended.filter(|ended| ended.ids.remote == remote) else {
            return;
        };
        if let Some(conn) = ended.disconnected {
            cx.order(conn, Order::Disconnected);
        }
        self.free(cx, comm_id);
    }

    /// It is closed.
    pub(crate) fn free(&mut self, cx: &mut Context, comm_id: u32) {
        if let Some(mut closing) = self.table.remove(&comm_id) {
            cx.schedule.leave(Waiter::Closing(comm_id));
            cx.schedule
                .in_flight(&mut closing.flight, closing.ended.claim, 0);
            cx.comm_ids.remove(&comm_id);
            cx.timers.cancel(&Alarm::Closing(comm_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::id::{Payer, PortId};
    use crate::random::Random;
    use crate::schedule::Class;
    use cm_msgs::{Guid, Lid};

    const CLAIM: Claim = Claim {
        class: Class::Improve,
        payer: Payer(1),
        far: None,
    };

    fn ended(number: u32) -> Ended {
        Ended {
            ids: CommIds::from_peer(number, number),
            claim: CLAIM,
            peer_qpn: Qpn(number),
            pkey: PKey::DEFAULT_FULL,
            routes: alloc::vec![Route {
                port: PortId::new(Guid(1), 1),
                lid: Lid(9),
                sl: 0,
                path_bits: 0,
                pkey: PKey::DEFAULT_FULL,
            }],
            round_trip: RoundTrip::default(),
            disconnected: None,
        }
    }

    #[test]
    fn a_dreq_is_in_flight_until_it_is_answered() {
        let mut cx = Context::new(Config::default(), Random::new([1; 32]));
        let mut closing = ClosingTable::default();
        for number in 1..=200 {
            closing.open(&mut cx, ended(number));
        }
        let sent = core::iter::from_fn(|| cx.outbox.next_mad(|_| true)).count();
        assert!((1..64).contains(&sent), "{sent} of 200 at once");
        assert!(!cx.schedule.has_room(&CLAIM));
        for number in 1..=200 {
            closing.heard(&mut cx, number, number);
        }
        assert!(cx.schedule.has_room(&CLAIM) && !cx.schedule.has_queue());
        assert!(cx.comm_ids.is_empty());
        assert_eq!(cx.next_timer(), None);
    }
}
