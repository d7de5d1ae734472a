// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nets of the usual shapes. Hosts have one or two ports; host 0 has one and is the manager's.

use pathdb::{Speed, Width};

use super::dice::Dice;
use super::net::{Net, Node};

/// A net's shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Leaves and spines.
    Tree2 {
        /// Leaves; dual-port hosts have their ports on two that follow each other.
        leaves: usize,
        /// Spines; one cable from each leaf to each.
        spines: usize,
        /// Ports of hosts at a leaf.
        down: usize,
        /// Dual-port hosts, beside the manager's.
        dual: bool,
    },
    /// Pods of leaves and spines, and cores.
    Tree3 {
        /// Pods.
        pods: usize,
        /// Half a switch's ports: leaves and spines of a pod, ports of hosts at a leaf.
        half: usize,
        /// Dual-port hosts, beside the manager's.
        dual: bool,
    },
    /// Switches in two or three dimensions (an extent of 1 is none) with some hosts each.
    Grid {
        /// How many in each dimension.
        extents: [usize; 3],
        /// Whether each dimension is a ring.
        rings: bool,
    },
    /// Switches joined at random, by cables of 1, 4 or 12 lanes, some of them parallel.
    Irregular {
        /// Switches.
        switches: usize,
        /// Cables beyond those that join them all.
        more: usize,
        /// Dual-port hosts.
        hosts: usize,
    },
}

impl Shape {
    /// A net of this shape. `seed` matters where something is random.
    pub fn build(self, seed: u64) -> Net {
        match self {
            Self::Tree2 {
                leaves,
                spines,
                down,
                dual,
            } => tree2(leaves, spines, down, dual),
            Self::Tree3 { pods, half, dual } => tree3(pods, half, dual),
            Self::Grid { extents, rings } => grid(extents, rings),
            Self::Irregular {
                switches,
                more,
                hosts,
            } => irregular(switches, more, hosts, &mut Dice::new(seed)),
        }
    }

    /// Switches from which all ways lead down, by position; up/down routing and fat trees want to
    /// know them.
    pub fn roots(self) -> Vec<usize> {
        match self {
            Self::Tree2 { leaves, spines, .. } => (leaves..leaves + spines).collect(),
            Self::Tree3 { pods, half, .. } => {
                let first = 2 * pods * half;
                (first..first + half * half).collect()
            }
            Self::Grid { .. } | Self::Irregular { .. } => vec![0],
        }
    }
}

/// Gives ports of switches away one after the other.
struct Free(Vec<u8>);

impl Free {
    fn new(switches: usize, first: usize) -> Self {
        Self(vec![first as u8; switches])
    }

    fn take(&mut self, switch: usize) -> (Node, u8) {
        let port = self.0[switch];
        self.0[switch] += 1;
        (Node::Switch(switch), port)
    }
}

/// Fills the `down` ports of each of the first `leaves` switches: host 0 has a port of its own, then
/// come dual-port hosts on neighbours, at last what fits only with both ports on one leaf or with
/// one port.
fn populate(net: &mut Net, leaves: usize, down: usize, dual: bool) {
    let mut free = Free::new(leaves, 1);
    let mut left = vec![down; leaves];
    let mut plug = |net: &mut Net, left: &mut [usize], host, port, leaf: usize| {
        left[leaf] -= 1;
        net.cable(free.take(leaf), (host, port), Speed::Qdr);
    };
    let manager = net.host(1);
    plug(net, &mut left, manager, 1, 0);
    for leaf in 0..leaves {
        let other = (leaf + 1) % leaves;
        // Half of a leaf's hosts have their second port on the next leaf, half on the one before.
        while dual && left[leaf] > down / 2 && left[other] > 0 && other != leaf {
            let host = net.host(2);
            plug(net, &mut left, host, 1, leaf);
            plug(net, &mut left, host, 2, other);
        }
    }
    for leaf in 0..leaves {
        while left[leaf] > 0 {
            // Badly cabled: both ports on one leaf.
            let ports = if dual && left[leaf] >= 2 { 2 } else { 1 };
            let host = net.host(ports);
            for port in 1..=ports {
                plug(net, &mut left, host, port, leaf);
            }
        }
    }
}

fn tree2(leaves: usize, spines: usize, down: usize, dual: bool) -> Net {
    let mut net = Net::default();
    for _ in 0..leaves {
        net.switch((down + spines) as u8);
    }
    for _ in 0..spines {
        net.switch(leaves as u8);
    }
    for (leaf, spine) in (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine))) {
        net.cable(
            (Node::Switch(leaf), (down + spine + 1) as u8),
            (Node::Switch(leaves + spine), leaf as u8 + 1),
            Speed::Qdr,
        );
    }
    populate(&mut net, leaves, down, dual);
    net
}

fn tree3(pods: usize, half: usize, dual: bool) -> Net {
    let mut net = Net::default();
    for _ in 0..2 * pods * half {
        net.switch(2 * half as u8);
    }
    for _ in 0..half * half {
        net.switch(pods as u8);
    }
    for pod in 0..pods {
        for (spine, other) in (0..half).flat_map(|a| (0..half).map(move |b| (a, b))) {
            let leaf = Node::Switch(pod * half + other);
            let here = Node::Switch((pods + pod) * half + spine);
            let core = Node::Switch(2 * pods * half + spine * half + other);
            let up = |at: usize| (half + at + 1) as u8;
            net.cable((leaf, up(spine)), (here, other as u8 + 1), Speed::Qdr);
            net.cable((here, up(other)), (core, pod as u8 + 1), Speed::Ddr);
        }
    }
    populate(&mut net, pods * half, half, dual);
    net
}

