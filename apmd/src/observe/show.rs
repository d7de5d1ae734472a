// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's state in the operators' form.

use cm_msgs::association::PortAddress;
use cm_msgs::path;
use pathdb::Mtu;
use statemachine::view::{self, PortState, Protection};
use statemachine::{ConnectionView, Time};

use super::model::{
    Alternate, Association, Candidate, Conn, ConnSums, Overlap, Path, PeerPort, Port, PortSums,
    SharedElement,
};
use crate::control::Control;
use crate::devices::{Device, Devices};
use crate::fabric;
use crate::io::rtnl::Rtnl;
use crate::source::Ssa;

/// MTU in bytes of an IBA code; 0 for what is none.
fn mtu_bytes(code: u8) -> u32 {
    Mtu::from_code(code).map_or(0, |mtu| mtu.bytes().into())
}

/// A connection as operators see it.
pub fn conn(
    view: ConnectionView,
    now: Time,
    devices: &Devices,
    control: &Control,
    ssa: &Ssa,
) -> Conn {
    let client = u32::try_from(view.id.client)
        .ok()
        .and_then(|key| control.client(key));
    let device = devices.by_guid(view.node_guid);
    Conn {
        id: format!("{}.{}", view.id.client, view.id.conn),
        device: device
            .map(|device| device.verbs.name.clone())
            .unwrap_or_default(),
        node_guid: view.node_guid.to_string(),
        qpn: view.qpn.0,
        peer_qpn: view.peer_qpn.0,
        role: view.role.to_string(),
        opted_in: view.opted_in,
        pid: client.map_or(0, |client| client.peer.pid),
        command: client
            .and_then(|client| client.command.clone())
            .unwrap_or_default(),
        qp_state: view.qp_state.to_string(),
        migration: view.migration.to_string(),
        protection: view.protection.to_string(),
        reason: view.reason.map(|reason| reason.to_string()),
        primary: path(&view.primary),
        alternate: alternate(&view, ssa),
        chosen: view.chosen.as_ref().map(candidate),
        runner_up: view.runner_up.as_ref().map(candidate),
        association: association(&view.association),
        counters: view.counters.into(),
        changed_seconds: (now - view.changed).as_secs_f64(),
    }
}

fn path(path: &path::Path) -> Path {
    Path {
        port: path.port,
        slid: path.slid.0,
        dlid: path.dlid.0,
        sgid: path.sgid.to_string(),
        dgid: path.dgid.to_string(),
        sl: path.sl,
        mtu: mtu_bytes(path.mtu),
        rate: path.rate,
        pkey: path.pkey.0,
        ack_timeout: path.ack_timeout,
        global: path.global,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
    }
}

fn alternate(view: &ConnectionView, ssa: &Ssa) -> Option<Alternate> {
    let alternate = view.alternate.as_ref()?;
    let common = ssa.common(&view.primary, alternate);
    let shared = |fabric::Common { name, avoidable }| SharedElement { name, avoidable };
    Some(Alternate {
        path: path(alternate),
        shared: common.map(|common| common.into_iter().map(shared).collect()),
        origin: view.alternate_origin.map(|origin| origin.to_string()),
        overlap: view.overlap.map(overlap),
    })
}

fn overlap(overlap: statemachine::Overlap) -> Overlap {
    let statemachine::Overlap { switches, links } = overlap;
    Overlap { switches, links }
}

fn candidate(candidate: &statemachine::Candidate) -> Candidate {
    Candidate {
        port: candidate.port.port,
        sgid: candidate.sgid.to_string(),
        dgid: candidate.dgid.to_string(),
        slid: candidate.slid.map(|lid| lid.0),
        dlid: candidate.dlid.map(|lid| lid.0),
        score: candidate.score.to_string(),
        origin: candidate.origin.map(|origin| origin.to_string()),
        overlap: candidate.score.overlap.map(overlap),
    }
}

fn association(view: &view::AssociationView) -> Association {
    let peer_port = |port: &PortAddress| PeerPort {
        gid: port.gid.to_string(),
        lid: port.lid.0,
    };
    Association {
        state: view.state.to_string(),
        local_comm_id: view.local_comm_id,
        remote_comm_id: view.remote_comm_id,
        peer_ports: view.peer_ports.iter().map(peer_port).collect(),
    }
}

