// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records that the SA of a given fabric answers with.

use cm_msgs::Lid;
use cm_msgs::sa::{
    LinearForwardingTableRecord, LinkRecord, NodeDescription, NodeRecord, PKeyTableRecord,
    PathRecord, PortInfo, PortInfoRecord, Record, SaMad, SaStatus, SlToVlMappingTableRecord,
    SwitchInfoRecord,
};
use pathdb::{Fabric, Mtu, NodeId, NodeKind, PortId, Rate};

use crate::fabric::tables::HAS_EXTENDED_SPEEDS;
use crate::sa::{Failure, Response};

/// The component masks of PortInfo:PortState, and of the LID.
pub(crate) const PORT_STATE: u64 = 1 << 15;
const LID: u64 = 1;

/// An SA that knows one fabric.
pub(crate) struct SaOf<'a> {
    pub(crate) fabric: &'a Fabric,
    /// The service levels of its paths, each in its turn.
    pub(crate) levels: Vec<u8>,
    /// The packet life times of its ports, likewise.
    pub(crate) life_times: Vec<u8>,
    /// Ports that the subnet manager has not routed to yet.
    pub(crate) unrouted: Vec<PortId>,
}

impl<'a> SaOf<'a> {
    pub(crate) fn new(fabric: &'a Fabric) -> Self {
        Self {
            fabric,
            levels: vec![0, 1],
            life_times: vec![18, 19],
            unrouted: Vec::new(),
        }
    }

    /// The answer to a SubnAdmGetTable.
    pub(crate) fn answer(&self, mad: &SaMad) -> Result<Response, Failure> {
        let attribute = mad.header.attribute_id;
        Ok(match attribute {
            NodeRecord::ATTRIBUTE => response(self.nodes()),
            SwitchInfoRecord::ATTRIBUTE => response(self.switches()),
            LinkRecord::ATTRIBUTE => response(self.links()),
            PortInfoRecord::ATTRIBUTE => {
                let asked = PortInfoRecord::from_record(&mad.data).unwrap();
                let records = match mad.sa.component_mask == PORT_STATE {
                    true => self.ports_in(asked.port_info.port_state),
                    false => self.ports(asked.port_num),
                };
                if records.is_empty() {
                    return Err(Failure::Status(SaStatus::NoRecords));
                }
                response(records)
            }
            PathRecord::ATTRIBUTE => response(self.paths()),
            PKeyTableRecord::ATTRIBUTE => {
                let asked = PKeyTableRecord::from_record(&mad.data).unwrap();
                response(self.pkeys(asked.port_num))
            }
            SlToVlMappingTableRecord::ATTRIBUTE => {
                let asked = SlToVlMappingTableRecord::from_record(&mad.data).unwrap();
                let of_one = mad.sa.component_mask == LID;
                response(self.sl_to_vl(of_one.then_some(asked.lid)))
            }
            LinearForwardingTableRecord::ATTRIBUTE => {
                let asked = LinearForwardingTableRecord::from_record(&mad.data).unwrap();
                response(self.forwarding(asked.lid))
            }
            other => panic!("attribute {other:#06x} is not asked for"),
        })
    }

    /// The LID that a port goes by in records.
    fn lid(&self, port: PortId) -> Lid {
        let node = self.fabric.port(port).node;
        let port = match self.fabric.node(node).kind {
            NodeKind::Switch => self.fabric.port_of(node, 0).unwrap(),
            NodeKind::Adapter => port,
        };
        let lids = self.fabric.port(port).lids;
        lids.map_or(Lid(0), |range| range.base())
    }

    fn nodes(&self) -> Vec<NodeRecord> {
        let ports = self.fabric.end_ports();
        ports
            .map(|port| {
                let node = self.fabric.node(self.fabric.port(port).node);
                let mut name = [0; 64];
                name[..node.name.len()].copy_from_slice(node.name.as_bytes());
                NodeRecord {
                    lid: self.lid(port),
                    node_type: match node.kind {
                        NodeKind::Adapter => 1,
                        NodeKind::Switch => 2,
                    },
                    num_ports: node.ports,
                    system_image_guid: node.system,
                    node_guid: node.guid,
                    port_guid: self.fabric.port(port).guid.unwrap(),
                    local_port_num: self.fabric.port_number(port),
                    node_description: NodeDescription(name),
                    ..NodeRecord::default()
                }
            })
            .collect()
    }

    fn switch_nodes(&self) -> impl Iterator<Item = NodeId> {
        let nodes = self.fabric.nodes();
        nodes.filter_map(|(id, node)| (node.kind == NodeKind::Switch).then_some(id))
    }

    /// The highest LID.
    fn top(&self) -> Lid {
        let ranges = self
            .fabric
            .end_ports()
            .filter_map(|port| self.fabric.port(port).lids);
        ranges.flat_map(|range| range.iter()).max().unwrap()
    }

    fn switches(&self) -> Vec<SwitchInfoRecord> {
        let of = |node| SwitchInfoRecord {
            lid: self.lid(self.fabric.port_of(node, 0).unwrap()),
            linear_fdb_top: self.top(),
            ..SwitchInfoRecord::default()
        };
        self.switch_nodes().map(of).collect()
    }

    fn all_ports(&self) -> impl Iterator<Item = PortId> {
        self.fabric.nodes().flat_map(move |(id, node)| {
            let zero = u8::from(node.kind == NodeKind::Adapter);
            (zero..=node.ports).filter_map(move |number| self.fabric.port_of(id, number))
        })
    }

