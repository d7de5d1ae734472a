// SPDX-License-Identifier: MIT OR Apache-2.0
//! What peers' ports are, kept once for all connections to the same peer.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cm_msgs::path::PortAddress;

/// Lists that nobody uses any more are looked for when there are so many, or twice as many as were in use
/// the last time.
const FIRST_SWEEP: usize = 64;

/// The lists that connections use.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct PeerPorts {
    lists: BTreeSet<Arc<Vec<PortAddress>>>,
    sweep_at: usize,
}

impl Default for PeerPorts {
    fn default() -> Self {
        Self {
            lists: BTreeSet::new(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl PeerPorts {
    /// Has a list shared that is not yet.
    pub(crate) fn share(&mut self, list: &mut Arc<Vec<PortAddress>>) {
        if Arc::strong_count(list) > 1 {
            return;
        }
        if let Some(same) = self.lists.get(list) {
            *list = Arc::clone(same);
            return;
        }
        if self.lists.len() >= self.sweep_at {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.sweep_at = FIRST_SWEEP.max(2 * self.lists.len());
        }
        self.lists.insert(Arc::clone(list));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use cm_msgs::{Gid, Lid};

    fn list(lid: u16) -> Arc<Vec<PortAddress>> {
        let (gid, lid) = (Gid([1; 16]), Lid(lid));
        Arc::new(vec![PortAddress { gid, lid }])
    }

    #[test]
    fn the_same_list_is_kept_once() {
        let mut ports = PeerPorts::default();
        let mut of_connections = [list(1), list(1), list(2)];
        for list in &mut of_connections {
            ports.share(list);
        }
        let [one, same, other] = of_connections;
        assert!(Arc::ptr_eq(&one, &same) && one != other);
        assert_eq!(ports.lists.len(), 2);
    }

    #[test]
    fn lists_that_nobody_uses_do_not_pile_up() {
        let mut ports = PeerPorts::default();
        let mut used = list(0);
        ports.share(&mut used);
        for lid in 1..10_000 {
            ports.share(&mut list(lid));
        }
        assert!(ports.lists.len() <= FIRST_SWEEP);
        assert!(ports.lists.contains(&used));
    }
}
