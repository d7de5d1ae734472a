// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LIDs that not every host reaches, as `apmctl fabric check` reports them.

use std::collections::BTreeMap;

use pathdb::check::{Cause, Unreachable};
use pathdb::{Fabric, Fault, NodeKind};

use super::dumped::Dumped;
use super::tally::Tally;

/// How many ports of hosts do not reach a LID, and whether some of their packets go in circles.
type Unreached = BTreeMap<u16, (usize, bool)>;

/// Compares what pathdb reports with walks by other code.
pub fn compare(fabric: &Fabric, dumped: &Dumped, tally: &mut Tally) {
    let reported: Unreached = fabric.unreachable().iter().map(entry).collect();
    let walked = walk(fabric, dumped);
    let lids = reported.keys().chain(walked.keys());
    for lid in lids.copied().collect::<std::collections::BTreeSet<u16>>() {
        let (ours, theirs) = (reported.get(&lid), walked.get(&lid));
        match ours == theirs {
            true => tally.unreached += 1,
            false => tally.differ(|| {
                format!("lid {lid}: not reached by (and in circles) {theirs:?}, pathdb {ours:?}")
            }),
        }
    }
}

fn entry(unreachable: &Unreachable) -> (u16, (usize, bool)) {
    let circles = unreachable
        .causes
        .iter()
        .any(|cause| matches!(cause, Cause::Loop(_)));
    (unreachable.lid.0, (unreachable.sources, circles))
}

fn walk(fabric: &Fabric, dumped: &Dumped) -> Unreached {
    let lids = |port| fabric.port(port).lids;
    let hosts = fabric.end_ports().filter(|&port| {
        let kind = fabric.node(fabric.port(port).node).kind;
        kind == NodeKind::Adapter && fabric.is_up(port)
    });
    let sources: Vec<u16> = hosts.filter_map(lids).map(|range| range.base().0).collect();
    let ranges = fabric.end_ports().filter_map(lids);
    let mut unreached = Unreached::new();
    for lid in ranges.flat_map(|range| range.iter()).map(|lid| lid.0) {
        for fault in sources
            .iter()
            .filter_map(|&from| dumped.follow(from, lid).err())
        {
            let entry = unreached.entry(lid).or_default();
            entry.0 += 1;
            entry.1 |= fault == Fault::Loop;
        }
    }
    unreached
}
