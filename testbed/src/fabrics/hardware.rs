// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the simulated ports and switches say themselves, asked by SMPs that OpenSM sees nothing of.

use std::collections::HashMap;

use cm_msgs::mad::{self, Header};
use cm_msgs::smp::{PortInfo, Routing, Smp};
use pathdb::{
    Capability, Change, Delta, Fabric, Lid, Mtu, NodeId, NodeKind, PortId, Rate, Speed, Width,
};

use super::tally::Tally;
use crate::failure::Failure;
use crate::ibsim::{Client, Reply, Request, Target};

/// SMPs under way at a time.
const WINDOW: usize = 64;

/// LinearForwardingTable; the attribute modifier counts blocks of 64 LIDs.
const ATTR_LINEAR_FORWARDING_TABLE: u16 = 0x0019;
const BLOCK: u16 = 64;

/// What the ports 0 of the switches can do. They are not links, and OpenSM's files leave them out;
/// its SA counts them in where a path begins or ends at a switch.
pub type Ports0 = HashMap<PortId, Capability>;

/// Asks all ports that have a link, compares the rate of both ends with the fabric's, and adds the
/// MTU, which OpenSM's files leave out, to the fabric.
///
/// # Errors
/// As [`Client::exchange`].
pub fn ask_ports(
    client: &mut Client,
    fabric: &mut Fabric,
    tally: &mut Tally,
) -> Result<Ports0, Failure> {
    let asked = ports(fabric);
    let questions = asked.iter().map(|&(port, lid)| {
        let number = fabric.port_number(port);
        let smp = Smp::get_port_info(Routing::Lid, 0, number);
        request(lid, &smp)
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

/// All ports with a link that is up, and all ports 0, each with a LID of its node.
fn ports(fabric: &Fabric) -> Vec<(PortId, Lid)> {
    let base = |port: PortId| fabric.port(port).lids.map(|lids| lids.base());
    let mut ports = Vec::new();
    for (id, node) in fabric.nodes() {
        let numbers = match node.kind {
            NodeKind::Switch => 0..=node.ports,
            NodeKind::Adapter => 1..=node.ports,
        };
        for port in numbers.filter_map(|number| fabric.port_of(id, number)) {
            let owner = match node.kind {
                NodeKind::Switch => fabric.port_of(id, 0),
                NodeKind::Adapter => Some(port),
            };
            let usable = fabric.port_number(port) == 0 || fabric.is_up(port);
            ports.extend(
                owner
                    .filter(|_| usable)
                    .and_then(base)
                    .map(|lid| (port, lid)),
            );
        }
    }
    ports
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

/// Asks all switches for their tables and compares every entry up to the highest LID.
///
/// # Errors
/// As [`Client::exchange`].
pub fn ask_tables(
    client: &mut Client,
    fabric: &Fabric,
    top: u16,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let switches = fabric
        .nodes()
        .filter(|(_, node)| node.kind == NodeKind::Switch);
    let with_lid = switches.filter_map(|(id, _)| {
        let port = fabric.port_of(id, 0)?;
        Some((id, fabric.port(port).lids?.base()))
    });
    let blocks =
        with_lid.flat_map(|(id, lid)| (0..=top / BLOCK).map(move |block| (id, lid, block)));
    let asked: Vec<(NodeId, Lid, u16)> = blocks.collect();
    let questions = asked.iter().map(|&(_, lid, block)| {
        let header = Header {
            base_version: mad::BASE_VERSION,
            mgmt_class: mad::CLASS_SM_LID_ROUTED,
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
        request(lid, &smp)
    });
    client.exchange(WINDOW, questions, |position, reply| {
        let (switch, _, block) = asked[position];
        let smp = answer(reply, || fabric.node(switch).name.clone())?;
        let lids = (block * BLOCK..=top).filter_map(Lid::new);
        // LID 0 is nobody's and no `Lid`, so positions come from the LID.
        for lid in lids.take_while(|lid| lid.get() < (block + 1) * BLOCK) {
            let entry = smp.data.0[usize::from(lid.get() % BLOCK)];
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

fn request(lid: Lid, smp: &Smp) -> Request {
    Request {
        dlid: lid.get(),
        target: Target::Sma,
        mad: smp.encode(),
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
