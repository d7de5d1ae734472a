// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the simulated ports and switches say themselves, asked by SMPs that OpenSM sees nothing of.
//! They go by directed routes along the cables, since not every switch need be reachable by its LID.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use cm_msgs::Lid;
use cm_msgs::mad::{self, Header};
use cm_msgs::smp::{PortInfo, Routing, Smp};
use pathdb::{
    Capability, Change, Delta, Fabric, Mtu, NodeId, NodeKind, PortId, Rate, Speed, Width,
};

use super::tally::Tally;
use crate::failure::Failure;
use crate::ibsim::{Client, Reply, Request, Target};

/// SMPs under way at a time.
const WINDOW: usize = 64;

/// LinearForwardingTable; the attribute modifier counts blocks of 64 LIDs.
const ATTR_LINEAR_FORWARDING_TABLE: u16 = 0x0019;
const BLOCK: u16 = 64;

/// Where the first port of a directed route stands. Byte 128 belongs to hop 0, which is none.
const PATH_AT: usize = 129;

/// What the ports 0 of the switches can do. They are not links, and OpenSM's files leave them out;
/// its SA counts them in where a path begins or ends at a switch.
pub type Ports0 = HashMap<PortId, Capability>;

/// Asks all ports that have a link, compares the rate of both ends with the fabric's, and adds the
/// MTU, which OpenSM's files leave out, to the fabric. `from` is the node that the client is at.
///
/// # Errors
/// As [`Client::exchange`].
pub fn ask_ports(
    client: &mut Client,
    fabric: &mut Fabric,
    from: &str,
    tally: &mut Tally,
) -> Result<Ports0, Failure> {
    let routes = Routes::new(fabric, from);
    let mut asked = Vec::new();
    for (id, route) in &routes.0 {
        let node = fabric.node(*id);
        let numbers = match node.kind {
            NodeKind::Switch => 0..=node.ports,
            NodeKind::Adapter => 1..=node.ports,
        };
        let ports = numbers.filter_map(|number| Some((number, fabric.port_of(*id, number)?)));
        let usable = ports.filter(|&(number, port)| number == 0 || fabric.is_up(port));
        asked.extend(usable.map(|(number, port)| (port, number, route)));
    }
    let questions = asked.iter().map(|&(_, number, route)| {
        request(&Smp::get_port_info(Routing::Directed, 0, number), route)
    });
    let mut told = HashMap::new();
    let name = |position: usize| fabric.name(asked[position].0).to_string();
    client.exchange(WINDOW, questions, |position, reply| {
        let smp = answer(reply, || name(position))?;
        let info = smp
            .port_info()
            .map_err(|error| refused(&name(position), &error.to_string()))?;
        told.insert(asked[position].0, capability(&info));
        Ok(())
    })?;
    let mut changes = Vec::new();
    for (&port, &here) in &told {
        let Some((peer, there)) = fabric.peer(port).and_then(|p| Some((p, *told.get(&p)?))) else {
            continue;
        };
        if port > peer || !fabric.is_up(port) {
            continue;
        }
        let carries = here.min(there);
        match fabric.carries(port).rate == carries.rate {
            true => tally.links += 1,
            false => tally.differ(|| {
                let (ours, name) = (fabric.carries(port).rate, fabric.name(port));
                format!(
                    "{name}: rate: its ports say {:?}, pathdb {ours:?}",
                    carries.rate
                )
            }),
        }
        changes.push(Change::Link {
            end: (fabric.port(port).node, fabric.port_number(port)),
            up: true,
            carries,
        });
    }
    told.retain(|&port, _| fabric.port_number(port) == 0);
    let (from, to) = (fabric.epoch(), fabric.epoch() + 1);
    let delta = Delta { from, to, changes };
    fabric
        .apply(&delta)
        .map_err(|error| refused("the fabric", &error.to_string()))?;
    Ok(told)
}

/// Directed routes from one node to all others: the ports to leave by, along the fewest cables.
struct Routes(HashMap<NodeId, Vec<u8>>);

impl Routes {
    fn new(fabric: &Fabric, from: &str) -> Self {
        let mut routes = HashMap::new();
        let mut front: VecDeque<NodeId> = fabric.nodes_by_name(from).take(1).collect();
        routes.extend(front.iter().map(|&start| (start, Vec::new())));
        while let Some(here) = front.pop_front() {
            let node = fabric.node(here);
            let route = routes.get(&here).cloned().unwrap_or_default();
            // Adapters pass nothing on.
            if node.kind == NodeKind::Adapter && !route.is_empty() {
                continue;
            }
            for number in 1..=node.ports {
                let port = fabric
                    .port_of(here, number)
                    .filter(|&port| fabric.is_up(port));
                let Some(peer) = port.and_then(|port| fabric.peer(port)) else {
                    continue;
                };
                let there = fabric.port(peer).node;
                if let Entry::Vacant(entry) = routes.entry(there) {
                    entry.insert([&route[..], &[number]].concat());
                    front.push_back(there);
                }
            }
        }
        Self(routes)
    }
}

