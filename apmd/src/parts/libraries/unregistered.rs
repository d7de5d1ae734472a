// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connected queue pairs that the kernel lists and the library of their process has not registered. A program that looks
//! libibverbs up by `dlopen` and `dlsym` connects queue pairs that its library does not see. No I/O here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use cm_msgs::control::QpState;
use cm_msgs::{Guid, Qpn};
use statemachine::Time;

use super::turns::{self, Turns};
use crate::io::nldev::{Maker, QueuePair};

/// Between two rounds that find a queue pair. A library registers a connection within a second, unless its user's
/// connections come and go too fast.
const PATIENCE: Duration = Duration::from_secs(10);
/// Queue pairs kept for one process. Further ones of it are not counted.
const MAX_OF_PROCESS: usize = 128;
/// Queue pairs kept for a thread that is to be looked up. Further ones count a round later.
const MAX_OF_THREAD: usize = 8;

/// The processes that have a library.
pub(super) trait Owners {
    /// Whether the library of this process registers every connection that it sees.
    fn protects_all(&self, pid: i32) -> bool;
    /// The process of this thread, if it can be read.
    fn process_of(&self, tid: i32) -> Option<i32>;
}

/// Who should have registered a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    /// This process.
    Program(i32),
    /// The process of this thread, which the round does not look up.
    Thread(i32),
}

/// A connected queue pair that is not registered.
#[derive(Clone, Copy, Debug)]
struct Listed {
    peer: Option<Qpn>,
    /// The thread that made it.
    tid: i32,
    /// `None`: nobody should have registered it.
    owner: Option<Owner>,
}

/// A device while its queue pairs are read. It is gone with the round, and smaller than what the kernel has of the device.
/// What takes as long as there are queue pairs is done with the parts of the table, and not at its end.
#[derive(Debug, Default)]
struct Reading {
    listed: BTreeMap<Qpn, Listed>,
    /// Those of each owner.
    owned: BTreeSet<(Owner, Qpn)>,
    /// Owners that are threads, in the order of their turns.
    missed: BTreeSet<turns::Number>,
    /// Processes of threads, as they were looked up.
    processes: BTreeMap<i32, Option<i32>>,
    /// How many of them had no place in this round.
    without_place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    /// The thread that made it.
    tid: i32,
    /// Its process; `None`: that is looked up in the next round.
    pid: Option<i32>,
    since: Time,
    /// A later round has found it again: it is not one that is closed as soon as it is connected.
    is_overdue: bool,
}

/// Queue pairs of all devices, as the rounds found them.
#[derive(Debug, Default)]
pub(super) struct UnregisteredQps {
    reading: Reading,
    known: BTreeMap<(Guid, Qpn), Found>,
    turns: BTreeMap<Guid, Turns>,
}

impl UnregisteredQps {
    /// Takes a part of a device's table. `is_protected`: by others than libraries.
    pub(super) fn handle_found(
        &mut self,
        node_guid: Guid,
        found: &[(Qpn, QueuePair)],
        is_registered: impl Fn(Qpn) -> bool,
        is_protected: impl Fn(Qpn) -> bool,
        owners: &impl Owners,
    ) {
        let turns = self.turns.entry(node_guid).or_default();
        let reading = &mut self.reading;
        for (qpn, queue_pair) in found {
            let is_connected = queue_pair.reliable && queue_pair.state == Some(QpState::Rts);
            let Maker::Thread(tid) = queue_pair.maker else {
                continue;
            };
            if !is_connected || is_registered(*qpn) {
                continue;
            }
            let peer = queue_pair.peer_qpn;
            // Two of one device that name each other lead back to it: libraries leave these alone.
            if let Some(other) = peer.filter(|peer| reading.is_named_by(*qpn, *peer)) {
                reading.leave_out(other, turns);
                continue;
            }
            let owner = match is_protected(*qpn) {
                true => None,
                false => reading.owner(tid, turns, owners),
            };
            reading.listed.insert(*qpn, Listed { peer, tid, owner });
            if let Some(owner) = owner {
                reading.owned.insert((owner, *qpn));
                if let Owner::Thread(tid) = owner {
                    reading.missed.insert(turns.number(tid));
                }
            }
        }
    }

