// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric in numbers.

use std::collections::{BTreeMap, BTreeSet};

use cm_msgs::Guid;

use crate::fabric::{Fabric, NodeKind};
use cm_msgs::rate::{Mtu, Rate};

/// What is in a fabric.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Switches.
    pub switches: usize,
    /// Channel adapters.
    pub adapters: usize,
    /// Boxes with adapters, by SystemImageGUID.
    pub systems: usize,
    /// Of which have more than one port with LIDs.
    pub multi_port_systems: usize,
    /// Adapters with more than one port with LIDs: between these APM moves connections.
    pub multi_port_adapters: usize,
    /// Ports of adapters with LIDs, by LID mask count.
    pub end_ports: BTreeMap<u8, usize>,
    /// LIDs given out, those of switches included.
    pub lids: usize,
    /// Links that are up, by rate.
    pub up: BTreeMap<Option<Rate>, usize>,
    /// Links that are down.
    pub down: usize,
    /// The MTUs of the links that are up.
    pub mtus: BTreeMap<Option<Mtu>, usize>,
    /// Partitions of all P_Key tables, without membership bit; empty if no table is known.
    pub partitions: BTreeSet<u16>,
    /// Nodes of which some SL-to-VL table is known.
    pub sl_to_vl_nodes: usize,
    /// SL-to-VL tables that differ from each other.
    pub sl_to_vl_tables: usize,
}

impl Fabric {
    /// Counts what there is.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let mut systems: BTreeMap<Guid, usize> = BTreeMap::new();
        for (id, node) in self.nodes() {
            if node.kind == NodeKind::Switch {
                summary.switches += 1;
                continue;
            }
            summary.adapters += 1;
            let ports = systems.entry(node.system).or_default();
            let own = (1..=node.ports).filter_map(|number| self.port_of(id, number));
            let before = *ports;
            for range in own.filter_map(|port| self.port(port).lids) {
                *ports += 1;
                *summary.end_ports.entry(range.lmc()).or_default() += 1;
            }
            summary.multi_port_adapters += usize::from(*ports > before + 1);
        }
        summary.systems = systems.len();
        summary.multi_port_systems = systems.values().filter(|&&ports| ports > 1).count();
        summary.lids = self.lids().count();
        for (port, _) in self.links() {
            let carries = self.carries(port);
            if self.is_up(port) {
                *summary.up.entry(carries.rate).or_default() += 1;
                *summary.mtus.entry(carries.mtu).or_default() += 1;
            } else {
                summary.down += 1;
            }
        }
        let keys = self.pkey_tables().iter().flatten();
        summary.partitions = keys.map(|key| key.partition()).collect();
        let known = self.sl_to_vl_tables();
        let nodes = self.nodes().filter(|&(id, _)| known.of(id).is_some());
        summary.sl_to_vl_nodes = nodes.count();
        summary.sl_to_vl_tables = known.tables().len();
        summary
    }
}
