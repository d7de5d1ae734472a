// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether paths carry packets: one Get(ClassPortInfo) over the very path, whose answer comes back over
//! its reverse.
//!
//! A path that connections share is probed once for all of them. Whoever is at its far end answers: a
//! daemon, or without one the kernel. Anybody in the fabric may send answers, so only that counts which
//! comes by the path that was asked, with a transaction ID out of [`Random`].

mod comparison;
mod loss;
mod pace;
mod silent_port;
mod tally;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::ops::{Bound, RangeInclusive};
use core::time::Duration;

use cm_msgs::{Lid, PKey};
use serde::{Deserialize, Serialize};
use strum::Display;

pub(crate) use self::comparison::Silence;
use self::loss::LossRate;
use self::pace::Pace;
use self::tally::Tally;
use crate::id::{ConnId, PortId};
use crate::random::Random;
use crate::time::Time;
use crate::timers::Timers;

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
/// Of so many paths that are not used it is remembered that many of their probes were lost.
const MAX_LOSSY: usize = 1_024;
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

/// Copies without an answer that are remembered: late answers count as well.
const REMEMBERED: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    transaction: u32,
    at: Time,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct State {
    /// The connections that use it, or mean to.
    users: BTreeSet<ConnId>,
    health: PathHealth,
    /// The last copies, since the last answer.
    sent: [Sent; REMEMBERED],
    /// Copies since the last answer.
    unanswered: u8,
    /// When the first of them was sent.
    began: Time,
    /// The last copy has not left yet.
    waits: bool,
    /// Somebody waits for the next answer.
    awaited: bool,
    /// When an answer came last.
    answered: Option<Time>,
    /// When the probe was sent that this was the answer to.
    asked: Option<Time>,
    /// And it was not prompt.
    late: bool,
    /// When probes were sent that were answered promptly, the last first.
    prompt: [Time; 3],
    loss: LossRate,
}

impl State {
    fn is_suspect(&self) -> bool {
        self.health == PathHealth::Suspect
    }

    /// Copies in a row without an answer that make it suspect; `crowded`: answers by its port may be late.
    fn patience(&self, crowded: bool) -> u8 {
        let least = match crowded || self.late {
            true => PATIENCE_IF_LATE,
            false => 0,
        };
        self.loss.patience().max(least)
    }

    /// The place of a copy among those that are remembered, by the order of sending.
    fn place(number: u8) -> usize {
        usize::from(number) % REMEMBERED
    }

    /// When the last copy was sent that can be called lost.
    fn lost_at(&self, now: Time) -> Option<Time> {
        let copies = self.sent[..usize::from(self.unanswered).min(REMEMBERED)].iter();
        let sent = copies.map(|sent| sent.at);
        sent.filter(|&at| now - at >= REPEAT).max()
    }

    /// Copies since the last answer that were sent before the one of that moment.
    fn copies_before(&self, at: Time) -> u8 {
        let copies = &self.sent[..usize::from(self.unanswered).min(REMEMBERED)];
        copies.iter().filter(|sent| sent.at < at).count() as u8
    }

    /// When the last copy since the last answer was sent.
    fn last_sent(&self) -> Option<Time> {
        let number = self.unanswered.checked_sub(1)?;
        Some(self.sent[Self::place(number)].at)
    }

    fn find(&self, transaction: u32) -> Option<Sent> {
        let copies = &self.sent[..usize::from(self.unanswered).min(REMEMBERED)];
        let mut copies = copies.iter().copied();
        copies.find(|sent| sent.transaction == transaction)
    }
}

