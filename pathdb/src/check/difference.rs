// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two states of a fabric, or two plans of one, differ in.

use std::collections::{HashMap, HashSet};

use cm_msgs::{Guid, Lid};
use rayon::prelude::*;

use super::Device;
use super::survey::{Pairs, least};
use crate::capability::Capability;
use crate::disjoint::{Finder, Sharing};
use crate::fabric::{Fabric, NO_PORT, NodeId, PortId};
use crate::lid_range::LidRange;

/// What differs. Nodes are the same if their GUIDs are, ports and links if they are of the same
/// nodes; names are those of the state that has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Difference {
    /// Nodes of the first only.
    pub gone: Vec<NodeId>,
    /// Nodes of the second only.
    pub new: Vec<NodeId>,
    /// Links of the first only, by a port there.
    pub unplugged: Vec<PortId>,
    /// Links of the second only, by a port there.
    pub plugged: Vec<PortId>,
    /// Links of both that are up in one of them only, or carry something else.
    pub changed: Vec<LinkChange>,
    /// Ports of both that have other LIDs.
    pub moved: Vec<MovedLids>,
    /// Switches of both, by their names in the second: how many entries of their forwarding tables
    /// differ.
    pub routes: Vec<(NodeId, usize)>,
    /// Hosts with several ports up in the first that have fewer in the second.
    pub lost_ports: Vec<LostPorts>,
    /// How many pairs there are of hosts with several ports in the first, and any in the second.
    pub pairs: u64,
    /// How many of them were looked at, evenly spread.
    pub looked_at: u64,
    /// Those that could share less in the first: with the primary that has the best alternate.
    pub worse: Vec<Worse>,
    /// How many share less in the second.
    pub better: u64,
}

impl Difference {
    /// Whether the two are the same as far as anybody can see.
    pub fn is_none(&self) -> bool {
        let Self {
            gone,
            new,
            unplugged,
            plugged,
            changed,
            moved,
            routes,
            lost_ports,
            worse,
            better,
            ..
        } = self;
        gone.is_empty()
            && new.is_empty()
            && unplugged.is_empty()
            && plugged.is_empty()
            && changed.is_empty()
            && moved.is_empty()
            && routes.is_empty()
            && lost_ports.is_empty()
            && worse.is_empty()
            && *better == 0
    }
}

/// A link that has changed, by a port in the second state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// A port of it.
    pub port: PortId,
    /// Whether it is up and what it carries, in the first and in the second.
    pub states: [(bool, Capability); 2],
}

/// A port that has other LIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedLids {
    /// The port in the second state.
    pub port: PortId,
    /// Its LIDs in the first and in the second.
    pub lids: [Option<LidRange>; 2],
}

/// A host that had several ports up, and has fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostPorts {
    /// A port of it in the first state.
    pub port: PortId,
    /// How many were up, and are.
    pub up: [usize; 2],
}

/// A pair of hosts that shares more than it did, even with the primary that has the best alternate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worse {
    /// A port of each, in the second state.
    pub hosts: [PortId; 2],
    /// What primary and alternate shared, and share now; `None` if there was or is no alternate.
    pub shared: [Option<Sharing>; 2],
}

