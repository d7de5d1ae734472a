// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a connection that died of one fault after a calm could have been saved by a correct protocol:
//! judged by cables, routes, policies and queue pairs, and by nothing that an engine believes.

use std::collections::BTreeSet;

use cm_msgs::Lid;
use cm_msgs::control::{Mode, Placement, Policy};
use cm_msgs::path::Path;

use super::World;
use super::daemon::SOURCE_TIMEOUT;
use crate::sim::fabric::{Element, base_lid};
use crate::sim::fault::What;
use crate::sim::queue::{MS, SECOND};

/// So long without a change, the network is calm.
const CALM: u64 = 2 * SECOND;
/// IBA lets no QP be armed sooner after a migration: a path query, LAP and APR, a load at each end, and then
/// a packet each way, which applications here send every 20 ms.
const REARM: u64 = 60 * MS;
/// Nobody can know of a hole that is younger: a probe's answer and the order that follows it are on their way
/// for as long, on a busy host.
const UNKNOWN: u64 = 5 * MS;

/// So long after a fault an idle connection is on another path: probes tell of a hole after 1.4 s, of which the retries
/// of what it sends meanwhile are half a second.
const MOVED: u64 = 3 * SECOND;

/// The places of a path's ends, from side 0 to side 1.
type Lids = (Lid, Lid);

/// How a connection stood when a fault began after a calm.
#[derive(Clone, Debug)]
struct Stand {
    /// When that was.
    at: u64,
    primary: Lids,
    /// How much later an end left it.
    left: Option<u64>,
    /// What both ends had armed.
    armed: Option<Lids>,
    /// What both ends had loaded and could be moved to, had they been told to, while they waited for traffic.
    waiting: Option<Lids>,
    /// It migrated, or another alternate was loaded, so short a time ago.
    moved: u64,
    loaded: u64,
}

/// How long a connection has been left in peace.
#[derive(Clone, Default, Debug)]
struct Peace {
    /// Since when, without a pause long enough, something has kept its ends from agreeing.
    disturbed: u64,
    /// It does so now.
    is_disturbed: bool,
    /// When pauses that grew meanwhile are over.
    from: u64,
    /// What both QPs' primaries have been since when.
    primaries: ([Lids; 2], u64),
    alternate: (Option<Lids>, u64),
    /// How it stood when the fault began that holds alone after a calm.
    stand: Option<Stand>,
}

/// What is known of calms.
pub(super) struct Calms {
    /// The last fault that began or ended, or new routes of the subnet manager's.
    changed: u64,
    /// Faults that hold, and those of them that keep daemons from agreeing.
    faults: u32,
    disturbances: u32,
    /// When questions are given up that a silent or slow source has lost, if something else still disturbs then.
    given_up: u64,
    peace: Vec<Peace>,
}

/// Whether it keeps daemons from agreeing, or one of their parts, wherever the paths lead.
fn disturbs(what: What) -> bool {
    match what {
        What::MadLoss(_)
        | What::MadDelay(_)
        | What::SlowSa(_)
        | What::NoSa
        | What::BusySa
        | What::StaleSa
        | What::LateLibrary(_)
        | What::MuteLibrary(_)
        | What::Crash(_)
        | What::Addresses(_)
        | What::Redirect(_)
        | What::Sqd(..) => true,
        What::Fabric(..) | What::MadCopy(_) | What::Forgery(_) | What::Close(..) => false,
    }
}

impl Calms {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            changed: 0,
            faults: 0,
            disturbances: 0,
            given_up: 0,
            peace: vec![Peace::default(); connections],
        }
    }
}

impl Peace {
    fn disturb(&mut self, now: u64) {
        if !self.is_disturbed && now >= self.from {
            self.disturbed = now;
        }
        self.is_disturbed = true;
    }

    /// Who is cut off asks ever more seldom: it may pause for as long as that has lasted, and until questions that were
    /// lost are given up.
    fn settle(&mut self, now: u64, given_up: u64) {
        self.is_disturbed = false;
        self.from = (now + (now - self.disturbed)).max(given_up);
    }
}

