// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a fabric in two steps: [`Builder`] takes nodes, ports and links, then [`Routing`] the
//! forwarding tables, whose size is known by then. Input that contradicts itself is refused where
//! it does.

use std::collections::HashMap;

use cm_msgs::{Guid, Lid, PKey};

use super::error::{BuildError, check_route, find_node, find_port, fits, switch_rank};
use super::{
    Fabric, Forwarding, Hop, NO_LINK, NO_PORT, NOT_A_SWITCH, Node, NodeId, NodeKind, PathTerms,
    Port, PortId, Risks, SlToVl, SlToVlTables, Switch,
};
use crate::capability::Capability;
use crate::lid_range::LidRange;
use crate::name::NodeName;

/// Ports of a node that can be told apart in a forwarding table: 255 means none.
const MAX_PORTS: u8 = 254;

// What a fabric may have: more than its 49,151 LIDs can make use of, and little enough that whoever
// describes one cannot take all memory. The forwarding tables of so many switches are 490 MB.
const NODES: usize = 1 << 16;
const SWITCHES: usize = 10_000;
const PORTS: usize = 1 << 21;
const PKEYS: usize = 1 << 20;
const SL_TO_VL_ENTRIES: usize = 1 << 26;

/// Bytes of a name: a description has 64, each of which may have been escaped.
pub(crate) const NAME: usize = 512;

/// A node to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// What it is.
    pub kind: NodeKind,
    /// NodeInfo:NodeGUID.
    pub guid: Guid,
    /// NodeInfo:SystemImageGUID.
    pub system: Guid,
    /// The node description.
    pub name: NodeName,
    /// NodeInfo:NumPorts.
    pub ports: u8,
}

impl NodeSpec {
    /// Whether it is the same node, whatever its description.
    pub(crate) fn is_same_but_for_name(&self, other: &Self) -> bool {
        (self.kind, self.guid, self.system, self.ports)
            == (other.kind, other.guid, other.system, other.ports)
    }

    /// What the node is in one box with. SystemImageGUID 0 says that it is in none with others (IBA 14.2.5.3), and some
    /// devices leave it 0: each of these is a box of its own.
    fn in_system(&self) -> Guid {
        match self.system {
            Guid(0) => self.guid,
            system => system,
        }
    }
}

/// What is known of a port beside its link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortSpec {
    /// Its GUID. 0 counts as none.
    pub guid: Option<Guid>,
    /// Its LIDs.
    pub lids: Option<LidRange>,
    /// Its P_Key table, empty if not known.
    pub pkeys: Vec<PKey>,
}

/// The first step: nodes, ports and links.
#[derive(Debug)]
pub struct Builder {
    fabric: Fabric,
    node_guids: HashMap<Guid, NodeId>,
    pkey_tables: HashMap<Vec<PKey>, u16>,
    /// Keys in all of them.
    pkeys: usize,
    sl_to_vl_numbers: HashMap<SlToVl, u16>,
    /// NodeTables through all nodes that have SL-to-VL tables.
    sl_to_vl_entries: usize,
    described: Vec<bool>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// An empty fabric, epoch 0.
    pub fn new() -> Self {
        Self {
            fabric: Fabric {
                epoch: 0,
                terms: PathTerms::default(),
                nodes: Vec::new(),
                switches: Vec::new(),
                ports: Vec::new(),
                hops: Vec::new(),
                owners: Vec::new(),
                guids: HashMap::new(),
                pkey_tables: vec![Vec::new()],
                forwarding: Forwarding::new(0, 0),
                sl_to_vl: SlToVlTables::default(),
                risks: Risks::default(),
            },
            node_guids: HashMap::new(),
            pkey_tables: HashMap::from([(Vec::new(), 0)]),
            pkeys: 0,
            sl_to_vl_numbers: HashMap::new(),
            sl_to_vl_entries: 0,
            described: Vec::new(),
        }
    }

    /// Sets the epoch.
    pub fn epoch(&mut self, epoch: u64) {
        self.fabric.epoch = epoch;
    }

    /// Sets what all paths have in common.
    pub fn terms(&mut self, terms: PathTerms) {
        self.fabric.terms = terms;
    }

    /// The node with this GUID, if it was added.
    pub fn find(&self, guid: Guid) -> Option<NodeId> {
        self.node_guids.get(&guid).copied()
    }

    /// Whether no node was added yet.
    pub fn is_empty(&self) -> bool {
        self.fabric.nodes.is_empty()
    }

