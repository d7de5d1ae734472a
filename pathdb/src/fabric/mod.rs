// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as data.
//!
//! Ports lie in one array, all ports of a node together with port 0 first, so that a port is one
//! number and a walk from switch to switch is array lookups. What a walk needs of a port (where its
//! link leads and what it carries) lies apart from what only people need.

mod builder;
mod delta;
mod error;
mod forwarding;
mod risks;
mod service_levels;

use std::collections::HashMap;
use std::fmt;

pub(crate) use builder::NAME;
pub use builder::{Builder, NodeSpec, PortSpec, Routing};
pub use delta::{Change, Delta, DeltaError};
pub use error::BuildError;
pub(crate) use error::fits;
pub(crate) use forwarding::{Forwarding, NO_PORT};
pub use risks::{Element, RiskId, Risks};
pub(crate) use service_levels::{NodeTables, SlToVlTables};
pub use service_levels::{ServiceLevels, SlToVl};

use cm_msgs::{Guid, Lid, PKey};

use crate::capability::Capability;
use crate::lid_range::LidRange;
use crate::name::NodeName;

/// A node of one fabric. Numbered in the order of building, which snapshots keep: whoever holds a
/// snapshot of the fabric means the same node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A port of one fabric, numbered like [`NodeId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub(crate) u32);

impl PortId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node is (NodeInfo:NodeType).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NodeKind {
    /// A channel adapter; each of its ports has LIDs of its own.
    Adapter,
    /// A switch; its port 0 has the LIDs.
    Switch,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// NodeInfo:NodeGUID.
    pub guid: Guid,
    /// NodeInfo:SystemImageGUID: the same for what is in one box. The node's GUID where that is 0.
    pub system: Guid,
    /// The node description.
    pub name: NodeName,
    /// NodeInfo:NumPorts, without port 0.
    pub ports: u8,
    first: u32,
    /// Position among the switches; of no meaning for adapters.
    rank: u32,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Whose it is.
    pub node: NodeId,
    /// Its GUID, where it has one of its own (not the external ports of switches).
    pub guid: Option<Guid>,
    /// Its LIDs, where it has any.
    pub lids: Option<LidRange>,
    pkeys: u16,
}

/// What the subnet manager gives all paths alike, as far as that is known: forwarding tables say
/// nothing about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathTerms {
    /// The service level, 0 to 15; not known if it differs from path to path.
    pub service_level: Option<u8>,
    /// PathRecord:PacketLifeTime, 0 to 63: 4.096 us * 2^n.
    pub packet_life_time: Option<u8>,
}

/// What a walk needs of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switch {
    pub(crate) node: NodeId,
    /// The index of its port 0.
    pub(crate) first: u32,
    /// How many ports it has, without port 0.
    pub(crate) ports: u8,
}

impl Port {
    /// Which of the fabric's P_Key tables it has.
    pub(crate) fn pkey_table(&self) -> u16 {
        self.pkeys
    }
}

/// Where the link of a port leads, as a walk needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    /// The port at the other end, or [`NO_LINK`].
    pub(crate) peer: u32,
    /// The rank of the switch at the other end, or [`NOT_A_SWITCH`].
    pub(crate) switch: u32,
    /// What the link carries; not known where there is none.
    pub(crate) carries: Capability,
    /// A link that is down stays where it is plugged in.
    pub(crate) up: bool,
}

pub(crate) const NO_LINK: u32 = u32::MAX;
pub(crate) const NOT_A_SWITCH: u32 = u32::MAX;

impl Hop {
    pub(crate) const UNPLUGGED: Self = Self {
        peer: NO_LINK,
        switch: NOT_A_SWITCH,
        carries: Capability {
            mtu: None,
            rate: None,
        },
        up: false,
    };

    pub(crate) const fn is_to_switch(self) -> bool {
        self.switch != NOT_A_SWITCH
    }
}

