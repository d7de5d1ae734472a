// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which peers are asked without anybody connecting to them, and when: those that subnet administration
//! names, and again those that have answered. No I/O here.
//!
//! What it names anybody may have registered, so everything here is bounded and paced: a few are asked at a
//! time, and who has never answered is soon forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::Lid;
use statemachine::{FarPort, PortId, Time, Timers};

use super::peer_lid::PeerLid;

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

/// When a silent one is asked again, which doubles each time up to [`AGAIN_AFTER`]. For three seconds its silence
/// is believed without another question.
const RETRY_AFTER: Duration = Duration::from_secs(4);

/// How often in a row a peer that has answered once may be silent. It is not named meanwhile; but a switch that
/// is out for some minutes must not make two daemons forget each other for ever.
const SILENT_MAX: u8 = 10;

/// And one that never has: it may have been too busy at its start to answer in time.
const UNPROVEN_SILENT_MAX: u8 = 6;

/// How many of those are asked again.
const UNPROVEN_MAX: usize = 256;

/// Who is to be asked now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    First(FarPort),
    Again(PeerLid),
}

/// Peers to be asked, and peers that have answered.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// By LID: each host begins behind its own, so that not all ask the same one.
    waiting: BTreeSet<(Lid, PortId, u16)>,
    last: Option<(Lid, PortId, u16)>,
    /// Those that have answered, and how often they were silent since.
    proven: BTreeMap<PeerLid, u8>,
    /// Those that never have, and how often they were silent.
    unproven: BTreeMap<PeerLid, u8>,
    again: Timers<PeerLid>,
    /// Those that are being asked.
    under_way: BTreeSet<PeerLid>,
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

    /// Whether it is asked again from time to time.
    pub(super) fn keeps(&self, peer: PeerLid) -> bool {
        self.proven.contains_key(&peer) || self.unproven.contains_key(&peer)
    }

    /// Whether it has ever answered, as far as is known.
    pub(super) fn has_answered(&self, peer: PeerLid) -> bool {
        self.proven.contains_key(&peer)
    }

    pub(super) fn forget(&mut self, peer: PeerLid) {
        self.proven.remove(&peer);
        self.unproven.remove(&peer);
        self.again.cancel(&peer);
        self.under_way.remove(&peer);
    }

    /// It has answered, or has not; whether it is to be known any longer. Silence counts where it was asked from
    /// here: others may be made to ask as often as somebody likes.
    pub(super) fn handle_answer(&mut self, now: Time, peer: PeerLid, answers: bool) -> bool {
        let was_asked = self.under_way.remove(&peer);
        if answers {
            self.unproven.remove(&peer);
            if self.proven.insert(peer, 0) != Some(0) {
                self.again.set(peer, now + AGAIN_AFTER);
            }
            return true;
        }
        if !was_asked {
            return self.keeps(peer);
        }
        let Some(silent) = self.count_silence(peer) else {
            self.forget(peer);
            return false;
        };
        let after = RETRY_AFTER * 2_u32.pow(u32::from(silent) - 1);
        self.again.set(peer, now + after.min(AGAIN_AFTER));
        true
    }

    /// How often it has been silent in a row, if it may be once more.
    fn count_silence(&mut self, peer: PeerLid) -> Option<u8> {
        let has_room = self.unproven.len() < UNPROVEN_MAX;
        let (silent, max) = match self.proven.get_mut(&peer) {
            Some(silent) => (silent, SILENT_MAX),
            None if has_room => (self.unproven.entry(peer).or_default(), UNPROVEN_SILENT_MAX),
            None => (self.unproven.get_mut(&peer)?, UNPROVEN_SILENT_MAX),
        };
        *silent += 1;
        (*silent < max).then_some(*silent)
    }

    /// Who is to be asked, if anybody is.
    pub(super) fn poll(&mut self, now: Time) -> Option<Due> {
        if self.poll_timeout()? > now {
            return None;
        }
        let (due, peer, pace) = match self.next_waiting() {
            Some(far) => (Due::First(far), (far.port, far.lid), PACE_FIRST),
            None => {
                let peer = self.again.expired(now)?;
                (Due::Again(peer), peer, PACE_AGAIN)
            }
        };
        if self.keeps(peer) {
            self.again.set(peer, now + AGAIN_AFTER);
        }
        self.next_at = now + pace;
        Some(due)
    }

    /// It is asked.
    pub(super) fn asked(&mut self, peer: PeerLid) {
        self.under_way.insert(peer);
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
mod tests;
