// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a fabric in two steps: [`Builder`] takes nodes, ports and links, then [`Routing`] the
//! forwarding tables, whose size is known by then. Input that contradicts itself is refused where
//! it does.

use std::collections::HashMap;

use super::{
    Fabric, Forwarding, Hop, Lanes, NO_LINK, NO_PORT, NOT_A_SWITCH, Node, NodeId, NodeKind,
    PathTerms, Port, PortId, SlToVl, Switch,
};
use crate::ident::{Guid, Lid, LidRange, PKey};
use crate::rate::Capability;
use crate::risks::Risks;

/// Ports of a node that can be told apart in a forwarding table: 255 means none.
const MAX_PORTS: u8 = 254;

/// What is wrong with a fabric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two nodes with one GUID.
    #[error("node guid {guid} belongs to '{first}' and to '{second}'")]
    TwoNodes {
        /// The GUID.
        guid: Guid,
        /// Who had it first.
        first: String,
        /// Who wants it as well.
        second: String,
    },
    /// More ports than forwarding tables can name.
    #[error("'{node}' cannot have {ports} ports: at most 254")]
    TooManyPorts {
        /// The node.
        node: String,
        /// How many it is said to have.
        ports: u8,
    },
    /// A node of another fabric.
    #[error("node {0} is not of this fabric")]
    UnknownNode(u32),
    /// A port that the node does not have.
    #[error("'{node}' has no port {port}: it has {ports}")]
    NoSuchPort {
        /// The node.
        node: String,
        /// The port.
        port: u8,
        /// How many it has.
        ports: u8,
    },
    /// A LID on a port that cannot have one.
    #[error(
        "'{node}' port {port} cannot have lids: switches have them on port 0, adapters elsewhere"
    )]
    MisplacedLid {
        /// The node.
        node: String,
        /// The port.
        port: u8,
    },
    /// Two ports with one LID.
    #[error("lid {lid} belongs to '{first}' and to '{second}'")]
    TwoOwners {
        /// The LID.
        lid: Lid,
        /// Who had it first.
        first: String,
        /// Who wants it as well.
        second: String,
    },
    /// Two ports with one GUID.
    #[error("port guid {guid} belongs to '{first}' and to '{second}'")]
    TwoPorts {
        /// The GUID.
        guid: Guid,
        /// Who had it first.
        first: String,
        /// Who wants it as well.
        second: String,
    },
    /// A port described in two ways.
    #[error("'{port}' is described twice, and differently")]
    Redescribed {
        /// The port.
        port: String,
    },
    /// A cable with one end, or an end in port 0.
    #[error("no link is possible between '{a}' and '{b}'")]
    ImpossibleLink {
        /// One end.
        a: String,
        /// The other.
        b: String,
    },
    /// A port with two cables.
    #[error("'{port}' is linked to '{first}' and to '{second}'")]
    TwoLinks {
        /// The port.
        port: String,
        /// The link it had first.
        first: String,
        /// The other.
        second: String,
    },
    /// A link described in two ways.
    #[error("the link between '{a}' and '{b}' is described twice, and differently")]
    RedescribedLink {
        /// One end.
        a: String,
        /// The other.
        b: String,
    },
    /// A forwarding table of what is no switch.
    #[error("'{node}' is no switch and has no forwarding table")]
    NotASwitch {
        /// The node.
        node: String,
    },
    /// An SL-to-VL table of a way through an adapter.
    #[error(
        "'{port}' has no sl-to-vl table for packets from port {from}: an adapter has one a port"
    )]
    MisplacedLanes {
        /// The port that packets go out by.
        port: String,
        /// The port that they come in by.
        from: u8,
    },
    /// Two SL-to-VL tables of one way.
    #[error(
        "the sl-to-vl table of '{port}' for packets from port {from} is given twice, and differently"
    )]
    RedescribedLanes {
        /// The port that packets go out by.
        port: String,
        /// The port that they come in by.
        from: u8,
    },
    /// More different SL-to-VL tables than can be told apart.
    #[error("more than 65535 different sl-to-vl tables")]
    TooManyLanes,
    /// More different P_Key tables than can be told apart.
    #[error("more than 65535 different p_key tables")]
    TooManyPKeyTables,
}

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
    pub name: String,
    /// NodeInfo:NumPorts.
    pub ports: u8,
}

