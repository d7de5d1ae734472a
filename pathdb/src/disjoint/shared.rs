// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two paths share, by name, and whether any routing could have avoided it.

use std::fmt;

use super::{Elements, Path};
use crate::fabric::{Fabric, NO_LINK, NodeId, PortId};
use crate::walk::Fault;

/// Something whose failure takes every path over it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Element {
    /// A switch.
    Switch(NodeId),
    /// A link, by one of its two ports.
    Link(PortId),
}

/// An element of two paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shared {
    /// What it is.
    pub element: Element,
    /// Whether the cables leave no way around it, as around the only leaf of a host: then no
    /// routing could have done better, and another cable could.
    pub unavoidable: bool,
}

impl Fabric {
    /// What the two paths share, the switches first. `local` and `remote` are the ports that paths
    /// could have used instead.
    pub fn shared(
        &self,
        primary: Path,
        alternate: Path,
        local: &[PortId],
        remote: &[PortId],
    ) -> Result<Vec<Shared>, Fault> {
        let (mut first, mut second) = (Elements::default(), Elements::default());
        first.follow(self, primary)?;
        second.follow(self, alternate)?;
        let of = |rank: &u32| Element::Switch(self.switch(*rank).node);
        let switches = first
            .switches
            .iter()
            .filter(|s| second.switches.contains(s));
        let links = first.links.iter().filter(|l| second.links.contains(l));
        let elements = switches
            .map(of)
            .chain(links.map(|l| Element::Link(PortId(*l))));
        Ok(elements
            .map(|element| Shared {
                element,
                unavoidable: !self.is_joined_without(element, local, remote),
            })
            .collect())
    }

    /// An element for people.
    pub fn element_name(&self, element: Element) -> ElementName<'_> {
        ElementName {
            fabric: self,
            element,
        }
    }

    /// Whether cables lead from one of `local` to one of `remote` around an element.
    fn is_joined_without(&self, element: Element, local: &[PortId], remote: &[PortId]) -> bool {
        let usable = |port: PortId| {
            let hop = self.hop(port);
            hop.up && element != Element::Link(PortId(port.0.min(hop.peer)))
        };
        let mut seen = vec![false; self.switch_count()];
        let mut front: Vec<u32> = Vec::new();
        let mut enter = |rank: u32, front: &mut Vec<u32>| {
            let new = element != Element::Switch(self.switch(rank).node);
            if new && !std::mem::replace(&mut seen[rank as usize], true) {
                front.push(rank);
            }
        };
        for &port in local {
            if let Some(rank) = self.rank(self.port(port).node) {
                enter(rank, &mut front);
            } else if usable(port) {
                let hop = self.hop(port);
                if remote.contains(&PortId(hop.peer)) {
                    return true;
                }
                if hop.is_to_switch() {
                    enter(hop.switch, &mut front);
                }
            }
        }
        while let Some(rank) = front.pop() {
            let switch = self.switch(rank);
            let ports = switch.first..=switch.first + u32::from(switch.ports);
            for port in ports.map(PortId) {
                let peer = self.hop(port).peer;
                if remote.contains(&port)
                    || (usable(port) && peer != NO_LINK && remote.contains(&PortId(peer)))
                {
                    return true;
                }
                if usable(port) && self.hop(port).is_to_switch() {
                    enter(self.hop(port).switch, &mut front);
                }
            }
        }
        false
    }
}

/// See [`Fabric::element_name`].
#[derive(Clone, Copy, Debug)]
pub struct ElementName<'a> {
    fabric: &'a Fabric,
    element: Element,
}

impl fmt::Display for ElementName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.element {
            Element::Switch(node) => write!(f, "switch {}", self.fabric.node(node).name),
            Element::Link(port) => {
                write!(f, "link {}", self.fabric.name(port))?;
                match self.fabric.peer(port) {
                    Some(peer) => write!(f, " - {}", self.fabric.name(peer)),
                    None => Ok(()),
                }
            }
        }
    }
}
