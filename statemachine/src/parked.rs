// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQs that came before the application registered.

use alloc::vec::Vec;

use cm_msgs::association::ReqData;
use cm_msgs::cm::Req;

use crate::fair_share::FairShare;
use crate::input::MadSource;
use crate::sender::Sender;

/// A REQ that waits for its application.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    /// Names it in its timer.
    pub(crate) number: u64,
    pub(crate) source: MadSource,
    pub(crate) req: Req,
    pub(crate) data: ReqData,
}

/// Of the room, one port has one part in so many.
const SHARES: usize = 4;

/// Places beyond the limit for ports that connections lead to: strangers cannot shut them out.
const RESERVE: usize = 64;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct ParkedReqs {
    reqs: Vec<(Sender, Parked)>,
    shares: FairShare<Sender>,
    next: u64,
}

impl Default for ParkedReqs {
    fn default() -> Self {
        Self {
            reqs: Vec::new(),
            shares: FairShare::new(0, RESERVE),
            next: 0,
        }
    }
}

impl ParkedReqs {
    /// Keeps a REQ, and says under which number, if there is room. A newer one that the same port sends for the
    /// same connection replaces the older: what others send for it may be forged. `is_peer`: a connection leads to
    /// that port.
    pub(crate) fn park(
        &mut self,
        source: MadSource,
        req: Req,
        data: ReqData,
        limit: usize,
        sender: Sender,
        is_peer: bool,
    ) -> Option<u64> {
        let mut new = Parked {
            number: self.next,
            source,
            req,
            data,
        };
        let replaced = |(of, old): &(Sender, Parked)| *of == sender && same_connection(old, &new);
        if let Some(at) = self.reqs.iter().position(replaced) {
            new.number = self.reqs.remove(at).1.number;
        } else {
            let of_sender = self.reqs.iter().filter(|(of, _)| *of == sender).count();
            let share = (limit / SHARES).max(1);
            self.shares.set_limit(limit);
            if of_sender >= share || !self.shares.take(sender, 1, is_peer) {
                return None;
            }
            self.next += 1;
        }
        let number = new.number;
        self.reqs.push((sender, new));
        Some(number)
    }

    /// Takes out those that fit. The last to come is what its sender is at: to answer an older one confirms IDs that
    /// it may have given up.
    pub(crate) fn take(&mut self, mut fits: impl FnMut(&Parked) -> bool) -> Vec<Parked> {
        let all = core::mem::take(&mut self.reqs);
        let (taken, kept) = all.into_iter().partition::<Vec<_>, _>(|(_, req)| fits(req));
        self.reqs = kept;
        let freed = taken.into_iter();
        freed
            .map(|(sender, req)| {
                self.shares.give_back(sender, 1);
                req
            })
            .collect()
    }

    /// Its time is over.
    pub(crate) fn expire(&mut self, number: u64) {
        self.take(|parked| parked.number == number);
    }
}

fn same_connection(a: &Parked, b: &Parked) -> bool {
    // Ports with equal LIDs can be taken for one sender where two devices are in subnets with equal prefixes; a queue
    // pair is one device's.
    a.source.port.node_guid == b.source.port.node_guid
        && a.data.peer_qpn == b.data.peer_qpn
        && a.req.local_ca_guid == b.req.local_ca_guid
        && a.req.local_qpn == b.req.local_qpn
}

#[cfg(test)]
mod tests {
    use cm_msgs::{Guid, Lid, PKey};

    use super::*;
    use crate::id::PortId;
    use crate::sender::local_ports;

    const LIMIT: usize = 256;

    fn source(local: u8, lid: u16) -> MadSource {
        MadSource {
            port: PortId::new(Guid(1), local),
            lid: Lid(lid),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: 1,
        }
    }