    /// Whether a node is what `spec` says.
    pub fn is(&self, node: NodeId, spec: &NodeSpec) -> bool {
        self.fabric.nodes.get(node.index()).is_some_and(|known| {
            known.kind == spec.kind
                && known.guid == spec.guid
                && known.system == spec.in_system()
                && known.name == spec.name
                && known.ports == spec.ports
        })
    }

    /// Adds a node.
    pub fn node(&mut self, spec: NodeSpec) -> Result<NodeId, BuildError> {
        if let Some(&first) = self.node_guids.get(&spec.guid) {
            return Err(BuildError::TwoNodes {
                guid: spec.guid,
                first: self.fabric.node(first).name.to_string(),
                second: spec.name.to_string(),
            });
        }
        if spec.ports > MAX_PORTS {
            return Err(BuildError::TooManyPorts {
                node: spec.name.to_string(),
                ports: spec.ports,
            });
        }
        let fabric = &mut self.fabric;
        let ports = fabric.ports.len() + usize::from(spec.ports) + 1;
        // Before anything is made room for: the numbers are a file's or an SA's.
        fits(spec.name.len(), NAME, "bytes in a name")?;
        fits(fabric.nodes.len() + 1, NODES, "nodes")?;
        fits(ports, PORTS, "ports")?;
        let switches = fabric.switches.len() + usize::from(spec.kind == NodeKind::Switch);
        fits(switches, SWITCHES, "switches")?;
        let id = NodeId(fabric.nodes.len() as u32);
        fabric.nodes.push(Node {
            kind: spec.kind,
            guid: spec.guid,
            system: spec.in_system(),
            name: spec.name,
            ports: spec.ports,
            first: fabric.ports.len() as u32,
            rank: fabric.switches.len() as u32,
        });
        if spec.kind == NodeKind::Switch {
            fabric.switches.push(Switch {
                node: id,
                first: fabric.ports.len() as u32,
                ports: spec.ports,
            });
        }
        for _ in 0..=spec.ports {
            fabric.ports.push(Port {
                node: id,
                guid: None,
                lids: None,
                pkeys: 0,
            });
            fabric.hops.push(Hop::UNPLUGGED);
            self.described.push(false);
        }
        self.node_guids.insert(spec.guid, id);
        Ok(id)
    }

    /// Describes a port. Saying the same again is no error.
    pub fn port(
        &mut self,
        node: NodeId,
        number: u8,
        spec: &PortSpec,
    ) -> Result<PortId, BuildError> {
        let table = self.pkey_table(&spec.pkeys)?;
        self.describe(node, number, (spec.guid, spec.lids), table)
    }

    /// The same, with the number of a P_Key table that is known.
    pub(crate) fn describe(
        &mut self,
        node: NodeId,
        number: u8,
        (guid, lids): (Option<Guid>, Option<LidRange>),
        pkeys: u16,
    ) -> Result<PortId, BuildError> {
        let port = self.port_id(node, number)?;
        if let Some(range) = lids {
            self.check_lids(node, number, port, range)?;
        }
        let guid = guid.filter(|guid| guid.0 != 0);
        let owner = guid.and_then(|guid| self.fabric.guids.get(&guid));
        if let (Some(guid), Some(&first)) = (guid, owner)
            && first != port
        {
            return Err(BuildError::TwoPorts {
                guid,
                first: self.fabric.name(first).to_string(),
                second: self.fabric.name(port).to_string(),
            });
        }
        let new = Port {
            node,
            guid,
            lids,
            pkeys,
        };
        if self.described[port.index()] && self.fabric.ports[port.index()] != new {
            return Err(BuildError::Redescribed {
                port: self.fabric.name(port).to_string(),
            });
        }
        self.described[port.index()] = true;
        self.fabric.ports[port.index()] = new;
        self.fabric.guids.extend(guid.map(|guid| (guid, port)));
        self.take_lids(port, lids);
        Ok(port)
    }

