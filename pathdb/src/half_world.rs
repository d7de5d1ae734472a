// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path records of one end port to all others.
//!
//! Walks are shared. The ways there differ between the ports of one switch only in their first
//! link, so they are walked once for all ports of a switch. The ways back all use the row of one
//! LID, in which the switches form a tree (or loops), so each switch is visited once and not once
//! a destination. What is left for a record is to join three stretches.

use cm_msgs::Lid;
use rayon::prelude::*;

use crate::fabric::{Fabric, NOT_A_SWITCH, PortId};
use crate::packed::Packed;
use crate::walk::{Fault, Leg, Step};

/// A path between two LIDs, both ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRecord {
    /// The source's LID.
    pub slid: Lid,
    /// The destination's LID.
    pub dlid: Lid,
    forward: Packed,
    reverse: Packed,
}

impl PathRecord {
    /// The way from the source to `dlid`.
    pub fn forward(&self) -> Result<Leg, Fault> {
        self.forward.unpack()
    }

    /// The way from the destination to `slid`.
    pub fn reverse(&self) -> Result<Leg, Fault> {
        self.reverse.unpack()
    }
}

/// A destination LID.
#[derive(Clone, Copy, Debug)]
struct Target {
    lid: Lid,
    /// The index of the port.
    owner: u32,
    /// The rank of the switch where its ways begin and end; the number of switches if none.
    switch: u32,
    /// From there to the port or back.
    link: Packed,
}

/// A port whose half-world is wanted, with the same as of a target.
#[derive(Clone, Copy, Debug)]
struct Source {
    port: PortId,
    switch: u32,
    link: Packed,
}

impl Source {
    fn new(fabric: &Fabric, port: PortId) -> Self {
        let (switch, link) = attachment(fabric, port);
        Self { port, switch, link }
    }
}

/// A packet on its way to a target.
#[derive(Clone, Copy)]
struct Walker {
    /// The switch where it is, or [`ARRIVED`].
    at: u32,
    way: Packed,
}

/// Of a walker whose way is final, be it a dead end.
const ARRIVED: u32 = u32::MAX;

impl Walker {
    const DONE: Self = Self {
        at: ARRIVED,
        way: Packed::DEAD_END,
    };

    #[inline]
    fn step(&mut self, fabric: &Fabric, target: &Target) {
        let row = fabric.forwarding().row(target.lid);
        match fabric.step(self.at, row, target.owner) {
            Step::Here => self.at = ARRIVED,
            Step::Out(port) => {
                self.way = self.way.join(crossing(fabric, port));
                self.at = ARRIVED;
            }
            Step::On(port, next) => {
                self.way = self.way.join(crossing(fabric, port));
                self.at = next;
            }
            Step::Stuck => *self = Self::DONE,
        }
    }
}

/// Targets whose ways are walked together; their rows fit the second-level cache.
const BATCH: usize = 32;

/// Switches whose ways are walked together at most; all their ways take 64 x 4 bytes a target.
const GROUPS: usize = 64;

/// Into how many shares each thread's work is cut at least, so that none ends long before another.
const SHARES: usize = 4;

/// Memory used again and again.
#[derive(Default)]
struct Scratch {
    there: Vec<Vec<Packed>>,
    tree: Tree,
    records: Vec<PathRecord>,
}

/// All destinations of a fabric, ready for computing half-worlds.
#[derive(Debug)]
pub struct World<'a> {
    fabric: &'a Fabric,
    targets: Vec<Target>,
}

impl<'a> World<'a> {
    /// Collects the destinations: every LID of every end port.
    pub fn new(fabric: &'a Fabric) -> Self {
        let targets = fabric
            .lids()
            .map(|(lid, port)| {
                let (switch, link) = attachment(fabric, port);
                Target {
                    lid,
                    owner: port.0,
                    switch,
                    link,
                }
            })
            .collect();
        Self { fabric, targets }
    }