    /// How many REQs from these LIDs, by turns and by both local ports, find a place.
    fn fill(parked: &mut ParkedReqs, lids: &[u16], lmc: u8, is_peer: bool) -> usize {
        let ports = local_ports(lmc);
        let taken = lids.iter().cycle().take(1_000).enumerate();
        let taken = taken.filter(|&(number, &lid)| {
            let req = Req {
                local_qpn: cm_msgs::Qpn(number as u32),
                ..Req::default()
            };
            let data = ReqData::default();
            let source = source(1 + (number / lids.len() % 2) as u8, lid);
            let sender = Sender::new(&ports, source.port, source.lid);
            let place = parked.park(source, req, data, LIMIT, sender, is_peer);
            place.is_some()
        });
        taken.count()
    }

    #[test]
    fn the_lids_of_a_port_share_a_quarter_by_all_local_ports() {
        let mut parked = ParkedReqs::default();
        let lids: Vec<u16> = (8..16).collect();
        assert_eq!(fill(&mut parked, &lids, 3, false), LIMIT / SHARES);
        assert_eq!(fill(&mut parked, &[16], 3, false), LIMIT / SHARES);
    }

    #[test]
    fn four_ports_leave_places_for_others() {
        let mut parked = ParkedReqs::default();
        let held: usize = [1, 2, 3, 4]
            .map(|lid| fill(&mut parked, &[lid], 0, false))
            .iter()
            .sum();
        assert!(held < LIMIT, "{held}");
        for lid in 5..20 {
            assert_eq!(fill(&mut parked, &[lid], 0, false), 1, "a stranger");
        }
        assert_eq!(fill(&mut parked, &[30], 0, true), LIMIT / SHARES, "a peer");
        parked.take(|_| true);
        assert_eq!(fill(&mut parked, &[1], 0, false), LIMIT / SHARES);
    }

    /// Under which number a REQ is kept.
    fn park_one(
        parked: &mut ParkedReqs,
        (lid, guid, qpn, peer_qpn): (u16, u64, u32, u32),
    ) -> Option<u64> {
        let req = Req {
            local_ca_guid: Guid(guid),
            local_qpn: cm_msgs::Qpn(qpn),
            ..Req::default()
        };
        let data = ReqData {
            peer_qpn: cm_msgs::Qpn(peer_qpn),
            ..ReqData::default()
        };
        let source = source(1, lid);
        let sender = Sender::new(&local_ports(0), source.port, source.lid);
        parked.park(source, req, data, LIMIT, sender, false)
    }

    #[test]
    fn a_copy_takes_the_place_of_the_one_before_and_another_connections_req_does_not() {
        let mut parked = ParkedReqs::default();
        let first = (1, 2, 3, 4);
        assert_eq!(park_one(&mut parked, first), Some(0));
        for (other, number) in [
            ((9, 2, 3, 4), 1),
            ((1, 9, 3, 4), 2),
            ((1, 2, 9, 4), 3),
            ((1, 2, 3, 9), 4),
        ] {
            assert_eq!(park_one(&mut parked, other), Some(number), "{other:?}");
        }
        assert_eq!(park_one(&mut parked, first), Some(0), "a copy");
        let other_device = |parked: &mut ParkedReqs| {
            let source = MadSource {
                port: PortId::new(Guid(2), 1),
                ..source(1, 1)
            };
            let sender = Sender::new(&local_ports(0), PortId::new(Guid(1), 1), source.lid);
            let req = Req {
                local_ca_guid: Guid(2),
                local_qpn: cm_msgs::Qpn(3),
                ..Req::default()
            };
            let data = ReqData {
                peer_qpn: cm_msgs::Qpn(4),
                ..ReqData::default()
            };
            parked.park(source, req, data, LIMIT, sender, false)
        };
        assert_eq!(other_device(&mut parked), Some(5), "by another device");
        parked.expire(5);
        parked.expire(3);
        let mut numbers: Vec<u64> = Vec::new();
        numbers.extend(parked.take(|_| true).iter().map(|req| req.number));
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 4]);
    }
}
