// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether paths carry packets: one Get(ClassPortInfo) over the very path, whose answer comes back over
//! its reverse.
//!
//! A path that connections share is probed once for all of them. Whoever is at its far end answers: a
//! daemon, or without one the kernel. Anybody in the fabric may send answers, so only that counts which
//! comes by the path that was asked, with a transaction ID out of [`Random`].

mod comparison;
mod far_ports;
mod lateness;
mod loss;
mod lossy;
mod pace;
mod queue;
mod silent_port;
mod state;
mod tally;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::{Bound, RangeInclusive};
use core::time::Duration;

use cm_msgs::{Lid, PKey};
use serde::{Deserialize, Serialize};
use strum::Display;

pub(crate) use self::comparison::Silence;
use self::far_ports::FarPorts;
use self::lossy::LossyPaths;
use self::pace::Pace;
use self::queue::{PathQueue, ProbeSchedule};
use self::state::{LastAnswer, PathState};
use self::tally::Tally;
use crate::id::{ConnId, PortId};
use crate::random::Random;
use crate::time::Time;

/// How long an answer is waited for before the next copy. One that comes sooner is *prompt*.
const REPEAT: Duration = Duration::from_millis(100);
/// Copies after which they come closer together: four 100 ms apart tell a hole, but where MADs get lost
/// at random, four in a row are no rarity (at 10 %, one probe in 770).
const APART: u8 = 3;
const CLOSER: Duration = Duration::from_millis(34);
/// Copies in a row without an answer that make a path suspect, at least, while answers are late, or so much
/// comes in by its port that they may be: 1 s.
const PATIENCE_IF_LATE: u8 = 24;
/// How long a port is taken to be so after it was.
const CROWDED_FOR: Duration = Duration::from_millis(500);
/// Probes come up to so much sooner than their interval says.
const JITTER_PERCENT: u8 = 15;

/// A path as probes take it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProbePath {
    /// The local port.
    pub port: PortId,
    /// The local LID, path bits included.
    pub slid: Lid,
    /// The remote LID, path bits included.
    pub dlid: Lid,
    /// Service level.
    pub sl: u8,
    /// The partition.
    pub pkey: PKey,
}

/// A probe to send, or the answer to one: Get(ClassPortInfo) over exactly this path, to QP1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The path.
    pub path: ProbePath,
    /// Lower half of the transaction ID.
    pub transaction_id: u32,
}

/// Who answers a probe. Of the peer's kernel nobody hears what becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answerer {
    /// The peer's daemon.
    Daemon,
    /// Its kernel: no daemon runs there.
    Kernel,
}

/// What is known of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PathHealth {
    /// It is not probed, or no probe has come back yet.
    #[default]
    Unknown,
    /// The last probes came back.
    Verified,
    /// They do not come back.
    Suspect,
}

/// What happened to a path, for those who use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// A probe of a path that had answered was lost.
    Loss,
    /// So many were lost that it is suspect.
    Suspect,
    /// One more was.
    StillSuspect,
    /// A probe came back: the first, the first after a loss, or one that somebody waits for.
    Answer {
        /// It was suspect.
        was_suspect: bool,
    },
}

/// The paths that connections use or mean to use.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Probes {
    random: Random,
    paths: BTreeMap<ProbePath, PathState>,
    lossy: LossyPaths,
    schedule: ProbeSchedule,
    /// Ports by which more comes in than is handled at once, and until when they are taken to be so.
    crowded: BTreeMap<PortId, Time>,
    tally: Tally,
    far_ports: FarPorts,
    pace: Pace,
    /// Paths over each local port with a probe that has not left yet.
    out: BTreeMap<PortId, PathQueue>,
    findings: VecDeque<(ProbePath, Finding)>,
    /// Who has heard of the first of them last.
    heard: Option<ConnId>,
}

/// A connection that hears what became of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hearer {
    pub(crate) conn: ConnId,
    pub(crate) path: ProbePath,
    pub(crate) finding: Finding,
    /// The first of so many hears of it.
    pub(crate) is_first_of: Option<usize>,
}