/// Compares two states; of pairs of hosts at most `most`. `progress` is told how many of how many
/// pairs were looked at.
pub fn difference(
    first: &Fabric,
    second: &Fabric,
    most: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Difference {
    let nodes = |fabric: &Fabric| -> HashMap<Guid, NodeId> {
        fabric.nodes().map(|(id, node)| (node.guid, id)).collect()
    };
    let (before, after) = (nodes(first), nodes(second));
    let mut difference = Difference {
        gone: only(first, &after),
        new: only(second, &before),
        ..Difference::default()
    };
    links(first, second, &before, &after, &mut difference);
    lids(first, second, &after, &mut difference);
    routes(first, second, &after, &mut difference);
    pairs(first, second, most, progress, &mut difference);
    difference
}

fn only(fabric: &Fabric, others: &HashMap<Guid, NodeId>) -> Vec<NodeId> {
    let nodes = fabric.nodes();
    let only = nodes.filter(|(_, node)| !others.contains_key(&node.guid));
    only.map(|(id, _)| id).collect()
}

/// The same port in another state.
fn counterpart(
    fabric: &Fabric,
    port: PortId,
    other: &Fabric,
    nodes: &HashMap<Guid, NodeId>,
) -> Option<PortId> {
    let guid = fabric.node(fabric.port(port).node).guid;
    other.port_of(*nodes.get(&guid)?, fabric.port_number(port))
}

fn links(
    first: &Fabric,
    second: &Fabric,
    before: &HashMap<Guid, NodeId>,
    after: &HashMap<Guid, NodeId>,
    difference: &mut Difference,
) {
    for (port, peer) in first.links() {
        let ends = [port, peer].map(|port| counterpart(first, port, second, after));
        match ends {
            [Some(a), Some(b)] if second.peer(a) == Some(b) => {
                let states = [
                    (first.is_up(port), first.carries(port)),
                    (second.is_up(a), second.carries(a)),
                ];
                if states[0] != states[1] {
                    difference.changed.push(LinkChange { port: a, states });
                }
            }
            _ => difference.unplugged.push(port),
        }
    }
    for (port, peer) in second.links() {
        let ends = [port, peer].map(|port| counterpart(second, port, first, before));
        match ends {
            [Some(a), Some(b)] if first.peer(a) == Some(b) => {}
            _ => difference.plugged.push(port),
        }
    }
}

fn lids(
    first: &Fabric,
    second: &Fabric,
    after: &HashMap<Guid, NodeId>,
    difference: &mut Difference,
) {
    for (id, node) in first.nodes() {
        for port in (0..=node.ports).filter_map(|number| first.port_of(id, number)) {
            let Some(other) = counterpart(first, port, second, after) else {
                continue;
            };
            let lids = [first.port(port).lids, second.port(other).lids];
            if lids[0] != lids[1] {
                difference.moved.push(MovedLids { port: other, lids });
            }
        }
    }
}

/// Compares the entries of LIDs that are given out in one of the two.
fn routes(
    first: &Fabric,
    second: &Fabric,
    after: &HashMap<Guid, NodeId>,
    difference: &mut Difference,
) {
    let given = [first, second].into_iter().flat_map(Fabric::lids);
    let mut lids: Vec<Lid> = given.map(|(lid, _)| lid).collect();
    lids.sort_unstable();
    lids.dedup();
    let in_both = |rank: u32| {
        let new = *after.get(&first.node(first.switch(rank).node).guid)?;
        Some((rank as usize, second.rank(new)? as usize, new))
    };
    let both: Vec<_> = (0..first.switch_count() as u32)
        .filter_map(in_both)
        .collect();
    // Tables are kept by LID: each is looked at once for all switches.
    let same_ranks = both.iter().all(|(old, new, _)| old == new);
    let count = |mut counts: Vec<usize>, &lid: &Lid| {
        let [old, new] = [first, second].map(|fabric| fabric.forwarding().row(lid));
        if !(same_ranks && old == new) {
            let entry = |row: &[u8], rank: usize| row.get(rank).copied().unwrap_or(NO_PORT);
            for (count, &(before, after, _)) in counts.iter_mut().zip(&both) {
                *count += usize::from(entry(old, before) != entry(new, after));
            }
        }
        counts
    };
    let none = || vec![0; both.len()];
    let counts = lids.par_iter().fold(none, count).reduce(none, |mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    });
    let counts = both.iter().zip(counts).filter(|&(_, count)| count > 0);
    let routes = counts.map(|(&(_, _, switch), count)| (switch, count));
    difference.routes = routes.collect();
}

/// How little two hosts can share, whether they have no alternate at all first; `None` if no primary
/// works.
type Protection = Option<(bool, Sharing)>;

fn protection(finder: &mut Finder<'_>, fabric: &Fabric, hosts: [&Device; 2]) -> Protection {
    let (_, best) = least(finder, fabric, hosts[0], hosts[1])?;
    Some(best.map_or((true, Sharing::default()), |best| (false, best.shared)))
}

/// The devices with several ports in the first that have any in the second. What a device that is gone altogether has
/// lost is not told: the operator may have taken it away, and sees its node gone.
fn devices_of_both(
    first: &Fabric,
    second: &Fabric,
    difference: &mut Difference,
) -> Vec<[Device; 2]> {
    let after = second.devices().into_iter();
    let mut after: HashMap<Guid, Device> = after.map(|device| (device.guid, device)).collect();
    let nodes: HashSet<Guid> = second.nodes().map(|(_, node)| node.guid).collect();
    let mut both = Vec::new();
    for device in first.multi_port_devices() {
        let now = after.remove(&device.guid);
        let up = [
            device.ports.len(),
            now.as_ref().map_or(0, |now| now.ports.len()),
        ];
        if up[1] < up[0] && nodes.contains(&device.guid) {
            let port = device.ports[0];
            difference.lost_ports.push(LostPorts { port, up });
        }
        both.extend(now.map(|now| [device, now]));
    }
    both
}

fn pairs(
    first: &Fabric,
    second: &Fabric,
    most: u64,
    progress: &mut dyn FnMut(u64, u64),
    difference: &mut Difference,
) {
    let both = devices_of_both(first, second, difference);
    let pairs = Pairs::new(both.len() as u64, most);
    let look = |finders: &mut [Finder<'_>; 2], at| {
        let (a, b) = pairs.get(at);
        let [old, new] = finders;
        let protection = [
            protection(old, first, [&both[a][0], &both[b][0]]),
            protection(new, second, [&both[a][1], &both[b][1]]),
        ];
        let hosts = [both[a][1].ports[0], both[b][1].ports[0]];
        (protection[0] != protection[1]).then_some((hosts, protection))
    };
    let finders = || [Finder::new(first), Finder::new(second)];
    let mut changed = Vec::new();
    for part in pairs.parts(progress) {
        let part = part.into_par_iter().map_init(finders, look);
        changed.par_extend(part.flatten_iter());
    }
    difference.pairs = pairs.all;
    difference.looked_at = pairs.chosen;
    for (hosts, [before, after]) in changed {
        // No path at all is worse than a path without an alternate.
        let rank = |protection: Protection| (protection.is_none(), protection);
        if rank(before) > rank(after) {
            difference.better += 1;
            continue;
        }
        let sharing = |protection: Protection| {
            protection.and_then(|(alone, shared)| (!alone).then_some(shared))
        };
        difference.worse.push(Worse {
            hosts,
            shared: [before, after].map(sharing),
        });
    }
}
