// SPDX-License-Identifier: MIT OR Apache-2.0
//! `opensm-subnet.lst`: all links, hence all nodes that have one, each link from both its ends.

use std::ops::ControlFlow;
use std::path::Path;

use super::collected::{Collected, LinkLine, PortLine};
use super::opensm_link::{End, Link};
use super::warnings::Bad;
use super::{Lost, Problem, ReadError, Warnings};
use crate::fabric::NodeKind;
use crate::lines::{Lines, Progress, Records};

/// A node's description may have line breaks in it: a link ends with its state.
const LINKS: Records = Records {
    begins: Link::begins,
    is_whole: |record| record.is_empty() || Link::is_whole(record),
};

/// Reads nodes, ports and links.
pub(super) fn read(
    path: &Path,
    progress: Progress<'_>,
    warnings: &mut Warnings,
) -> Result<Collected, ReadError> {
    let mut collected = Collected::default();
    let mut lines = Lines::open(path)?;
    let size = lines.size();
    lines.records(LINKS, size, progress, |record, line| {
        warnings.take(path, line, take(record, line, &mut collected))?;
        Ok(ControlFlow::Continue(()))
    })?;
    match collected.is_empty() {
        true => Err(lines.error(Problem::Empty)),
        false => Ok(collected),
    }
}

fn take(record: &str, line: usize, collected: &mut Collected) -> Result<(), Bad> {
    if record.is_empty() {
        return Ok(());
    }
    let link = Link::parse(record).map_err(|problem| Bad::new(problem, Lost::Link))?;
    for end in &link.ends {
        collected.node(end.node.clone())?;
        collected.port(line, end.port())?;
    }
    let [a, b] = &link.ends;
    let link = LinkLine {
        ends: [(a.node.guid, a.number), (b.node.guid, b.number)],
        carries: link.carries,
        up: link.up,
    };
    collected.link(line, link)
}

impl End {
    /// The port that has the LIDs.
    fn port(&self) -> PortLine {
        let number = match self.node.kind {
            NodeKind::Switch => 0,
            NodeKind::Adapter => self.number,
        };
        PortLine {
            key: (self.node.guid, number),
            guid: self.port_guid,
            lid: self.lid,
            lmc: None,
        }
    }
}