/// The paths that connections use or mean to use.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Probes {
    random: Random,
    paths: BTreeMap<ProbePath, State>,
    /// What was lost of paths that are not used at the moment: associations are opened anew just then.
    lossy: BTreeMap<ProbePath, LossRate>,
    timers: Timers<ProbePath>,
    /// Ports by which more comes in than is handled at once, and until when they are taken to be so.
    crowded: BTreeMap<PortId, Time>,
    tally: Tally,
    /// The LMC of each local port: all ports of its subnet have as many LIDs.
    lmcs: BTreeMap<PortId, u8>,
    pace: Pace,
    out: VecDeque<ProbePath>,
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
            lossy: BTreeMap::new(),
            timers: Timers::default(),
            crowded: BTreeMap::new(),
            tally: Tally::default(),
            lmcs: BTreeMap::new(),
            pace: Pace::default(),
            out: VecDeque::new(),
            findings: VecDeque::new(),
            heard: None,
        }
    }

    /// Sets a local port's LMC; `None`: the port is gone.
    pub(crate) fn set_lmc(&mut self, port: PortId, lmc: Option<u8>) {
        match lmc {
            Some(lmc) => self.lmcs.insert(port, lmc),
            None => self.lmcs.remove(&port),
        };
    }

    // ---- who wants to know ----

    /// A connection uses the path from now on.
    pub(crate) fn watch(&mut self, now: Time, path: ProbePath, conn: ConnId) {
        let health = self.health(&path);
        let state = self.paths.entry(path).or_insert_with(|| State {
            health,
            began: self.tally.silent_since(path.port).unwrap_or_default(),
            // To forget that would be to take the next minute for fair.
            loss: self.lossy.remove(&path).unwrap_or_default(),
            ..State::default()
        });
        let first = state.users.is_empty();
        state.users.insert(conn);
        if first {
            self.timers.set(path, now);
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
            if state.loss.is_high() {
                self.lossy.insert(path, state.loss);
            }
            if self.lossy.len() > MAX_LOSSY {
                self.lossy.pop_first();
            }
            self.paths.remove(&path);
            self.timers.cancel(&path);
            self.out.retain(|waiting| *waiting != path);
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

    /// Whether a quarter or more of its probes were lost of late.
    pub(crate) fn is_lossy(&self, path: &ProbePath) -> bool {
        self.paths
            .get(path)
            .is_some_and(|state| state.loss.is_high())
    }

    pub(crate) fn is_probed(&self, path: &ProbePath) -> bool {
        self.paths.contains_key(path)
    }

    /// When a probe came back last.
    pub(crate) fn answered(&self, path: &ProbePath) -> Option<Time> {
        self.paths.get(path)?.answered
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
            self.timers.set(*path, now.max(last + CLOSER));
        }
    }

    /// The next probe of the path, if it is probed, is sent now.
    pub(crate) fn soon(&mut self, now: Time, path: &ProbePath) {
        let state = self.paths.get(path).into_iter();
        // One that is under way will tell.
        let rests = |state: &State| state.unanswered == 0 || state.is_suspect();
        if state.into_iter().any(rests) {
            // One that is overdue keeps its place.
            self.timers.set_no_later(*path, now);
        }
    }

    // ---- probes and answers ----

    /// When [`Self::due`] is to be called.
    pub(crate) fn next(&self) -> Option<Time> {
        let next = self.timers.next()?;
        Some(next.max(self.pace.next_token()))
    }

    /// Does what is due. `verify` is the longest time between two probes of a path.
    pub(crate) fn due(&mut self, now: Time, verify: Duration) {
        while self.pace.next_token() <= now {
            let Some(path) = self.timers.expired(now) else {
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
        let interval = self.interval(verify);
        let crowded = self.is_crowded(now, path.port);
        let Some(state) = self.paths.get_mut(&path) else {
            return;
        };
        if state.waits {
            // Its port has no room: that says nothing of the path. Nor is what leaves late lost at once.
            state.sent[State::place(state.unanswered.wrapping_sub(1))].at = now;
            if state.unanswered == 1 {
                state.began = now;
            }
            self.timers.set(path, now + REPEAT);
            return;
        }
        if state.is_suspect() {
            if state.unanswered > 0 {
                self.findings.push_back((path, Finding::StillSuspect));
            }
        } else if state.unanswered >= state.patience(crowded) {
            self.tally
                .change(path.port, state.health, PathHealth::Suspect);
            state.health = PathHealth::Suspect;
            self.findings.push_back((path, Finding::Suspect));
        } else if state.unanswered == 1 && state.health == PathHealth::Verified {
            self.findings.push_back((path, Finding::Loss));
        }
        let has_lost = state.lost_at(now).is_some();
        // One over a silent port fell with that.
        if state.unanswered == 0 && !state.is_suspect() {
            state.began = now;
        }
        let transaction = self.random.nonzero_u32();
        let at = State::place(state.unanswered);
        state.sent[at] = Sent {
            transaction,
            at: now,
        };
        // Beyond that only the place counts.
        state.unanswered = match state.unanswered.checked_add(1) {
            Some(number) => number,
            None => REMEMBERED as u8,
        };
        state.waits = true;
        self.out.push_back(path);
        self.pace.take(now);
        self.tally.sent(path.port, now);
        let wait = match state.health {
            PathHealth::Suspect if core::mem::take(&mut state.awaited) => REPEAT,
            PathHealth::Suspect => interval,
            _ if state.unanswered <= APART => REPEAT,
            _ => CLOSER,
        };
        self.timers.set(path, now + wait);
        if has_lost && self.tally.may_be_silent(path.port, state.began) {
            self.judge_port(now, path.port);
        }
    }

    /// The time until the next probe of a path: `verify`, or longer where there are many paths.
    fn interval(&mut self, verify: Duration) -> Duration {
        let longest = verify.max(pace::round(self.paths.len()));
        let mean = longest * 100 / (100 + u32::from(JITTER_PERCENT));
        self.random.jitter(mean, JITTER_PERCENT)
    }

    /// The next probe to send by a port that has room. What is not taken waits, one for each path.
    pub(crate) fn poll(&mut self, mut has_room: impl FnMut(PortId) -> bool) -> Option<Probe> {
        let place = self.out.iter().position(|path| has_room(path.port))?;
        let path = self.out.remove(place)?;
        let state = self.paths.get_mut(&path)?;
        state.waits = false;
        let last = State::place(state.unanswered.wrapping_sub(1));
        Some(Probe {
            path,
            transaction_id: state.sent[last].transaction,
        })
    }

    /// Whether an answer is to a probe.
    pub(crate) fn expects(&self, answer: &Probe) -> bool {
        let state = self.paths.get(&answer.path);
        state.is_some_and(|state| state.find(answer.transaction_id).is_some())
    }

    /// An answer has come. False: nobody had asked.
    pub(crate) fn take(&mut self, now: Time, answer: &Probe, verify: Duration) -> bool {
        let interval = self.interval(verify);
        // Where many are lost, whether that is over matters to improvements.
        let soonest = self.interval(REPEAT);
        let path = answer.path;
        let Some(state) = self.paths.get_mut(&path) else {
            return false;
        };
        let Some(sent) = state.find(answer.transaction_id) else {
            return false;
        };
        // How long a hole was open says nothing of chance; but it may have been chance.
        let lost = state.copies_before(sent.at);
        state.loss.answered_after(lost.min(state.loss.patience()));
        state.late = now - sent.at >= REPEAT;
        if !state.late {
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
        state.answered = Some(now);
        state.asked = state.asked.max(Some(sent.at));
        state.unanswered = 0;
        if core::mem::take(&mut state.waits) {
            self.out.retain(|waiting| *waiting != path);
        }
        let wait = match state.loss.is_high() {
            true => soonest,
            // Paths over one port that became known together are not probed together from now on: in between
            // nobody would hear of that port. Later and not sooner, since there is hardly room for more probes.
            false if is_news && interval > verify => {
                interval + interval * self.random.below(1_000) / 1_000
            }
            false => interval,
        };
        self.tally.carried(path.port, sent.at, !state.late);
        self.timers.set(path, now + wait);
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
