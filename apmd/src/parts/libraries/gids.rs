// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GIDs of ports besides their first, kept for a moment: any program can name one that no port has,
//! and to read a table opens a file for each of its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::Gid;
use statemachine::{ConnId, PortId, Time, Timers};

/// For how long a table counts as what the port has now.
const FRESH: Duration = Duration::from_millis(200);

/// What is known of a GID and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Yes,
    No,
    /// Not by a table that was read before it mattered; another is read from then on.
    NotBefore(Time),
}

/// The tables that were read last, of ports that are known, and who waits for another.
#[derive(Debug, Default)]
pub(super) struct GidTables {
    tables: BTreeMap<PortId, (Time, BTreeSet<Gid>)>,
    waiting: Timers<ConnId>,
}

impl GidTables {
    /// Whether a port has this GID, by its table as `read` finds it, or has just found it. `since`: only a table
    /// that was read after then says that it has not.
    pub(super) fn look(
        &mut self,
        now: Time,
        port: PortId,
        gid: Gid,
        since: Option<Time>,
        read: impl FnOnce() -> Option<BTreeSet<Gid>>,
    ) -> Found {
        let found = |gids: &BTreeSet<Gid>, no| match gids.contains(&gid) {
            true => Found::Yes,
            false => no,
        };
        if let Some((read_at, gids)) = self.tables.get(&port)
            && now < *read_at + FRESH
        {
            let counts = since.is_none_or(|since| *read_at > since);
            let later = Found::NotBefore(*read_at + FRESH);
            return found(gids, if counts { Found::No } else { later });
        }
        // What cannot be read is not kept: it says nothing of what the port has.
        let Some(gids) = read() else {
            self.tables.remove(&port);
            return Found::No;
        };
        let answer = found(&gids, Found::No);
        self.tables.insert(port, (now, gids));
        answer
    }

    /// A registration is judged again then.
    pub(super) fn wait(&mut self, id: ConnId, at: Time) {
        self.waiting.set(id, at);
    }

    /// The next that is to be judged again, if it still waits.
    pub(super) fn poll_waited(&mut self, now: Time) -> Option<ConnId> {
        self.waiting.expired(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.waiting.next()
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

    const PORT: PortId = PortId {
        node_guid: Guid(0x11),
        port: 1,
    };
    const GID: Gid = Gid([1; 16]);

    #[test]
    fn false_gids_do_not_have_a_table_read_each_time() {
        let mut tables = GidTables::default();
        let port = |number| PortId::new(Guid(0x11), number);
        let mut reads = 0;
        let mut look = |now, number, gid, since| {
            tables.look(now, port(number), Gid([gid; 16]), since, || {
                reads += 1;
                Some([GID].into())
            })
        };
        for ms in 0..1000 {
            let now = Time(ms * 1000);
            assert_eq!(look(now, 1, 9, None), Found::No);
            assert_ne!(look(now, 1, 9, Some(now)), Found::Yes);
            assert_eq!(look(now, 1, 1, None), Found::Yes);
        }
        assert_eq!(look(Time(0), 2, 1, None), Found::Yes, "it has its own");
        assert_eq!(reads, 5 + 1);
    }

    #[test]
    fn a_gid_that_is_new_is_found_when_its_port_is_new_or_a_moment_later() {
        let mut tables = GidTables::default();
        let has = |now, tables: &mut GidTables, found: &[Gid]| {
            let read = || Some(found.iter().copied().collect());
            tables.look(now, PORT, GID, None, read) == Found::Yes
        };
        assert!(!has(Time(0), &mut tables, &[]));
        assert!(has(Time(0) + FRESH, &mut tables, &[GID]));
        tables.forget(PORT);
        assert!(!has(Time(0) + FRESH, &mut tables, &[]));
    }

    #[test]
    fn a_table_that_is_older_than_the_question_does_not_say_no() {
        let mut tables = GidTables::default();
        let empty = || Some(BTreeSet::new());
        let one = || Some(BTreeSet::from([GID]));
        assert_eq!(tables.look(Time(0), PORT, GID, None, empty), Found::No);
        let since = Some(Time(5));
        let later = Found::NotBefore(Time(0) + FRESH);
        assert_eq!(tables.look(Time(5), PORT, GID, since, one), later);
        let at = Time(0) + FRESH;
        assert_eq!(tables.look(at, PORT, GID, since, one), Found::Yes);
        // Whoever has it read.
        let (false_gid, moment) = (Gid([9; 16]), at + Duration::from_millis(1));
        let found = tables.look(moment, PORT, false_gid, since, empty);
        assert_eq!(found, Found::No);
    }

    #[test]
    fn what_cannot_be_read_is_read_again_the_next_time() {
        let mut tables = GidTables::default();
        assert_eq!(tables.look(Time(0), PORT, GID, None, || None), Found::No);
        let one = || Some(BTreeSet::from([GID]));
        assert_eq!(tables.look(Time(1), PORT, GID, None, one), Found::Yes);
    }
}
