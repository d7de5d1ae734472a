// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine wants done, until it is polled.

use alloc::collections::{BTreeMap, VecDeque};

use cm_msgs::Lid;

use crate::id::{ConnId, PortId};
use crate::output::{Order, Transmit};
use crate::trace::{Level, Trace};

/// Replies that wait for one port. Strangers can cause any number of them; a peer whose reply was
/// left out sends its message again.
const MAX_REPLIES: usize = 256;

/// Outputs that nobody has polled yet, each kind by itself.
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Outbox {
    mads: BTreeMap<PortId, PortQueue>,
    orders: VecDeque<(ConnId, Order)>,
    traces: VecDeque<Trace>,
    trace_level: Option<Level>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            mads: BTreeMap::new(),
            orders: VecDeque::new(),
            traces: VecDeque::new(),
            trace_level: Some(Level::Debug),
        }
    }
}

impl Outbox {
    /// A message of our own. The caller takes care that there is one copy of it at most.
    pub(crate) fn send(&mut self, mad: Transmit) {
        self.mads.entry(mad.port).or_default().put(mad, Kind::Own);
    }

    /// An answer to somebody's message. The one to an earlier copy of that message, if it still
    /// waits, is replaced.
    pub(crate) fn reply(&mut self, mad: Transmit) {
        let queue = self.mads.entry(mad.port).or_default();
        if queue.replies < MAX_REPLIES || queue.waits(mad.lid, mad.transaction_id) {
            queue.put(mad, Kind::Reply);
        }
    }

    /// Takes a MAD back that waits. False: it has left already, or there was none.
    pub(crate) fn take_back(&mut self, port: PortId, lid: Lid, transaction: u32) -> bool {
        let queue = self.mads.get_mut(&port);
        queue.is_some_and(|queue| queue.take_back(lid, transaction))
    }

    /// No MAD gets through that port any more.
    pub(crate) fn drop_port(&mut self, port: PortId) {
        self.mads.remove(&port);
    }

    pub(crate) fn next_mad(
        &mut self,
        mut has_room: impl FnMut(PortId) -> bool,
    ) -> Option<Transmit> {
        // A port without room does not hold up the others.
        let mut queues = self.mads.iter_mut();
        queues.find_map(|(&port, queue)| {
            let sendable = !queue.waiting.is_empty() && has_room(port);
            sendable.then(|| queue.pop()).flatten()
        })
    }

    pub(crate) fn order(&mut self, conn: ConnId, order: Order) {
        self.orders.push_back((conn, order));
    }

    pub(crate) fn next_order(&mut self) -> Option<(ConnId, Order)> {
        self.orders.pop_front()
    }

    pub(crate) fn has_order(&self) -> bool {
        !self.orders.is_empty()
    }

    pub(crate) fn trace(&mut self, trace: Trace) {
        if self.trace_level.is_some_and(|least| trace.level() >= least) {
            self.traces.push_back(trace);
        }
    }

    pub(crate) fn next_trace(&mut self) -> Option<Trace> {
        self.traces.pop_front()
    }