    /// A device was read to its end. `waiting`: its queue pairs with registrations that wait.
    pub(super) fn handle_read(&mut self, now: Time, node_guid: Guid, waiting: &BTreeSet<Qpn>) {
        let reading = std::mem::take(&mut self.reading);
        let all = (node_guid, Qpn(0))..=(node_guid, Qpn(u32::MAX));
        let before: BTreeMap<_, _> = self.known.range(all).map(|(k, v)| (k.1, *v)).collect();
        self.forget(node_guid);
        let turns = self.turns.entry(node_guid).or_default();
        turns.end_round(&reading.missed);
        // Who was looked up in an earlier round is known until it has its turn again.
        let looked_up = before.values().filter_map(|old| Some((old.tid, old.pid?)));
        let looked_up: BTreeMap<_, _> = looked_up.collect();

        let mut kept = BTreeMap::new();
        let mut shares: BTreeMap<Owner, usize> = BTreeMap::new();
        // False: its owner has its share.
        let mut keep = |qpn: Qpn| {
            let listed = reading.listed.get(&qpn);
            let Some((tid, owner)) = listed.and_then(|listed| Some((listed.tid, listed.owner?)))
            else {
                return true;
            };
            if waiting.contains(&qpn) || kept.contains_key(&qpn) {
                return true;
            }
            let (pid, most) = match owner {
                Owner::Program(pid) => (Some(pid), MAX_OF_PROCESS),
                Owner::Thread(tid) => match looked_up.get(&tid) {
                    Some(pid) => (Some(*pid), MAX_OF_PROCESS),
                    None if turns.has_place(tid) => (None, MAX_OF_THREAD),
                    None => return false,
                },
            };
            let share = shares.entry(pid.map_or(owner, Owner::Program)).or_default();
            if *share == most {
                return false;
            }
            *share += 1;
            let old = before.get(&qpn).filter(|old| old.is_same(tid, pid));
            let since = old.map_or(now, |old| old.since);
            let found = Found {
                tid,
                pid,
                since,
                is_overdue: now - since >= PATIENCE,
            };
            kept.insert(qpn, found);
            true
        };
        // What comes and goes takes no share of what stays.
        let mut by_age: Vec<_> = before.iter().collect();
        by_age.sort_by_key(|(_, old)| old.since);
        for (qpn, _) in by_age {
            keep(*qpn);
        }
        let threads = turns.places().chain(looked_up.keys().copied());
        for owner in reading.programs().chain(threads.map(Owner::Thread)) {
            let mut owned = reading.owned_by(owner);
            // Until it has its share.
            let _ = owned.all(&mut keep);
        }
        let kept = kept.into_iter();
        self.known
            .extend(kept.map(|(qpn, found)| ((node_guid, qpn), found)));
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
        self.forget(node_guid);
        self.turns.remove(&node_guid);
    }

    fn forget(&mut self, node_guid: Guid) {
        self.known.retain(|(guid, _), _| *guid != node_guid);
    }

    /// A process has no library any more.
    pub(super) fn remove_process(&mut self, pid: i32) {
        self.known.retain(|_, found| found.pid != Some(pid));
    }

    /// Queue pairs that two rounds have found: how many a process has. `is_protected`: by others than libraries.
    pub(super) fn overdue(
        &self,
        is_protected: impl Fn((Guid, Qpn)) -> bool,
    ) -> BTreeMap<i32, usize> {
        let mut counts = BTreeMap::new();
        for (number, found) in &self.known {
            let Some(pid) = found.pid else {
                continue;
            };
            if found.is_overdue && !is_protected(*number) {
                *counts.entry(pid).or_default() += 1;
            }
        }
        counts
    }
}

impl Found {
    /// Whether it is the queue pair of this number that this thread of this process has made.
    fn is_same(&self, tid: i32, pid: Option<i32>) -> bool {
        self.tid == tid && (self.pid.is_none() || self.pid == pid)
    }
}

impl Reading {
    /// Whether `qpn` is the peer of `other`. One that names its own number has a peer on another host.
    fn is_named_by(&self, qpn: Qpn, other: Qpn) -> bool {
        let other = self.listed.get(&other).filter(|_| other != qpn);
        other.is_some_and(|other| other.peer == Some(qpn))
    }

