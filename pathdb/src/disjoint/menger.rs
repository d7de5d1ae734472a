// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many routes between two hosts there can be, no two of which have anything in common: as many
//! as the cables allow, and as many as the forwarding tables make of them.
//!
//! By Menger's theorem the cables allow as many as the fewest failures that part the two hosts;
//! augmenting paths (Ford and Fulkerson) count them.

use std::collections::VecDeque;

use super::{Elements, Path};
use serde::Serialize;

use crate::fabric::{Fabric, PortId};

/// The most routes between two hosts, no two of which have something in common: not an end port
/// either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
pub struct Disjoint {
    /// No two share a switch or a link.
    pub switches: u16,
    /// No two share a link.
    pub links: u16,
}

impl Fabric {
    /// As many as cables that are up allow, whatever the forwarding tables say.
    pub fn disjoint_by_cables(&self, local: &[PortId], remote: &[PortId]) -> Disjoint {
        Disjoint {
            switches: Network::new(self, local, remote, true).flow(),
            links: Network::new(self, local, remote, false).flow(),
        }
    }

    /// As many as there are among the paths that the forwarding tables give, counted with their
    /// ways back. Never more than the cables allow, which `bound` says.
    pub fn disjoint_by_tables(
        &self,
        local: &[PortId],
        remote: &[PortId],
        bound: Disjoint,
    ) -> Disjoint {
        Disjoint {
            switches: Choice::new(self, local, remote, true).most(bound.switches),
            links: Choice::new(self, local, remote, false).most(bound.links),
        }
    }
}

/// The cables as a flow network. Every arc stands beside its reverse, at the index with the lowest
/// bit changed.
struct Network {
    heads: Vec<u32>,
    room: Vec<u8>,
    arcs: Vec<Vec<u32>>,
}

const SOURCE: u32 = 0;
const SINK: u32 = 1;

/// Room for as many routes as there can be.
const ANY: u8 = u8::MAX;

impl Network {
    /// Every link takes one route; with `switches`, every switch does, too.
    fn new(fabric: &Fabric, local: &[PortId], remote: &[PortId], switches: bool) -> Self {
        let count = fabric.switch_count() as u32;
        let mut network = Self {
            heads: Vec::new(),
            room: Vec::new(),
            arcs: vec![Vec::new(); 2 + 2 * count as usize],
        };
        // A switch is two points, at which routes come and go, joined by an arc.
        let come = |rank: u32| 2 + 2 * rank;
        let go = |rank: u32| 3 + 2 * rank;
        for rank in 0..count {
            let room = if switches { 1 } else { ANY };
            network.arc(come(rank), go(rank), room);
        }
        for &port in local {
            match fabric.rank(fabric.port(port).node) {
                Some(own) => network.arc(SOURCE, go(own), 1),
                None => {
                    let hop = fabric.hop(port);
                    if hop.up && remote.contains(&PortId(hop.peer)) {
                        network.arc(SOURCE, SINK, 1);
                    } else if hop.up && hop.is_to_switch() {
                        network.arc(SOURCE, come(hop.switch), 1);
                    }
                }
            }
        }
        for &port in remote {
            let hop = fabric.hop(port);
            match fabric.rank(fabric.port(port).node) {
                Some(own) => network.arc(come(own), SINK, 1),
                None if hop.up && hop.is_to_switch() => network.arc(go(hop.switch), SINK, 1),
                None => {}
            }
        }
        for (a, b) in fabric.links() {
            let (near, far) = (fabric.hop(b), fabric.hop(a));
            if near.up && near.is_to_switch() && far.is_to_switch() {
                network.arc(go(near.switch), come(far.switch), 1);
                network.arc(go(far.switch), come(near.switch), 1);
            }
        }
        network
    }

    fn arc(&mut self, from: u32, to: u32, room: u8) {
        let at = self.heads.len() as u32;
        self.heads.extend([to, from]);
        self.room.extend([room, 0]);
        self.arcs[from as usize].push(at);
        self.arcs[to as usize].push(at + 1);
    }