    /// Records from every LID of `source` to every LID, including its own. Computing the
    /// half-worlds of all ports of a switch at once ([`World::each`]) is much faster.
    pub fn half_world(&self, source: PortId) -> Vec<PathRecord> {
        let mut records = Vec::new();
        let source = Source::new(self.fabric, source);
        let mut there = Vec::new();
        self.there(&[source.switch], &mut there);
        self.records(&source, &there[0], &mut Tree::default(), &mut records);
        records
    }

    /// Calls `visit` with the half-world of each source, from several threads and in any order.
    /// The records are in the order of source LIDs, then of destination LIDs.
    pub fn each(&self, sources: &[PortId], visit: impl Fn(PortId, &[PathRecord]) + Sync) {
        let mut sources: Vec<Source> = sources
            .iter()
            .map(|&port| Source::new(self.fabric, port))
            .collect();
        // Ports of one switch have all but the first link of their ways in common.
        sources.sort_by_key(|source| (source.switch, source.port));
        let groups: Vec<&[Source]> = sources.chunk_by(|a, b| a.switch == b.switch).collect();
        let share = groups.len() / (SHARES * rayon::current_num_threads());
        groups.par_chunks(share.clamp(1, GROUPS)).for_each_init(
            Scratch::default,
            |scratch, groups| {
                self.block(groups, scratch, &visit);
            },
        );
    }

    /// The half-worlds of sources at some switches.
    fn block(
        &self,
        groups: &[&[Source]],
        scratch: &mut Scratch,
        visit: &impl Fn(PortId, &[PathRecord]),
    ) {
        let switches = groups.iter().filter_map(|group| group.first());
        let switches: Vec<u32> = switches.map(|source| source.switch).collect();
        self.there(&switches, &mut scratch.there);
        for (group, there) in groups.iter().zip(&scratch.there) {
            for source in *group {
                scratch.records.clear();
                self.records(source, there, &mut scratch.tree, &mut scratch.records);
                visit(source.port, &scratch.records);
            }
        }
    }

    /// The ways from each of some switches to all targets. What is no switch has none.
    ///
    /// All switches take the ways to a few targets before the next targets' turn, so that the
    /// targets' rows come from memory once.
    fn there(&self, switches: &[u32], there: &mut Vec<Vec<Packed>>) {
        there.resize_with(switches.len(), Vec::new);
        there.iter_mut().for_each(Vec::clear);
        for targets in self.targets.chunks(BATCH) {
            for (&switch, there) in switches.iter().zip(&mut *there) {
                if (switch as usize) < self.fabric.switch_count() {
                    self.ways(switch, targets, there);
                }
            }
        }
    }

    /// The ways from a switch to a batch of targets, all of them step by step together: so the
    /// processor waits for the memory of several at a time.
    fn ways(&self, switch: u32, targets: &[Target], ways: &mut Vec<Packed>) {
        let fabric = self.fabric;
        let mut walkers = [Walker::DONE; BATCH];
        for (walker, target) in walkers.iter_mut().zip(targets) {
            *walker = Walker {
                at: switch,
                way: Packed::HERE,
            };
            walker.step(fabric, target);
        }
        for _ in 1..fabric.switch_count() {
            let mut under_way = false;
            for (walker, target) in walkers.iter_mut().zip(targets) {
                if walker.at != ARRIVED {
                    walker.step(fabric, target);
                    under_way = true;
                }
            }
            if !under_way {
                break;
            }
        }
        ways.extend(
            walkers[..targets.len()]
                .iter()
                .map(|walker| match walker.at {
                    ARRIVED => walker.way,
                    _ => Packed::LOOP,
                }),
        );
    }

