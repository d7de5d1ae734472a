// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared-risk groups: switches and links that fail together though no cable says so, such as the
//! switches of one chassis or the links of one cable bundle.

use super::{Fabric, NodeId, PortId};

/// Something whose failure takes every path over it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Element {
    /// A switch.
    Switch(NodeId),
    /// A link, by one of its two ports.
    Link(PortId),
    /// A shared-risk group.
    Group(RiskId),
}

/// A shared-risk group of one fabric, numbered in the order of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RiskId(pub(crate) u16);

/// The shared-risk groups of one fabric. Empty unless [`Fabric::set_risks`] is told some.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Risks {
    names: Vec<String>,
    /// Each group's, without repetition.
    members: Vec<Vec<Element>>,
    by_switch: Index,
    by_link: Index,
}

impl Risks {
    /// How many groups.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All groups, in the order of the file.
    pub fn groups(&self) -> impl Iterator<Item = RiskId> + use<> {
        (0..self.names.len() as u16).map(RiskId)
    }

    /// A group's name.
    ///
    /// # Panics
    /// If the group is of another fabric.
    pub fn name(&self, group: RiskId) -> &str {
        &self.names[usize::from(group.0)]
    }

    /// The switches and links in a group.
    ///
    /// # Panics
    /// If the group is of another fabric.
    pub fn members(&self, group: RiskId) -> &[Element] {
        &self.members[usize::from(group.0)]
    }

    /// The groups that a switch is in, by its rank.
    #[inline]
    pub(crate) fn of_switch(&self, rank: u32) -> &[u16] {
        self.by_switch.get(rank)
    }

    /// The groups that a link is in, by its lesser port.
    #[inline]
    pub(crate) fn of_link(&self, link: u32) -> &[u16] {
        self.by_link.get(link)
    }

    /// Groups with their members, none of which is in a group twice.
    pub(crate) fn new(fabric: &Fabric, groups: Vec<(String, Vec<Element>)>) -> Self {
        let (names, members): (Vec<_>, Vec<Vec<Element>>) = groups.into_iter().unzip();
        let (mut switches, mut links) = (Vec::new(), Vec::new());
        for (members, group) in members.iter().zip(0u16..) {
            for member in members {
                match *member {
                    Element::Switch(node) => {
                        switches.extend(fabric.rank(node).map(|rank| (rank, group)));
                    }
                    Element::Link(port) => links.push((fabric.link(port), group)),
                    Element::Group(_) => {}
                }
            }
        }
        Self {
            names,
            members,
            by_switch: Index::new(switches),
            by_link: Index::new(links),
        }
    }
}

/// Groups by switch or link: where each one's begin in one list of all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Index {
    starts: Vec<u32>,
    groups: Vec<u16>,
}

impl Index {
    fn new(mut members: Vec<(u32, u16)>) -> Self {
        members.sort_unstable();
        let mut starts = Vec::new();
        for (at, &(element, _)) in (0u32..).zip(&members) {
            while starts.len() <= element as usize {
                starts.push(at);
            }
        }
        starts.push(members.len() as u32);
        Self {
            starts,
            groups: members.into_iter().map(|(_, group)| group).collect(),
        }
    }

    #[inline]
    fn get(&self, element: u32) -> &[u16] {
        let element = element as usize;
        match self.starts.get(element..element + 2) {
            Some(&[from, to]) => &self.groups[from as usize..to as usize],
            _ => &[],
        }
    }
}

impl Fabric {
    /// Sets what fails together, for all that is asked from now on. The groups must have been made
    /// for this fabric, and are lost where another takes its place; snapshots do not keep them.
    pub fn set_risks(&mut self, risks: Risks) {
        self.risks = risks;
    }

    /// What fails together.
    pub fn risks(&self) -> &Risks {
        &self.risks
    }

    /// The shared-risk groups that a switch or link is in.
    pub fn groups_of(&self, element: Element) -> impl Iterator<Item = RiskId> {
        let groups = match element {
            Element::Switch(node) => self.rank(node).map(|rank| self.risks().of_switch(rank)),
            Element::Link(port) => Some(self.risks().of_link(self.link(port))),
            Element::Group(_) => None,
        };
        groups.into_iter().flatten().copied().map(RiskId)
    }

    /// A link by its lesser port.
    pub(crate) fn link(&self, port: PortId) -> u32 {
        port.0.min(self.hop(port).peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_gives_each_its_groups() {
        let index = Index::new(vec![(5, 1), (2, 0), (5, 0)]);
        let all: Vec<_> = (0..8).map(|element| index.get(element)).collect();
        assert_eq!(all, [&[][..], &[], &[0], &[], &[], &[0, 1], &[], &[]]);
        assert_eq!(Index::default().get(0), &[]);
    }
}