    /// It turns out to be nobody's.
    fn leave_out(&mut self, qpn: Qpn, turns: &Turns) {
        let listed = self.listed.get_mut(&qpn);
        let Some(owner) = listed.and_then(|listed| listed.owner.take()) else {
            return;
        };
        self.owned.remove(&(owner, qpn));
        if let Owner::Thread(tid) = owner
            && self.owned_by(owner).next().is_none()
        {
            self.missed.remove(&turns.number(tid));
        }
    }

    fn owned_by(&self, owner: Owner) -> impl Iterator<Item = Qpn> {
        let all = (owner, Qpn(0))..=(owner, Qpn(u32::MAX));
        self.owned.range(all).map(|(_, qpn)| *qpn)
    }

    /// Owners that are processes.
    fn programs(&self) -> impl Iterator<Item = Owner> {
        let mut after = Bound::Unbounded;
        std::iter::from_fn(move || {
            let (owner, _) = self.owned.range((after, Bound::Unbounded)).next()?;
            after = Bound::Excluded((*owner, Qpn(u32::MAX)));
            matches!(owner, Owner::Program(_)).then_some(*owner)
        })
    }

    /// The process of a thread, if its library registers all that it sees.
    fn owner(&mut self, tid: i32, turns: &Turns, owners: &impl Owners) -> Option<Owner> {
        // Most queue pairs are made by a process's first thread, which has its number.
        if owners.protects_all(tid) {
            return Some(Owner::Program(tid));
        }
        let pid = match self.processes.get(&tid) {
            Some(pid) => *pid,
            None => {
                if !turns.has_place(tid) {
                    if self.without_place >= turns.left() {
                        return Some(Owner::Thread(tid));
                    }
                    self.without_place += 1;
                }
                let pid = owners.process_of(tid);
                self.processes.insert(tid, pid);
                pid
            }
        };
        let pid = pid.filter(|pid| owners.protects_all(*pid));
        pid.map(Owner::Program)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::turns::MAX_LOOKUPS;
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

    /// No thread is the program's any more.
    struct OtherProgram;

    impl Owners for OtherProgram {
        fn protects_all(&self, pid: i32) -> bool {
            pid == PROGRAM
        }

        fn process_of(&self, _: i32) -> Option<i32> {
            Some(PROGRAM - 7)
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
        let owners = OneProgram::default();
        qps.handle_found(DEVICE, found, |qpn| qpn == Qpn(1), |_| false, &owners);
        qps.handle_read(now, DEVICE, &BTreeSet::from([Qpn(2)]));
        assert!(owners.lookups.get() <= MAX_LOOKUPS);
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

    #[test]
    fn threads_that_come_and_go_do_not_hide_one_that_stays() {
        const STRANGERS: i32 = 4_000;
        let mut qps = UnregisteredQps::default();
        let mut counts = Vec::new();
        for round_number in 1..=30 {
            let strangers =
                (0..STRANGERS).map(|n| queue_pair(10_000 + n as u32, 7, round_number * 10_000 + n));
            let found: Vec<_> = strangers
                .chain([queue_pair(90_000, 7, PROGRAM + 7)])
                .collect();
            let now = START + Duration::from_secs(30) * round_number as u32;
            round(&mut qps, now, &found);
            counts.push(count(&qps));
            let threads: BTreeSet<_> = qps.known.values().map(|found| found.tid).collect();
            assert!(threads.len() <= MAX_LOOKUPS + 1, "they are not kept");
        }
        let first = counts.iter().position(|count| *count == 1);
        assert!(first.is_some_and(|first| first < 20), "{counts:?}");
        // Nor is it forgotten until it has its turn again.
        assert!(counts.iter().skip_while(|c| **c == 0).all(|c| *c == 1));
    }

    #[test]
    fn of_a_thread_that_waits_for_its_turn_little_is_kept() {
        let mut qps = UnregisteredQps::default();
        let strangers = (0..MAX_LOOKUPS as u32).map(|n| queue_pair(1_000 + n, 7, 5_000 + n as i32));
        let crowd = (0..200).map(|n| queue_pair(9_000 + n, 7, PROGRAM + 7));
        let found: Vec<_> = strangers.chain(crowd).collect();
        round(&mut qps, START, &found);
        assert_eq!(qps.known.len(), MAX_OF_THREAD);
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), MAX_OF_THREAD);
        round(&mut qps, LATER + PATIENCE, &found);
        assert_eq!(count(&qps), MAX_OF_PROCESS);
    }

    #[test]
    fn threads_with_connections_within_the_host_have_no_turns() {
        let mut qps = UnregisteredQps::default();
        let local = (0..4 * MAX_LOOKUPS as u32)
            .map(|n| queue_pair(10_000 + n, 10_000 + (n ^ 1), 5_000 + n as i32));
        let found: Vec<_> = local.chain([queue_pair(90_000, 7, PROGRAM + 7)]).collect();
        round(&mut qps, START, &found);
        let places: Vec<_> = qps.turns[&DEVICE].places().collect();
        assert_eq!(places, [PROGRAM + 7]);
        round(&mut qps, LATER, &found);
        assert_eq!(count(&qps), 1);
    }

    /// Another process may have the number of a thread that has ended.
    #[test]
    fn what_is_known_of_a_thread_is_looked_up_again() {
        let mut qps = UnregisteredQps::default();
        for now in [START, LATER] {
            round(&mut qps, now, &[queue_pair(4, 104, PROGRAM + 7)]);
        }
        assert_eq!(count(&qps), 1);
        qps.handle_found(
            DEVICE,
            &[queue_pair(4, 104, PROGRAM + 7)],
            |_| false,
            |_| false,
            &OtherProgram,
        );
        qps.handle_read(LATER, DEVICE, &BTreeSet::new());
        assert_eq!(count(&qps), 0);
    }

    /// What is connected now may be closed again before the next round.
    #[test]
    fn queue_pairs_that_come_and_go_hide_none_that_stays() {
        let mut qps = UnregisteredQps::default();
        let stays = queue_pair(9_000, 7, PROGRAM);
        round(&mut qps, START, &[stays]);
        for n in 1..4 {
            let fresh = (0..200).map(|i| queue_pair(n * 1_000 + i, 7, PROGRAM));
            let found: Vec<_> = fresh.chain([stays]).collect();
            round(&mut qps, START + Duration::from_secs(30) * n, &found);
            assert_eq!(count(&qps), 1);
        }
    }

    #[test]
    fn queue_pairs_of_the_module_hide_none_of_nobody_s() {
        let mut qps = UnregisteredQps::default();
        let modules = (0..MAX_OF_PROCESS as u32).map(|n| queue_pair(1_000 + n, 7, PROGRAM));
        let found: Vec<_> = modules.chain([queue_pair(9_000, 7, PROGRAM)]).collect();
        for now in [START, LATER] {
            let is_modules = |qpn| qpn < Qpn(9_000);
            qps.handle_found(
                DEVICE,
                &found,
                |_| false,
                is_modules,
                &OneProgram::default(),
            );
            qps.handle_read(now, DEVICE, &BTreeSet::new());
        }
        assert_eq!(count(&qps), 1);
    }

    /// What leads back to its device is no reason to leave out what is not protected.
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
        qps.handle_found(DEVICE, &found, |_| false, |_| false, &OneProgram::default());
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
        qps.handle_found(DEVICE, &crowd, |_| false, |_| false, &owners);
        assert_eq!(owners.lookups.get(), 1);
        let strangers: Vec<_> = (0..2_000)
            .map(|n| queue_pair(5_000 + n, 1, 10_000 + n.cast_signed()))
            .collect();
        qps.handle_found(DEVICE, &strangers, |_| false, |_| false, &owners);
        assert_eq!(owners.lookups.get(), MAX_LOOKUPS);
        qps.handle_read(START, DEVICE, &BTreeSet::new());
        qps.handle_found(DEVICE, &crowd, |_| false, |_| false, &owners);
        qps.handle_read(LATER, DEVICE, &BTreeSet::new());
        assert_eq!(count(&qps), MAX_OF_PROCESS);
    }
}
