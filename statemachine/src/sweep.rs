// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections have to look again after the fabric changed: round and round, a few at a time.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use crate::id::ConnId;

/// One round over all connections. A change during a round makes it last for a full round from
/// there, so that none is left out however often the fabric changes.
#[derive(Default, Debug)]
pub(crate) struct Sweep {
    last: Option<ConnId>,
    left: usize,
}

impl Sweep {
    /// All of so many connections are due.
    pub(crate) fn restart(&mut self, connections: usize) {
        self.left = connections;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The next one that is due.
    pub(crate) fn next<C>(&mut self, conns: &BTreeMap<ConnId, C>) -> Option<ConnId> {
        self.left = self.left.checked_sub(1)?;
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = conns.range((after, Bound::Unbounded)).next();
        let next = next.or_else(|| conns.first_key_value());
        self.last = next.map(|(&id, _)| id);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn conns(numbers: impl IntoIterator<Item = u64>) -> BTreeMap<ConnId, ()> {
        let id = |conn| ConnId { client: 1, conn };
        numbers.into_iter().map(|conn| (id(conn), ())).collect()
    }

    #[test]
    fn every_connection_has_its_turn_though_the_fabric_keeps_changing() {
        let (mut sweep, conns) = (Sweep::default(), conns(0..10));
        let mut turns = Vec::new();
        for _ in 0..5 {
            sweep.restart(conns.len());
            turns.extend((0..3).filter_map(|_| sweep.next(&conns)).map(|id| id.conn));
        }
        assert_eq!(turns, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
        let rest = core::iter::from_fn(|| sweep.next(&conns)).count();
        assert_eq!(rest, 7, "a full round after the last change");
        assert!(sweep.is_over());
    }

    #[test]
    fn connections_that_are_gone_end_a_round_early() {
        let mut sweep = Sweep::default();
        sweep.restart(10);
        sweep.next(&conns(0..10));
        assert_eq!(sweep.next(&conns([])), None);
        sweep.restart(2);
        assert_eq!(sweep.next(&conns(7..9)).map(|id| id.conn), Some(7));
    }
}