impl Probes {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            random,
            paths: BTreeMap::new(),
            lossy: LossyPaths::default(),
            schedule: ProbeSchedule::default(),
            crowded: BTreeMap::new(),
            tally: Tally::default(),
            far_ports: FarPorts::default(),
            pace: Pace::default(),
            out: BTreeMap::new(),
            findings: VecDeque::new(),
            heard: None,
        }
    }

    /// Sets a local port's LMC; `None`: the port is gone.
    pub(crate) fn set_lmc(&mut self, port: PortId, lmc: Option<u8>) {
        let paths: Vec<ProbePath> = match self.far_ports.lmc(port) == lmc.unwrap_or(0) {
            true => Vec::new(),
            false => self.over(port).map(|(path, _)| *path).collect(),
        };
        paths.iter().for_each(|path| self.far_ports.remove(path));
        self.far_ports.set_lmc(port, lmc);
        paths.iter().for_each(|path| self.far_ports.add(path));
        // A probe that has not left keeps its place, for a port that comes again.
        if lmc.is_none() && self.out.get(&port).is_some_and(PathQueue::is_empty) {
            self.out.remove(&port);
        }
    }

    // ---- who wants to know ----

    /// A connection uses the path from now on.
    pub(crate) fn watch(&mut self, now: Time, path: ProbePath, conn: ConnId) {
        let health = self.health(&path);
        let state = self.paths.entry(path).or_insert_with(|| PathState {
            health,
            began: self.tally.silent_since(path.port).unwrap_or_default(),
            loss: self.lossy.take(&path),
            ..PathState::default()
        });
        let first = state.users.is_empty();
        state.users.insert(conn);
        if first {
            self.far_ports.add(&path);
            self.schedule.set(path, now);
            self.tally.change(path.port, PathHealth::Unknown, health);
        }
    }

    /// A connection does not use it any more.
    pub(crate) fn unwatch(&mut self, path: ProbePath, conn: ConnId) {
        let Some(state) = self.paths.get_mut(&path) else {
            return;
        };
        state.users.remove(&conn);
        if state.users.is_empty() {
            self.tally
                .change(path.port, state.health, PathHealth::Unknown);
            self.lossy.insert(path, state.loss, &self.far_ports);
            self.paths.remove(&path);
            self.far_ports.remove(&path);
            self.schedule.cancel(&path);
            self.take_back(&path);
        }
    }

    // ---- what is known ----

    pub(crate) fn health(&self, path: &ProbePath) -> PathHealth {
        match self.paths.get(path) {
            Some(state) => state.health,
            None if self.tally.silent_since(path.port).is_some() => PathHealth::Suspect,
            None => PathHealth::Unknown,
        }
    }

    /// Whether no path over this local port answers, and at least one should.
    pub(crate) fn is_suspect_port(&self, port: PortId) -> bool {
        self.tally.is_suspect(port)
    }

    /// Whether the path is silent though a later probe of another path over its local port was answered. When a local
    /// port has just come back this also holds for its own fault, until the next probe of the path.
    pub(crate) fn fails_remotely(&self, path: &ProbePath) -> bool {
        let state = self.paths.get(path).filter(|state| state.is_suspect());
        state.is_some_and(|state| self.tally.has_carried(path.port, state.began))
    }

    /// Whether connections use or mean to use a path from this LID of a local port to one of those LIDs, with whatever
    /// service level and partition.
    pub(crate) fn leads_to(&self, port: PortId, slid: Lid, dlids: &RangeInclusive<Lid>) -> bool {
        let path = |dlid: &Lid, sl, pkey| ProbePath {
            port,
            slid,
            dlid: *dlid,
            sl,
            pkey: PKey(pkey),
        };
        let first = path(dlids.start(), 0, 0);
        let last = path(dlids.end(), u8::MAX, u16::MAX);
        self.paths.range(first..=last).next().is_some()
    }

    /// Whether a quarter or more of its recent probes were lost.
    pub(crate) fn is_lossy(&self, path: &ProbePath) -> bool {
        self.paths
            .get(path)
            .is_some_and(|state| state.loss.is_high())
    }

    /// Whether the last answer took [`REPEAT`] or longer.
    pub(crate) fn is_late(&self, path: &ProbePath) -> bool {
        self.paths
            .get(path)
            .is_some_and(|state| state.lateness.is_late())
    }

    /// Whether one of the last eight answers took [`REPEAT`] or longer.
    pub(crate) fn was_late(&self, path: &ProbePath) -> bool {
        self.paths
            .get(path)
            .is_some_and(|state| state.lateness.was_late())
    }

    pub(crate) fn is_probed(&self, path: &ProbePath) -> bool {
        self.paths.contains_key(path)
    }

    /// When a probe came back last.
    pub(crate) fn answered(&self, path: &ProbePath) -> Option<Time> {
        self.paths.get(path)?.answered()
    }

    /// Whether the last probe that came back was answered by the peer's daemon.
    pub(crate) fn has_daemon(&self, path: &ProbePath) -> bool {
        let last = self.paths.get(path).and_then(|state| state.last_answer);
        last.is_some_and(|answer| answer.by == Answerer::Daemon)
    }

    /// Whether a probe that was sent since the last answer has been lost.
    pub(crate) fn loses(&self, now: Time, path: &ProbePath) -> bool {
        let state = self.paths.get(path);
        state.is_some_and(|state| state.is_suspect() || state.lost_at(now).is_some())
    }

    /// When the last of the probes that came back was sent.
    pub(crate) fn asked(&self, path: &ProbePath) -> Option<Time> {
        self.paths.get(path)?.asked()
    }

    /// Somebody has to know now.
    pub(crate) fn hasten(&mut self, now: Time, path: &ProbePath) {
        if let Some(state) = self.paths.get_mut(path) {
            state.awaited = true;
            self.soon(now, path);
        }
    }

    /// Somebody has to know more of a suspect path: the next copy follows the last one as if it were not suspect yet.
    pub(crate) fn press(&mut self, now: Time, path: &ProbePath) {
        if let Some(state) = self.paths.get_mut(path)
            && let Some(last) = state.last_sent()
        {
            self.schedule.set(*path, now.max(last + CLOSER));
        }
    }

    /// The next probe of the path, if it is probed, is sent now.
    pub(crate) fn soon(&mut self, now: Time, path: &ProbePath) {
        let state = self.paths.get(path).into_iter();
        // One that is under way will tell.
        let rests = |state: &PathState| state.unanswered == 0 || state.is_suspect();
        if state.into_iter().any(rests) {
            // One that is overdue keeps its place.
            self.schedule.set_no_later(*path, now);
        }
    }

    // ---- probes and answers ----

    /// When [`Self::due`] is to be called.
    pub(crate) fn next(&self) -> Option<Time> {
        let next = self.schedule.next_time()?;
        Some(next.max(self.pace.next_token()))
    }

    /// Does what is due. `verify` is the longest time between two probes of a path.
    pub(crate) fn due(&mut self, now: Time, verify: Duration) {
        while self.pace.next_token() <= now {
            let Some(path) = self.schedule.next(now, &self.far_ports) else {
                return;
            };
            self.step(now, path, verify);
        }
    }

    /// More comes in by this port than is handled at once.
    pub(crate) fn crowded(&mut self, now: Time, port: PortId) {
        self.crowded.insert(port, now + CROWDED_FOR);
    }

    fn is_crowded(&self, now: Time, port: PortId) -> bool {
        self.crowded.get(&port).is_some_and(|&until| now < until)
    }

    fn step(&mut self, now: Time, path: ProbePath, verify: Duration) {
        let crowded = self.is_crowded(now, path.port);
        let interval = self.interval(&path, verify);
        let Some(state) = self.paths.get_mut(&path) else {
            return;
        };
        if state.waits {
            state.delay(now);
            self.schedule.set(path, now + REPEAT);
            return;
        }
        if let Some(finding) = state.loss_found(crowded) {
            if finding == Finding::Suspect {
                self.tally
                    .change(path.port, state.health, PathHealth::Suspect);
                state.health = PathHealth::Suspect;
            }
            self.findings.push_back((path, finding));
        }
        let has_lost = state.lost_at(now).is_some();
        state.send(now, self.random.nonzero_u32());
        let began = state.began;
        let wait = match state.health {
            PathHealth::Suspect if core::mem::take(&mut state.awaited) => REPEAT,
            PathHealth::Suspect => interval,
            _ if state.unanswered <= APART => REPEAT,
            _ => CLOSER,
        };
        self.schedule.set(path, now + wait);
        let out = self.out.entry(path.port).or_default();
        out.join(self.far_ports.of(&path), now, path);
        self.pace.take(now);
        self.tally.sent(path.port, now);
        if has_lost && self.tally.may_be_silent(path.port, began) {
            self.judge_port(now, path.port);
        }
    }

    /// The time until the next probe of a path: `verify`, or longer where there are many paths.
    fn interval(&mut self, path: &ProbePath, verify: Duration) -> Duration {
        let longest = self.far_ports.interval(path, verify);
        let mean = longest * 100 / (100 + u32::from(JITTER_PERCENT));
        self.random.jitter(mean, JITTER_PERCENT)
    }

    /// The next probe to send by a port that has room, by turns over far ports. What is not taken waits, one for each
    /// path.
    pub(crate) fn poll(&mut self, mut has_room: impl FnMut(PortId) -> bool) -> Option<Probe> {
        let mut ports = self.out.iter_mut();
        let (_, out) = ports.find(|(port, out)| !out.is_empty() && has_room(**port))?;
        let path = out.next()?;
        let transaction_id = self.paths.get_mut(&path)?.leave();
        Some(Probe {
            path,
            transaction_id,
        })
    }

    /// A copy of the path that has not left yet is not needed any more.
    fn take_back(&mut self, path: &ProbePath) {
        if let Some(out) = self.out.get_mut(&path.port) {
            out.leave(path);
        }
    }

    /// Whether an answer is to a probe.
    pub(crate) fn expects(&self, answer: &Probe) -> bool {
        let state = self.paths.get(&answer.path);
        state.is_some_and(|state| state.find(answer.transaction_id).is_some())
    }

    /// An answer has come. False: nobody had asked.
    pub(crate) fn take(
        &mut self,
        now: Time,
        answer: &Probe,
        by: Answerer,
        verify: Duration,
    ) -> bool {
        let path = answer.path;
        let interval = self.interval(&path, verify);
        // Where many are lost, whether that is over matters to improvements.
        let soonest = self.interval(&path, REPEAT);
        let Some(state) = self.paths.get_mut(&path) else {
            return false;
        };
        let Some(sent) = state.find(answer.transaction_id) else {
            return false;
        };
        // How long a hole was open says nothing of chance; but it may have been chance.
        let lost = state.copies_before(sent.at);
        state.loss.answered_after(lost.min(state.loss.patience()));
        state.lateness.answered_after(now - sent.at);
        let is_late = state.lateness.is_late();
        if !is_late {
            state.prompt.rotate_right(1);
            state.prompt[0] = sent.at;
        }
        let awaited = core::mem::take(&mut state.awaited);
        let is_news = state.health != PathHealth::Verified;
        if is_news || state.unanswered > 1 || awaited {
            let was_suspect = state.health == PathHealth::Suspect;
            self.findings
                .push_back((path, Finding::Answer { was_suspect }));
        }
        self.tally
            .change(path.port, state.health, PathHealth::Verified);
        state.health = PathHealth::Verified;
        let asked = state.asked().unwrap_or(sent.at).max(sent.at);
        state.last_answer = Some(LastAnswer { at: now, asked, by });
        state.unanswered = 0;
        let waits = core::mem::take(&mut state.waits);
        let wait = match state.loss.is_high() {
            true => soonest,
            // Paths over one port that became known together are not probed together from now on: in between
            // nobody would hear of that port. Later and not sooner, since there is hardly room for more probes.
            false if is_news && interval > verify => {
                interval + interval * self.random.below(1_000) / 1_000
            }
            false => interval,
        };
        self.tally.carried(path.port, sent.at, !is_late);
        self.schedule.set(path, now + wait);
        if waits {
            self.take_back(&path);
        }
        true
    }

    /// Whether somebody has to hear what became of a path.
    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// The next connection to hear what became of a path that it uses.
    pub(crate) fn next_hearer(&mut self) -> Option<Hearer> {
        loop {
            let &(path, finding) = self.findings.front()?;
            let users = self.paths.get(&path).map(|state| &state.users);
            let after = self.heard.map_or(Bound::Unbounded, Bound::Excluded);
            let next = users.and_then(|users| users.range((after, Bound::Unbounded)).next());
            let first = self.heard.is_none();
            self.heard = next.copied();
            if let Some(conn) = self.heard {
                return Some(Hearer {
                    conn,
                    path,
                    finding,
                    is_first_of: users.filter(|_| first).map(BTreeSet::len),
                });
            }
            self.findings.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
