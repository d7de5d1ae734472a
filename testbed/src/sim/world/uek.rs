// SPDX-License-Identifier: MIT OR Apache-2.0
//! Oracle UEK's schedule in the place of the engines: who asks whom after which event, with its delays
//! and repetitions as they are published. It has no daemons: each end acts for its own connection.

use cm_msgs::path::Path;

use super::{Event, World, first_path};
use crate::sim::fabric::PortOf;
use crate::sim::queue::{MS, SECOND};

/// Active side, from PATH_MIG to the next query.
const AFTER_MIGRATION: u64 = SECOND;
/// Passive side, from ESTABLISHED to SAP.
const FIRST_SAP: u64 = 2 * SECOND;
/// Passive side, from SPR busy to the next SAP.
const BUSY: u64 = 4 * SECOND;
/// Passive side, from a LAP that is not the first to the load.
const LOAD: u64 = SECOND;
/// A LAP or SAP is repeated after 4.096 us * 2^20, so many times.
const REPEAT: u64 = 4_295 * MS;
const REPEATS: u8 = 15;
/// A path query takes this.
const QUERY: u64 = 2 * MS;

/// What one end tells the other; a port is one of the passive side's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Said {
    /// This path as alternate, as the active side sees it.
    Lap(Path),
    /// It is loaded.
    Success,
    /// Another port would be better.
    InvalidGid(u8),
    /// It is the one there is.
    Reject,
    /// Look for an alternate to this port.
    Sap(u8),
    /// SPR; a LAP is on its way.
    Busy,
    /// SPR.
    Willing,
}

/// What happens at an end; side 0 is active.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Step {
    /// A message arrives.
    Heard(Said),
    /// Active: ask for a path, then LAP.
    Query,
    /// Active: the path is there.
    Found(Path),
    /// Passive: SAP.
    Suggest,
    /// Passive: load what a LAP named.
    Load(Path),
    /// Has this request been answered?
    Unanswered(u32),
}

/// An end.
#[derive(Default)]
pub(super) struct End {
    /// What waits for its answer: its number, what it is, how often it was repeated.
    request: Option<(u32, Said, u8)>,
    requests: u32,
    /// Passive: a LAP has been loaded before. Active: the port that the passive side named.
    loaded: bool,
    hint: Option<u8>,
}

/// Both ends.
pub(super) type Ends = [End; 2];

