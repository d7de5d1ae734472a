// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a subnet manager changes when a link between a leaf and a spine fails, and nothing more.

use cm_msgs::Lid;
use pathdb::{Capability, Change, Delta, Fabric, NodeId};
use test_fabrics::FatTree;

use crate::Failure;

/// The first link between a leaf and a spine fails: the leaf sends to the next spine what it sent
/// over it, and all other leaves what they sent over spines of that position to the leaf's ports.
pub(crate) fn link_failure(fabric: &Fabric, tree: &FatTree) -> Result<Delta, Failure> {
    let leaves: Vec<NodeId> = fabric
        .nodes()
        .filter(|(_, node)| node.name.starts_with("leaf-"))
        .map(|(id, _)| id)
        .collect();
    let leaf = *leaves.first().ok_or("no leaf")?;
    let (failed, next) = (tree.half as u8 + 1, tree.half as u8 + 2);
    let lids = || (1..=Lid::MAX_UNICAST.0).map(Lid);
    let behind = lids().filter(|&lid| {
        let route = fabric.route(leaf, lid);
        route.is_some_and(|port| u32::from(port) <= tree.half)
    });
    let behind: Vec<Lid> = behind.collect();
    let from_leaf = lids().map(|lid| (leaf, lid));
    let to_leaf = leaves[1..]
        .iter()
        .flat_map(|&other| behind.iter().map(move |&lid| (other, lid)));
    let routes = from_leaf
        .chain(to_leaf)
        .filter(|&(switch, lid)| fabric.route(switch, lid) == Some(failed))
        .map(|(switch, lid)| Change::Route {
            switch,
            lid,
            port: Some(next),
        });
    let down = Change::Link {
        end: (leaf, failed),
        up: false,
        carries: Capability::default(),
    };
    Ok(Delta {
        from: fabric.epoch(),
        to: fabric.epoch() + 1,
        changes: [down].into_iter().chain(routes).collect(),
    })
}
