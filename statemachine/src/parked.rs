// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQs that came before the application registered.

use alloc::vec::Vec;

use cm_msgs::association::ReqData;
use cm_msgs::cm::Req;

use crate::input::MadSource;

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

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct ParkedReqs {
    reqs: Vec<Parked>,
    next: u64,
}

impl ParkedReqs {
    /// Keeps a REQ, and says under which number, if there is room. A newer one that the same port sends for the
    /// same connection replaces the older: what others send for it may be forged.
    pub(crate) fn park(
        &mut self,
        source: MadSource,
        req: Req,
        data: ReqData,
        limit: usize,
        lmc: u8,
    ) -> Option<u64> {
        let mut new = Parked {
            number: self.next,
            source,
            req,
            data,
        };
        // A sender can choose its LID among those of its port only, so one cannot shut out the others.
        let is_sender = |old: &Parked| old.source.lid.is_one_port_with(new.source.lid, lmc);
        let replaced = |old: &Parked| is_sender(old) && same_connection(old, &new);
        if let Some(at) = self.reqs.iter().position(replaced) {
            new.number = self.reqs.remove(at).number;
        } else {
            let of_sender = self.reqs.iter().filter(|old| is_sender(old)).count();
            let share = (limit / SHARES).max(1);
            if self.reqs.len() >= limit || of_sender >= share {
                return None;
            }
            self.next += 1;
        }
        let number = new.number;
        self.reqs.push(new);
        Some(number)
    }

    /// Takes out those that fit. The last to come is what its sender is at: to answer an older one confirms IDs that
    /// it may have given up.
    pub(crate) fn take(&mut self, fits: impl FnMut(&Parked) -> bool) -> Vec<Parked> {
        let all = core::mem::take(&mut self.reqs);
        let (taken, kept) = all.into_iter().partition(fits);
        self.reqs = kept;
        taken
    }

    /// Its time is over.
    pub(crate) fn expire(&mut self, number: u64) {
        self.reqs.retain(|parked| parked.number != number);
    }
}

fn same_connection(a: &Parked, b: &Parked) -> bool {
    a.data.peer_qpn == b.data.peer_qpn
        && a.req.local_ca_guid == b.req.local_ca_guid
        && a.req.local_qpn == b.req.local_qpn
}
