// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaf and spine switches between hosts with two ports each, and what fails of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cm_msgs::{Guid, Lid};
use statemachine::Overlap;

/// A host's port: host, and port number from 1.
pub type PortOf = (usize, u8);

/// What can fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Element {
    /// The cable of a host's port.
    Cable(PortOf),
    /// A leaf switch.
    Leaf(usize),
    /// The cable between a leaf and a spine.
    Trunk(usize, usize),
    /// A spine switch.
    Spine(usize),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cable((host, port)) => write!(f, "cable of host {host} port {port}"),
            Self::Leaf(leaf) => write!(f, "leaf {leaf}"),
            Self::Trunk(leaf, spine) => write!(f, "cable from leaf {leaf} to spine {spine}"),
            Self::Spine(spine) => write!(f, "spine {spine}"),
        }
    }
}

/// Which way a packet passes an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Away from the sender's host.
    Up,
    /// Towards the receiver's.
    Down,
}

/// How an element fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Its links go down, as everybody beside it sees.
    Dead,
    /// Its links stay up, and nothing passes.
    BlackHole,
    /// The same in one direction.
    OneWay(Direction),
}

/// How many faults hold an element down.
#[derive(Clone, Copy, Default, Debug)]
struct Health {
    dead: u8,
    up: u8,
    down: u8,
}

/// The switches, their cables, and what is wrong with them.
#[derive(Debug)]
pub struct Fabric {
    groups: usize,
    /// Of each rail.
    spines: usize,
    /// First and second ports have spine switches of their own, and nothing leads from the ones to the others.
    are_rails_apart: bool,
    /// LID mask count of all ports.
    pub lmc: u8,
    health: BTreeMap<Element, Health>,
    /// What the subnet manager has routed around.
    avoided: BTreeSet<Element>,
}

impl Fabric {
    /// A fabric with two leaf switches for each group of hosts.
    pub fn new(groups: usize, spines: usize, lmc: u8, are_rails_apart: bool) -> Self {
        Self {
            groups,
            spines,
            are_rails_apart,
            lmc,
            health: BTreeMap::new(),
            avoided: BTreeSet::new(),
        }
    }

    /// Leaf of a port.
    pub fn leaf(&self, (host, port): PortOf) -> usize {
        host % self.groups * 2 + usize::from(port) - 1
    }

    /// A fault begins (`worse`) or ends. Faults of one element may overlap.
    pub fn change(&mut self, element: Element, failure: Failure, worse: bool) {
        let health = self.health.entry(element).or_default();
        let step = |count: &mut u8| *count = if worse { *count + 1 } else { *count - 1 };
        match failure {
            Failure::Dead => step(&mut health.dead),
            Failure::BlackHole => {
                step(&mut health.up);
                step(&mut health.down);
            }
            Failure::OneWay(Direction::Up) => step(&mut health.up),
            Failure::OneWay(Direction::Down) => step(&mut health.down),
        }
    }

    fn is_dead(&self, element: Element) -> bool {
        self.health
            .get(&element)
            .is_some_and(|health| health.dead > 0)
    }

    /// Whether a port's link is up.
    pub fn link_is_up(&self, port: PortOf) -> bool {
        !self.is_dead(Element::Cable(port)) && !self.is_dead(Element::Leaf(self.leaf(port)))
    }

    /// The subnet manager looks again. Whether it routes otherwise than before.
    pub fn sweep(&mut self) -> bool {
        let changed = !self.is_swept();
        if changed {
            self.avoided = self.dead().collect();
        }
        changed
    }

    /// Whether the subnet manager has seen what is dead and what is not.
    pub fn is_swept(&self) -> bool {
        self.dead().eq(self.avoided.iter().copied())
    }

    fn dead(&self) -> impl Iterator<Item = Element> {
        let dead = self.health.iter().filter(|(_, health)| health.dead > 0);
        dead.map(|(&element, _)| element)
    }

    /// Whether the subnet manager believes that a port is there.
    pub fn is_known(&self, port: PortOf) -> bool {
        let leaf = Element::Leaf(self.leaf(port));
        !self.avoided.contains(&Element::Cable(port)) && !self.avoided.contains(&leaf)
    }

    /// What a packet passes, as it is routed now; `None`: there is no route.
    fn way(&self, slid: Lid, dlid: Lid) -> Option<Vec<(Element, Direction)>> {
        let (from, to) = (self.port_at(slid)?, self.port_at(dlid)?);
        let (near, far) = (self.leaf(from), self.leaf(to));
        let mut way = vec![
            (Element::Cable(from), Direction::Up),
            (Element::Leaf(near), Direction::Up),
        ];
        if near != far {
            let spine = self.spine(near, far, dlid)?;
            way.extend([
                (Element::Trunk(near, spine), Direction::Up),
                (Element::Spine(spine), Direction::Up),
                (Element::Trunk(far, spine), Direction::Down),
                (Element::Leaf(far), Direction::Down),
            ]);
        }
        way.push((Element::Cable(to), Direction::Down));
        Some(way)
    }