/// What is known of a port beside its link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortSpec {
    /// Its GUID.
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
                lanes: Lanes::default(),
                risks: Risks::default(),
            },
            node_guids: HashMap::new(),
            pkey_tables: HashMap::from([(Vec::new(), 0)]),
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
                && known.system == spec.system
                && known.name == spec.name
                && known.ports == spec.ports
        })
    }

    /// Adds a node.
    pub fn node(&mut self, spec: NodeSpec) -> Result<NodeId, BuildError> {
        if let Some(&first) = self.node_guids.get(&spec.guid) {
            return Err(BuildError::TwoNodes {
                guid: spec.guid,
                first: self.fabric.node(first).name.clone(),
                second: spec.name,
            });
        }
        if spec.ports > MAX_PORTS {
            return Err(BuildError::TooManyPorts {
                node: spec.name,
                ports: spec.ports,
            });
        }
        let fabric = &mut self.fabric;
        let id = NodeId(fabric.nodes.len() as u32);
        fabric.nodes.push(Node {
            kind: spec.kind,
            guid: spec.guid,
            system: spec.system,
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
        let port = self.port_id(node, number)?;
        if let Some(range) = spec.lids {
            self.check_lids(node, number, port, range)?;
        }
        let owner = spec.guid.and_then(|guid| self.fabric.guids.get(&guid));
        if let (Some(guid), Some(&first)) = (spec.guid, owner)
            && first != port
        {
            return Err(BuildError::TwoPorts {
                guid,
                first: self.fabric.name(first).to_string(),
                second: self.fabric.name(port).to_string(),
            });
        }
        let pkeys = self.pkey_table(&spec.pkeys)?;
        let new = Port {
            node,
            guid: spec.guid,
            lids: spec.lids,
            pkeys,
        };
        if self.described[port.index()] && self.fabric.ports[port.index()] != new {
            return Err(BuildError::Redescribed {
                port: self.fabric.name(port).to_string(),
            });
        }
        self.described[port.index()] = true;
        self.fabric.ports[port.index()] = new;
        self.fabric.guids.extend(spec.guid.map(|guid| (guid, port)));
        self.take_lids(port, spec.lids);
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
        self.fabric.set_lanes(node, (from, to), table)
    }

    /// Says one SL-to-VL table for all ways through a switch, in place of what was said of it.
    pub fn same_sl_to_vl(&mut self, switch: NodeId, table: SlToVl) -> Result<(), BuildError> {
        self.fabric.set_same_lanes(switch, table)
    }

    pub(crate) fn switch_count(&self) -> usize {
        self.fabric.switches.len()
    }

    /// On to the second step.
    pub fn routing(mut self) -> Routing {
        let switches = self.fabric.switches.len();
        let top = self.fabric.owners.len().saturating_sub(1);
        self.fabric.forwarding = Forwarding::new(switches, top);
        self.fabric.lanes_mut().compact();
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
        self.fabric.lanes_mut().compact();
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
                node: node.name.clone(),
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
        let end = usize::from(range.last()) + 1;
        if owners.len() < end {
            owners.resize(end, NO_LINK);
        }
        owners[range.base().index()..end].fill(port.0);
    }

    /// Makes an SL-to-VL table known, so that all have the numbers in whose order they come.
    pub(crate) fn lanes_table(&mut self, table: SlToVl) -> Result<(), BuildError> {
        self.fabric.lanes_mut().number(table).map(drop)
    }

    /// The number of a P_Key table, which is new if it is unlike all others.
    pub(crate) fn pkey_table(&mut self, pkeys: &[PKey]) -> Result<u16, BuildError> {
        if let Some(&table) = self.pkey_tables.get(pkeys) {
            return Ok(table);
        }
        let tables = &mut self.fabric.pkey_tables;
        let table = u16::try_from(tables.len()).map_err(|_| BuildError::TooManyPKeyTables)?;
        tables.push(pkeys.to_vec());
        self.pkey_tables.insert(pkeys.to_vec(), table);
        Ok(table)
    }
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
        let rank = check_route(&self.fabric, switch, port)?;
        self.fabric.forwarding.set(lid, rank, port);
        Ok(())
    }

    /// The fabric.
    pub fn finish(self) -> Fabric {
        self.fabric
    }
}

/// The rank of `switch`, if an entry with `port` may stand in its table.
pub(super) fn check_route(fabric: &Fabric, switch: NodeId, port: u8) -> Result<u32, BuildError> {
    find_port(fabric, switch, port)?;
    fabric.rank(switch).ok_or_else(|| BuildError::NotASwitch {
        node: fabric.node(switch).name.clone(),
    })
}

pub(super) fn find_port(fabric: &Fabric, node: NodeId, number: u8) -> Result<PortId, BuildError> {
    let known = fabric
        .nodes
        .get(node.index())
        .ok_or(BuildError::UnknownNode(node.0))?;
    fabric
        .port_of(node, number)
        .ok_or_else(|| BuildError::NoSuchPort {
            node: known.name.clone(),
            port: number,
            ports: known.ports,
        })
}
