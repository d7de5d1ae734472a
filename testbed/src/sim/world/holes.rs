// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migrations to alternates that carry nothing: what is known to be a hole is no place to go while the primary may
//! come back in time.

use cm_msgs::path::Path;

use super::World;
use crate::sim::fault::What;
use crate::sim::queue::{MS, SECOND};
use crate::sim::verdict::Rule;

/// An alternate that has carried nothing for as long is known to be a hole: a probe's interval, and its loss.
const KNOWN: u64 = 3 * SECOND;
/// A QP that stays on its primary has retries for as long, and a little more.
const RETRIES: u64 = 400 * MS;
/// MADs that take as long are late: two of them take as long as half of a QP's retries.
const LATE: u64 = 125 * MS;

/// A migration that was ordered, by a daemon or in advance, to what was known to be a hole.
#[derive(Clone, Copy, Debug)]
struct Blunder {
    at: u64,
    left: Path,
    /// The path that it left carried packets again before the QP's retries were used up.
    was_needless: bool,
}

/// What an end's alternate carries.
#[derive(Clone, Copy, Default, Debug)]
struct Alternate {
    path: Option<Path>,
    /// Its local port has a link.
    has_link: bool,
    /// Since when it has carried nothing, or its link has been back: what a daemon knew before is no longer so.
    dead_since: Option<u64>,
    /// When a packet got through by it again after none had.
    revived: Option<u64>,
    blunder: Option<Blunder>,
}

/// What is known of alternates.
pub(super) struct Holes {
    /// Of each side of each connection.
    ends: Vec<[Alternate; 2]>,
    blinded: Blinded,
}

/// Faults that keep daemons from knowing holes.
#[derive(Default, Debug)]
struct Blinded {
    faults: u32,
    /// When the first of these began.
    began: u64,
    /// When pauses between tries to open an association are over that grew meanwhile: without one no path is probed.
    over: u64,
}

impl Blinded {
    fn change(&mut self, now: u64, begins: bool) {
        if begins {
            if self.faults == 0 && now >= self.over {
                self.began = now;
            }
            self.faults += 1;
        } else {
            self.faults -= 1;
            self.over = now + (now - self.began);
        }
    }
}

/// Whether a daemon may miss a hole meanwhile, or its library what it says of it.
fn blinds(what: What) -> bool {
    match what {
        What::MadLoss(_)
        | What::MadDelay(_)
        | What::LateLibrary(_)
        | What::MuteLibrary(_)
        | What::Crash(_)
        | What::Addresses(_)
        | What::Sqd(..) => true,
        What::Fabric(..)
        | What::MadCopy(_)
        | What::Forgery(_)
        | What::SlowSa(_)
        | What::NoSa
        | What::BusySa
        | What::StaleSa
        | What::Close(..)
        | What::Redirect(_) => false,
    }
}

impl Holes {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            ends: vec![[Alternate::default(); 2]; connections],
            blinded: Blinded::default(),
        }
    }

    pub(super) fn acknowledged(&mut self, conn: usize, side: usize) {
        self.ends[conn][side].blunder = None;
    }

    /// A fault begins or ends.
    pub(super) fn changed(&mut self, what: What, now: u64, begins: bool) {
        // A copy of a message from another time may have ended an association at one end, which probes no paths
        // then; the other end verifies it within 10 minutes.
        let is_forgery = matches!(what, What::Forgery(_)) && begins;
        if blinds(what) || is_forgery {
            self.blinded.change(now, begins);
        }
    }

    /// Whether daemons know what has been a hole since that time.
    fn is_known(&self, since: u64, now: u64) -> bool {
        let Blinded { faults, over, .. } = self.blinded;
        faults == 0 && now >= since.max(over) + KNOWN
    }
}

impl World<'_> {
    /// Looks at an end's alternate.
    pub(super) fn note_alternate(&mut self, conn: usize, side: usize) {
        let end = &self.connections[conn].ends[side];
        let path = end.qp.loaded();
        let carries = path.is_some_and(|path| self.passes_both_ways(conn, side, &path));
        let link = |path: Path| self.fabric.link_is_up((end.host, path.port));
        let has_link = path.is_some_and(link);
        let now = self.queue.now();
        let known = &mut self.holes.ends[conn][side];
        let is_back = has_link && !known.has_link;
        if known.path != path {
            known.revived = None;
        } else if carries && known.dead_since.is_some() {
            known.revived = Some(now);
        }
        if carries || known.path != path || is_back {
            known.dead_since = None;
        }
        (known.path, known.has_link) = (path, has_link);
        if !carries {
            known.dead_since.get_or_insert(now);
        }
    }

    /// Whether the alternate of an end carried nothing until so short a time ago that its daemon need not know that it
    /// does again, because MADs take long: a probe and its answer, and a message to the peer and its answer.
    pub(super) fn was_hole_lately(&self, conn: usize) -> bool {
        let delay = u64::from(self.weather.delay);
        let lately = |end: &Alternate| {
            end.revived
                .is_some_and(|at| self.queue.now() < at + 4 * delay)
        };
        delay >= LATE && self.holes.ends[conn].iter().any(lately)
    }

    /// An end is about to migrate because its library was told to, now or in advance.
    pub(super) fn migrates_by_order(&mut self, conn: usize, side: usize) {
        // It may have been loaded since the last packet.
        self.note_alternate(conn, side);
        let ends = &self.connections[conn].ends;
        let (left, now) = (ends[side].qp.primary, self.queue.now());
        let Some(path) = ends[side].qp.loaded() else {
            return;
        };
        let peers = &ends[1 - side].qp.primary;
        let follows = self.are_reversed(conn, side, [&path, peers]) == Some(true)
            || self.has_peer_left(conn, side, &left);
        let dead_since = self.holes.ends[conn][side].dead_since;
        let known = dead_since.is_some_and(|since| self.holes.is_known(since, now));
        if !follows && known {
            self.holes.ends[conn][side].blunder = Some(Blunder {
                at: now,
                left,
                was_needless: false,
            });
        }
    }

    /// The peer uses another port than the one where this path ends: its hardware has left, perhaps by a LID that is not
    /// its own any more. To stay where the peer is not would not help.
    fn has_peer_left(&self, conn: usize, side: usize, path: &Path) -> bool {
        let peer = &self.connections[conn].ends[1 - side];
        let end = self.ends_of(conn, side, path);
        let port = end.and_then(|(_, to)| self.fabric.port_at(to));
        port.is_some_and(|port| port != (peer.host, peer.qp.primary.port))
    }

    /// A packet of an end was not acknowledged.
    pub(super) fn lost_after_order(&mut self, conn: usize, side: usize) {
        let Some(blunder) = self.holes.ends[conn][side].blunder else {
            return;
        };
        let in_time = self.queue.now() - blunder.at < RETRIES;
        if in_time && self.passes_both_ways(conn, side, &blunder.left) {
            self.holes.ends[conn][side].blunder = Some(Blunder {
                was_needless: true,
                ..blunder
            });
        }
    }

    /// A connection has died.
    pub(super) fn must_not_have_been_sent_into_a_hole(&mut self, conn: usize) {
        let blunders = self.holes.ends[conn].iter().filter_map(|end| end.blunder);
        let needless = blunders.filter(|blunder| blunder.was_needless).count();
        if needless > 0 {
            self.violated(Rule::KnownHole, || {
                format!(
                    "connection {conn} died: it was ordered to an alternate that had carried nothing for \
                     3 s, and the path that it left carried packets again in time"
                )
            });
        }
    }
}