    /// Plugs in a cable. Saying the same again, from either end, is no error.
    pub fn link(
        &mut self,
        a: (NodeId, u8),
        b: (NodeId, u8),
        carries: Capability,
        up: bool,
    ) -> Result<(), BuildError> {
        let (a_id, b_id) = (self.port_id(a.0, a.1)?, self.port_id(b.0, b.1)?);
        let name = |port| self.fabric.name(port).to_string();
        if a_id == b_id || a.1 == 0 || b.1 == 0 {
            return Err(BuildError::ImpossibleLink {
                a: name(a_id),
                b: name(b_id),
            });
        }
        let to = |node: NodeId, port: PortId| Hop {
            peer: port.0,
            switch: self.fabric.rank(node).unwrap_or(NOT_A_SWITCH),
            carries,
            up,
        };
        let hops = [(a_id, to(b.0, b_id)), (b_id, to(a.0, a_id))];
        for (port, hop) in hops {
            let old = self.fabric.hop(port);
            if old.peer != NO_LINK && old.peer != hop.peer {
                return Err(BuildError::TwoLinks {
                    port: name(port),
                    first: name(PortId(old.peer)),
                    second: name(PortId(hop.peer)),
                });
            }
            if old.peer != NO_LINK && old != hop {
                return Err(BuildError::RedescribedLink {
                    a: name(a_id),
                    b: name(b_id),
                });
            }
        }
        for (port, hop) in hops {
            self.fabric.hops[port.index()] = hop;
        }
        Ok(())
    }

    /// Says the SL-to-VL table of packets that come in by one port of a node and go out by another.
    /// Packets of the node itself come in by port 0, and an adapter has no others. Saying the same
    /// again is no error.
    pub fn sl_to_vl(
        &mut self,
        node: NodeId,
        from: u8,
        to: u8,
        table: SlToVl,
    ) -> Result<(), BuildError> {
        let number = self.sl_to_vl_number(table)?;
        self.sl_to_vl_by_number(node, (from, to), number)
    }

    /// The same, with the number of a table that is known.
    pub(crate) fn sl_to_vl_by_number(
        &mut self,
        node: NodeId,
        (from, to): (u8, u8),
        number: u16,
    ) -> Result<(), BuildError> {
        let out = self.port_id(node, to)?;
        self.port_id(node, from)?;
        let adapter = self.fabric.node(node).kind == NodeKind::Adapter;
        let port = |fabric: &Fabric| fabric.name(out).to_string();
        if adapter && (from != 0 || to == 0) {
            return Err(BuildError::MisplacedSlToVl {
                port: port(&self.fabric),
                from,
            });
        }
        self.reserve_sl_to_vl(node)?;
        match self.fabric.set_sl_to_vl(node, (from, to), number) {
            true => Ok(()),
            false => Err(BuildError::RedescribedSlToVl {
                port: port(&self.fabric),
                from,
            }),
        }
    }

    /// Makes room for the tables of all pairs of a node's ports.
    pub(crate) fn reserve_sl_to_vl(&mut self, node: NodeId) -> Result<(), BuildError> {
        let ports = usize::from(find_node(&self.fabric, node)?.ports) + 1;
        if self.fabric.sl_to_vl.of(node).is_none() {
            self.sl_to_vl_entries += ports * ports;
            fits(
                self.sl_to_vl_entries,
                SL_TO_VL_ENTRIES,
                "entries of sl-to-vl tables",
            )?;
            self.fabric.sl_to_vl.add(node, ports);
        }
        Ok(())
    }

    /// Says one SL-to-VL table for all pairs of a switch's ports, in place of what was said of it.
    pub fn same_sl_to_vl(&mut self, switch: NodeId, table: SlToVl) -> Result<(), BuildError> {
        switch_rank(&self.fabric, switch)?;
        let number = self.sl_to_vl_number(table)?;
        self.fabric.sl_to_vl.set_same(switch, number);
        Ok(())
    }

    /// The fabric as far as it is known.
    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// On to the second step.
    pub fn routing(mut self) -> Routing {
        let switches = self.fabric.switches.len();
        let top = self.fabric.owners.len().saturating_sub(1);
        self.fabric.forwarding = Forwarding::new(switches, top);
        self.fabric.sl_to_vl.compact();
        self.fabric.nodes.shrink_to_fit();
        self.fabric.ports.shrink_to_fit();
        self.fabric.hops.shrink_to_fit();
        Routing {
            fabric: self.fabric,
            node_guids: self.node_guids,
        }
    }

    /// Both steps in one, with all tables at once: for each LID from 0, each switch's port.
    pub(crate) fn rows(mut self, rows: Vec<u8>) -> Result<Fabric, BuildError> {
        let switches = &self.fabric.switches;
        for row in rows.chunks(switches.len().max(1)) {
            for (&port, switch) in row.iter().zip(switches) {
                if port > switch.ports && port != NO_PORT {
                    find_port(&self.fabric, switch.node, port)?;
                }
            }
        }
        self.fabric.forwarding = Forwarding::from_rows(switches.len(), rows);
        self.fabric.sl_to_vl.compact();
        Ok(self.fabric)
    }