impl World<'_> {
    /// No daemon runs; the connection is established now.
    pub(super) fn start_uek(&mut self) {
        for host in &mut self.hosts {
            host.engine = None;
        }
        self.uek = Some(Ends::default());
        self.queue.after(0, Event::Uek(0, Step::Query));
        self.queue.after(FIRST_SAP, Event::Uek(1, Step::Suggest));
    }

    /// PATH_MIG at an end. The passive side does nothing.
    pub(super) fn uek_migrated(&mut self, side: usize) {
        if self.uek.is_some() && side == 0 {
            self.queue
                .after(AFTER_MIGRATION, Event::Uek(0, Step::Query));
        }
    }

    /// A port is lost. That of the primary is left to the hardware.
    pub(super) fn uek_port(&mut self, (host, port): PortOf) {
        if self.uek.is_none() || self.fabric.link_is_up((host, port)) {
            return;
        }
        let side = self.side_of(host, 0);
        let qp = &self.connections[0].ends[side].qp;
        if qp.loaded().is_some_and(|path| path.port == port) {
            let step = if side == 0 {
                Step::Query
            } else {
                Step::Suggest
            };
            self.queue.after(0, Event::Uek(side, step));
        }
    }

    pub(super) fn uek(&mut self, side: usize, step: Step) {
        match step {
            Step::Query => self.queue.after(QUERY, {
                let path = self.uek_choice();
                Event::Uek(0, Step::Found(path))
            }),
            // What the SA does not know is not asked for again.
            Step::Found(path) if self.is_known(&path) => self.request(0, Said::Lap(path)),
            Step::Found(_) => {}
            Step::Suggest => {
                let port = self.best_port(1);
                self.request(1, Said::Sap(port));
            }
            Step::Load(path) => self.uek_load(1, path),
            Step::Unanswered(number) => self.repeat(side, number),
            Step::Heard(said) => self.uek_heard(side, said),
        }
    }

    fn uek_heard(&mut self, side: usize, said: Said) {
        let Some(ends) = &mut self.uek else { return };
        let answered = match (&ends[side].request, said) {
            (_, Said::Lap(_) | Said::Sap(_)) => None,
            (Some((_, request, _)), _) => Some(*request),
            // A copy of an answer.
            (None, _) => return,
        };
        if answered.is_some() {
            ends[side].request = None;
        }
        match said {
            Said::Lap(path) => self.lap(path),
            Said::Sap(port) => {
                let busy = ends[side].request.is_some();
                ends[side].hint = Some(port);
                self.say(side, if busy { Said::Busy } else { Said::Willing });
                if !busy {
                    self.queue.after(0, Event::Uek(0, Step::Query));
                }
            }
            Said::Success => {
                if let Some(Said::Lap(path)) = answered {
                    self.uek_load(0, path);
                }
            }
            Said::InvalidGid(port) => {
                ends[side].hint = Some(port);
                self.queue.after(0, Event::Uek(0, Step::Query));
            }
            Said::Busy => self.queue.after(BUSY, Event::Uek(1, Step::Suggest)),
            Said::Reject | Said::Willing => {}
        }
    }

    /// The passive side looks at a LAP.
    fn lap(&mut self, path: Path) {
        let port = self.fabric.port_at(path.dlid).map_or(0, |(_, port)| port);
        let best = self.best_port(1);
        let Some(to) = self.fabric.port_at(path.slid) else {
            return;
        };
        let mine = first_path(
            &self.addresses,
            (self.connections[0].ends[1].host, port),
            to,
        );
        let qp = &self.connections[0].ends[1].qp;
        if mine.same_way(&qp.primary) || qp.loaded().is_some_and(|own| own.same_way(&mine)) {
            return self.say(1, Said::Reject);
        }
        if best != port {
            return self.say(1, Said::InvalidGid(best));
        }
        self.say(1, Said::Success);
        let first = self
            .uek
            .as_mut()
            .is_some_and(|ends| !std::mem::replace(&mut ends[1].loaded, true));
        let wait = if first { 0 } else { LOAD };
        self.queue.after(wait, Event::Uek(1, Step::Load(mine)));
    }

    fn uek_load(&mut self, side: usize, path: Path) {
        // A modify that IBA forbids has no effect.
        let _ = self.connections[0].ends[side].qp.load(path);
    }

    /// The alternate that the active side would have.
    fn uek_choice(&self) -> Path {
        let ends = &self.connections[0].ends;
        let hint = self.uek.as_ref().and_then(|ends| ends[0].hint);
        let far = self.fabric.port_at(ends[0].qp.primary.dlid);
        let other = 3 - far.map_or(1, |(_, port)| port);
        let from = (ends[0].host, self.best_port(0));
        first_path(&self.addresses, from, (ends[1].host, hint.unwrap_or(other)))
    }

    /// The lowest other port that is up, or the same.
    fn best_port(&self, side: usize) -> u8 {
        let end = &self.connections[0].ends[side];
        let own = end.qp.primary.port;
        let other = 3 - own;
        if self.fabric.link_is_up((end.host, other)) {
            other
        } else {
            own
        }
    }

    fn is_known(&self, path: &Path) -> bool {
        let ports = [path.slid, path.dlid].map(|lid| self.fabric.port_at(lid));
        let known = |port: &Option<PortOf>| port.is_some_and(|port| self.fabric.is_known(port));
        ports.iter().all(known)
    }

    fn request(&mut self, side: usize, said: Said) {
        let Some(ends) = &mut self.uek else { return };
        let end = &mut ends[side];
        end.requests += 1;
        let number = end.requests;
        end.request = Some((number, said, 0));
        self.queue
            .after(REPEAT, Event::Uek(side, Step::Unanswered(number)));
        self.say(side, said);
    }

    fn repeat(&mut self, side: usize, number: u32) {
        let Some(ends) = &mut self.uek else { return };
        let Some((current, said, repeats)) = &mut ends[side].request else {
            return;
        };
        if *current != number {
            return;
        }
        if *repeats == REPEATS {
            ends[side].request = None;
            return;
        }
        *repeats += 1;
        let said = *said;
        self.queue
            .after(REPEAT, Event::Uek(side, Step::Unanswered(number)));
        self.say(side, said);
    }

    /// A MAD, over the sender's primary.
    fn say(&mut self, side: usize, said: Said) {
        let path = self.connections[0].ends[side].qp.primary;
        let lost = self.dice.below(1000) < self.weather.loss;
        let delay = 20 + u64::from(self.dice.below(100));
        if !lost && self.fabric.passes(path.slid, path.dlid) {
            self.queue
                .after(delay, Event::Uek(1 - side, Step::Heard(said)));
        }
    }
}
