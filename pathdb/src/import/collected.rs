// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes, ports and links as the lines of a file tell them, in any order, a link by up to two lines.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::warnings::Bad;
use super::{Lost, Problem, Ranges, ReadError, Warnings, syntax};
use crate::capability::Capability;
use crate::fabric::{BuildError, Builder, NAME, NodeId, NodeSpec, PortSpec, fits};
use crate::lid_range::LidRange;

/// More than any fabric has, and little enough for any machine's memory.
const NODES: usize = 1 << 16;
const LINES: usize = 1 << 22;

/// A port of a node, by the node's GUID.
pub(super) type PortKey = (Guid, u8);

/// A port that has LIDs of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortLine {
    pub(super) key: PortKey,
    pub(super) guid: Guid,
    pub(super) lid: Lid,
    /// The LID mask count, where the line tells it.
    pub(super) lmc: Option<u8>,
}

/// A link as one line tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkLine {
    pub(super) ends: [PortKey; 2],
    pub(super) carries: Capability,
    pub(super) up: bool,
}

/// What the lines told.
#[derive(Default, Debug)]
pub(super) struct Collected {
    nodes: Vec<NodeSpec>,
    by_guid: HashMap<Guid, usize>,
    ports: HashMap<PortKey, PortLine>,
    /// The same in the order of the file, with the number of the line.
    port_lines: Vec<(usize, PortKey)>,
    links: Vec<(usize, LinkLine)>,
    /// Nodes of which the own line could not be read, which has been said.
    pub(super) lost: HashSet<Guid>,
}

impl Collected {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node with this GUID.
    pub(super) fn find(&self, guid: Guid) -> Option<&NodeSpec> {
        self.by_guid.get(&guid).map(|&at| &self.nodes[at])
    }

    /// A node. The same again is no error, nor is another description of it: the first stays.
    pub(super) fn node(&mut self, spec: NodeSpec) -> Result<(), Bad> {
        if spec.name.len() > NAME {
            let problem = syntax("a node description of at most 64 bytes", &spec.name);
            return Err(Bad::new(problem, Lost::Link));
        }
        match self.by_guid.entry(spec.guid) {
            Entry::Occupied(known) if spec.is_same_but_for_name(&self.nodes[*known.get()]) => {
                Ok(())
            }
            Entry::Occupied(_) => Err(Bad::new(Problem::NodeDiffers(spec.guid), Lost::Link)),
            Entry::Vacant(place) => {
                fits(self.nodes.len() + 1, NODES, "nodes").map_err(|e| Bad::new(e, Lost::Node))?;
                place.insert(self.nodes.len());
                self.nodes.push(spec);
                Ok(())
            }
        }
    }

    /// Raises the node's number of ports to `number`, if it is lower.
    pub(super) fn raise_ports(&mut self, node: Guid, number: u8) {
        if let Some(&at) = self.by_guid.get(&node) {
            let ports = &mut self.nodes[at].ports;
            *ports = (*ports).max(number);
        }
    }

    /// A port with LIDs of its own. The same again is no error.
    pub(super) fn port(&mut self, line: usize, port: PortLine) -> Result<(), Bad> {
        match self.ports.entry(port.key) {
            Entry::Occupied(known) if *known.get() == port => Ok(()),
            Entry::Occupied(known) => {
                let (here, there) = (port.lid, known.get().lid);
                let guid = port.guid;
                Err(Bad::new(
                    Problem::OtherLid { guid, here, there },
                    Lost::Link,
                ))
            }
            Entry::Vacant(place) => {
                fits(self.port_lines.len() + 1, LINES, "ports")
                    .map_err(|e| Bad::new(e, Lost::Node))?;
                place.insert(port);
                self.port_lines.push((line, port.key));
                Ok(())
            }
        }
    }

    pub(super) fn link(&mut self, line: usize, link: LinkLine) -> Result<(), Bad> {
        fits(self.links.len() + 1, LINES, "links").map_err(|e| Bad::new(e, Lost::Link))?;
        self.links.push((line, link));
        Ok(())
    }

    /// All of it; `path` is the file that told it.
    pub(super) fn build(
        self,
        path: &Path,
        ranges: &Ranges,
        warnings: &mut Warnings,
    ) -> Result<Builder, ReadError> {
        let mut building = Building {
            builder: Builder::new(),
            path,
            warnings,
            lost: self.lost,
        };
        for node in self.nodes {
            let added = building.builder.node(node);
            let added = added.map(drop).map_err(|error| Bad::new(error, Lost::Node));
            building.warn(0, added)?;
        }
        for (line, key) in self.port_lines {
            let added = building.port(self.ports[&key], ranges);
            building.warn(line, added)?;
        }
        building.links(self.links)?;
        Ok(building.builder)
    }
}

/// The second half: what has been collected becomes a fabric.
struct Building<'a> {
    builder: Builder,
    path: &'a Path,
    warnings: &'a mut Warnings,
    /// Nodes of which it has been said that they are missing.
    lost: HashSet<Guid>,
}

