// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SA's tables, put together: each record is taken in, and what contradicts another is refused.

use std::collections::{BTreeMap, HashMap};

use cm_msgs::sa::{
    LinearForwardingTableRecord, LinkRecord, NodeRecord, NodeType, PKeyTableRecord, PathRecord,
    PortInfo, PortInfoRecord, SlToVlMappingTableRecord, SwitchInfoRecord,
};
use cm_msgs::{Guid, Lid, PKey};
use pathdb::{
    BuildError, Builder, Capability, Fabric, LidRange, Mtu, NodeId, NodeKind, NodeName, NodeSpec,
    PathTerms, PortSpec, Rate, Routing, Speed, Width,
};

/// PortInfo:CapabilityMask, the extended speeds count (IBA 14.2.5.6, bit 14).
pub(super) const HAS_EXTENDED_SPEEDS: u32 = 1 << 14;

/// The LID of a port that the subnet manager has not yet seen to: no path leads there.
const UNCONFIGURED: u16 = 0;

/// LIDs of one record of a forwarding table.
const BLOCK: u16 = 64;

/// How tables contradict each other: the fabric changed while they were read, or the SA errs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// A LID that no node has.
    #[error("lid {lid} of a {record} is no node's")]
    UnknownLid {
        /// Where it is named.
        record: &'static str,
        /// The LID.
        lid: u16,
    },
    /// A node described in two ways.
    #[error("node guid {0} is described twice, and differently")]
    NodeDiffers(Guid),
    /// A LID with two owners.
    #[error("lid {lid} belongs to node guids {first} and {second}")]
    TwoOwners {
        /// The LID.
        lid: u16,
        /// Who had it first.
        first: Guid,
        /// Who wants it as well.
        second: Guid,
    },
    /// A base LID that does not fit the port's number of LIDs.
    #[error("node guid {node} port {port} cannot have lid {lid} with lmc {lmc}")]
    Lids {
        /// The node.
        node: Guid,
        /// The port.
        port: u8,
        /// Its base LID.
        lid: u16,
        /// Its LID mask control.
        lmc: u8,
    },
    /// A port without PortInfo.
    #[error("no port info of node guid {node} port {port}")]
    NoPortInfo {
        /// The node.
        node: Guid,
        /// The port.
        port: u8,
    },
    /// A link that only one of its ends knows.
    #[error("only one end knows of the link of node guid {node} port {port}")]
    OneWay {
        /// The node of the end that is known.
        node: Guid,
        /// Its port.
        port: u8,
    },
    /// A switch without SwitchInfo.
    #[error("no switch info of node guid {0}")]
    NoSwitchInfo(Guid),
    /// A switch whose table lacks blocks.
    #[error("the forwarding table of node guid {node} has {found} of {want} blocks")]
    CutShort {
        /// The switch.
        node: Guid,
        /// Blocks found.
        found: u16,
        /// Blocks awaited.
        want: u16,
    },
    /// The links were others at the end of the reading than at its beginning.
    #[error("links changed while the forwarding tables were read")]
    LinksMoved,
    /// What nodes and ports cannot be.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A port of a node.
type End = (Guid, u8);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    kind: NodeKind,
    system: Guid,
    name: NodeName,
    ports: u8,
    /// The GUIDs of those that have one.
    guids: BTreeMap<u8, Guid>,
}

/// An extended speed in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extended {
    Known(Speed),
    /// A newer one: what the legacy field says beside it is not the speed.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    lmc: u8,
    active: bool,
    mtu: Option<Mtu>,
    width: Option<Width>,
    speed: Option<Speed>,
    /// `None`: none is in use.
    extended_speed: Option<Extended>,
    extended: bool,
    life_time: u8,
}

#[derive(Clone, Copy, Debug)]
struct Switch {
    top: u16,
    enhanced: bool,
}

/// All tables but the forwarding tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    nodes: BTreeMap<Guid, Node>,
    by_lid: HashMap<u16, End>,
    lids: HashMap<End, u16>,
    switches: HashMap<Guid, Switch>,
    ports: HashMap<End, Port>,
    links: HashMap<End, End>,
    pkeys: HashMap<End, BTreeMap<u16, Vec<PKey>>>,
    levels: Levels,
}

/// The service levels of all paths looked at.
#[derive(Clone, Copy, Debug, Default)]
enum Levels {
    #[default]
    None,
    Same(u8),
    Various,
}

