// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether cables lead from one host to another around a switch, a link or a shared-risk group, for
//! as many questions as there may be: the switches are searched once, depth first (Hopcroft and
//! Tarjan), after which one switch or link is left out by comparing numbers. Groups take a search
//! each.

use std::sync::OnceLock;

use super::Device;
use crate::fabric::{Element, Fabric, NO_LINK, NOT_A_SWITCH, PortId, RiskId};

/// A number that no switch has.
const NONE: u32 = u32::MAX;

/// A part of the switches: all that cables join. Parts of the same question are the same if they are
/// equal.
type Part = (u32, u32);

/// Where a host's port leads to.
enum End {
    Nowhere,
    /// To this port of another adapter.
    Adapter(PortId),
    Switch(Part),
}

/// What of the switches holds together whatever is left out.
#[derive(Debug)]
pub(super) struct Connectivity<'a> {
    fabric: &'a Fabric,
    /// By rank: when the search came to the switch.
    discovered: Vec<u32>,
    /// By rank: the last number given below it.
    last: Vec<u32>,
    /// By rank: the least number that it or a switch below it has a link to, other than the one by
    /// which the search came.
    low: Vec<u32>,
    /// By rank: the first switch of all that are joined.
    root: Vec<u32>,
    /// By rank: the port of the switch before by which the search came; `NONE` for the first.
    entered_by: Vec<u32>,
    /// By rank: the switches to which the search went on from it, in that order.
    below: Vec<Vec<u32>>,
    /// By shared-risk group: the parts without it.
    groups: Vec<OnceLock<Vec<u32>>>,
}

impl<'a> Connectivity<'a> {
    pub(super) fn new(fabric: &'a Fabric) -> Self {
        let count = fabric.switch_count();
        let mut connectivity = Self {
            fabric,
            discovered: vec![NONE; count],
            last: vec![0; count],
            low: vec![NONE; count],
            root: vec![NONE; count],
            entered_by: vec![NONE; count],
            below: vec![Vec::new(); count],
            groups: (0..fabric.risks().len()).map(|_| OnceLock::new()).collect(),
        };
        let mut next = 0;
        for root in 0..count as u32 {
            if connectivity.discovered[root as usize] == NONE {
                connectivity.search(root, &mut next);
            }
        }
        connectivity
    }

    /// Searches everything that is joined with `root`; `next` is the next number to give.
    fn search(&mut self, root: u32, next: &mut u32) {
        // A switch, and its port that is looked at next.
        let mut path = vec![(root, 0u32)];
        self.enter(root, root, NONE, next);
        while let Some((rank, at)) = path.last_mut() {
            let rank = *rank;
            let switch = self.fabric.switch(rank);
            if *at > u32::from(switch.ports) {
                path.pop();
                self.last[rank as usize] = *next - 1;
                if let Some(&(before, _)) = path.last() {
                    let low = self.low[rank as usize];
                    let own = &mut self.low[before as usize];
                    *own = low.min(*own);
                }
                continue;
            }
            let port = PortId(switch.first + *at);
            *at += 1;
            let hop = self.fabric.hop(port);
            if !hop.up || !hop.is_to_switch() || hop.peer == self.entered_by[rank as usize] {
                continue;
            }
            if self.discovered[hop.switch as usize] == NONE {
                self.enter(hop.switch, root, port.0, next);
                self.below[rank as usize].push(hop.switch);
                path.push((hop.switch, 0));
            } else {
                let low = &mut self.low[rank as usize];
                *low = self.discovered[hop.switch as usize].min(*low);
            }
        }
    }

    fn enter(&mut self, rank: u32, root: u32, by: u32, next: &mut u32) {
        let at = rank as usize;
        self.discovered[at] = *next;
        self.low[at] = *next;
        self.root[at] = root;
        self.entered_by[at] = by;
        *next += 1;
    }

    /// Whether cables lead from a port of one host to a port of the other around an element, as
    /// [`Fabric::is_joined_without`] finds out with a search of its own.
    pub(super) fn leads_around(&self, element: Element, a: &Device, b: &Device) -> bool {
        a.ports.iter().any(|&local| match self.end(element, local) {
            End::Nowhere => false,
            // The other end has the same link.
            End::Adapter(peer) => b.ports.contains(&peer),
            End::Switch(from) => {
                let mut ends = b.ports.iter().map(|&remote| self.end(element, remote));
                ends.any(|end| matches!(end, End::Switch(to) if to == from))
            }
        })
    }

    /// Where a host's port leads to when an element is left out.
    fn end(&self, element: Element, port: PortId) -> End {
        let hop = self.fabric.hop(port);
        if !hop.up || self.fabric.takes_link(element, port) {
            return End::Nowhere;
        }
        match hop.switch {
            NOT_A_SWITCH => End::Adapter(PortId(hop.peer)),
            rank => self.part(element, rank).map_or(End::Nowhere, End::Switch),
        }
    }

    /// The part that a switch is in when an element is left out; `None` if the switch goes with it.
    fn part(&self, element: Element, rank: u32) -> Option<Part> {
        let root = self.root[rank as usize];
        let branch = match element {
            Element::Switch(node) => match self.fabric.rank(node) {
                Some(out) if out == rank => return None,
                Some(out) => self.branch_of_switch(out, rank),
                None => NONE,
            },
            Element::Link(port) => self.branch_of_link(port, rank),
            Element::Group(group) => {
                let part = self.without(group)[rank as usize];
                return (part != NONE).then_some((part, NONE));
            }
        };
        Some((root, branch))
    }