impl World<'_> {
    /// A fault begins, and the world is not yet as it makes it.
    pub(super) fn calm_ends(&mut self) {
        let now = self.queue.now();
        let is_long = now >= self.calms.changed + CALM;
        // What the subnet manager has not seen yet, it gives out no path to.
        let calm = self.calms.faults == 0 && is_long && self.fabric.is_swept();
        for conn in 0..self.connections.len() {
            let peace = &self.calms.peace[conn];
            let in_peace = calm && !peace.is_disturbed && now >= peace.from;
            let stand = in_peace.then(|| self.stand_of(conn));
            self.calms.peace[conn].stand = stand;
        }
    }

    /// A fault has begun or ended, and the world is as it makes it.
    pub(super) fn fault_changed(&mut self, what: What, begins: bool) {
        let step = |count: &mut u32| *count = if begins { *count + 1 } else { *count - 1 };
        step(&mut self.calms.faults);
        if disturbs(what) {
            step(&mut self.calms.disturbances);
        }
        // Where addresses change, paths are not what they were; nor can a QP in SQD be moved.
        let is_no_trial = matches!(what, What::Addresses(_) | What::Sqd(..));
        if !begins || is_no_trial {
            for peace in &mut self.calms.peace {
                peace.stand = None;
            }
        }
        // Who asked a source that was silent waits for its answer.
        let asked = match what {
            What::NoSa | What::SlowSa(_) => SOURCE_TIMEOUT,
            _ => 0,
        };
        self.network_changed(asked);
    }

    /// The network is another than before.
    pub(super) fn network_changed(&mut self, asked: u64) {
        let now = self.queue.now();
        self.calms.changed = now;
        self.calms.given_up = self.calms.given_up.max(now + asked);
        for conn in 0..self.connections.len() {
            let cut_off = !self.ways(conn).iter().any(|&way| self.lives(way));
            let disturbed = self.calms.disturbances > 0 || cut_off;
            let peace = &mut self.calms.peace[conn];
            match (peace.is_disturbed, disturbed) {
                (_, true) => peace.disturb(now),
                (true, false) => peace.settle(now, self.calms.given_up),
                (false, false) => {}
            }
        }
    }

    /// Notes when a connection's paths became what they are.
    pub(super) fn note_paths(&mut self, conn: usize) {
        let now = self.queue.now();
        let primaries = [0, 1].map(|side| self.primary_of(conn, side));
        let armed = self.armed_alternate(conn);
        let peace = &mut self.calms.peace[conn];
        if peace.primaries.0 != primaries {
            if let Some(stand) = &mut peace.stand {
                stand.left.get_or_insert(now - stand.at);
            }
            peace.primaries = (primaries, now);
        }
        if peace.alternate.0 != armed {
            peace.alternate = (armed, now);
        }
    }

    /// A path that does not lead to the other host any more leads to no place.
    fn places(&self, conn: usize, side: usize, path: &Path) -> Lids {
        self.ends_of(conn, side, path).unwrap_or_default()
    }

    fn primary_of(&self, conn: usize, side: usize) -> Lids {
        self.places(conn, side, &self.connections[conn].ends[side].qp.primary)
    }

    fn armed_alternate(&self, conn: usize) -> Option<Lids> {
        let [one, other] = [0, 1].map(|side| &self.connections[conn].ends[side].qp);
        let (here, there): (Path, Path) = (one.alternate?, other.alternate?);
        let pairs = [[&here, &there], [&one.primary, &other.primary]];
        let same = pairs.map(|pair| self.are_reversed(conn, 0, pair)) == [Some(true); 2];
        (one.is_armed() && other.is_armed() && same).then(|| self.places(conn, 0, &here))
    }

    /// What both ends have loaded, of which not both are Armed, if both can be moved to it.
    fn movable_alternate(&self, conn: usize) -> Option<Lids> {
        let ends = &self.connections[conn].ends;
        let movable = ends.iter().all(|end| self.plan.movable[end.host]);
        let [one, other] = [&ends[0].qp, &ends[1].qp];
        let (here, there): (Path, Path) = (one.loaded()?, other.loaded()?);
        let pairs = [[&here, &there], [&one.primary, &other.primary]];
        let same = pairs.map(|pair| self.are_reversed(conn, 0, pair)) == [Some(true); 2];
        let is_other = !here.same_way(&one.primary);
        (movable && same && is_other).then(|| self.places(conn, 0, &here))
    }

    fn stand_of(&self, conn: usize) -> Stand {
        let (now, peace) = (self.queue.now(), &self.calms.peace[conn]);
        Stand {
            at: now,
            primary: self.primary_of(conn, 0),
            left: None,
            armed: self.armed_alternate(conn),
            waiting: self.movable_alternate(conn),
            moved: now - peace.primaries.1,
            loaded: now - peace.alternate.1,
        }
    }

    fn lives(&self, (from, to): Lids) -> bool {
        self.fabric.passes(from, to) && self.fabric.passes(to, from)
    }

    /// All paths between the ends of a connection.
    fn ways(&self, conn: usize) -> Vec<Lids> {
        let [here, there] = [0, 1].map(|side| self.connections[conn].ends[side].host);
        let lids = |host| {
            let ports = [1, 2].into_iter();
            ports.flat_map(move |port| {
                let base = base_lid((host, port));
                (0..1 << self.fabric.lmc).map(move |bits| Lid(base.0 | bits))
            })
        };
        let pairs = lids(here).flat_map(|from| lids(there).map(move |to| (from, to)));
        pairs.collect()
    }

    fn port_of(&self, lid: Lid) -> u8 {
        self.fabric.port_at(lid).map_or(0, |(_, port)| port)
    }

    /// The paths that could be alternates: not the primary, and what both hosts' policies allow.
    fn alternates(&self, conn: usize, primary: Lids) -> Vec<Lids> {
        let port = |lid| self.port_of(lid);
        let modes = [0, 1].map(|side| {
            let policy = self.plan.policies[self.connections[conn].ends[side].host];
            policy.over(Policy::DEFAULT).mode
        });
        let mut ways = self.ways(conn);
        ways.retain(|&(from, to)| {
            let same_ports = (port(from), port(to)) == (port(primary.0), port(primary.1));
            let allows = |mode: &Mode| mode.allows(same_ports);
            (from, to) != primary && modes.iter().all(allows)
        });
        ways
    }

    /// Whether there is a path besides the primary: where a cable is pulled for good there may be none.
    pub(super) fn could_be_armed(&self, conn: usize) -> bool {
        let primary = self.primary_of(conn, 0);
        let mut others = self.alternates(conn, primary).into_iter();
        others.any(|way| self.lives(way))
    }

    /// Whether there is a path from that port: one that is lost for good is no place to go.
    pub(super) fn could_be_on(&self, conn: usize, port: u8) -> bool {
        let mut ways = self.ways(conn).into_iter();
        ways.any(|way| self.port_of(way.0) == port && self.lives(way))
    }

    /// What a path shares with the primary.
    fn shared(&self, primary: Lids, way: Lids) -> BTreeSet<Element> {
        let elements = |(from, to)| self.fabric.elements(from, to).unwrap_or_default();
        let (one, other) = (elements(primary), elements(way));
        one.intersection(&other).copied().collect()
    }

    /// Whether an alternate ends at the same port as the one that was armed wherever a policy may want the
    /// connection elsewhere: a QP migrates to its alternate only, so that leads there first.
    pub(super) fn leads_alike(&self, conn: usize, armed: Lids, way: Lids) -> bool {
        let ends = [(armed.0, way.0), (armed.1, way.1)];
        let places = |side: usize| {
            let host = self.connections[conn].ends[side].host;
            !matches!(
                self.plan.policies[host].placement,
                None | Some(Placement::Stay)
            )
        };
        let alike = |side: usize| self.port_of(ends[side].0) == self.port_of(ends[side].1);
        (0..2).all(|side| !places(side) || alike(side))
    }

    /// How a correct protocol would have saved a connection that has died now; `None`: it could not.
    pub(super) fn saved_by(&self, conn: usize) -> Option<String> {
        let stand = self.calms.peace[conn].stand.as_ref()?;
        let primary = stand.primary;
        let words = |way: Lids| format!("LID {} to LID {}", way.0, way.1);
        if self.lives(primary) && stand.left.is_some_and(|left| left <= UNKNOWN) {
            return None;
        }
        if self.lives(primary) {
            return Some(format!("its primary, {}, passes packets", words(primary)));
        }
        if self.plan.quiet[conn] && stand.armed.is_none() {
            let way = stand.waiting.filter(|&way| self.lives(way))?;
            let known = self.queue.now() >= stand.at + MOVED;
            return known
                .then(|| format!("it was silent, and could have been moved to {}", words(way)));
        }
        let others = self.alternates(conn, primary);
        let mut others = others.into_iter().filter(|&way| self.lives(way));
        let Some(armed) = stand.armed else {
            let way = others.next().filter(|_| stand.moved > REARM)?;
            return Some(format!("{} was there, and not armed", words(way)));
        };
        let risk = self.shared(primary, armed);
        let on_its_way = stand.loaded < CALM;
        let way = others.find(|&way| {
            // One that shares as much may live where a cable is dead in one direction: no daemon could know which.
            let shared = self.shared(primary, way);
            let less = shared.len() < risk.len() && shared.is_subset(&risk);
            less && (!on_its_way || self.leads_alike(conn, armed, way))
        })?;
        Some(format!(
            "{} shares less with its primary than {}, which was armed",
            words(way),
            words(armed)
        ))
    }
}
