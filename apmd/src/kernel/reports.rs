// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of the kernel module between its socket and what they change.
//!
//! A report is read in a few microseconds, and takes the engine some tens. When a port is lost the module reports thousands
//! of queue pairs, and the one that a library's report is held against may be the last of them. So all are read, and are
//! taken in by turns over owners, and over the far ports of each.

use std::collections::{BTreeMap, VecDeque};

use cm_msgs::Lid;
use statemachine::key_after;

use crate::io::apm_module::{Cookie, KernelReport};
use crate::io::person::Person;

/// Where a queue pair's reports wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) payer: Person,
    /// The LID that its primary leads to. It decides turns only, so equal LIDs of two subnets do no harm.
    pub(crate) far: Lid,
}

/// Queue pairs of one owner that lead to one far port, in the order in which they reported.
type Queue = VecDeque<Cookie>;

/// Those of one owner.
#[derive(Debug, Default)]
struct Line {
    far_ports: BTreeMap<Lid, Queue>,
    /// The far port that was served last.
    last: Option<Lid>,
}

/// The reports of one queue pair.
#[derive(Debug)]
struct OfOne {
    place: Place,
    reports: VecDeque<KernelReport>,
}

type Waiting = BTreeMap<Cookie, OfOne>;

/// Reports that have been read and not taken in.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: Waiting,
    lines: BTreeMap<Person, Line>,
    /// The owner that was served last.
    last: Option<Person>,
    len: usize,
}

impl Reports {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a report. Those of one queue pair keep their order.
    pub(crate) fn push(&mut self, place: Place, report: KernelReport) {
        let cookie = report.cookie;
        let of_one = self.waiting.entry(cookie).or_insert_with(|| {
            let line = self.lines.entry(place.payer).or_default();
            let queue = line.far_ports.entry(place.far).or_default();
            queue.push_back(cookie);
            let reports = VecDeque::new();
            OfOne { place, reports }
        });
        of_one.reports.push_back(report);
        self.len += 1;
    }

    /// Takes out all of one queue pair.
    pub(crate) fn take(&mut self, cookie: Cookie) -> VecDeque<KernelReport> {
        let taken = self.waiting.remove(&cookie).map(|of_one| of_one.reports);
        let taken = taken.unwrap_or_default();
        self.len -= taken.len();
        taken
    }

    /// Takes out the next report, by turns.
    pub(crate) fn next(&mut self) -> Option<KernelReport> {
        while let Some(payer) = key_after(&self.lines, self.last) {
            self.last = Some(payer);
            let line = self.lines.get_mut(&payer)?;
            let next = line.next(payer, &mut self.waiting);
            if line.far_ports.is_empty() {
                self.lines.remove(&payer);
            }
            if next.is_some() {
                self.len -= 1;
                return next;
            }
        }
        None
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Line {
    fn next(&mut self, payer: Person, waiting: &mut Waiting) -> Option<KernelReport> {
        while let Some(far) = key_after(&self.far_ports, self.last) {
            self.last = Some(far);
            let queue = self.far_ports.get_mut(&far)?;
            let next = next_of(queue, Place { payer, far }, waiting);
            if queue.is_empty() {
                self.far_ports.remove(&far);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// The first report of the first queue pair that has one. One with more waits again.
fn next_of(queue: &mut Queue, place: Place, waiting: &mut Waiting) -> Option<KernelReport> {
    while let Some(cookie) = queue.pop_front() {
        // Its reports may have been taken out, and others wait elsewhere.
        let of_one = waiting.get_mut(&cookie);
        let Some(of_one) = of_one.filter(|of_one| of_one.place == place) else {
            continue;
        };
        let next = of_one.reports.pop_front();
        if of_one.reports.is_empty() {
            waiting.remove(&cookie);
        } else {
            queue.push_back(cookie);
        }
        return next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::apm_module::Cause;

    fn place(uid: u32, far: u16) -> Place {
        Place {
            payer: Person::of(uid),
            far: Lid(far),
        }
    }

    fn report(cookie: u64, token: u32) -> KernelReport {
        KernelReport {
            cookie: Cookie(cookie),
            cause: Cause::Changed,
            token: Some(token),
            errno: 0,
            snapshot: None,
        }
    }

    fn all(reports: &mut Reports) -> Vec<(u64, Option<u32>)> {
        let next = std::iter::from_fn(|| reports.next());
        next.map(|report| (report.cookie.0, report.token)).collect()
    }

    #[test]
    fn turns_go_over_owners_and_over_the_far_ports_of_each() {
        let mut reports = Reports::default();
        for cookie in 0..1_000 {
            reports.push(place(1, 7), report(cookie, 0));
        }
        reports.push(place(1, 8), report(2_000, 0));
        reports.push(place(2, 7), report(3_000, 0));
        assert_eq!(reports.len(), 1_002);
        let order: Vec<u64> = all(&mut reports).iter().map(|next| next.0).collect();
        assert_eq!(order[..4], [0, 3_000, 2_000, 1]);
        assert_eq!(order.len(), 1_002);
        assert!(reports.is_empty() && reports.lines.is_empty() && reports.waiting.is_empty());
    }

    #[test]
    fn the_reports_of_one_queue_pair_keep_their_order_and_take_turns_with_others() {
        let mut reports = Reports::default();
        for token in 1..=3 {
            reports.push(place(1, 7), report(1, token));
        }
        reports.push(place(1, 7), report(2, 9));
        let order = [(1, Some(1)), (2, Some(9)), (1, Some(2)), (1, Some(3))];
        assert_eq!(all(&mut reports), order);
    }

    #[test]
    fn what_is_taken_out_has_no_turn() {
        let mut reports = Reports::default();
        reports.push(place(1, 7), report(1, 1));
        reports.push(place(1, 7), report(1, 2));
        reports.push(place(2, 7), report(2, 3));
        assert_eq!(reports.take(Cookie(1)).len(), 2);
        assert!(reports.take(Cookie(1)).is_empty());
        // It reports again, from another place.
        reports.push(place(1, 8), report(1, 4));
        assert_eq!(reports.len(), 2);
        assert_eq!(all(&mut reports).len(), 2);
        assert!(reports.is_empty() && reports.lines.is_empty());
    }
}