    /// The spine that forwarding tables name for a LID: the LID says where the search begins.
    fn spine(&self, near: usize, far: usize, dlid: Lid) -> Option<usize> {
        let start = usize::from(dlid.0 / 8 + dlid.0 % 8);
        let rail = near % 2;
        if self.are_rails_apart && far % 2 != rail {
            return None;
        }
        let spines = (0..self.spines).map(|shift| (start + shift) % self.spines);
        let spines = spines.map(|spine| match self.are_rails_apart {
            true => spine * 2 + rail,
            false => spine,
        });
        let mut usable = spines.filter(|&spine| {
            let needed = [
                Element::Spine(spine),
                Element::Trunk(near, spine),
                Element::Trunk(far, spine),
            ];
            !needed.iter().any(|element| self.avoided.contains(element))
        });
        usable.next()
    }

    /// Whether a packet from one of these LIDs gets to the other.
    pub fn passes(&self, slid: Lid, dlid: Lid) -> bool {
        let lets = |&(element, direction): &(Element, Direction)| {
            let health = self.health.get(&element).copied().unwrap_or_default();
            let lost = match direction {
                Direction::Up => health.up,
                Direction::Down => health.down,
            };
            health.dead == 0 && lost == 0
        };
        self.way(slid, dlid).is_some_and(|way| way.iter().all(lets))
    }

    /// What a packet and its acknowledgement pass between two LIDs, as they are routed now; `None`:
    /// one of them has no route.
    pub fn elements(&self, slid: Lid, dlid: Lid) -> Option<BTreeSet<Element>> {
        let (there, back) = (self.way(slid, dlid)?, self.way(dlid, slid)?);
        Some(
            there
                .into_iter()
                .chain(back)
                .map(|(element, _)| element)
                .collect(),
        )
    }

    /// What two paths share besides leaf switches and the hosts' cables, there and back.
    pub fn overlap(&self, one: (Lid, Lid), other: (Lid, Lid)) -> Option<Overlap> {
        let (one, other) = (
            self.elements(one.0, one.1)?,
            self.elements(other.0, other.1)?,
        );
        let shared = |wanted: fn(&Element) -> bool| {
            let shared = one.intersection(&other);
            u8::try_from(shared.filter(|element| wanted(element)).count())
        };
        Some(Overlap {
            switches: shared(|e| matches!(e, Element::Spine(_))).ok()?,
            links: shared(|e| matches!(e, Element::Trunk(..))).ok()?,
        })
    }

    /// The port that has a LID.
    pub fn port_at(&self, lid: Lid) -> Option<PortOf> {
        let number = usize::from(lid.0.checked_sub(BASE)?);
        let port = (number / 16, if number % 16 < 8 { 1 } else { 2 });
        (number % 8 < 1 << self.lmc).then_some(port)
    }
}

const BASE: u16 = 0x40;

/// Node GUID of a host's only device.
pub fn guid(host: usize) -> Guid {
    Guid(0x0005_ad00_0000_0000 + ((host as u64 + 1) << 8))
}

/// Base LID of a port where all are in one subnet and none has moved; there is room for LMC 3.
pub fn base_lid((host, port): PortOf) -> Lid {
    Lid(BASE + host as u16 * 16 + (u16::from(port) - 1) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_that_loses_one_direction_passes_the_other() {
        let mut fabric = Fabric::new(1, 2, 0, false);
        let (here, there) = (base_lid((0, 1)), base_lid((1, 1)));
        let failure = Failure::OneWay(Direction::Up);
        fabric.change(Element::Cable((0, 1)), failure, true);
        assert!(!fabric.passes(here, there) && fabric.passes(there, here));
        fabric.change(Element::Cable((0, 1)), failure, false);
        assert!(fabric.passes(here, there));
    }

    #[test]
    fn a_dead_spine_is_routed_around_after_a_sweep_and_a_black_hole_is_not() {
        let (here, there) = (base_lid((0, 1)), base_lid((1, 2)));
        for (failure, routed) in [(Failure::Dead, true), (Failure::BlackHole, false)] {
            let mut fabric = Fabric::new(1, 2, 0, false);
            let spine = fabric.spine(0, 1, there).expect("a spine");
            fabric.change(Element::Spine(spine), failure, true);
            assert!(!fabric.passes(here, there));
            assert_eq!(fabric.sweep(), routed);
            assert_eq!(fabric.passes(here, there), routed);
        }
    }
}
