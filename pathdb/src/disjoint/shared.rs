// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two paths share, by name, and whether any routing could have avoided it.

use std::collections::HashMap;
use std::fmt;

use super::{Elements, Path};
use crate::fabric::{Element, Fabric, NO_LINK, PortId, RiskId};
use crate::walk::Fault;

/// An element of two paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shared {
    /// What it is.
    pub element: Element,
    /// Whether the cables leave no way around it, as around the only leaf of a host: then no
    /// routing could have done better, and another cable could.
    pub unavoidable: bool,
}

/// What paths between two hosts share; keeps what it found about the cables from one question to
/// the next.
#[derive(Debug)]
pub struct Overlaps<'a> {
    fabric: &'a Fabric,
    local: &'a [PortId],
    remote: &'a [PortId],
    unavoidable: HashMap<Element, bool>,
}

impl<'a> Overlaps<'a> {
    /// `local` and `remote` are the ports that paths can use.
    pub fn new(fabric: &'a Fabric, local: &'a [PortId], remote: &'a [PortId]) -> Self {
        Self {
            fabric,
            local,
            remote,
            unavoidable: HashMap::new(),
        }
    }

    /// What the two paths share: switches, then shared-risk groups, then links.
    pub fn shared(&mut self, primary: Path, alternate: Path) -> Result<Vec<Shared>, Fault> {
        let elements = self.fabric.common(primary, alternate)?;
        let shared = elements.into_iter().map(|element| Shared {
            element,
            unavoidable: self.is_unavoidable(element),
        });
        Ok(shared.collect())
    }

    fn is_unavoidable(&mut self, element: Element) -> bool {
        let Self {
            fabric,
            local,
            remote,
            ..
        } = *self;
        let known = self.unavoidable.entry(element);
        *known.or_insert_with(|| !fabric.is_joined_without(element, local, remote))
    }
}

impl Fabric {
    /// What the two paths share: switches, then shared-risk groups, then links. `local` and
    /// `remote` are the ports that paths could have used instead.
    pub fn shared(
        &self,
        primary: Path,
        alternate: Path,
        local: &[PortId],
        remote: &[PortId],
    ) -> Result<Vec<Shared>, Fault> {
        Overlaps::new(self, local, remote).shared(primary, alternate)
    }

    /// An element for people.
    pub fn element_name(&self, element: Element) -> ElementName<'_> {
        ElementName {
            fabric: self,
            element,
        }
    }

    fn common(&self, primary: Path, alternate: Path) -> Result<Vec<Element>, Fault> {
        let (mut first, mut second) = (Elements::default(), Elements::default());
        first.follow(self, primary)?;
        second.follow(self, alternate)?;
        let both = |a: &[u32], b: &[u32]| -> Vec<u32> {
            a.iter().copied().filter(|x| b.contains(x)).collect()
        };
        let switches = both(&first.switches, &second.switches).into_iter();
        let groups = both(&first.groups, &second.groups).into_iter();
        let links = both(&first.links, &second.links).into_iter();
        Ok(switches
            .map(|rank| Element::Switch(self.switch(rank).node))
            // Groups are numbered with 16 bits.
            .chain(groups.map(|group| Element::Group(RiskId(group as u16))))
            .chain(links.map(|link| Element::Link(PortId(link))))
            .collect())
    }

    /// Whether the failure of `element` takes the switch of this rank.
    pub(crate) fn takes_switch(&self, element: Element, rank: u32) -> bool {
        match element {
            Element::Switch(node) => self.switch(rank).node == node,
            Element::Group(group) => self.risks().of_switch(rank).contains(&group.0),
            Element::Link(_) => false,
        }
    }

    /// Whether the failure of `element` takes the link of a port.
    pub(crate) fn takes_link(&self, element: Element, port: PortId) -> bool {
        match element {
            Element::Link(link) => self.link(port) == self.link(link),
            Element::Group(group) => self.risks().of_link(self.link(port)).contains(&group.0),
            Element::Switch(_) => false,
        }
    }

    /// Whether cables lead from one of `local` to one of `remote` around an element.
    pub(crate) fn is_joined_without(
        &self,
        element: Element,
        local: &[PortId],
        remote: &[PortId],
    ) -> bool {
        let usable = |port: PortId| self.hop(port).up && !self.takes_link(element, port);
        let mut seen = vec![false; self.switch_count()];
        let mut front: Vec<u32> = Vec::new();
        let mut enter = |rank: u32, front: &mut Vec<u32>| {
            let new = !self.takes_switch(element, rank);
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
            Element::Group(group) => write!(f, "group {}", self.fabric.risks().name(group)),
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