/// Connections by protection.
pub fn conn_sums(protections: impl Iterator<Item = Protection>) -> ConnSums {
    let mut sums = ConnSums::default();
    for protection in protections {
        sums.total += 1;
        *match protection {
            Protection::Armed => &mut sums.armed,
            Protection::Rearming | Protection::RearmingIdle => &mut sums.rearming,
            Protection::Loading | Protection::Migrating | Protection::Negotiating => {
                &mut sums.working
            }
            Protection::Unprotected => &mut sums.unprotected,
            Protection::Refused => &mut sums.refused,
            Protection::Broken => &mut sums.broken,
        } += 1;
    }
    sums
}

/// The ports of all devices, with what the engine makes of them.
pub fn ports(devices: &Devices, views: &[view::PortView], rtnl: Option<&Rtnl>) -> Vec<Port> {
    let of_device = |device: &Device| {
        let one = |port: &crate::devices::Port| {
            let view = views.iter().find(|view| view.id == port.id);
            show_port(device, port, view, rtnl)
        };
        device.ports.iter().map(one).collect::<Vec<_>>()
    };
    let mut ports: Vec<_> = devices.iter().flat_map(of_device).collect();
    ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    ports
}

fn show_port(
    device: &Device,
    port: &crate::devices::Port,
    view: Option<&view::PortView>,
    rtnl: Option<&Rtnl>,
) -> Port {
    let status = port.watch.status();
    let gid = status.map(|status| status.gid).unwrap_or_default();
    Port {
        device: device.verbs.name.clone(),
        port: port.id.port,
        node_guid: port.id.node_guid.to_string(),
        state: view.map_or("unknown".to_owned(), |view| view.state.to_string()),
        link_layer: if port.watch.is_foreign() {
            "other"
        } else {
            "infiniband"
        }
        .to_owned(),
        apm: device.verbs.apm,
        mads: port
            .mad
            .as_ref()
            .is_some_and(crate::devices::MadPort::has_association),
        lid: status.map_or(0, |status| status.lid.0),
        lmc: status.map_or(0, |status| status.lmc),
        sm_lid: status.map_or(0, |status| status.sm_lid.0),
        gid: gid.to_string(),
        mtu: status.map_or(0, |status| mtu_bytes(status.mtu)),
        pkeys: status
            .iter()
            .flat_map(|status| &status.pkeys)
            .map(|key| key.0)
            .collect(),
        interface: rtnl.and_then(|rtnl| rtnl.interface(gid)).map(str::to_owned),
        primaries: view.map_or(0, |view| view.primaries),
        alternates: view.map_or(0, |view| view.alternates),
    }
}

/// Ports by state.
pub fn port_sums(views: &[view::PortView]) -> PortSums {
    let count = |state| views.iter().filter(|view| view.state == state).count();
    PortSums {
        total: views.len(),
        up: count(PortState::Up),
        settling: count(PortState::Settling),
        down: count(PortState::Down),
    }
}

/// What an operator should look at, in words.
pub fn problems(
    ports: &[Port],
    conns: &ConnSums,
    devices: &[String],
    wanted: &[String],
) -> Vec<String> {
    let mut problems = Vec::new();
    for name in wanted.iter().filter(|name| !devices.contains(name)) {
        problems.push(format!("device {name} is configured but not there"));
    }
    if devices.is_empty() {
        problems.push("no RDMA device".to_owned());
    }
    for port in ports.iter().filter(|port| port.link_layer == "infiniband") {
        let Port {
            device,
            port: number,
            ..
        } = port;
        if !port.mads {
            problems.push(format!(
                "{device}/{number} cannot exchange MADs with other daemons"
            ));
        }
        if port.state == "down" {
            problems.push(format!("{device}/{number} is down"));
        }
    }
    let unarmed = conns.total - conns.armed;
    if unarmed > 0 {
        problems.push(format!(
            "{unarmed} of {} connections are not armed",
            conns.total
        ));
    }
    problems
}
