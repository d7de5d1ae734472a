// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of shared-risk groups: a group begins with `[NAME]`, and each line after it names a
//! member.
//!
//! ```text
//! # what one power supply feeds
//! [chassis 1]
//! switch Spine 0
//! switch 0x0000000000200001
//!
//! [cable bundle to row 7]
//! link Leaf 0/9
//! link 14/3
//! ```
//!
//! A switch is named by its description, its GUID (`0x` and more than four digits) or its LID; a
//! link by one of its two ends, such a node and, after a slash, the number of the port. `#` begins a
//! comment where it is first in its line.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};
use std::path::Path;

use cm_msgs::Guid;

use crate::fabric::{Element, Fabric, NodeId, NodeKind, Risks};
use crate::lines::{Lines, shown};
use crate::locate;

/// Groups that one switch or link may be in.
const GROUPS_OF_ONE: usize = 64;

/// What is wrong with a file of shared-risk groups, and where.
pub type ReadError = crate::ReadError<Problem>;

/// What is wrong with a line or the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Problem {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("want [GROUP], 'switch NODE' or 'link NODE/PORT', found '{0}'")]
    Syntax(String),
    #[error("'{0}' is in no group: want [GROUP] before it")]
    NoGroup(String),
    #[error("group '{0}' begins a second time")]
    GroupTwice(String),
    #[error("group '{0}' has no members")]
    Empty(String),
    #[error("'{0}' is in more than {GROUPS_OF_ONE} groups")]
    InTooMany(String),
    #[error("more than 65535 groups")]
    TooMany,
    #[error("node '{0}' is not in this fabric")]
    UnknownNode(String),
    #[error("{count} nodes are called '{name}': name it by guid or lid")]
    Ambiguous { name: String, count: usize },
    #[error("'{0}' is no switch")]
    NotASwitch(String),
    #[error("'{node}' has no link in port {port}")]
    NoLink { node: String, port: u8 },
}

/// A file of groups whose members have not been looked for yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RiskFile {
    path: std::path::PathBuf,
    groups: Vec<(String, Vec<Member>)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Member {
    line: usize,
    node: String,
    /// Of a link.
    port: Option<u8>,
}

impl RiskFile {
    /// Reads a file: all of it, or an error.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::of_lines(path, Lines::open(path)?)
    }

    /// Reads what is called `path` in errors.
    pub fn read_from(path: &Path, reader: impl BufRead) -> Result<Self, ReadError> {
        Self::of_lines(path, Lines::new(path, reader))
    }

    fn of_lines(path: &Path, mut lines: Lines<impl BufRead>) -> Result<Self, ReadError> {
        let mut file = Self {
            path: path.to_path_buf(),
            groups: Vec::new(),
        };
        let mut number = 0;
        let mut names = HashSet::new();
        lines.each(|line| {
            number += 1;
            let line = line.trim_start();
            match line.chars().next() {
                None | Some('#') => Ok(()),
                Some('[') => file.begin(line, &mut names),
                Some(_) => file.member(line, number),
            }
        })?;
        file.end().map_err(|problem| lines.error(problem))?;
        Ok(file)
    }

    fn begin(&mut self, line: &str, names: &mut HashSet<String>) -> Result<(), Problem> {
        self.end()?;
        let name = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Problem::Syntax(shown(line)))?;
        if !names.insert(name.to_owned()) {
            return Err(Problem::GroupTwice(name.to_owned()));
        }
        if self.groups.len() == usize::from(u16::MAX) {
            return Err(Problem::TooMany);
        }
        self.groups.push((name.to_owned(), Vec::new()));
        Ok(())
    }

    /// The group that was begun last must have members.
    fn end(&self) -> Result<(), Problem> {
        match self.groups.last() {
            Some((name, members)) if members.is_empty() => Err(Problem::Empty(name.clone())),
            _ => Ok(()),
        }
    }

    fn member(&mut self, text: &str, line: usize) -> Result<(), Problem> {
        let wanted = || Problem::Syntax(shown(text));
        let (kind, rest) = text
            .split_once(|c: char| c.is_ascii_whitespace())
            .ok_or_else(wanted)?;
        let rest = rest.trim_start();
        let (node, port) = match kind {
            "switch" => (rest, None),
            "link" => {
                let (node, port) = rest.rsplit_once('/').ok_or_else(wanted)?;
                (node, Some(port.parse().map_err(|_| wanted())?))
            }
            _ => return Err(wanted()),
        };
        let node = node.to_owned();
        let (_, members) = self
            .groups
            .last_mut()
            .ok_or_else(|| Problem::NoGroup(shown(text)))?;
        members.push(Member { line, node, port });
        Ok(())
    }

    /// The groups as they are in `fabric`, and what is not in it: a misspelt name, or what is gone
    /// for the time being. Groups that have nothing left are groups all the same.
    pub fn bind(&self, fabric: &Fabric) -> (Risks, Vec<ReadError>) {
        let nodes = Nodes::of(fabric);
        let mut groups_of: HashMap<Element, usize> = HashMap::new();
        let mut missing = Vec::new();
        let mut groups = Vec::new();
        for (name, members) in &self.groups {
            let mut elements = Vec::new();
            let mut seen = HashSet::new();
            for member in members {
                let found = member.find(&nodes).and_then(|element| {
                    let is_new = seen.insert(element);
                    let groups = groups_of.entry(element).or_default();
                    *groups += usize::from(is_new);
                    match *groups <= GROUPS_OF_ONE {
                        true => Ok(is_new.then_some(element)),
                        false => Err(Problem::InTooMany(member.node.clone())),
                    }
                });
                match found {
                    Ok(new) => elements.extend(new),
                    Err(problem) => missing.push(ReadError {
                        path: self.path.clone(),
                        line: member.line,
                        problem,
                    }),
                }
            }
            groups.push((name.clone(), elements));
        }
        (Risks::new(fabric, groups), missing)
    }
}