    fn links(&self) -> Vec<LinkRecord> {
        let of = |port: PortId| {
            let peer = self.fabric.peer(port)?;
            Some(LinkRecord {
                from_lid: self.lid(port),
                from_port: self.fabric.port_number(port),
                to_port: self.fabric.port_number(peer),
                to_lid: self.lid(peer),
            })
        };
        self.all_ports().filter_map(of).collect()
    }

    fn ports_in(&self, state: u8) -> Vec<PortInfoRecord> {
        let ports = self.all_ports().map(|port| self.port(port, 18));
        ports
            .filter(|record| record.port_info.port_state == state)
            .collect()
    }

    fn ports(&self, number: u8) -> Vec<PortInfoRecord> {
        let ports = self.all_ports();
        let ports = ports.filter(|port| self.fabric.port_number(*port) == number);
        let records = ports.zip(self.life_times.iter().cycle());
        records.map(|(port, life)| self.port(port, *life)).collect()
    }

    fn port(&self, port: PortId, subnet_timeout: u8) -> PortInfoRecord {
        let carries = self.fabric.carries(port);
        let (link_width_active, link_speed_active, link_speed_ext_active) = match carries.rate {
            None => (2, 4, 0),
            Some(Rate::G40) => (2, 4, 0),
            Some(Rate::G100) => (2, 0, 2),
            Some(Rate::G400) => (2, 0, 8),
            Some(other) => panic!("no width and speed for {other}"),
        };
        PortInfoRecord {
            lid: self.lid(port),
            port_num: self.fabric.port_number(port),
            options: 0,
            port_info: PortInfo {
                lmc: self.fabric.port(port).lids.map_or(0, |range| range.lmc()),
                port_state: match self.fabric.is_up(port) {
                    _ if self.unrouted.contains(&port) => 2,
                    true => 4,
                    false => 1,
                },
                mtu_cap: carries.mtu.map_or(5, Mtu::code),
                capability_mask: HAS_EXTENDED_SPEEDS,
                link_width_active,
                link_speed_active,
                link_speed_ext_active,
                subnet_timeout,
                ..PortInfo::default()
            },
        }
    }

    fn paths(&self) -> Vec<PathRecord> {
        let levels = self.levels.iter().cycle();
        let records = self
            .fabric
            .end_ports()
            .zip(levels)
            .map(|(port, &sl)| PathRecord {
                dlid: self.lid(port),
                sl,
                ..PathRecord::default()
            });
        records.collect()
    }

    fn pkeys(&self, number: u8) -> Vec<PKeyTableRecord> {
        let ports = self.fabric.end_ports();
        let ports = ports.filter(|port| self.fabric.port_number(*port) == number);
        let of = |port: PortId| {
            let mut table = [0; 64];
            for (bytes, key) in table.chunks_exact_mut(2).zip(self.fabric.pkeys(port)) {
                bytes.copy_from_slice(&key.0.to_be_bytes());
            }
            PKeyTableRecord {
                lid: self.lid(port),
                block: 0,
                port_num: number,
                table,
            }
        };
        ports.map(of).collect()
    }

    /// All of one switch, or those of packets that come from the nodes themselves. As OpenSM does it:
    /// none of ports that are no end ports of an adapter, zeros where it has set none, and no port
    /// numbers for adapters.
    fn sl_to_vl(&self, of: Option<Lid>) -> Vec<SlToVlMappingTableRecord> {
        let mut records = Vec::new();
        for port in self.fabric.end_ports() {
            let (node, lid) = (self.fabric.port(port).node, self.lid(port));
            let mut add = |ports: (u8, u8), (from, to)| {
                let known = self.fabric.sl_to_vl(node, from, to);
                records.push(SlToVlMappingTableRecord {
                    lid,
                    input_port: ports.0,
                    output_port: ports.1,
                    vls: known.map_or([0; 8], |table| table.0),
                });
            };
            match (self.fabric.node(node), of) {
                (_, Some(of)) if of != lid => {}
                (adapter, _) if adapter.kind == NodeKind::Adapter => {
                    add((0, 0), (0, self.fabric.port_number(port)));
                }
                (switch, of) => {
                    let inputs = if of.is_some() {
                        0..=switch.ports
                    } else {
                        0..=0
                    };
                    for (from, to) in inputs.flat_map(|i| (0..=switch.ports).map(move |o| (i, o))) {
                        add((from, to), (from, to));
                    }
                }
            }
        }
        records
    }

    fn forwarding(&self, lid: Lid) -> Vec<LinearForwardingTableRecord> {
        let port = self.fabric.port_by_lid(lid);
        let node = self.fabric.port(port.unwrap()).node;
        let blocks = 0..=self.top().0 / 64;
        let of = |block: u16| {
            let port = |entry: usize| {
                let lid = Lid(block * 64 + entry as u16);
                self.fabric.route(node, lid).unwrap_or(255)
            };
            LinearForwardingTableRecord {
                lid,
                block,
                ports: std::array::from_fn(port),
            }
        };
        blocks.map(of).collect()
    }
}

/// Records at distances of a multiple of eight bytes.
fn response<R: Record>(records: impl IntoIterator<Item = R>) -> Response {
    let record_len = R::RECORD_LEN.next_multiple_of(8);
    let records = records.into_iter().map(|record| record.to_data());
    Response {
        attribute: R::ATTRIBUTE,
        record_len,
        data: records
            .flat_map(|data| data.into_iter().take(record_len))
            .collect(),
    }
}