/// Width and speed as PortInfo codes them; IBA 14.2.5.6.
fn capability(info: &PortInfo) -> Capability {
    let width = match info.link_width_active {
        1 => Some(Width::X1),
        2 => Some(Width::X4),
        4 => Some(Width::X8),
        8 => Some(Width::X12),
        16 => Some(Width::X2),
        _ => None,
    };
    let speed = match (info.link_speed_ext_active, info.link_speed_active) {
        (0, 1) => Some(Speed::Sdr),
        (0, 2) => Some(Speed::Ddr),
        (0, 4) => Some(Speed::Qdr),
        (1, _) => Some(Speed::Fdr),
        (2, _) => Some(Speed::Edr),
        (4, _) => Some(Speed::Hdr),
        (8, _) => Some(Speed::Ndr),
        _ => None,
    };
    Capability {
        mtu: Mtu::from_code(info.mtu_cap),
        rate: width
            .zip(speed)
            .map(|(width, speed)| Rate::of(width, speed)),
    }
}

/// Asks all switches for their tables and compares every entry up to the LID `top`.
///
/// # Errors
/// As [`Client::exchange`].
pub fn ask_tables(
    client: &mut Client,
    fabric: &Fabric,
    from: &str,
    top: u16,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let routes = Routes::new(fabric, from);
    let of_switches = routes.0.iter();
    let of_switches = of_switches.filter(|(id, _)| fabric.node(**id).kind == NodeKind::Switch);
    let blocks =
        of_switches.flat_map(|(id, route)| (0..=top / BLOCK).map(move |block| (*id, route, block)));
    let asked: Vec<(NodeId, &Vec<u8>, u16)> = blocks.collect();
    let questions = asked.iter().map(|&(_, route, block)| {
        let header = Header {
            base_version: mad::BASE_VERSION,
            mgmt_class: mad::CLASS_SM_DIRECTED_ROUTE,
            class_version: cm_msgs::smp::CLASS_VERSION,
            method: mad::METHOD_GET,
            attribute_id: ATTR_LINEAR_FORWARDING_TABLE,
            attribute_modifier: block.into(),
            ..Header::default()
        };
        let smp = Smp {
            header,
            ..Smp::default()
        };
        request(&smp, route)
    });
    client.exchange(WINDOW, questions, |position, reply| {
        let (switch, _, block) = asked[position];
        let smp = answer(reply, || fabric.node(switch).name.to_string())?;
        let lids = (block * BLOCK..=top).map(Lid).zip(smp.data.0);
        // LID 0 is nobody's, whatever its entry says.
        for (lid, entry) in lids.filter(|(lid, _)| lid.0 != 0) {
            let own = Some(entry).filter(|&port| port != 0xff);
            match fabric.route(switch, lid) == own {
                true => tally.entries += 1,
                false => tally.differ(|| {
                    let (name, ours) = (&fabric.node(switch).name, fabric.route(switch, lid));
                    format!("{name}: lid {lid}: its own table says {own:?}, pathdb {ours:?}")
                }),
            }
        }
        Ok(())
    })
}

/// Puts a directed route into an SMP (IBA 14.2.1.2): the number of hops, and from byte 129 on the
/// ports.
fn request(smp: &Smp, route: &[u8]) -> Request {
    let mut smp = smp.clone();
    smp.header.class_specific = route.len() as u16;
    let mut mad = smp.encode();
    mad[PATH_AT..PATH_AT + route.len()].copy_from_slice(route);
    Request {
        dlid: Lid::PERMISSIVE.0,
        target: Target::Sma,
        mad,
    }
}

fn answer(reply: Reply, name: impl Fn() -> String) -> Result<Smp, Failure> {
    let mad = reply.map_err(|error| refused(&name(), &error.to_string()))?;
    Smp::decode(&mad).map_err(|error| refused(&name(), &error.to_string()))
}

fn refused(name: &str, problem: &str) -> Failure {
    Failure::Output {
        source_name: name.to_owned(),
        problem: problem.to_owned(),
    }
}