impl Tables {
    /// A node, as one of its ports is asked.
    pub(super) fn node(&mut self, record: &NodeRecord) -> Result<(), Contradiction> {
        let guid = record.node_guid;
        let kind = match record.kind() {
            NodeType::Switch => NodeKind::Switch,
            _ => NodeKind::Adapter,
        };
        let number = match kind {
            NodeKind::Switch => 0,
            NodeKind::Adapter => record.local_port_num,
        };
        let new = Node {
            kind,
            system: record.system_image_guid,
            name: record.node_description.to_string().into(),
            ports: record.num_ports,
            guids: BTreeMap::new(),
        };
        let node = self.nodes.entry(guid).or_insert_with(|| new.clone());
        let as_known = Node {
            guids: node.guids.clone(),
            ..new
        };
        if *node != as_known {
            return Err(Contradiction::NodeDiffers(guid));
        }
        node.guids.insert(number, record.port_guid);
        if record.lid.0 != UNCONFIGURED {
            let end = (guid, number);
            if let Some(first) = self.by_lid.insert(record.lid.0, end)
                && first != end
            {
                return Err(Contradiction::TwoOwners {
                    lid: record.lid.0,
                    first: first.0,
                    second: guid,
                });
            }
            self.lids.insert(end, record.lid.0);
        }
        Ok(())
    }

    /// The highest number of a port.
    pub(super) fn last_port(&self) -> u8 {
        let ports = self.nodes.values().map(|node| node.ports);
        ports.max().unwrap_or(0)
    }

    /// Whether ports with this number can be end ports.
    pub(super) fn has_end_port(&self, number: u8) -> bool {
        let mut nodes = self.nodes.values();
        nodes.any(|node| node.guids.contains_key(&number))
    }

    pub(super) fn switch(&mut self, record: &SwitchInfoRecord) -> Result<(), Contradiction> {
        let (node, _) = self.end(record.lid.0, 0, "switch info record")?;
        let switch = Switch {
            top: record.linear_fdb_top.0,
            enhanced: record.enhanced_port0,
        };
        self.switches.insert(node, switch);
        Ok(())
    }

    pub(super) fn port(&mut self, record: &PortInfoRecord) -> Result<(), Contradiction> {
        if record.lid.0 == UNCONFIGURED {
            return Ok(());
        }
        let end = self.end(record.lid.0, record.port_num, "port info record")?;
        let info = &record.port_info;
        let port = Port {
            lmc: info.lmc,
            active: info.port_state == ACTIVE,
            mtu: Mtu::from_code(info.mtu_cap),
            width: Width::from_code(info.link_width_active),
            speed: Speed::from_code(info.link_speed_active),
            extended_speed: extended_speed(info),
            extended: info.capability_mask & HAS_EXTENDED_SPEEDS != 0,
            life_time: info.subnet_timeout,
        };
        self.ports.insert(end, port);
        Ok(())
    }

    pub(super) fn link(&mut self, record: &LinkRecord) -> Result<(), Contradiction> {
        if [record.from_lid.0, record.to_lid.0].contains(&UNCONFIGURED) {
            return Ok(());
        }
        let from = self.end(record.from_lid.0, record.from_port, "link record")?;
        let to = self.end(record.to_lid.0, record.to_port, "link record")?;
        self.links.insert(from, to);
        Ok(())
    }

    pub(super) fn pkeys(&mut self, record: &PKeyTableRecord) -> Result<(), Contradiction> {
        let end = self.end(record.lid.0, record.port_num, "p_key table record")?;
        let keys = record.pkeys().collect();
        self.pkeys
            .entry(end)
            .or_default()
            .insert(record.block, keys);
        Ok(())
    }

    /// A path, whose service level may be that of all.
    pub(super) fn path(&mut self, record: &PathRecord) {
        self.levels = match self.levels {
            Levels::None => Levels::Same(record.sl),
            Levels::Same(level) if level == record.sl => Levels::Same(level),
            _ => Levels::Various,
        };
    }

    /// The node and port that a LID and a port number mean.
    fn end(&self, lid: u16, port: u8, record: &'static str) -> Result<End, Contradiction> {
        let &(node, number) = self
            .by_lid
            .get(&lid)
            .ok_or(Contradiction::UnknownLid { record, lid })?;
        Ok(match self.nodes[&node].kind {
            NodeKind::Switch => (node, port),
            NodeKind::Adapter => (node, number),
        })
    }