impl Member {
    fn find(&self, nodes: &Nodes<'_>) -> Result<Element, Problem> {
        let node = nodes.find(&self.node)?;
        let fabric = nodes.fabric;
        let Some(number) = self.port else {
            return match fabric.node(node).kind {
                NodeKind::Switch => Ok(Element::Switch(node)),
                NodeKind::Adapter => Err(Problem::NotASwitch(self.node.clone())),
            };
        };
        let port = fabric.port_of(node, number);
        let linked = port.and_then(|port| Some((port, fabric.peer(port)?)));
        match linked {
            // One name for both ends.
            Some((port, peer)) => Ok(Element::Link(port.min(peer))),
            None => Err(Problem::NoLink {
                node: self.node.clone(),
                port: number,
            }),
        }
    }
}

/// A fabric's nodes by what members are named by: files may name each of them, and many times.
struct Nodes<'a> {
    fabric: &'a Fabric,
    by_guid: HashMap<Guid, NodeId>,
    by_name: HashMap<&'a str, Vec<NodeId>>,
}

impl<'a> Nodes<'a> {
    fn of(fabric: &'a Fabric) -> Self {
        let mut by_name: HashMap<&str, Vec<NodeId>> = HashMap::new();
        for (id, node) in fabric.nodes() {
            by_name.entry(&node.name).or_default().push(id);
        }
        Self {
            fabric,
            by_guid: fabric.nodes().map(|(id, node)| (node.guid, id)).collect(),
            by_name,
        }
    }

    fn find(&self, text: &str) -> Result<NodeId, Problem> {
        let unknown = || Problem::UnknownNode(text.to_owned());
        if let Some(lid) = locate::lid(text) {
            let port = self.fabric.port_by_lid(lid).ok_or_else(unknown)?;
            return Ok(self.fabric.port(port).node);
        }
        if let Some(guid) = locate::guid(text) {
            let port = self.fabric.port_by_guid(guid);
            let node = port.map(|port| self.fabric.port(port).node);
            let node = node.or_else(|| self.by_guid.get(&guid).copied());
            return node.ok_or_else(unknown);
        }
        match self.by_name.get(text).map(Vec::as_slice) {
            None | Some([]) => Err(unknown()),
            Some([node]) => Ok(*node),
            Some(nodes) => Err(Problem::Ambiguous {
                name: text.to_owned(),
                count: nodes.len(),
            }),
        }
    }
}
