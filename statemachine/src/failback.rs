// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections may go to where they belong: a few at a time, in the order in which they came.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::ConnId;

/// Connections on their way at a time: so many of a host's are without their alternate for it at most.
const LIMIT: usize = 8;

/// Connections that are not on the port where they belong, and could go there.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Failbacks {
    queue: BTreeMap<u64, ConnId>,
    places: BTreeMap<ConnId, u64>,
    last: u64,
    moving: BTreeSet<ConnId>,
}

impl Failbacks {
    /// A connection waits for its turn.
    pub(crate) fn enqueue(&mut self, id: ConnId) {
        if !self.places.contains_key(&id) && !self.moving.contains(&id) {
            self.last += 1;
            self.queue.insert(self.last, id);
            self.places.insert(id, self.last);
        }
    }

    /// The next that may go.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        if self.moving.len() >= LIMIT {
            return None;
        }
        let (_, id) = self.queue.pop_first()?;
        self.places.remove(&id);
        self.moving.insert(id);
        Some(id)
    }

    /// A connection does not go, has arrived, or is closed.
    pub(crate) fn remove(&mut self, id: ConnId) {
        self.moving.remove(&id);
        if let Some(place) = self.places.remove(&id) {
            self.queue.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn id(conn: u32) -> ConnId {
        ConnId { client: 1, conn }
    }

    #[test]
    fn a_few_go_at_a_time_in_their_order() {
        let mut failbacks = Failbacks::default();
        for conn in (1..=20).chain(1..=20) {
            failbacks.enqueue(id(conn));
        }
        failbacks.remove(id(2));
        let go = |failbacks: &mut Failbacks| {
            let next = core::iter::from_fn(|| failbacks.next());
            next.map(|id| id.conn).collect::<Vec<_>>()
        };
        assert_eq!(go(&mut failbacks), [1, 3, 4, 5, 6, 7, 8, 9]);
        failbacks.enqueue(id(1));
        failbacks.remove(id(5));
        failbacks.remove(id(5));
        assert_eq!(go(&mut failbacks), [10], "the first is on its way");
    }
}