    /// The branch below the switch `out` that falls off without it and has `rank`; `NONE` if `rank`
    /// stays with the rest.
    fn branch_of_switch(&self, out: u32, rank: u32) -> u32 {
        if !self.is_below(rank, out) {
            return NONE;
        }
        let below = &self.below[out as usize];
        let came = self.discovered[rank as usize];
        let after = below.partition_point(|&child| self.discovered[child as usize] <= came);
        let child = below[after - 1];
        match self.low[child as usize] >= self.discovered[out as usize] {
            true => child,
            false => NONE,
        }
    }

    /// The same for a link.
    fn branch_of_link(&self, port: PortId, rank: u32) -> u32 {
        let (near, far) = (self.fabric.hop(port), port);
        if near.peer == NO_LINK || !near.up {
            return NONE;
        }
        let back = self.fabric.hop(PortId(near.peer));
        if !near.is_to_switch() || !back.is_to_switch() {
            return NONE;
        }
        // The search came over it one way or the other, or not at all.
        let ends = [(near.switch, far.0), (back.switch, near.peer)];
        let child = ends
            .into_iter()
            .find(|&(end, by)| self.entered_by[end as usize] == by);
        match child {
            Some((child, _))
                if self.low[child as usize] == self.discovered[child as usize]
                    && self.is_below(rank, child) =>
            {
                child
            }
            _ => NONE,
        }
    }

    /// Whether the search came to `rank` from `top`, or it is `top` itself.
    fn is_below(&self, rank: u32, top: u32) -> bool {
        let (rank, top) = (rank as usize, top as usize);
        (self.discovered[top]..=self.last[top]).contains(&self.discovered[rank])
    }

    /// By rank: a switch of the part that it is in without a group, `NONE` if it goes with it.
    fn without(&self, group: RiskId) -> &[u32] {
        self.groups[usize::from(group.0)].get_or_init(|| {
            let fabric = self.fabric;
            let element = Element::Group(group);
            let mut parts = vec![NONE; fabric.switch_count()];
            let mut front = Vec::new();
            for first in 0..fabric.switch_count() as u32 {
                if parts[first as usize] == NONE && !fabric.takes_switch(element, first) {
                    parts[first as usize] = first;
                    front.push(first);
                }
                while let Some(rank) = front.pop() {
                    let switch = fabric.switch(rank);
                    let ports = switch.first..=switch.first + u32::from(switch.ports);
                    for port in ports.map(PortId) {
                        let hop = fabric.hop(port);
                        if hop.up
                            && hop.is_to_switch()
                            && parts[hop.switch as usize] == NONE
                            && !fabric.takes_link(element, port)
                            && !fabric.takes_switch(element, hop.switch)
                        {
                            parts[hop.switch as usize] = first;
                            front.push(hop.switch);
                        }
                    }
                }
            }
            parts
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::capability::Capability;
    use crate::fabric::{Change, Delta};
    use crate::import::{Files, Links};
    use crate::risks::RiskFile;

    /// A sample with many of its cables pulled, and two groups of switches and links.
    fn thinned(sample: &Fabric, seed: u64) -> Fabric {
        let mut fabric = sample.clone();
        let mut state = seed;
        let mut one_of = |of: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % of
        };
        let keep = 1 + one_of(6);
        let pulled = fabric.links().filter(|_| one_of(6) >= keep);
        let changes = pulled.map(|(port, _)| Change::Link {
            end: (fabric.port(port).node, fabric.port_number(port)),
            up: false,
            carries: Capability::default(),
        });
        let delta = Delta {
            from: 0,
            to: 1,
            changes: changes.collect(),
        };
        fabric.apply(&delta).unwrap();
        let text = "[one]\nswitch Leaf0\nlink Spine1/3\n[two]\nswitch Spine0\n";
        let file = RiskFile::read_from("risks".as_ref(), text.as_bytes()).unwrap();
        let (risks, missing) = file.bind(&fabric);
        assert!(missing.is_empty(), "{missing:?}");
        fabric.set_risks(risks);
        fabric
    }

    /// All of them, whether their cables are pulled or not.
    fn hosts(fabric: &Fabric) -> Vec<Device> {
        let adapters = fabric.nodes().filter(|(id, _)| fabric.rank(*id).is_none());
        let host = |(_, node): (_, &crate::fabric::Node)| Device {
            guid: node.guid,
            ports: fabric.ports_of_system(node.system),
        };
        adapters.map(host).collect()
    }

    #[test]
    fn what_is_left_out_parts_what_a_search_says() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree");
        let sample = Files {
            links: Links::OpenSm(directory.join("opensm-subnet.txt")),
            tables: Some(directory.join("opensm-lfts.txt")),
            guid2lid: Some(directory.join("guid2lid.txt")),
        };
        let sample = sample.read().unwrap().fabric;
        let mut parted = 0;
        for seed in 0..200 {
            let fabric = thinned(&sample, seed);
            let connectivity = Connectivity::new(&fabric);
            let switches = (0..fabric.switch_count() as u32)
                .map(|rank| Element::Switch(fabric.switch(rank).node));
            let links = fabric
                .links()
                .flat_map(|(a, b)| [Element::Link(a), Element::Link(b)]);
            let groups = (0..2).map(|group| Element::Group(RiskId(group)));
            let hosts = hosts(&fabric);
            for element in switches.chain(links).chain(groups) {
                for (a, b) in hosts.iter().zip(&hosts[1..]) {
                    let joined = fabric.is_joined_without(element, &a.ports, &b.ports);
                    let found = connectivity.leads_around(element, a, b);
                    assert_eq!(found, joined, "seed {seed}: {element:?}, {a:?}, {b:?}");
                    parted += u32::from(!joined);
                }
            }
        }
        assert!(parted > 1000, "{parted}");
    }
}
