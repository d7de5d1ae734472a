// SPDX-License-Identifier: MIT OR Apache-2.0
//! What subnet administration reports by itself: hearsay that is worth a look, and no more. Whoever can
//! send from the subnet manager's LID can send notices, and a sound fabric that is swept or flaps sends
//! thousands: they are looked at a few times a second, and the same port's not every time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::{Gid, Lid};

use crate::id::PortId;
use crate::probe::ProbePath;
use crate::time::Time;

/// Between two looks, each of which goes through all connections.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a port's next notice waits after one that mattered.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Ports whose notices wait, and ports that are remembered.
const SUBJECTS_MAX: usize = 256;
/// Probes that one look sends at once: less than half of what may leave in that time, so that what is
/// lost is still found as fast.
const PROBES_MAX: usize = 8;

/// What subnet administration told a local port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// 64: the port can be reached.
    InService(Gid),
    /// 65: the port can be reached no longer.
    OutOfService(Gid),
    /// 128: a link of some switch went up or down.
    LinkState,
    /// 144: something about the port with this LID changed.
    PortChange(Lid),
}

/// Whom notices are about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    /// A port, wherever it is.
    Port(Gid),
    /// What has this LID, as seen from that local port.
    Lid(PortId, Lid),
    /// The switches that that local port leads to.
    Switches(PortId),
}

/// Notices that nobody has looked at yet.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Notices {
    /// Of each subject the last one, true: in service.
    waiting: BTreeMap<Subject, bool>,
    /// When a notice about a subject mattered last.
    mattered: BTreeMap<Subject, Time>,
    next_look: Time,
}

impl Notices {
    /// A local port was told. False: so many wait that this one is forgotten.
    pub(crate) fn add(&mut self, port: PortId, notice: Notice) -> bool {
        let (subject, in_service) = match notice {
            Notice::InService(gid) => (Subject::Port(gid), true),
            Notice::OutOfService(gid) => (Subject::Port(gid), false),
            Notice::LinkState => (Subject::Switches(port), false),
            Notice::PortChange(lid) => (Subject::Lid(port, lid), false),
        };
        let has_room = self.waiting.len() < SUBJECTS_MAX || self.waiting.contains_key(&subject);
        if has_room {
            self.waiting.insert(subject, in_service);
        }
        has_room
    }

    /// When to look.
    pub(crate) fn due(&self) -> Option<Time> {
        let due = self.waiting.keys().map(|subject| self.due_of(subject));
        due.min()
    }

    fn due_of(&self, subject: &Subject) -> Time {
        let again = self.mattered.get(subject).map(|&at| at + AGAIN_AFTER);
        again.unwrap_or_default().max(self.next_look)
    }

    /// Takes those that are to be looked at now, if any are.
    pub(crate) fn take(&mut self, now: Time) -> Heard {
        let waiting = core::mem::take(&mut self.waiting);
        let is_due = |subject: &Subject| self.due_of(subject) <= now;
        let (due, waiting) = waiting.into_iter().partition(|(s, _)| is_due(s));
        self.waiting = waiting;
        self.mattered.retain(|_, at| now - *at < AGAIN_AFTER);
        let heard = Heard {
            due,
            ..Heard::default()
        };
        if !heard.due.is_empty() {
            self.next_look = now + LOOK_EVERY;
        }
        heard
    }

    /// What mattered of it is not looked at again for a while.
    pub(crate) fn looked(&mut self, now: Time, heard: Heard) {
        for subject in heard.mattered {
            if self.mattered.len() < SUBJECTS_MAX {
                self.mattered.insert(subject, now);
            }
        }
    }
}

/// The notices of one look, and what connections make of them.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    due: BTreeMap<Subject, bool>,
    /// The paths that they concern, true: those that go through switches of which nothing else is known.
    paths: BTreeMap<ProbePath, bool>,
    /// Those that concern a connection.
    mattered: BTreeSet<Subject>,
}

impl Heard {
    /// A connection uses this path, to a port with this GID and base LID.
    pub(crate) fn uses(&mut self, path: ProbePath, gid: Gid, lid: Lid) {
        let port = path.port;
        for (subject, vague) in [
            (Subject::Port(gid), false),
            (Subject::Lid(port, lid), false),
            (Subject::Switches(port), true),
        ] {
            if self.due.contains_key(&subject) {
                *self.paths.entry(path).or_insert(vague) &= vague;
                self.mattered.insert(subject);
            }
        }
    }

