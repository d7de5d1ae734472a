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

use std::io::{self, BufRead};
use std::path::Path;

use super::Risks;
use crate::disjoint::Element;
use crate::fabric::{Fabric, NodeId, NodeKind};
use crate::ident::Lid;
use crate::lines::{Lines, shown};
use crate::locate;

/// What is wrong with a file of shared-risk groups, and where.
pub type ReadError = crate::ReadError<Problem>;

/// What is wrong with a line or the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is neither the head of a group nor a member.
    #[error("want [GROUP], 'switch NODE' or 'link NODE/PORT', found '{0}'")]
    Syntax(String),
    /// A member before the first group.
    #[error("'{0}' is in no group: want [GROUP] before it")]
    NoGroup(String),
    /// Two groups with one name.
    #[error("group '{0}' begins a second time")]
    GroupTwice(String),
    /// A group without members.
    #[error("group '{0}' has no members")]
    Empty(String),
    /// More groups than can be told apart.
    #[error("more than 65535 groups")]
    TooMany,
    /// A node that is not there.
    #[error("node '{0}' is not in this fabric")]
    UnknownNode(String),
    /// Several nodes of one description.
    #[error("{count} nodes are called '{name}': name it by guid or lid")]
    Ambiguous {
        /// The description.
        name: String,
        /// How many have it.
        count: usize,
    },
    /// A switch that is none.
    #[error("'{0}' is no switch")]
    NotASwitch(String),
    /// A port without a cable.
    #[error("'{node}' has no link in port {port}")]
    NoLink {
        /// The node.
        node: String,
        /// The port.
        port: u8,
    },
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
        lines.each(|line| {
            number += 1;
            let line = line.trim_start();
            match line.chars().next() {
                None | Some('#') => Ok(()),
                Some('[') => file.begin(line),
                Some(_) => file.member(line, number),
            }
        })?;
        file.end().map_err(|problem| lines.error(problem))?;
        Ok(file)
    }

    fn begin(&mut self, line: &str) -> Result<(), Problem> {
        self.end()?;
        let name = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Problem::Syntax(shown(line)))?;
        if self.groups.iter().any(|(known, _)| known == name) {
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
        let mut missing = Vec::new();
        let mut groups = Vec::new();
        for (name, members) in &self.groups {
            let mut elements = Vec::new();
            for member in members {
                match member.find(fabric) {
                    Ok(element) if elements.contains(&element) => {}
                    Ok(element) => elements.push(element),
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
    fn find(&self, fabric: &Fabric) -> Result<Element, Problem> {
        let node = node(fabric, &self.node)?;
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

fn node(fabric: &Fabric, text: &str) -> Result<NodeId, Problem> {
    let unknown = || Problem::UnknownNode(text.to_owned());
    if let Some(lid) = locate::lid(text) {
        let port = Lid::new(lid).and_then(|lid| fabric.port_by_lid(lid));
        return Ok(fabric.port(port.ok_or_else(unknown)?).node);
    }
    if let Some(guid) = locate::guid(text) {
        let by_port = fabric.port_by_guid(guid).map(|port| fabric.port(port).node);
        let by_node = || fabric.nodes().find(|(_, node)| node.guid == guid);
        return by_port
            .or_else(|| by_node().map(|(id, _)| id))
            .ok_or_else(unknown);
    }
    let nodes: Vec<NodeId> = fabric.nodes_by_name(text).collect();
    match nodes[..] {
        [] => Err(unknown()),
        [node] => Ok(node),
        _ => Err(Problem::Ambiguous {
            name: text.to_owned(),
            count: nodes.len(),
        }),
    }
}