    fn records(
        &self,
        source: &Source,
        there: &[Packed],
        tree: &mut Tree,
        records: &mut Vec<PathRecord>,
    ) {
        let Some(range) = self.fabric.port(source.port).lids else {
            return;
        };
        for slid in range.iter() {
            if there.is_empty() {
                records.extend(
                    self.targets
                        .iter()
                        .map(|to| self.unshared(source.port, slid, to)),
                );
                continue;
            }
            let back = tree.grow(self.fabric, slid);
            let start = records.len();
            records.extend(
                self.targets
                    .iter()
                    .zip(there)
                    .map(|(to, &there)| PathRecord {
                        slid,
                        dlid: to.lid,
                        forward: source.link.join(there),
                        reverse: to.link.join(back[to.switch as usize]),
                    }),
            );
            self.stay_home(source.port, &mut records[start..]);
        }
    }

    /// What leads from the source to itself does not go over the switch.
    fn stay_home(&self, source: PortId, records: &mut [PathRecord]) {
        let home = Packed::from(self.fabric.at_home(source));
        let own = self.fabric.port(source).lids;
        for lid in own.iter().flat_map(|range| range.iter()) {
            if let Ok(at) = records.binary_search_by_key(&lid, |record| record.dlid) {
                records[at].forward = home;
                records[at].reverse = home;
            }
        }
    }

    /// A record of a source that has no switch: it has no cable, or leads straight to a port.
    fn unshared(&self, source: PortId, slid: Lid, to: &Target) -> PathRecord {
        PathRecord {
            slid,
            dlid: to.lid,
            forward: self.fabric.leg(source, to.lid).into(),
            reverse: self.fabric.leg(PortId(to.owner), slid).into(),
        }
    }
}

fn crossing(fabric: &Fabric, port: PortId) -> Packed {
    Packed::stretch(1, fabric.carries(port))
}

/// The switch at which the ways of an end port begin, or the number of switches if there is none,
/// and what lies between.
fn attachment(fabric: &Fabric, port: PortId) -> (u32, Packed) {
    if let Some(rank) = fabric.rank(fabric.port(port).node) {
        return (rank, Packed::HERE);
    }
    let hop = fabric.hop(port);
    match hop.switch {
        rank if rank != NOT_A_SWITCH && hop.up => (rank, crossing(fabric, port)),
        _ => (fabric.switch_count() as u32, Packed::DEAD_END),
    }
}

/// The ways from every switch to one LID.
#[derive(Default)]
struct Tree {
    /// By rank of the switch, and one more for what has no switch.
    ways: Vec<Packed>,
    state: Vec<State>,
    path: Vec<(u32, Packed)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unvisited,
    OnPath,
    Done,
}

impl Tree {
    fn grow(&mut self, fabric: &Fabric, lid: Lid) -> &[Packed] {
        let switches = fabric.switch_count();
        self.ways.clear();
        self.ways.resize(switches + 1, Packed::DEAD_END);
        self.state.clear();
        self.state.resize(switches, State::Unvisited);
        let row = fabric.forwarding().row(lid);
        let owner = fabric.owner(lid);
        for rank in 0..switches as u32 {
            self.visit(fabric, row, owner, rank);
        }
        &self.ways
    }

    /// Follows the row until a switch whose way is known, then sets the ways of all on the path.
    fn visit(&mut self, fabric: &Fabric, row: &[u8], owner: u32, mut rank: u32) {
        let mut way = loop {
            match self.state[rank as usize] {
                State::Done => break self.ways[rank as usize],
                State::OnPath => break Packed::LOOP,
                State::Unvisited => self.state[rank as usize] = State::OnPath,
            }
            match fabric.step(rank, row, owner) {
                Step::On(port, next) => {
                    self.path.push((rank, crossing(fabric, port)));
                    rank = next;
                }
                Step::Out(port) => {
                    self.path.push((rank, crossing(fabric, port)));
                    break Packed::HERE;
                }
                Step::Here => {
                    self.path.push((rank, Packed::HERE));
                    break Packed::HERE;
                }
                Step::Stuck => {
                    self.path.push((rank, Packed::HERE));
                    break Packed::DEAD_END;
                }
            }
        };
        for (rank, link) in self.path.drain(..).rev() {
            way = way.join(link);
            self.ways[rank as usize] = way;
            self.state[rank as usize] = State::Done;
        }
    }
}