    pub(crate) fn set_trace_level(&mut self, least: Option<Level>) {
        self.trace_level = least;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
enum Kind {
    Own,
    Reply,
}

/// MADs that wait for one local port. A transaction with a peer's port has one at most.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
struct PortQueue {
    /// In the order of sending.
    waiting: BTreeMap<u64, (Transmit, Kind)>,
    places: BTreeMap<(Lid, u32), u64>,
    replies: usize,
    next_place: u64,
}

impl PortQueue {
    fn waits(&self, lid: Lid, transaction: u32) -> bool {
        self.places.contains_key(&(lid, transaction))
    }

    fn put(&mut self, mad: Transmit, kind: Kind) {
        let key = (mad.lid, mad.transaction_id);
        let place = *self.places.entry(key).or_insert(self.next_place);
        self.next_place += 1;
        let old = self.waiting.insert(place, (mad, kind));
        self.replies += usize::from(kind == Kind::Reply);
        self.forget(old);
    }

    fn take_back(&mut self, lid: Lid, transaction: u32) -> bool {
        let place = self.places.remove(&(lid, transaction));
        let mad = place.and_then(|place| self.waiting.remove(&place));
        self.forget(mad).is_some()
    }

    fn pop(&mut self) -> Option<Transmit> {
        let (_, first) = self.waiting.pop_first()?;
        self.places.remove(&(first.0.lid, first.0.transaction_id));
        self.forget(Some(first))
    }

    /// Counts one that does not wait any more.
    fn forget(&mut self, gone: Option<(Transmit, Kind)>) -> Option<Transmit> {
        let (mad, kind) = gone?;
        self.replies -= usize::from(kind == Kind::Reply);
        Some(mad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::cm::Drep;
    use cm_msgs::{Guid, PKey};

    fn port(port: u8) -> PortId {
        let node_guid = Guid(1);
        PortId { node_guid, port }
    }

    fn mad(number: u8, lid: u16, transaction_id: u32) -> Transmit {
        Transmit {
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            port: port(number),
            lid: Lid(lid),
            transaction_id,
            message: Drep::default().into(),
        }
    }

    fn lids(outbox: &mut Outbox) -> alloc::vec::Vec<u16> {
        core::iter::from_fn(|| outbox.next_mad(|_| true))
            .map(|mad| mad.lid.0)
            .collect()
    }

    #[test]
    fn a_port_without_room_holds_up_no_other() {
        let mut outbox = Outbox::default();
        outbox.send(mad(1, 10, 1));
        outbox.send(mad(2, 20, 2));
        let second = outbox.next_mad(|id| id == port(2)).map(|mad| mad.lid);
        assert_eq!(second, Some(Lid(20)));
        assert!(outbox.next_mad(|id| id == port(2)).is_none());
        assert_eq!(lids(&mut outbox), [10]);
    }

    #[test]
    fn what_waits_can_be_taken_back_and_what_has_left_cannot() {
        let mut outbox = Outbox::default();
        for lid in [10, 11, 12] {
            outbox.send(mad(1, lid, 7));
        }
        assert!(outbox.take_back(port(1), Lid(11), 7));
        assert!(!outbox.take_back(port(1), Lid(11), 7));
        assert_eq!(lids(&mut outbox), [10, 12]);
        assert!(!outbox.take_back(port(1), Lid(10), 7));
        outbox.send(mad(1, 10, 8));
        outbox.drop_port(port(1));
        assert!(lids(&mut outbox).is_empty());
    }

    #[test]
    fn replies_are_limited_and_keep_their_places() {
        let mut outbox = Outbox::default();
        for transaction in 0..2 * MAX_REPLIES as u32 {
            outbox.reply(mad(1, 10, transaction));
        }
        outbox.reply(mad(1, 10, 0));
        outbox.send(mad(1, 11, 0));
        let sent = lids(&mut outbox);
        assert_eq!(sent.len(), MAX_REPLIES + 1);
        assert_eq!(sent.last(), Some(&11), "own messages find room");
        outbox.reply(mad(1, 10, 0));
        assert_eq!(lids(&mut outbox), [10], "and there is room again");
    }

    #[test]
    fn an_answer_that_still_waits_is_replaced_by_the_newer_one_though_there_is_no_room() {
        let mut outbox = Outbox::default();
        for transaction in 0..MAX_REPLIES as u32 {
            outbox.reply(mad(1, 10, transaction));
        }
        let newer = Drep {
            local_comm_id: 5,
            ..Drep::default()
        };
        outbox.reply(Transmit {
            message: newer.clone().into(),
            ..mad(1, 10, 0)
        });
        let first = outbox.next_mad(|_| true).expect("a reply");
        assert_eq!((first.transaction_id, first.message), (0, newer.into()));
    }

    #[test]
    fn an_order_waits_until_it_is_polled() {
        let mut outbox = Outbox::default();
        assert!(!outbox.has_order());
        let conn = ConnId { client: 1, conn: 1 };
        outbox.order(conn, Order::Query(1));
        assert!(outbox.has_order());
        assert_eq!(outbox.next_order(), Some((conn, Order::Query(1))));
        assert!(!outbox.has_order());
    }
}