    fn flow(&mut self) -> u16 {
        let mut routes = 0;
        while self.augment() {
            routes += 1;
        }
        routes
    }

    /// One more route, by the shortest way that is left.
    fn augment(&mut self) -> bool {
        let mut by = vec![u32::MAX; self.arcs.len()];
        let mut front = VecDeque::from([SOURCE]);
        while let Some(at) = front.pop_front() {
            for &arc in &self.arcs[at as usize] {
                let to = self.heads[arc as usize];
                if self.room[arc as usize] == 0 || to == SOURCE || by[to as usize] != u32::MAX {
                    continue;
                }
                by[to as usize] = arc;
                if to == SINK {
                    self.take(&by);
                    return true;
                }
                front.push_back(to);
            }
        }
        false
    }

    fn take(&mut self, by: &[u32]) {
        let mut at = SINK;
        while at != SOURCE {
            let arc = by[at as usize] as usize;
            let shift = |room: u8, up: bool| match (room, up) {
                (ANY, _) => ANY,
                (room, true) => room + 1,
                (room, false) => room - 1,
            };
            self.room[arc] = shift(self.room[arc], false);
            self.room[arc ^ 1] = shift(self.room[arc ^ 1], true);
            at = self.heads[arc ^ 1];
        }
    }
}

/// A switch (by rank) or a link (by its lesser port).
type Number = (bool, u32);

/// Paths of which as many as possible are wanted, no two with something in common. Each has one of
/// the local ports for itself, so they are chosen port by port.
struct Choice {
    /// By local port: what each path uses.
    paths: Vec<Vec<Vec<Number>>>,
}

impl Choice {
    fn new(fabric: &Fabric, local: &[PortId], remote: &[PortId], switches: bool) -> Self {
        let of_port = |&from: &PortId| {
            let others = remote.iter().filter(|&&to| to != from);
            let others = others.filter(|&&to| fabric.share_partition(from, to));
            let mut own: Vec<Vec<Number>> = others
                .flat_map(|&to| between(fabric, from, to, switches))
                .collect();
            own.sort_unstable();
            own.dedup();
            own
        };
        Self {
            paths: local.iter().map(of_port).collect(),
        }
    }

    fn most(&self, bound: u16) -> u16 {
        let mut best = 0;
        self.choose(0, 0, &mut Vec::new(), bound, &mut best);
        best
    }

    /// Chooses for the local ports from `at` on, beside `chosen` paths that use `used`.
    fn choose(&self, at: usize, chosen: u16, used: &mut Vec<Number>, bound: u16, best: &mut u16) {
        *best = chosen.max(*best);
        let left = (self.paths.len() - at) as u16;
        if *best >= bound || chosen + left <= *best {
            return;
        }
        for path in &self.paths[at] {
            if !path.iter().any(|element| used.contains(element)) {
                let before = used.len();
                used.extend(path);
                self.choose(at + 1, chosen + 1, used, bound, best);
                used.truncate(before);
            }
        }
        self.choose(at + 1, chosen, used, bound, best);
    }
}

/// What each path that works between two ports uses, by any of their LIDs.
fn between(fabric: &Fabric, from: PortId, to: PortId, switches: bool) -> Vec<Vec<Number>> {
    let lids = |port: PortId| fabric.port(port).lids.into_iter().flat_map(|r| r.iter());
    let paths = lids(from).flat_map(|slid| lids(to).map(move |dlid| Path { slid, dlid }));
    let ends = [from, to].map(|port| fabric.rank(fabric.port(port).node));
    let mut elements = Elements::default();
    let mut all = Vec::new();
    for path in paths {
        if elements.follow(fabric, path).is_ok() {
            let links = elements.links.iter().map(|&link| (false, link));
            // A switch that is an end itself cannot be avoided.
            let own = elements
                .switches
                .iter()
                .filter(|&&s| !ends.contains(&Some(s)));
            let own = own.filter(|_| switches).map(|&switch| (true, switch));
            let mut used: Vec<Number> = links.chain(own).collect();
            used.sort_unstable();
            all.push(used);
        }
    }
    all
}
