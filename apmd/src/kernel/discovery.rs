// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which peers are asked without anybody connecting to them, and when: those that subnet administration
//! names, and those that have asked for this daemon. No I/O here.
//!
//! What it names anybody may have registered, so everything here is bounded and paced: a few are asked at a
//! time, and of who does not answer, and never has, nothing is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::Lid;
use statemachine::{FarPort, PortId, Time, Timers};

use super::Way;

/// How many are kept at most.
pub(super) const KEPT_MAX: usize = 3072;

/// How many wait at most to be asked.
const WAITING_MAX: usize = 8192;

/// How many are asked at a time.
const UNDER_WAY_MAX: usize = 8;

/// From one question to the next, if it is to who has not been asked, or was lost with a port.
const PACE_FIRST: Duration = Duration::from_millis(5);
/// And if it is to who was asked before.
const PACE_AGAIN: Duration = Duration::from_millis(50);

/// When a peer is asked again, or later, as the pace has it. An answer is believed for two minutes, in which
/// nothing would be sent.
const AGAIN_AFTER: Duration = Duration::from_secs(125);

/// How often in a row a peer that has answered once may be silent. It is not named meanwhile; but a switch that
/// is out for some minutes must not make two daemons forget each other for ever.
const SILENT_MAX: u8 = 10;

/// Who is to be asked now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    First(FarPort),
    Again(Way),
}

/// Peers to be asked, and peers that have answered.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// By LID: each host begins behind its own, so that not all ask the same one.
    waiting: BTreeSet<(Lid, PortId, u16)>,
    last: Option<(Lid, PortId, u16)>,
    /// Those that answered, and how often they were silent since.
    kept: BTreeMap<Way, u8>,
    again: Timers<Way>,
    /// Those that are being asked, since when.
    under_way: BTreeMap<Way, Time>,
    next_at: Time,
}

impl Discovery {
    /// Where to begin: behind this LID.
    pub(super) fn begin_behind(&mut self, lid: Lid, port: PortId) {
        self.last.get_or_insert((lid, port, u16::MAX));
    }

