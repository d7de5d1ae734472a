// SPDX-License-Identifier: MIT OR Apache-2.0
//! `opensm-lfts.dump`: one table a switch, each with a head, one line for each LID that the switch
//! does not drop, and at its end the highest LID again.
//!
//! ```text
//! Unicast lids [0-28] of switch Lid 2 guid 0x0000000000200000 ('Leaf0'):
//! 0x0001 001 # Channel Adapter portguid 0x0000000000100001: 'Host0'
//! 28 lids dumped
//! ```

use std::collections::HashSet;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::{Problem, ReadError, lid, syntax};
use crate::fabric::{Fabric, NO_PORT, NodeId, NodeKind, Routing};
use crate::lines::{Lines, Progress, guid};

/// The table being read.
struct Table {
    switch: NodeId,
    /// The highest LID, as its head says.
    top: u16,
    entries: usize,
}

/// Reads the tables of all switches.
pub(super) fn read(
    path: &Path,
    mut routing: Routing,
    progress: Progress<'_>,
) -> Result<Fabric, ReadError> {
    let mut lines = Lines::open(path)?;
    let mut open: Option<Table> = None;
    let mut done = HashSet::new();
    lines.each_of(lines.size(), progress, |line| {
        if line.is_empty() {
            return Ok(());
        }
        match &mut open {
            None => {
                let (switch, top) = head(line, &routing)?;
                if !done.insert(switch) {
                    return Err(Problem::TableTwice(name(&routing, switch)));
                }
                open = Some(Table {
                    switch,
                    top,
                    entries: 0,
                });
                Ok(())
            }
            Some(table) if line.starts_with("0x") => {
                table.entries += 1;
                entry(line, table.switch, &mut routing)
            }
            Some(table) => {
                if end(line) != Some(table.top) {
                    return Err(truncated(&routing, table));
                }
                open = None;
                Ok(())
            }
        }
    })?;
    if let Some(table) = open {
        return Err(lines.error(truncated(&routing, &table)));
    }
    let mut nodes = routing.fabric().nodes();
    let without = nodes.find(|(id, node)| node.kind == NodeKind::Switch && !done.contains(id));
    if let Some((_, node)) = without {
        return Err(lines.error(Problem::NoTable(node.name.to_string())));
    }
    drop(nodes);
    Ok(routing.finish())
}

fn name(routing: &Routing, switch: NodeId) -> String {
    routing.fabric().node(switch).name.to_string()
}

fn truncated(routing: &Routing, table: &Table) -> Problem {
    Problem::Truncated {
        switch: name(routing, table.switch),
        found: table.entries,
    }
}

/// The switch that a table's head names, and the highest LID.
fn head(line: &str, routing: &Routing) -> Result<(NodeId, u16), Problem> {
    let (guid, top) = line
        .strip_prefix("Unicast lids [0-")
        .and_then(|rest| rest.split_once("] of switch Lid "))
        .and_then(|(top, rest)| Some((top.parse().ok()?, rest.split_once(" guid ")?)))
        .and_then(|(top, (_, rest))| Some((guid(rest.split(' ').next()?)?, top)))
        .ok_or_else(|| {
            syntax(
                "Unicast lids [0-..] of switch Lid .. guid .. ('NAME'):",
                line,
            )
        })?;
    let switch = routing.find(guid).ok_or(Problem::UnknownSwitch(guid))?;
    Ok((switch, top))
}

fn end(line: &str) -> Option<u16> {
    line.strip_suffix(" lids dumped")?.parse().ok()
}

/// One LID: what the switch does with it, and whose it is.
fn entry(line: &str, switch: NodeId, routing: &mut Routing) -> Result<(), Problem> {
    let wanted = || syntax("0xLID PORT # ..", line);
    let (numbers, comment) = line.split_once(" #").ok_or_else(wanted)?;
    let (to, port) = numbers.split_once(' ').ok_or_else(wanted)?;
    let to = lid(to).filter(|lid| lid.is_unicast()).ok_or_else(wanted)?;
    let port: u8 = port.trim().parse().map_err(|_| wanted())?;
    if let Some(here) = comment_guid(comment) {
        check_owner(routing.fabric(), to, here)?;
    }
    if port == NO_PORT {
        return Ok(());
    }
    routing
        .route(switch, to, port)
        .map_err(Problem::Contradiction)
}

fn comment_guid(comment: &str) -> Option<Guid> {
    let (_, rest) = comment.split_once(" portguid ")?;
    guid(rest.split(':').next()?)
}

/// Tells files of different sweeps, in which LIDs may have moved.
fn check_owner(fabric: &Fabric, lid: Lid, here: Guid) -> Result<(), Problem> {
    let owner = fabric
        .port_by_lid(lid)
        .and_then(|port| fabric.port(port).guid);
    match owner {
        Some(owner) if owner != here => Err(Problem::OtherOwner { lid, owner, here }),
        _ => Ok(()),
    }
}
