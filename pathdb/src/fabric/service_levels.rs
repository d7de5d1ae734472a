// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which service levels get through a fabric: the SL-to-VL mapping tables of its ports, as far as
//! they are known (IBA 7.6.6, 14.2.5.8).
//!
//! A switch has a table for each pair of ports that a packet comes in and goes out by, an adapter
//! one for each port. They are nearly always the same, so a table is kept once, and a switch whose
//! tables are all one has one number.

use std::collections::HashMap;
use std::fmt;

use super::{Fabric, NodeId};

/// The virtual lane of each service level: 16 times 4 bits, that of SL 0 in the upper half of the
/// first byte, as in SLtoVLMappingTable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlToVl(pub [u8; 8]);

/// The lane of management packets, to which nothing else is mapped but what is to be dropped.
const DROPPED: u8 = 15;

impl SlToVl {
    /// The virtual lane of a service level; `None` if its packets are dropped, or there is no such.
    pub fn vl(self, sl: u8) -> Option<u8> {
        let pair = self.0.get(usize::from(sl / 2))?;
        let vl = if sl & 1 == 0 { pair >> 4 } else { pair & 0xf };
        (vl != DROPPED).then_some(vl)
    }

    pub(crate) fn service_levels(self) -> ServiceLevels {
        let levels = (0..16).filter(|&sl| self.vl(sl).is_some());
        ServiceLevels(levels.fold(0, |bits, sl| bits | 1 << sl))
    }
}

/// A set of service levels, 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServiceLevels(u16);

impl ServiceLevels {
    /// Every one.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether it has one.
    pub const fn contains(self, sl: u8) -> bool {
        sl < 16 && self.0 >> sl & 1 == 1
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// All of them, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> + Clone {
        (0..16).filter(move |&sl| self.contains(sl))
    }
}

impl fmt::Display for ServiceLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, sl) in self.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{sl}")?;
        }
        Ok(())
    }
}

/// Number of a table; 0 is the one not known.
type Number = u16;

/// All tables that are known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SlToVlTables {
    tables: Vec<SlToVl>,
    /// By the node's number and the ports that packets come in and go out by; 0 in of an adapter.
    nodes: HashMap<NodeId, NodeTables>,
}

/// The tables of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeTables {
    /// One for all pairs of ports.
    Same(Number),
    /// One for each port in, and for it each port out.
    Each(Box<[Number]>),
}

impl SlToVlTables {
    pub(crate) fn tables(&self) -> &[SlToVl] {
        &self.tables
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<&NodeTables> {
        self.nodes.get(&node)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Where a switch has one table for all, it is kept once: for all pairs of ports but those back to where
    /// they came from, which no packet takes, and those to itself where they are not known.
    pub(crate) fn compact(&mut self) {
        for tables in self.nodes.values_mut() {
            let NodeTables::Each(each) = tables else {
                continue;
            };
            let ports = each.len().isqrt();
            let counts =
                |&at: &usize| at / ports != at % ports && (at % ports != 0 || each[at] != 0);
            let mut others = (0..each.len()).filter(counts).map(|at| each[at]);
            let first = others.next().unwrap_or(0);
            if first != 0 && others.all(|other| other == first) {
                *tables = NodeTables::Same(first);
            }
        }
        self.nodes.shrink_to_fit();
    }

    /// Makes a table known, by the next number.
    pub(super) fn know(&mut self, table: SlToVl) {
        self.tables.push(table);
    }

    /// Makes room for the tables of a node with so many ports, port 0 counted.
    pub(super) fn add(&mut self, node: NodeId, ports: usize) {
        let unknown = NodeTables::Each(vec![0; ports * ports].into());
        self.nodes.insert(node, unknown);
    }

    pub(super) fn set_same(&mut self, switch: NodeId, number: Number) {
        self.nodes.insert(switch, NodeTables::Same(number));
    }

    fn get(&self, fabric: &Fabric, node: NodeId, ports: (u8, u8)) -> Option<SlToVl> {
        let number = match self.nodes.get(&node)? {
            NodeTables::Same(number) => *number,
            NodeTables::Each(each) => *each.get(place(fabric, node, ports))?,
        };
        self.tables
            .get(usize::from(number).checked_sub(1)?)
            .copied()
    }
}

/// Where the table of a pair of ports, in and out, stands.
fn place(fabric: &Fabric, node: NodeId, (from, to): (u8, u8)) -> usize {
    let ports = usize::from(fabric.node(node).ports) + 1;
    usize::from(from) * ports + usize::from(to)
}

impl Fabric {
    pub(crate) fn sl_to_vl_tables(&self) -> &SlToVlTables {
        &self.sl_to_vl
    }

    /// Whether any SL-to-VL table is known.
    pub fn knows_sl_to_vl(&self) -> bool {
        !self.sl_to_vl.is_empty()
    }

    /// The SL-to-VL table of packets that come in by one port of a node and go out by another, if it
    /// is known. Packets of the node itself come in by port 0.
    pub fn sl_to_vl(&self, node: NodeId, from: u8, to: u8) -> Option<SlToVl> {
        self.sl_to_vl.get(self, node, (from, to))
    }

    /// Sets the table of a pair of ports, for which there is room; whether no other is known.
    pub(super) fn set_sl_to_vl(&mut self, node: NodeId, ports: (u8, u8), number: Number) -> bool {
        let at = place(self, node, ports);
        let known = match self.sl_to_vl.nodes.get_mut(&node) {
            Some(NodeTables::Same(known)) => known,
            Some(NodeTables::Each(each)) => &mut each[at],
            None => return false,
        };
        let is_new = *known == 0 || *known == number;
        if is_new {
            *known = number;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_level_0_is_first() {
        let table = SlToVl([0x01, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf7]);
        let vls: Vec<_> = (0..17).filter_map(|sl| Some((sl, table.vl(sl)?))).collect();
        assert_eq!(vls, [(0, 0), (1, 1), (3, 3), (15, 7)]);
        assert_eq!(table.service_levels().to_string(), "0,1,3,15");
        assert!(!ServiceLevels::ALL.contains(16));
    }
}
