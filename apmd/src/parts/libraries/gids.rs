// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GIDs of ports besides their first, kept for a moment: any program can name one that no port has,
//! and to read a table opens a file for each of its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::Gid;
use statemachine::{PortId, Time};

/// For how long a table counts as what the port has now.
const FRESH: Duration = Duration::from_millis(200);

/// The tables that were read last, of ports that are known.
#[derive(Debug, Default)]
pub(super) struct GidTables {
    tables: BTreeMap<PortId, (Time, BTreeSet<Gid>)>,
}

impl GidTables {
    /// Whether a port has this GID, by its table as `read` finds it, or has just found it.
    pub(super) fn contains(
        &mut self,
        now: Time,
        port: PortId,
        gid: Gid,
        read: impl FnOnce() -> BTreeSet<Gid>,
    ) -> bool {
        let is_fresh = |(read_at, _): &(Time, _)| now < *read_at + FRESH;
        if !self.tables.get(&port).is_some_and(is_fresh) {
            self.tables.insert(port, (now, read()));
        }
        let table = self.tables.get(&port);
        table.is_some_and(|(_, gids)| gids.contains(&gid))
    }

    /// The port has gone.
    pub(super) fn forget(&mut self, port: PortId) {
        self.tables.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    #[test]
    fn false_gids_do_not_have_a_table_read_each_time() {
        let mut tables = GidTables::default();
        let port = |number| PortId::new(Guid(0x11), number);
        let mut reads = 0;
        let mut contains = |now, number, gid| {
            tables.contains(now, port(number), Gid([gid; 16]), || {
                reads += 1;
                [Gid([1; 16])].into()
            })
        };
        for ms in 0..1000 {
            let now = Time(ms * 1000);
            assert!(!contains(now, 1, 9) && contains(now, 1, 1));
        }
        assert!(contains(Time(0), 2, 1), "another port has its own");
        assert_eq!(reads, 5 + 1);
    }

    #[test]
    fn a_gid_that_is_new_is_found_when_its_port_is_new_or_a_moment_later() {
        let mut tables = GidTables::default();
        let (port, gid) = (PortId::new(Guid(0x11), 1), Gid([1; 16]));
        let has = |now, tables: &mut GidTables, found: &[Gid]| {
            tables.contains(now, port, gid, || found.iter().copied().collect())
        };
        assert!(!has(Time(0), &mut tables, &[]));
        assert!(has(Time(0) + FRESH, &mut tables, &[gid]));
        tables.forget(port);
        assert!(!has(Time(0) + FRESH, &mut tables, &[]));
    }
}
