// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connected queue pairs that the kernel lists and the library of their process has not registered. A program that looks
//! libibverbs up by `dlopen` and `dlsym` connects queue pairs that its library does not see. No I/O here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::control::QpState;
use cm_msgs::{Guid, Qpn};
use statemachine::Time;

use crate::io::nldev::{Maker, QueuePair};

/// Between two rounds that find a queue pair. A library registers a connection within a second, unless its user's
/// connections come and go too fast.
const PATIENCE: Duration = Duration::from_secs(10);
/// Queue pairs kept for one process. Further ones of it are not counted.
const MAX_OF_PROCESS: usize = 128;
/// Threads looked up for one device in one round, each by one small read of `/proc`.
const MAX_LOOKUPS: usize = 512;

/// The processes that have a library.
pub(super) trait Owners {
    /// Whether the library of this process registers every connection that it sees.
    fn protects_all(&self, pid: i32) -> bool;
    /// The process of this thread, if it can be read.
    fn process_of(&self, tid: i32) -> Option<i32>;
}

/// A device while its queue pairs are read.
#[derive(Debug, Default)]
struct Reading {
    /// Peers of the connected queue pairs that are not registered.
    peers: BTreeMap<Qpn, Qpn>,
    /// Those of processes that should have registered them.
    found: BTreeMap<Qpn, i32>,
    /// Processes of threads, as they were looked up.
    processes: BTreeMap<i32, Option<i32>>,
    /// How many were found of a process.
    counts: BTreeMap<i32, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    pid: i32,
    since: Time,
    /// A later round has found it again: it is not one that is closed as soon as it is connected.
    is_overdue: bool,
}

/// Queue pairs of all devices, as the rounds found them.
#[derive(Debug, Default)]
pub(super) struct UnregisteredQps {
    reading: Reading,
    known: BTreeMap<(Guid, Qpn), Found>,
}

impl UnregisteredQps {
    /// Takes a part of a device's table.
    pub(super) fn handle_found(
        &mut self,
        found: &[(Qpn, QueuePair)],
        is_registered: impl Fn(Qpn) -> bool,
        owners: &impl Owners,
    ) {
        for (qpn, queue_pair) in found {
            let is_connected = queue_pair.reliable && queue_pair.state == Some(QpState::Rts);
            let Maker::Thread(tid) = queue_pair.maker else {
                continue;
            };
            if !is_connected || is_registered(*qpn) {
                continue;
            }
            if let Some(peer) = queue_pair.peer_qpn {
                self.reading.peers.insert(*qpn, peer);
            }
            if let Some(pid) = self.reading.owner(tid, owners) {
                let count = self.reading.counts.entry(pid).or_default();
                if *count < MAX_OF_PROCESS {
                    *count += 1;
                    self.reading.found.insert(*qpn, pid);
                }
            }
        }
    }

    /// A device was read to its end. `waiting`: its queue pairs with registrations that wait.
    pub(super) fn handle_read(&mut self, now: Time, node_guid: Guid, waiting: &BTreeSet<Qpn>) {
        let Reading { peers, found, .. } = std::mem::take(&mut self.reading);
        // Two of one device that name each other lead back to it: libraries leave these alone.
        let is_local = |qpn: Qpn| {
            let peer = peers.get(&qpn).filter(|peer| **peer != qpn);
            peer.and_then(|peer| peers.get(peer)) == Some(&qpn)
        };
        let all = (node_guid, Qpn(0))..=(node_guid, Qpn(u32::MAX));
        let before: BTreeMap<_, _> = self.known.range(all).map(|(k, v)| (*k, *v)).collect();
        self.remove_device(node_guid);
        for (qpn, pid) in found {
            if is_local(qpn) || waiting.contains(&qpn) {
                continue;
            }
            let number = (node_guid, qpn);
            let same = before.get(&number).filter(|old| old.pid == pid);
            let since = same.map_or(now, |old| old.since);
            let is_overdue = now - since >= PATIENCE;
            let found = Found {
                pid,
                since,
                is_overdue,
            };
            self.known.insert(number, found);
        }
    }

    /// A device was not read to its end: what was known of it stays.
    pub(super) fn handle_failed(&mut self) {
        self.reading = Reading::default();
    }