impl Building<'_> {
    /// What cannot be taken is a warning, unless nothing more can be.
    fn warn(&mut self, line: usize, result: Result<(), Bad>) -> Result<(), ReadError> {
        let kept = self.warnings.take(self.path, line, result);
        kept.map_err(|problem| ReadError {
            path: self.path.to_path_buf(),
            line,
            problem,
        })
    }

    fn find(&self, guid: Guid) -> Result<NodeId, Problem> {
        self.builder.find(guid).ok_or(Problem::NotDescribed(guid))
    }

    fn port(&mut self, port: PortLine, ranges: &Ranges) -> Result<(), Bad> {
        let (guid, number) = port.key;
        let node = self
            .find(guid)
            .map_err(|problem| Bad::new(problem, Lost::Lids))?;
        let (lids, doubt) = ranges.of(port);
        let mut spec = PortSpec {
            guid: Some(port.guid),
            lids,
            pkeys: Vec::new(),
        };
        if let Err(error) = self.builder.port(node, number, &spec) {
            // Without the LIDs, which another port may have, its GUID is still known.
            spec.lids = None;
            let _ = self.builder.port(node, number, &spec);
            return Err(Bad::new(error, Lost::Lids));
        }
        doubt.map_or(Ok(()), Err)
    }

    /// Each link by what both its lines say.
    fn links(&mut self, lines: Vec<(usize, LinkLine)>) -> Result<(), ReadError> {
        let mut links: HashMap<[PortKey; 2], usize> = HashMap::new();
        let mut merged: Vec<(usize, LinkLine, Option<&'static str>)> = Vec::new();
        for (line, mut link) in lines {
            link.ends.sort();
            match links.entry(link.ends) {
                Entry::Vacant(place) => {
                    place.insert(merged.len());
                    merged.push((line, link, None));
                }
                Entry::Occupied(place) => {
                    let (first, known, differ) = &mut merged[*place.get()];
                    if let Some(what) = known.merge(&link) {
                        (*first, *differ) = (line, Some(what));
                    }
                }
            }
        }
        for (line, link, differ) in merged {
            let linked = self.link(&link);
            if let Err(Bad {
                problem: Problem::NotDescribed(guid),
                ..
            }) = linked
                && !self.lost.insert(guid)
            {
                continue;
            }
            self.warn(line, linked)?;
            if let Some(what) = differ {
                let bad = Bad::new(Problem::EndsDiffer(what), Lost::Lower);
                self.warn(line, Err(bad))?;
            }
        }
        Ok(())
    }

    fn link(&mut self, link: &LinkLine) -> Result<(), Bad> {
        let end = |(guid, number)| match self.find(guid) {
            Ok(node) => Ok((node, number)),
            Err(problem) => Err(Bad::new(problem, Lost::Link)),
        };
        let [a, b] = link.ends;
        let (a, b) = (end(a)?, end(b)?);
        let linked = self.builder.link(a, b, link.carries, link.up);
        linked.map_err(|error: BuildError| Bad::new(error, Lost::Link))
    }
}

impl LinkLine {
    /// Takes what the line of the other end says; what differs, if anything does.
    fn merge(&mut self, other: &Self) -> Option<&'static str> {
        let states = self.up != other.up;
        let rates = self.carries.rate != other.carries.rate;
        self.up &= other.up;
        self.carries.rate = match (self.carries.rate, other.carries.rate) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        match (states, rates) {
            (true, true) => Some("states and rates"),
            (true, false) => Some("states"),
            (false, true) => Some("rates"),
            (false, false) => None,
        }
    }
}

impl Ranges {
    /// A port's LIDs, and what is to be said of them. A port that has not been given a LID yet shows LID 0 or 0xffff.
    fn of(&self, port: PortLine) -> (Option<LidRange>, Option<Bad>) {
        let (guid, here) = (port.guid, port.lid);
        if matches!(here, Lid(0) | Lid::PERMISSIVE) {
            return (None, None);
        }
        let Some(first) = LidRange::new(here, 0) else {
            let problem = Problem::Contradiction(BuildError::NotUnicast(here));
            return (None, Some(Bad::new(problem, Lost::Lids)));
        };
        let told = port.lmc.map(|lmc| LidRange::new(here, lmc));
        if let Some(told) = told {
            let last = Lid(here
                .0
                .saturating_add((1 << port.lmc.unwrap_or(0).min(7)) - 1));
            let lids = || Bad::new(Problem::Lids { first: here, last }, Lost::OtherLids);
            return (told.or(Some(first)), told.is_none().then(lids));
        }
        match self.by_guid.get(&guid) {
            Some(range) if range.base() == here => (Some(*range), None),
            Some(range) => {
                let there = range.base();
                let problem = Problem::OtherLid { guid, here, there };
                (None, Some(Bad::new(problem, Lost::Lids)))
            }
            None => {
                let unknown = || Bad::new(Problem::NoLids(guid), Lost::OtherLids);
                (Some(first), self.of_all.then(unknown))
            }
        }
    }
}