    /// The node of an SL-to-VL table, and the ports that packets come in and go out by; `None` if the
    /// node is not yet seen to.
    pub(super) fn lanes_of(
        &self,
        record: &SlToVlMappingTableRecord,
    ) -> Result<Option<(Guid, u8, u8)>, Contradiction> {
        if record.lid.0 == UNCONFIGURED {
            return Ok(None);
        }
        let (node, out) = self.end(record.lid.0, record.output_port, "sl-to-vl table record")?;
        let from = match self.nodes[&node].kind {
            NodeKind::Switch => record.input_port,
            NodeKind::Adapter => 0,
        };
        Ok(Some((node, from, out)))
    }

    /// Nodes, ports and cables, ready for what is read switch by switch.
    pub(super) fn wire(&self) -> Result<Cables, Contradiction> {
        let mut builder = Builder::new();
        builder.terms(self.terms());
        let mut ids = HashMap::new();
        // By kind and GUID, so that a fabric read again has the same numbers for the same things.
        let switches = self.nodes_of(NodeKind::Switch);
        for (guid, node) in switches.chain(self.nodes_of(NodeKind::Adapter)) {
            let spec = NodeSpec {
                kind: node.kind,
                guid,
                system: node.system,
                name: node.name.clone(),
                ports: node.ports,
            };
            let id = builder.node(spec)?;
            ids.insert(guid, id);
            for &number in node.guids.keys() {
                builder.port(id, number, &self.port_spec((guid, number))?)?;
            }
        }
        for (&from, &to) in &self.links {
            if self.links.get(&to) != Some(&from) {
                let (node, port) = from;
                return Err(Contradiction::OneWay { node, port });
            }
            let (carries, up) = self.cable(from, to)?;
            let end = |(guid, number)| (ids[&guid], number);
            builder.link(end(from), end(to), carries, up)?;
        }
        let switches = self.switch_tables(&ids)?;
        Ok(Cables {
            builder,
            ids,
            switches,
        })
    }

    fn nodes_of(&self, kind: NodeKind) -> impl Iterator<Item = (Guid, &Node)> {
        let nodes = self.nodes.iter().map(|(&guid, node)| (guid, node));
        nodes.filter(move |(_, node)| node.kind == kind)
    }

    fn terms(&self) -> PathTerms {
        let is_adapter = |end: &End| self.nodes[&end.0].kind == NodeKind::Adapter;
        let ends = self.lids.keys().filter(|end| is_adapter(end));
        let ports = ends.filter_map(|end| self.ports.get(end));
        let mut times = ports.map(|port| port.life_time);
        let first = times.next();
        PathTerms {
            service_level: match self.levels {
                Levels::Same(level) => Some(level),
                Levels::None | Levels::Various => None,
            },
            // OpenSM gives every adapter's port the time that it answers for paths.
            packet_life_time: times
                .all(|time| Some(time) == first)
                .then_some(first)
                .flatten(),
        }
    }

    fn port_info(&self, (node, port): End) -> Result<&Port, Contradiction> {
        let info = self.ports.get(&(node, port));
        info.ok_or(Contradiction::NoPortInfo { node, port })
    }

    fn port_spec(&self, end: End) -> Result<PortSpec, Contradiction> {
        let (guid, port) = end;
        let node = &self.nodes[&guid];
        let lids = match self.lids.get(&end) {
            None => None,
            Some(&lid) => {
                let lmc = match node.kind {
                    NodeKind::Switch if !self.switch_info(guid)?.enhanced => 0,
                    _ => self.port_info(end)?.lmc,
                };
                let range = LidRange::new(Lid(lid), lmc);
                Some(range.ok_or(Contradiction::Lids {
                    node: guid,
                    port,
                    lid,
                    lmc,
                })?)
            }
        };
        let blocks = self.pkeys.get(&end).into_iter();
        Ok(PortSpec {
            guid: node.guids.get(&port).copied(),
            lids,
            pkeys: blocks
                .flat_map(BTreeMap::values)
                .flatten()
                .copied()
                .collect(),
        })
    }

    fn switch_info(&self, guid: Guid) -> Result<Switch, Contradiction> {
        let switch = self.switches.get(&guid).copied();
        switch.ok_or(Contradiction::NoSwitchInfo(guid))
    }

    /// What a cable carries, as OpenSM reckons it: the lesser of its ends, by MTU capability and by
    /// active rate; and whether it is up.
    fn cable(&self, a: End, b: End) -> Result<(Capability, bool), Contradiction> {
        let mut carries: Option<Capability> = None;
        let mut up = true;
        for end in [a, b] {
            let port = self.port_info(end)?;
            let own = Capability {
                mtu: port.mtu,
                rate: self.rate(end, port),
            };
            carries = Some(carries.map_or(own, |other| other.min(own)));
            up &= port.active;
        }
        Ok((carries.unwrap_or_default(), up))
    }