/// A fabric: nodes, ports, links, forwarding tables. Consistent at any time: [`Builder`] makes it
/// and [`Fabric::apply`] changes it, and both check before they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    epoch: u64,
    terms: PathTerms,
    nodes: Vec<Node>,
    switches: Vec<Switch>,
    ports: Vec<Port>,
    hops: Vec<Hop>,
    /// By LID: the index of the port, or `NO_LINK`.
    owners: Vec<u32>,
    guids: HashMap<Guid, PortId>,
    pkey_tables: Vec<Vec<PKey>>,
    forwarding: Forwarding,
    sl_to_vl: SlToVlTables,
    risks: Risks,
}

impl Fabric {
    /// Which state of the fabric this is; deltas lead from one to the next.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same fabric under another epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// What all paths have in common.
    pub fn terms(&self) -> PathTerms {
        self.terms
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let ids = (0u32..).map(NodeId);
        self.nodes.iter().zip(ids).map(|(node, id)| (id, node))
    }

    /// How many switches.
    pub fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// A node.
    ///
    /// # Panics
    /// If the node is of another fabric.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// A port.
    ///
    /// # Panics
    /// If the port is of another fabric.
    pub fn port(&self, port: PortId) -> &Port {
        &self.ports[port.index()]
    }

    /// The number of a port on its node.
    pub fn port_number(&self, port: PortId) -> u8 {
        (port.0 - self.node(self.port(port).node).first) as u8
    }

    /// The port of a node with that number, if it has one.
    pub fn port_of(&self, node: NodeId, number: u8) -> Option<PortId> {
        let node = self.nodes.get(node.index())?;
        (number <= node.ports).then(|| PortId(node.first + u32::from(number)))
    }

    /// The port that has this LID.
    pub fn port_by_lid(&self, lid: Lid) -> Option<PortId> {
        let owner = self.owner(lid);
        (owner != NO_LINK).then_some(PortId(owner))
    }

    /// The port that has this GUID.
    pub fn port_by_guid(&self, guid: Guid) -> Option<PortId> {
        self.guids.get(&guid).copied()
    }