    /// A daemon may answer there.
    pub(super) fn find(&mut self, far: FarPort) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.insert((far.lid, far.port, far.partition));
        }
    }

    /// Whether a peer stays without anybody being connected to it.
    pub(super) fn keeps(&self, way: Way) -> bool {
        self.kept.contains_key(&way)
    }

    /// It has answered: it is asked again from time to time, if there is room.
    pub(super) fn keep(&mut self, now: Time, way: Way) {
        if self.kept.len() < KEPT_MAX && !self.keeps(way) {
            self.kept.insert(way, 0);
            self.again.set(way, now + AGAIN_AFTER);
        }
    }

    pub(super) fn forget(&mut self, way: Way) {
        self.kept.remove(&way);
        self.again.cancel(&way);
        self.under_way.remove(&way);
    }

    /// Whether it stays, now that it has answered, or has not.
    pub(super) fn handle_answer(&mut self, way: Way, answers: bool) -> bool {
        let since = self.under_way.remove(&way);
        let Some(silent) = self.kept.get_mut(&way) else {
            if let (true, Some(since)) = (answers, since) {
                self.keep(since, way);
            }
            return answers;
        };
        *silent = match answers {
            true => 0,
            false => *silent + 1,
        };
        *silent < SILENT_MAX
    }

    /// Who is to be asked, if anybody is.
    pub(super) fn poll(&mut self, now: Time) -> Option<Due> {
        if self.poll_timeout()? > now {
            return None;
        }
        let (due, way, pace) = match self.next_waiting() {
            Some(far) => (Due::First(far), (far.port, far.lid), PACE_FIRST),
            None => {
                let way = self.again.expired(now)?;
                (Due::Again(way), way, PACE_AGAIN)
            }
        };
        if self.keeps(way) {
            self.again.set(way, now + AGAIN_AFTER);
        }
        self.next_at = now + pace;
        Some(due)
    }

    /// It was asked, and is kept if it answers.
    pub(super) fn asked(&mut self, now: Time, way: Way) {
        self.under_way.insert(way, now);
    }

    fn next_waiting(&mut self) -> Option<FarPort> {
        use std::ops::Bound::{Excluded, Unbounded};
        let last = self.last.map_or(Unbounded, Excluded);
        let behind = self.waiting.range((last, Unbounded)).next();
        let next = *behind.or_else(|| self.waiting.first())?;
        self.waiting.remove(&next);
        self.last = Some(next);
        let (lid, port, partition) = next;
        Some(FarPort {
            port,
            lid,
            partition,
        })
    }

    /// When somebody is to be asked.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if self.under_way.len() >= UNDER_WAY_MAX {
            // The next answer comes first, or the end of a wait for one.
            return None;
        }
        match self.waiting.is_empty() {
            true => self.again.next().map(|at| at.max(self.next_at)),
            false => Some(self.next_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Guid;

    fn way(lid: u16) -> Way {
        (PortId::new(Guid(9), 1), Lid(lid))
    }

    fn far(lid: u16) -> FarPort {
        FarPort {
            port: way(lid).0,
            lid: Lid(lid),
            partition: 0x7fff,
        }
    }

    /// All that are asked until then, each answered at once, with when.
    fn asked(discovery: &mut Discovery, until: Time, answers: bool) -> Vec<(Time, Way)> {
        let mut all = Vec::new();
        while let Some(at) = discovery.poll_timeout().filter(|at| *at <= until) {
            let way = match discovery.poll(at) {
                Some(Due::First(far)) => (far.port, far.lid),
                Some(Due::Again(way)) => way,
                None => panic!("nothing due"),
            };
            discovery.asked(at, way);
            all.push((at, way));
            if !discovery.handle_answer(way, answers) {
                discovery.forget(way);
            }
        }
        all
    }

    fn lids(asked: &[(Time, Way)]) -> Vec<u16> {
        asked.iter().map(|(_, (_, lid))| lid.0).collect()
    }

    #[test]
    fn each_is_asked_once_beginning_behind_the_own_lid() {
        let mut discovery = Discovery::default();
        discovery.begin_behind(Lid(3), way(3).0);
        for lid in [5, 1, 4, 2, 5] {
            discovery.find(far(lid));
        }
        let all = asked(&mut discovery, Time(1_000_000), true);
        assert_eq!(lids(&all), [4, 5, 1, 2]);
        let gaps = all.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.into_iter().all(|gap| gap == PACE_FIRST));
    }

    #[test]
    fn few_are_under_way_at_a_time() {
        let mut discovery = Discovery::default();
        (1..=20).for_each(|lid| discovery.find(far(lid)));
        let mut now = Time(0);
        while let Some(at) = discovery.poll_timeout() {
            now = at;
            let Some(Due::First(far)) = discovery.poll(now) else {
                panic!("nothing due");
            };
            discovery.asked(now, (far.port, far.lid));
        }
        assert_eq!(discovery.under_way.len(), UNDER_WAY_MAX);
        assert_eq!(discovery.poll(now + AGAIN_AFTER), None);
        discovery.handle_answer(way(1), false);
        assert!(discovery.poll_timeout().is_some());
    }

    #[test]
    fn many_are_asked_again_no_faster_than_the_pace() {
        let mut discovery = Discovery::default();
        (1..=KEPT_MAX as u16 + 5).for_each(|lid| discovery.find(far(lid)));
        let first = asked(&mut discovery, Time(20_000_000), true);
        assert_eq!(first.len(), KEPT_MAX + 5);
        assert_eq!(discovery.kept.len(), KEPT_MAX, "there is room for no more");
        let mut last = first.last().unwrap().0;
        for (at, _) in asked(&mut discovery, Time(400_000_000), true) {
            assert!(at - last >= PACE_AGAIN);
            last = at;
        }
        let again = asked(&mut discovery, last + 2 * AGAIN_AFTER, true);
        assert!(again.len() > KEPT_MAX, "{}", again.len());
    }

    #[test]
    fn who_never_answered_is_forgotten_and_who_did_after_a_while() {
        let mut discovery = Discovery::default();
        discovery.find(far(1));
        assert_eq!(asked(&mut discovery, Time(0), false).len(), 1);
        assert_eq!(discovery.poll_timeout(), None);

        discovery.find(far(1));
        let begin = discovery.poll_timeout().unwrap();
        asked(&mut discovery, begin, true);
        let silent = asked(&mut discovery, Time(u64::MAX), false);
        assert_eq!(silent.len(), usize::from(SILENT_MAX));
        assert!(!discovery.keeps(way(1)));
    }

    #[test]
    fn a_flood_waits_in_bounds() {
        let mut discovery = Discovery::default();
        (1..=10_000).for_each(|lid| discovery.find(far(lid)));
        assert_eq!(discovery.waiting.len(), WAITING_MAX);
    }
}