    /// A switch says of its port 0 only whether extended speeds count.
    fn rate(&self, (guid, _): End, port: &Port) -> Option<Rate> {
        let extended = match self.nodes[&guid].kind {
            NodeKind::Adapter => port.extended,
            NodeKind::Switch => self.ports.get(&(guid, 0)).is_some_and(|zero| zero.extended),
        };
        let speed = match port.extended_speed.filter(|_| extended) {
            Some(Extended::Known(speed)) => speed,
            Some(Extended::Unknown) => return None,
            None => port.speed?,
        };
        Some(Rate::of(port.width?, speed))
    }

    fn switch_tables(
        &self,
        ids: &HashMap<Guid, NodeId>,
    ) -> Result<Vec<SwitchTable>, Contradiction> {
        let lid = |guid| self.lids.get(&(guid, 0)).copied();
        self.nodes_of(NodeKind::Switch)
            .filter_map(|(guid, _)| Some((guid, lid(guid)?)))
            .map(|(guid, lid)| {
                Ok(SwitchTable {
                    guid,
                    node: ids[&guid],
                    lid,
                    top: self.switch_info(guid)?.top.min(Lid::MAX_UNICAST.0),
                })
            })
            .collect()
    }
}

/// A switch whose tables are to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchTable {
    guid: Guid,
    node: NodeId,
    /// The LID of its port 0.
    pub(super) lid: u16,
    /// It drops what goes to higher LIDs.
    top: u16,
}

/// Nodes, ports and cables, put together.
#[derive(Debug)]
pub(super) struct Cables {
    pub(super) builder: Builder,
    pub(super) ids: HashMap<Guid, NodeId>,
    pub(super) switches: Vec<SwitchTable>,
}

/// A fabric without forwarding tables, or with some of them.
#[derive(Debug)]
pub(super) struct Wired {
    routing: Routing,
    /// Whose tables are needed.
    pub(super) switches: Vec<SwitchTable>,
}

impl Wired {
    pub(super) fn new(routing: Routing, switches: Vec<SwitchTable>) -> Self {
        Self { routing, switches }
    }

    /// Takes in the whole table of one of the switches.
    pub(super) fn table(
        &mut self,
        switch: SwitchTable,
        records: impl Iterator<Item = LinearForwardingTableRecord>,
    ) -> Result<(), Contradiction> {
        let want = switch.top / BLOCK + 1;
        let mut seen = vec![false; usize::from(want)];
        for record in records.filter(|record| record.lid.0 == switch.lid) {
            let Some(seen) = seen.get_mut(usize::from(record.block)) else {
                continue;
            };
            *seen = true;
            let first = record.block * BLOCK;
            for (lid, port) in (first..=switch.top).zip(record.ports) {
                if lid != 0 && port != NO_PORT {
                    self.routing.route(switch.node, Lid(lid), port)?;
                }
            }
        }
        let found = seen.iter().filter(|seen| **seen).count() as u16;
        if found < want {
            return Err(Contradiction::CutShort {
                node: switch.guid,
                found,
                want,
            });
        }
        Ok(())
    }

    /// The fabric.
    pub(super) fn finish(self) -> Fabric {
        self.routing.finish()
    }
}

/// PortInfo:PortState of a port that carries data.
const ACTIVE: u8 = 4;

/// The entry of a LID that a switch drops.
const NO_PORT: u8 = 0xff;

fn extended_speed(info: &PortInfo) -> Option<Extended> {
    match (info.link_speed_ext_active2, info.link_speed_ext_active) {
        (0, 0) => None,
        (xdr, extended) => Some(match Speed::from_extended_code(xdr, extended) {
            Some(speed) => Extended::Known(speed),
            None => Extended::Unknown,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_speed_that_is_not_known_is_none_of_those_that_are() {
        let of = |link_speed_ext_active, link_speed_ext_active2| {
            extended_speed(&PortInfo {
                link_speed_active: 4,
                link_speed_ext_active,
                link_speed_ext_active2,
                ..PortInfo::default()
            })
        };
        assert_eq!(of(0, 0), None);
        assert_eq!(of(8, 0), Some(Extended::Known(Speed::Ndr)));
        assert_eq!(of(0, 1), Some(Extended::Known(Speed::Xdr)));
        for (first, second) in [(3, 0), (15, 0), (0, 2), (8, 3)] {
            assert_eq!(of(first, second), Some(Extended::Unknown));
        }
    }
}
