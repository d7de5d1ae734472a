// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding tables for a fabric that is known without any: the shortest ways, as text.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

use pathdb::{Fabric, NodeId, NodeKind, PortId};

/// The forwarding tables of the shortest ways, as `dump_fts` prints them.
///
/// # Panics
/// If an end port has no GUID.
pub fn dump_fts(fabric: &Fabric) -> String {
    let ends: Vec<PortId> = fabric.end_ports().collect();
    let top = ends
        .iter()
        .filter_map(|&port| fabric.port(port).lids)
        .map(|lids| lids.base().0);
    let top = top.max().expect("end ports");
    let switches = fabric
        .nodes()
        .filter(|(_, node)| node.kind == NodeKind::Switch);
    let mut tables: HashMap<NodeId, Vec<String>> = HashMap::new();
    for &end in &ends {
        let of_end = fabric.port(end);
        let (lid, guid) = (
            of_end.lids.expect("an end port").base().0,
            of_end.guid.expect("its own"),
        );
        let name = &fabric.node(of_end.node).name;
        for (switch, port) in ways(fabric, end) {
            let line =
                format!("0x{lid:04x} {port:03} : (Channel Adapter portguid {guid}: '{name}')");
            tables.entry(switch).or_default().push(line);
        }
    }
    let mut text = String::new();
    for (id, node) in switches {
        let lines = tables.remove(&id).unwrap_or_default();
        let (guid, name) = (node.guid, &node.name);
        writeln!(text, "Unicast lids [0x0-0x{top:x}] of switch DR path slid 0; dlid 0; 0,1 guid {guid} ({name}):").expect("a string");
        text.push_str("  Lid  Out   Destination\n       Port     Info \n");
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        writeln!(text, "{} valid lids dumped ", lines.len()).expect("a string");
    }
    text.push_str("\n*** WARNING ***: this command has been replaced by dump_fts\n\n\n");
    text
}

/// Each switch's port on a shortest way to an end port.
fn ways(fabric: &Fabric, end: PortId) -> Vec<(NodeId, u8)> {
    let mut ways = HashMap::new();
    let mut queue = VecDeque::new();
    match fabric.peer(end) {
        None => {
            let node = fabric.port(end).node;
            ways.insert(node, 0);
            queue.push_back(node);
        }
        Some(leaf) => {
            let node = fabric.port(leaf).node;
            ways.insert(node, fabric.port_number(leaf));
            queue.push_back(node);
        }
    }
    while let Some(node) = queue.pop_front() {
        for number in 1..=fabric.node(node).ports {
            let port = fabric.port_of(node, number).expect("its own");
            let Some(peer) = fabric.peer(port) else {
                continue;
            };
            let next = fabric.port(peer).node;
            if fabric.node(next).kind == NodeKind::Switch && !ways.contains_key(&next) {
                ways.insert(next, fabric.port_number(peer));
                queue.push_back(next);
            }
        }
    }
    let mut ways: Vec<(NodeId, u8)> = ways.into_iter().collect();
    ways.sort();
    ways
}