/// Ports 1 and 2 of a switch lead up and down the first dimension, 3 and 4 the second, 5 and 6 the
/// third, as dimension order routing wants it.
fn grid(extents: [usize; 3], rings: bool) -> Net {
    let count: usize = extents.iter().product();
    let mut net = Net::default();
    for _ in 0..count {
        net.switch(6 + HOSTS_AT_A_GRID_SWITCH as u8);
    }
    let mut stride = 1;
    for (dimension, extent) in extents.into_iter().enumerate() {
        for switch in 0..count {
            let at = switch / stride % extent;
            // A ring of two would be two cables between the same switches.
            let around = at + 1 == extent;
            if extent < 2 || (around && (!rings || extent == 2)) {
                continue;
            }
            let next = if around {
                switch - at * stride
            } else {
                switch + stride
            };
            let up = 2 * dimension as u8 + 1;
            net.cable(
                (Node::Switch(switch), up),
                (Node::Switch(next), up + 1),
                Speed::Ddr,
            );
        }
        stride *= extent;
    }
    populate_grid(&mut net, count);
    net
}

const HOSTS_AT_A_GRID_SWITCH: usize = 2;

/// A host a switch, with its second port (if it has one) at the next switch.
fn populate_grid(net: &mut Net, switches: usize) {
    let mut free = Free::new(switches, 7);
    for switch in 0..switches {
        let ports = if switch % 3 == 0 { 1 } else { 2 };
        let host = net.host(ports);
        for port in 1..=ports {
            let at = (switch + usize::from(port) - 1) % switches;
            net.cable(free.take(at), (host, port), Speed::Qdr);
        }
    }
}

fn irregular(switches: usize, more: usize, hosts: usize, dice: &mut Dice) -> Net {
    let mut net = Net::default();
    for _ in 0..switches {
        net.switch(2 * (switches + more + hosts) as u8);
    }
    let mut free = Free::new(switches, 1);
    let widths = [Width::X1, Width::X4, Width::X12];
    let speeds = [Speed::Sdr, Speed::Ddr, Speed::Qdr];
    let join = |net: &mut Net, free: &mut Free, dice: &mut Dice, a, b| {
        let (a, b) = (free.take(a), free.take(b));
        let width = dice.pick(&widths).unwrap_or(Width::X4);
        let speed = dice.pick(&speeds).unwrap_or(Speed::Sdr);
        net.wide_cable(a, b, width, speed);
    };
    for switch in 1..switches {
        let other = dice.below(switch);
        join(&mut net, &mut free, dice, switch, other);
    }
    for _ in 0..more {
        let a = dice.below(switches);
        let b = (a + 1 + dice.below(switches - 1)) % switches;
        join(&mut net, &mut free, dice, a, b);
    }
    let manager = net.host(1);
    net.cable(free.take(0), (manager, 1), Speed::Qdr);
    for _ in 0..hosts {
        let host = net.host(2);
        for port in 1..=2 {
            let at = dice.below(switches);
            let width = dice.pick(&widths).unwrap_or(Width::X4);
            net.wide_cable(free.take(at), (host, port), width, Speed::Ddr);
        }
    }
    net
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SHAPES: [Shape; 6] = [
        Shape::Tree2 {
            leaves: 5,
            spines: 3,
            down: 5,
            dual: true,
        },
        Shape::Tree3 {
            pods: 3,
            half: 3,
            dual: true,
        },
        Shape::Tree3 {
            pods: 4,
            half: 2,
            dual: false,
        },
        Shape::Grid {
            extents: [4, 3, 1],
            rings: true,
        },
        Shape::Grid {
            extents: [3, 2, 3],
            rings: false,
        },
        Shape::Irregular {
            switches: 9,
            more: 7,
            hosts: 8,
        },
    ];

    #[test]
    fn a_port_has_one_cable() {
        for shape in SHAPES {
            let net = shape.build(1);
            let mut seen = HashSet::new();
            for end in net.cables().iter().flat_map(|cable| cable.ends) {
                assert!(seen.insert(end), "{shape:?}: {end}");
                let ports = match end.node {
                    Node::Switch(at) => net.switches[at],
                    Node::Host(at) => net.hosts[at],
                };
                assert!((1..=ports).contains(&end.port), "{shape:?}: {end}");
            }
        }
    }

    #[test]
    fn all_are_joined() {
        for shape in SHAPES {
            let net = shape.build(2);
            let mut reached = HashSet::from([Node::Host(0)]);
            let mut before = 0;
            while before < reached.len() {
                before = reached.len();
                for [a, b] in net.cables().iter().map(|cable| cable.ends) {
                    if reached.contains(&a.node) || reached.contains(&b.node) {
                        reached.extend([a.node, b.node]);
                    }
                }
            }
            let all = net.switch_count() + net.host_count();
            assert_eq!(reached.len(), all, "{shape:?}");
        }
    }

    #[test]
    fn leaves_are_full_and_most_hosts_well_cabled() {
        let net = SHAPES[0].build(0);
        assert_eq!(net.end_ports(), 25);
        let mut leaves = vec![Vec::new(); net.host_count()];
        for [a, b] in net.cables().iter().map(|cable| cable.ends) {
            if let (Node::Switch(leaf), Node::Host(host)) = (a.node, b.node) {
                leaves[host].push(leaf);
            }
        }
        let dual = leaves.iter().filter(|leaves| leaves.len() == 2);
        let (well, badly): (Vec<_>, Vec<_>) = dual.partition(|leaves| leaves[0] != leaves[1]);
        assert!(well.len() > 5 && !badly.is_empty(), "{leaves:?}");
    }
}
