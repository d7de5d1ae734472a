// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQs that came before the application registered.

use alloc::vec::Vec;

use cm_msgs::association::ReqData;
use cm_msgs::cm::Req;

use crate::input::MadSource;
use crate::port::same_port;

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

/// What became of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parking {
    /// It is kept under this number.
    New(u64),
    /// A copy of it is kept already.
    Copy,
    /// There is no room.
    Full,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct ParkedReqs {
    reqs: Vec<Parked>,
    next: u64,
}

impl ParkedReqs {
    /// Keeps a REQ. A newer one for the same connection replaces the older.
    pub(crate) fn park(
        &mut self,
        source: MadSource,
        req: Req,
        data: ReqData,
        limit: usize,
        lmc: u8,
    ) -> Parking {
        let mut new = Parked {
            number: self.next,
            source,
            req,
            data,
        };
        // The newest is what the peer is at: to answer the older one would confirm IDs that it has
        // given up.
        if let Some(old) = self.reqs.iter_mut().find(|old| same_connection(old, &new)) {
            new.number = old.number;
            *old = new;
            return Parking::Copy;
        }
        // A sender can choose its LID among those of its port only, so one cannot shut out the others.
        let of_sender = |old: &&Parked| same_port(old.source.lid, new.source.lid, lmc);
        let share = (limit / SHARES).max(1);
        if self.reqs.len() >= limit || self.reqs.iter().filter(of_sender).count() >= share {
            return Parking::Full;
        }
        self.next += 1;
        let number = new.number;
        self.reqs.push(new);
        Parking::New(number)
    }

    /// Takes out the first that fits.
    pub(crate) fn take(&mut self, fits: impl FnMut(&Parked) -> bool) -> Option<Parked> {
        let at = self.reqs.iter().position(fits)?;
        Some(self.reqs.swap_remove(at))
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
