// SPDX-License-Identifier: MIT OR Apache-2.0
//! What many connections have in common, kept once: the ports of a peer, what paths to it share.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// Values that nobody uses any more are looked for when there are so many, or twice as many as were in use
/// the last time.
const FIRST_SWEEP: usize = 64;

/// The values that connections use.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct SharedValues<T> {
    values: BTreeSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: Ord> Default for SharedValues<T> {
    fn default() -> Self {
        Self {
            values: BTreeSet::new(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl<T: Ord> SharedValues<T> {
    /// Has a value shared that is not yet.
    pub(crate) fn share(&mut self, value: &mut Arc<T>) {
        if Arc::strong_count(value) > 1 {
            return;
        }
        if let Some(same) = self.values.get(value) {
            *value = Arc::clone(same);
            return;
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = FIRST_SWEEP.max(2 * self.values.len());
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use cm_msgs::path::PortAddress;
    use cm_msgs::{Gid, Lid};

    fn list(lid: u16) -> Arc<Vec<PortAddress>> {
        let (gid, lid) = (Gid([1; 16]), Lid(lid));
        Arc::new(vec![PortAddress { gid, lid }])
    }

    #[test]
    fn equal_values_are_kept_once() {
        let mut ports = SharedValues::default();
        let mut of_connections = [list(1), list(1), list(2)];
        for list in &mut of_connections {
            ports.share(list);
        }
        let [one, same, other] = of_connections;
        assert!(Arc::ptr_eq(&one, &same) && one != other);
        assert_eq!(ports.values.len(), 2);
    }

    #[test]
    fn values_that_nobody_uses_do_not_pile_up() {
        let mut ports = SharedValues::default();
        let mut used = list(0);
        ports.share(&mut used);
        for lid in 1..10_000 {
            ports.share(&mut list(lid));
        }
        assert!(ports.values.len() <= FIRST_SWEEP);
        assert!(ports.values.contains(&used));
    }

    #[test]
    fn sweeps_become_rarer_as_more_values_are_in_use() {
        let mut ports = SharedValues::default();
        let mut used: Vec<_> = (0..1_000).map(list).collect();
        used.iter_mut().for_each(|list| ports.share(list));
        assert_eq!(ports.sweep_at, 16 * FIRST_SWEEP, "the next power of two");
        used.truncate(100);
        (1_000..1_100).for_each(|lid| ports.share(&mut list(lid)));
        assert!(ports.values.len() <= 200);
    }
}
