// SPDX-License-Identifier: MIT OR Apache-2.0
//! `opensm-subnet.lst`: all links, hence all nodes that have one.

use std::collections::HashMap;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::link::{End, Link};
use super::{Problem, ReadError};
use crate::fabric::{Builder, NodeId, NodeKind, PortSpec};
use crate::lid_range::LidRange;
use crate::lines::{Lines, Progress};

/// Reads nodes, ports and links.
pub(super) fn read(
    path: &Path,
    lids: &HashMap<Guid, LidRange>,
    progress: Progress<'_>,
) -> Result<Builder, ReadError> {
    let mut builder = Builder::new();
    let mut lines = Lines::open(path)?;
    lines.each_of(lines.size(), progress, |line| {
        if line.is_empty() {
            return Ok(());
        }
        let Link { ends, carries, up } = Link::parse(line)?;
        let [a, b] = ends;
        let (a, b) = (
            (add(&mut builder, &a, lids)?, a.number),
            (add(&mut builder, &b, lids)?, b.number),
        );
        builder
            .link(a, b, carries, up)
            .map_err(Problem::Contradiction)
    })?;
    if builder.is_empty() {
        return Err(lines.error(Problem::Empty));
    }
    Ok(builder)
}

/// Adds an end's node and port unless they are there already.
fn add(
    builder: &mut Builder,
    end: &End,
    lids: &HashMap<Guid, LidRange>,
) -> Result<NodeId, Problem> {
    let node = match builder.find(end.node.guid) {
        None => builder.node(end.node.clone())?,
        Some(node) if builder.is(node, &end.node) => node,
        Some(_) => return Err(Problem::NodeDiffers(end.node.guid)),
    };
    let number = match end.node.kind {
        NodeKind::Switch => 0,
        NodeKind::Adapter => end.number,
    };
    let spec = PortSpec {
        guid: Some(end.port_guid),
        lids: lids_of(end, lids)?,
        pkeys: Vec::new(),
    };
    builder.port(node, number, &spec)?;
    Ok(node)
}

/// A port that OpenSM has not given a LID yet shows LID 0 or 0xffff.
fn lids_of(end: &End, lids: &HashMap<Guid, LidRange>) -> Result<Option<LidRange>, Problem> {
    if matches!(end.lid, Lid(0) | Lid::PERMISSIVE) {
        return Ok(None);
    }
    let range = *lids
        .get(&end.port_guid)
        .ok_or(Problem::NoLids(end.port_guid))?;
    if range.base() != end.lid {
        return Err(Problem::OtherLid {
            guid: end.port_guid,
            here: end.lid,
            there: range.base(),
        });
    }
    Ok(Some(range))
}