    /// Nodes with this description.
    pub fn nodes_by_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = NodeId> + 'a {
        self.nodes()
            .filter(move |(_, node)| *node.name == *name)
            .map(|(id, _)| id)
    }

    /// All ports with LIDs of their own, by LID: those of adapters and port 0 of switches.
    pub fn end_ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.lids()
            .filter(|&(lid, port)| self.port(port).lids.is_some_and(|r| r.base() == lid))
            .map(|(_, port)| port)
    }

    /// All LIDs that are given out, ascending, with their ports.
    pub(crate) fn lids(&self) -> impl Iterator<Item = (Lid, PortId)> + '_ {
        (0u16..)
            .zip(&self.owners)
            .filter(|&(_, &owner)| owner != NO_LINK)
            .map(|(lid, &owner)| (Lid(lid), PortId(owner)))
    }

    /// The end ports of everything in the same box: the candidates for an alternate.
    pub fn ports_of_system(&self, system: Guid) -> Vec<PortId> {
        let adapters = self
            .nodes
            .iter()
            .filter(|node| node.system == system && node.kind == NodeKind::Adapter);
        adapters
            .flat_map(|node| (1..=u32::from(node.ports)).map(|number| PortId(node.first + number)))
            .filter(|&port| self.port(port).lids.is_some())
            .collect()
    }

    /// The end ports of the device that a port is at.
    pub fn ports_beside(&self, port: PortId) -> Vec<PortId> {
        let id = self.port(port).node;
        let node = self.node(id);
        let ports = (1..=node.ports).filter_map(|number| self.port_of(id, number));
        ports
            .filter(|&port| self.port(port).lids.is_some())
            .collect()
    }

    /// Whether any switch sends packets for any LID anywhere: a fabric may be known without its forwarding tables.
    pub fn has_routes(&self) -> bool {
        self.forwarding.rows().iter().any(|&port| port != NO_PORT)
    }

    /// The port at the other end of the link, whether it is up or not.
    pub fn peer(&self, port: PortId) -> Option<PortId> {
        let peer = self.hop(port).peer;
        (peer != NO_LINK).then_some(PortId(peer))
    }

    /// Whether there is a link and it is up.
    pub fn is_up(&self, port: PortId) -> bool {
        self.hop(port).up
    }

    /// What the link of this port carries.
    pub fn carries(&self, port: PortId) -> Capability {
        self.hop(port).carries
    }

    /// The port that a switch sends packets for `lid` out of; `None` if it drops them.
    pub fn route(&self, switch: NodeId, lid: Lid) -> Option<u8> {
        let rank = self.rank(switch)?;
        Some(self.forwarding.get(lid, rank)).filter(|&port| port != NO_PORT)
    }

    /// The partitions that a port is in; empty if not known.
    pub fn pkeys(&self, port: PortId) -> &[PKey] {
        &self.pkey_tables[usize::from(self.port(port).pkeys)]
    }

    /// Whether the two ports may talk, by their P_Key tables; a table not known speaks not against.
    pub fn share_partition(&self, a: PortId, b: PortId) -> bool {
        self.pkeys(a).is_empty()
            || self.pkeys(b).is_empty()
            || self.common_pkeys(a, b).next().is_some()
    }

    /// The P_Keys of the first port with which it may talk to the second: to a full member with any
    /// key of the partition, to a limited one as a full member (IBA 10.9.3). None if a table is not
    /// known.
    pub fn common_pkeys(&self, a: PortId, b: PortId) -> impl Iterator<Item = PKey> {
        let theirs = self.pkeys(b);
        let admits = |key: &PKey| theirs.iter().any(|other| key.matches(*other));
        self.pkeys(a).iter().copied().filter(admits)
    }

    /// Bytes of memory held, names and P_Key tables aside.
    pub fn table_bytes(&self) -> usize {
        self.forwarding.bytes()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.switches)
            + size_of_val(&*self.ports)
            + size_of_val(&*self.hops)
            + size_of_val(&*self.owners)
    }

    /// A port for people: the node's description and, where there is a choice, the port's number.
    pub fn name(&self, port: PortId) -> PortName<'_> {
        PortName { fabric: self, port }
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(crate) fn pkey_tables(&self) -> &[Vec<PKey>] {
        &self.pkey_tables
    }

    /// Every link once, by its lesser port and that one's peer.
    pub(crate) fn links(&self) -> impl Iterator<Item = (PortId, PortId)> + '_ {
        let ports = (0u32..).zip(&self.hops);
        ports
            .filter(|&(port, hop)| hop.peer != NO_LINK && port < hop.peer)
            .map(|(port, hop)| (PortId(port), PortId(hop.peer)))
    }

    #[inline]
    pub(crate) fn hop(&self, port: PortId) -> Hop {
        self.hops[port.index()]
    }

    pub(crate) fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// The index of the port that has this LID, or [`NO_LINK`].
    pub(crate) fn owner(&self, lid: Lid) -> u32 {
        let owner = self.owners.get(usize::from(lid.0));
        owner.copied().unwrap_or(NO_LINK)
    }

    /// The switch of this rank.
    #[inline]
    pub(crate) fn switch(&self, rank: u32) -> Switch {
        self.switches[rank as usize]
    }

    /// Its position among the switches, if it is one.
    pub(crate) fn rank(&self, node: NodeId) -> Option<u32> {
        let node = self.nodes.get(node.index())?;
        (node.kind == NodeKind::Switch).then_some(node.rank)
    }
}

/// See [`Fabric::name`].
#[derive(Clone, Copy, Debug)]
pub struct PortName<'a> {
    fabric: &'a Fabric,
    port: PortId,
}

impl fmt::Display for PortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.fabric.node(self.fabric.port(self.port).node);
        match self.fabric.port_number(self.port) {
            0 => node.name.fmt(f),
            number => write!(f, "{} port {number}", node.name),
        }
    }
}
