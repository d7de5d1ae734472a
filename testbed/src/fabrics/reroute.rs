// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of primaries and alternates when OpenSM routes anew: pathdb led from one state of
//! the fabric to another by a delta, held against the other state read from OpenSM's files.

use std::collections::HashMap;

use cm_msgs::{Guid, Lid};
use pathdb::{
    Change, Delta, Fabric, Fault, NodeId, NodeKind, Pair, PortId, Verdict, recheck, recheck_after,
};

use super::alternates::Whole;
use super::dumped::Dumped;
use super::records::words;
use super::tally::Tally;

/// A state of the fabric, and primaries with the alternates chosen in it.
#[derive(Debug)]
pub struct Before {
    /// The fabric.
    pub fabric: Fabric,
    /// Primaries and alternates.
    pub pairs: Vec<Pair>,
}

/// Compares with the state `after` it: what pathdb says has become worse with walks by other code,
/// and the fabric that a delta makes of the first state with the second, by every pair of `lids`.
pub fn compare(before: &Before, after: &Fabric, dumped: &Dumped, lids: &[u16], tally: &mut Tally) {
    let pairs = &before.pairs;
    let worse = recheck(after, pairs);
    let found: HashMap<usize, Verdict> = worse.iter().copied().collect();
    for (position, pair) in pairs.iter().enumerate() {
        let (ours, walked) = (found.get(&position).copied(), judge(dumped, pair));
        if ours == walked {
            tally.rechecked += 1;
            tally.worse += usize::from(ours.is_some());
            continue;
        }
        let lids = (pair.primary.slid.0, pair.primary.dlid.0);
        tally.differ(|| {
            let words = words(&before.fabric, lids);
            format!(
                "{words}, alternate {:?}: walked {walked:?}, pathdb {ours:?}",
                pair.alternate
            )
        });
    }
    let delta = delta(
        &before.fabric,
        after,
        lids.last().copied().unwrap_or_default(),
    );
    let mut changed = before.fabric.clone();
    if let Err(error) = changed.apply(&delta) {
        tally.differ(|| format!("the delta is refused: {error}"));
        return;
    }
    let again = recheck_after(&changed, &delta, pairs);
    if again != worse {
        tally.differ(|| {
            format!(
                "after the delta pathdb finds {} worse, not {}",
                again.len(),
                worse.len()
            )
        });
    }
    for (&from, &to) in lids
        .iter()
        .flat_map(|from| lids.iter().map(move |to| (from, to)))
    {
        let [ours, theirs] = [&changed, after].map(|fabric| leg(fabric, from, to));
        match ours == theirs {
            true => tally.legs += 1,
            false => tally.differ(|| {
                let words = words(&before.fabric, (from, to));
                format!("{words}: after the delta {ours:?}, as read {theirs:?}")
            }),
        }
    }
}

fn leg(fabric: &Fabric, from: u16, to: u16) -> Result<pathdb::Leg, Fault> {
    let port = fabric.port_by_lid(Lid(from)).ok_or(Fault::DeadEnd)?;
    fabric.leg(port, Lid(to))
}

/// What has become of a pair, by other code.
fn judge(dumped: &Dumped, pair: &Pair) -> Option<Verdict> {
    let primary = match Whole::follow(dumped, pair.primary) {
        Ok(primary) => primary,
        Err(fault) => return Some(Verdict::PrimaryFails(fault)),
    };
    match Whole::follow(dumped, pair.alternate) {
        Ok(alternate) => {
            let shared = primary.shared(&alternate);
            (shared > pair.shared).then_some(Verdict::SharesMore(shared))
        }
        Err(fault) => Some(Verdict::AlternateFails(fault)),
    }
}

/// What leads from one state to another: entries of the tables up to LID `top`, and links. Nodes that
/// are gone have all their links down.
fn delta(before: &Fabric, after: &Fabric, top: u16) -> Delta {
    let now: HashMap<Guid, NodeId> = after.nodes().map(|(id, node)| (node.guid, id)).collect();
    let mut changes = Vec::new();
    for (id, node) in before.nodes() {
        let there = now.get(&node.guid).copied();
        if let Some(there) = there.filter(|_| node.kind == NodeKind::Switch) {
            for lid in (1..=top).map(Lid) {
                let port = after.route(there, lid);
                if before.route(id, lid) != port {
                    let switch = id;
                    changes.push(Change::Route { switch, lid, port });
                }
            }
        }
        for number in 1..=node.ports {
            let port = before.port_of(id, number);
            let end = (id, number);
            let Some((port, peer)) = port.and_then(|port| Some((port, before.peer(port)?))) else {
                continue;
            };
            let other = there.and_then(|there| after.port_of(there, number));
            let other = other.filter(|&other| after.is_up(other));
            // Each link once, and only what has changed.
            if port < peer && before.is_up(port) != other.is_some() {
                changes.push(link(before, after, end, port, other));
            }
        }
    }
    Delta {
        from: before.epoch(),
        to: before.epoch() + 1,
        changes,
    }
}

fn link(
    before: &Fabric,
    after: &Fabric,
    end: (NodeId, u8),
    port: PortId,
    other: Option<PortId>,
) -> Change {
    Change::Link {
        end,
        up: other.is_some(),
        carries: other.map_or(before.carries(port), |other| after.carries(other)),
    }
}