    /// A queue pair was registered.
    pub(super) fn remove(&mut self, number: (Guid, Qpn)) {
        self.known.remove(&number);
    }

    /// A device has disappeared: no round reads it any more.
    pub(super) fn remove_device(&mut self, node_guid: Guid) {
        self.known.retain(|(guid, _), _| *guid != node_guid);
    }

    /// A process has no library any more.
    pub(super) fn remove_process(&mut self, pid: i32) {
        self.known.retain(|_, found| found.pid != pid);
    }

    /// Queue pairs that two rounds have found: how many a process has. `is_protected`: by others than libraries.
    pub(super) fn overdue(
        &self,
        is_protected: impl Fn((Guid, Qpn)) -> bool,
    ) -> BTreeMap<i32, usize> {
        let mut counts = BTreeMap::new();
        for (number, found) in &self.known {
            if found.is_overdue && !is_protected(*number) {
                *counts.entry(found.pid).or_default() += 1;
            }
        }
        counts
    }
}

impl Reading {
    /// The process of a thread, if its library registers all that it sees.
    fn owner(&mut self, tid: i32, owners: &impl Owners) -> Option<i32> {
        // Most queue pairs are made by a process's first thread, which has its number.
        if owners.protects_all(tid) {
            return Some(tid);
        }
        if self.processes.len() >= MAX_LOOKUPS && !self.processes.contains_key(&tid) {
            return None;
        }
        let look_up = || owners.process_of(tid);
        let pid = *self.processes.entry(tid).or_insert_with(look_up);
        pid.filter(|pid| owners.protects_all(*pid))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DEVICE: Guid = Guid(0x11);
    const PROGRAM: i32 = 812;
    const START: Time = Time(1_000_000);
    const LATER: Time = Time(31_000_000);

    /// One program with the library; each of its threads has a number from its own up to 99 more.
    #[derive(Default)]
    struct OneProgram {
        lookups: Cell<usize>,
    }

    impl Owners for OneProgram {
        fn protects_all(&self, pid: i32) -> bool {
            pid == PROGRAM
        }

        fn process_of(&self, tid: i32) -> Option<i32> {
            self.lookups.set(self.lookups.get() + 1);
            (PROGRAM..PROGRAM + 100).contains(&tid).then_some(PROGRAM)
        }
    }

    fn queue_pair(qpn: u32, peer: u32, tid: i32) -> (Qpn, QueuePair) {
        let queue_pair = QueuePair {
            maker: Maker::Thread(tid),
            reliable: true,
            state: Some(QpState::Rts),
            migration: None,
            peer_qpn: Some(Qpn(peer)),
        };
        (Qpn(qpn), queue_pair)
    }

    fn round(qps: &mut UnregisteredQps, now: Time, found: &[(Qpn, QueuePair)]) {
        qps.handle_found(found, |qpn| qpn == Qpn(1), &OneProgram::default());
        qps.handle_read(now, DEVICE, &BTreeSet::from([Qpn(2)]));
    }

    fn count(qps: &UnregisteredQps) -> usize {
        let counts = qps.overdue(|(_, qpn)| qpn == Qpn(3));
        assert!(counts.keys().all(|pid| *pid == PROGRAM));
        counts.values().sum()
    }

    /// Each thread that made a queue pair costs a look-up, whoever's it is.
    #[test]
    fn a_program_with_many_threads_does_not_hide_what_another_ones_threads_made() {
        let mut qps = UnregisteredQps::default();
        let strangers =
            (1_000..1_000 + MAX_LOOKUPS as u32).map(|qpn| queue_pair(qpn, 7, qpn as i32));
        let found: Vec<_> = strangers
            .chain([queue_pair(9_000, 7, PROGRAM + 7)])
            .collect();
        round(&mut qps, START, &found);
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), 1);
    }

    /// What leads back to its device, or the module has, is no reason to leave out what is not protected.
    #[test]
    fn queue_pairs_that_do_not_count_hide_none_that_does() {
        let mut qps = UnregisteredQps::default();
        let local =
            (0..MAX_OF_PROCESS as u32).map(|n| queue_pair(1_000 + n, 1_000 + (n ^ 1), PROGRAM));
        let found: Vec<_> = local.chain([queue_pair(9_000, 7, PROGRAM)]).collect();
        round(&mut qps, START, &found);
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), 1);
    }

    #[test]
    fn what_two_rounds_find_unregistered_counts() {
        let mut qps = UnregisteredQps::default();
        // Registered, about to be, the module's, seen by nobody (twice, once by another thread), another program's.
        let mut found = vec![
            queue_pair(1, 101, PROGRAM),
            queue_pair(2, 102, PROGRAM),
            queue_pair(3, 103, PROGRAM),
            queue_pair(4, 104, PROGRAM),
            queue_pair(5, 105, PROGRAM + 7),
            queue_pair(6, 106, PROGRAM - 7),
        ];
        for (state, maker) in [
            (Some(QpState::Rtr), Maker::Thread(PROGRAM)),
            (None, Maker::Thread(PROGRAM)),
            (Some(QpState::Rts), Maker::Ended),
            (Some(QpState::Rts), Maker::Kernel),
        ] {
            let qpn = 10 + found.len() as u32;
            let (number, queue_pair) = queue_pair(qpn, 200, PROGRAM);
            let other = QueuePair {
                state,
                maker,
                ..queue_pair
            };
            found.push((number, other));
        }
        let (number, datagram) = queue_pair(30, 200, PROGRAM);
        let datagram = QueuePair {
            reliable: false,
            ..datagram
        };
        found.push((number, datagram));
        round(&mut qps, START, &found);
        assert_eq!(count(&qps), 0, "it may be registered yet");
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), 2);
        qps.remove((DEVICE, Qpn(5)));
        assert_eq!(count(&qps), 1);
        // A device that cannot be read to its end is as it was.
        qps.handle_found(&found, |_| false, &OneProgram::default());
        qps.handle_failed();
        qps.handle_read(LATER, Guid(0x12), &BTreeSet::new());
        assert_eq!(count(&qps), 1);
        round(&mut qps, LATER, &[]);
        assert_eq!(count(&qps), 0, "it is gone");
    }

    #[test]
    fn a_program_that_has_ended_is_not_named() {
        let mut qps = UnregisteredQps::default();
        for now in [START, LATER] {
            round(&mut qps, now, &[queue_pair(4, 104, PROGRAM)]);
        }
        assert_eq!(count(&qps), 1);
        qps.remove_device(Guid(0x12));
        qps.remove_process(PROGRAM - 7);
        assert_eq!(count(&qps), 1);
        qps.remove_process(PROGRAM);
        assert_eq!(count(&qps), 0);
    }

    /// The library leaves those alone that lead back to their device. One that names its own number has a peer with the
    /// same number on another host.
    #[test]
    fn two_that_name_each_other_do_not_count() {
        let mut qps = UnregisteredQps::default();
        let found = [
            queue_pair(7, 8, PROGRAM),
            queue_pair(8, 7, PROGRAM - 7),
            queue_pair(9, 9, PROGRAM),
            queue_pair(10, 7, PROGRAM),
        ];
        round(&mut qps, START, &found);
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), 2);
    }

    #[test]
    fn one_process_has_its_share_and_threads_are_looked_up_once() {
        let mut qps = UnregisteredQps::default();
        let many = |from: i32| (0..1_000).map(move |n| queue_pair(1_000 + n, 9_000 + n, from));
        let crowd: Vec<_> = many(PROGRAM).chain(many(PROGRAM + 1)).collect();
        let owners = OneProgram::default();
        qps.handle_found(&crowd, |_| false, &owners);
        assert_eq!(owners.lookups.get(), 1);
        let strangers: Vec<_> = (0..2_000)
            .map(|n| queue_pair(5_000 + n, 1, 10_000 + n.cast_signed()))
            .collect();
        qps.handle_found(&strangers, |_| false, &owners);
        assert_eq!(owners.lookups.get(), MAX_LOOKUPS);
        qps.handle_read(START, DEVICE, &BTreeSet::new());
        qps.handle_found(&crowd, |_| false, &owners);
        qps.handle_read(LATER, DEVICE, &BTreeSet::new());
        assert_eq!(count(&qps), MAX_OF_PROCESS);
    }
}