    /// A connection does something because of what was said of this port.
    pub(crate) fn mattered(&mut self, gid: Gid) {
        self.mattered.insert(Subject::Port(gid));
    }

    /// Whether a port is said to be in service.
    pub(crate) fn is_in_service(&self, gid: Gid) -> bool {
        self.due.get(&Subject::Port(gid)) == Some(&true)
    }

    /// The paths to probe, some of those that were not heard of for the longest time.
    pub(crate) fn to_probe(&self, answered: impl Fn(&ProbePath) -> Option<Time>) -> Vec<ProbePath> {
        let mut paths: Vec<_> = self.paths.iter().collect();
        paths.sort_by_key(|&(path, vague)| (*vague, answered(path)));
        paths.truncate(PROBES_MAX);
        paths.into_iter().map(|(path, _)| *path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::{Guid, PKey};

    const PORT: PortId = PortId {
        node_guid: Guid(1),
        port: 1,
    };

    fn gid(number: u16) -> Gid {
        Gid::new(0xfe80 << 48, Guid(number.into()))
    }

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000)
    }

    fn path(dlid: u16) -> ProbePath {
        ProbePath {
            port: PORT,
            slid: Lid(1),
            dlid: Lid(dlid),
            sl: 0,
            pkey: PKey::DEFAULT_FULL,
        }
    }

    /// Looks, and has what is about a port with this GID matter.
    fn look(notices: &mut Notices, now: Time, used: Gid) -> usize {
        let mut heard = notices.take(now);
        heard.uses(path(7), used, Lid(7));
        let paths = heard.to_probe(|_| None).len();
        notices.looked(now, heard);
        paths
    }

    #[test]
    fn one_look_serves_all_that_came_meanwhile_and_the_same_port_waits() {
        let mut notices = Notices::default();
        assert!(notices.add(PORT, Notice::OutOfService(gid(1))));
        assert_eq!(notices.due(), Some(Time(0)));
        assert_eq!(look(&mut notices, ms(10), gid(1)), 1);
        assert_eq!(notices.due(), None);
        for number in 1..=50 {
            notices.add(PORT, Notice::OutOfService(gid(number)));
            notices.add(PORT, Notice::InService(gid(number)));
        }
        assert_eq!(notices.due(), Some(ms(110)));
        assert_eq!(look(&mut notices, ms(110), gid(1)), 0, "not again so soon");
        assert_eq!(notices.due(), Some(ms(2_010)));
        let heard = notices.take(ms(2_010));
        assert!(heard.is_in_service(gid(1)), "the last word counts");
        assert_eq!(notices.due(), None);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut notices = Notices::default();
        let taken = (0..1_000).filter(|&number| notices.add(PORT, Notice::InService(gid(number))));
        assert_eq!(taken.count(), SUBJECTS_MAX);
        assert!(notices.add(PORT, Notice::OutOfService(gid(3))), "known");
    }

    #[test]
    fn remembered_subjects_are_limited_and_expire() {
        let mut notices = Notices::default();
        for round in 0..2 {
            let numbers = (0..200).map(|number| round * 200 + number);
            for number in numbers.clone() {
                notices.add(PORT, Notice::InService(gid(number)));
            }
            let now = ms(100 * u64::from(round));
            let mut heard = notices.take(now);
            numbers.for_each(|number| heard.mattered(gid(number)));
            notices.looked(now, heard);
        }
        assert_eq!(notices.mattered.len(), SUBJECTS_MAX);
        notices.take(Time(0) + AGAIN_AFTER);
        assert_eq!(notices.mattered.len(), SUBJECTS_MAX - 200, "the others");
    }

    #[test]
    fn few_paths_are_probed_at_a_time_the_named_ones_first() {
        let mut notices = Notices::default();
        notices.add(PORT, Notice::LinkState);
        notices.add(PORT, Notice::PortChange(Lid(95)));
        let mut heard = notices.take(Time(0));
        for lid in 1..100 {
            heard.uses(path(lid), gid(lid), Lid(lid));
        }
        // The higher the LID, the sooner it was heard of.
        let paths = heard.to_probe(|path| Some(Time(100 - u64::from(path.dlid.0))));
        let lids: Vec<_> = paths.iter().map(|path| path.dlid.0).collect();
        assert_eq!(lids, [95, 99, 98, 97, 96, 94, 93, 92]);
    }
}