    fn port_id(&self, node: NodeId, number: u8) -> Result<PortId, BuildError> {
        find_port(&self.fabric, node, number)
    }

    fn check_lids(
        &self,
        node: NodeId,
        number: u8,
        port: PortId,
        range: LidRange,
    ) -> Result<(), BuildError> {
        let node = self.fabric.node(node);
        if (node.kind == NodeKind::Switch) != (number == 0) {
            return Err(BuildError::MisplacedLid {
                node: node.name.to_string(),
                port: number,
            });
        }
        for lid in range.iter() {
            if let Some(first) = self.fabric.port_by_lid(lid)
                && first != port
            {
                return Err(BuildError::TwoOwners {
                    lid,
                    first: self.fabric.name(first).to_string(),
                    second: self.fabric.name(port).to_string(),
                });
            }
        }
        Ok(())
    }

    fn take_lids(&mut self, port: PortId, range: Option<LidRange>) {
        let Some(range) = range else { return };
        let owners = &mut self.fabric.owners;
        let end = usize::from(range.last().0) + 1;
        if owners.len() < end {
            owners.resize(end, NO_LINK);
        }
        owners[usize::from(range.base().0)..end].fill(port.0);
    }

    /// The number of an SL-to-VL table, counted from 1, which is new if it is unlike all others.
    pub(crate) fn sl_to_vl_number(&mut self, table: SlToVl) -> Result<u16, BuildError> {
        if let Some(&number) = self.sl_to_vl_numbers.get(&table) {
            return Ok(number);
        }
        let number = self.fabric.sl_to_vl.tables().len() + 1;
        let number = number_of_table(number, "different sl-to-vl tables")?;
        self.fabric.sl_to_vl.know(table);
        self.sl_to_vl_numbers.insert(table, number);
        Ok(number)
    }

    /// The number of a P_Key table, which is new if it is unlike all others.
    pub(crate) fn pkey_table(&mut self, pkeys: &[PKey]) -> Result<u16, BuildError> {
        if let Some(&table) = self.pkey_tables.get(pkeys) {
            return Ok(table);
        }
        self.pkeys += pkeys.len();
        fits(self.pkeys, PKEYS, "p_keys in different tables")?;
        let tables = &mut self.fabric.pkey_tables;
        let table = number_of_table(tables.len(), "different p_key tables")?;
        tables.push(pkeys.to_vec());
        self.pkey_tables.insert(pkeys.to_vec(), table);
        Ok(table)
    }
}

fn number_of_table(number: usize, what: &'static str) -> Result<u16, BuildError> {
    let most = usize::from(u16::MAX);
    u16::try_from(number).map_err(|_| BuildError::TooLarge { what, most })
}

/// The second step: forwarding tables.
#[derive(Debug)]
pub struct Routing {
    fabric: Fabric,
    node_guids: HashMap<Guid, NodeId>,
}

impl Routing {
    /// The node with this GUID.
    pub fn find(&self, guid: Guid) -> Option<NodeId> {
        self.node_guids.get(&guid).copied()
    }

    /// The fabric as far as it is known.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// One entry: `switch` sends packets for `lid` out of `port`, 0 being itself. LIDs that nobody
    /// has are allowed, as in real tables.
    pub fn route(&mut self, switch: NodeId, lid: Lid, port: u8) -> Result<(), BuildError> {
        let rank = check_route(&self.fabric, switch, lid, port)?;
        self.fabric.forwarding.set(lid, rank, port);
        Ok(())
    }

    /// Takes back one entry: the switch drops packets for `lid`.
    pub(crate) fn unroute(&mut self, switch: NodeId, lid: Lid) {
        if let Some(rank) = self.fabric.rank(switch) {
            self.fabric.forwarding.set(lid, rank, NO_PORT);
        }
    }

    /// Takes back all entries of a switch.
    pub(crate) fn forget(&mut self, switch: NodeId) {
        let Some(rank) = self.fabric.rank(switch) else {
            return;
        };
        self.fabric.forwarding.drop_all(rank);
    }

    /// The fabric.
    pub fn finish(self) -> Fabric {
        self.fabric
    }
}
