// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric for tests: two hosts with a port on each of two switches, which have a link between
//! them, like that of the software HCA.
//!
//! | | switch 0 (LID 8) | switch 1 (LID 9) |
//! |---|---|---|
//! | host 1 | port 1, LID 2, GUID 11 | port 2, LID 3, GUID 12 |
//! | host 2 | port 1, LID 4, GUID 21 | port 2, LID 5, GUID 22 |

use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid};
use pathdb::{
    Builder, Capability, Fabric, LidRange, Mtu, NodeId, NodeKind, NodeSpec, PathTerms, PortSpec,
    Rate, SlToVl,
};
use statemachine::{Assess, PathEnds, PortId};

const PREFIX: u64 = 0xfe80 << 48;

/// What makes one such fabric differ from another.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    /// Cables that are down: host and port.
    pub down: Option<(u8, u8)>,
    /// The service level of all paths.
    pub sl: Option<u8>,
    /// The SL-to-VL table of all ways through switch 1.
    pub lanes: Option<SlToVl>,
}

/// The GID of the port with this GUID.
pub fn gid(guid: u64) -> Gid {
    Gid::new(PREFIX, Guid(guid))
}

/// A port of the host.
pub fn port(port: u8) -> PortId {
    PortId {
        node_guid: Guid(1),
        port,
    }
}

/// The fabric.
pub fn fabric(shape: Shape) -> Fabric {
    let mut builder = Builder::new();
    builder.terms(PathTerms {
        service_level: shape.sl,
        packet_life_time: Some(17),
    });
    let switches = [101, 102].map(|guid| node(&mut builder, guid, NodeKind::Switch));
    let hosts = [1, 2].map(|guid| node(&mut builder, guid, NodeKind::Adapter));
    let spec = |guid, base| PortSpec {
        guid: Some(Guid(guid)),
        lids: LidRange::new(Lid(base), 0),
        pkeys: Vec::new(),
    };
    let carries = Capability {
        mtu: Some(Mtu::B4096),
        rate: Some(Rate::G40),
    };
    for (rail, switch) in (0u8..).zip(switches) {
        let own = 8 + u16::from(rail);
        builder
            .port(switch, 0, &spec(101 + u64::from(rail), own))
            .unwrap();
        for (host, node) in (1u8..).zip(hosts) {
            let guid = u64::from(host) * 10 + u64::from(rail) + 1;
            let base = u16::from(host) * 2 + u16::from(rail);
            builder.port(node, rail + 1, &spec(guid, base)).unwrap();
            let up = shape.down != Some((host, rail + 1));
            builder
                .link((node, rail + 1), (switch, host), carries, up)
                .unwrap();
        }
    }
    builder
        .link((switches[0], 3), (switches[1], 3), carries, true)
        .unwrap();
    if let Some(table) = shape.lanes {
        builder.same_sl_to_vl(switches[1], table).unwrap();
    }
    let mut routing = builder.routing();
    for (rail, switch) in (0u16..).zip(switches) {
        for to in [2, 3, 4, 5, 8, 9] {
            let at_home = to % 2 == rail;
            let out = match to {
                8 | 9 if at_home => 0,
                2..=5 if at_home => (to / 2) as u8,
                _ => 3,
            };
            routing.route(switch, Lid(to), out).unwrap();
        }
    }
    routing.finish()
}

fn node(builder: &mut Builder, guid: u64, kind: NodeKind) -> NodeId {
    let spec = NodeSpec {
        kind,
        guid: Guid(guid),
        system: Guid(guid),
        name: format!("node {guid}").into(),
        ports: if kind == NodeKind::Switch { 3 } else { 2 },
    };
    builder.node(spec).unwrap()
}

/// The way between two ports, by their GUIDs.
pub fn way(local: u64, remote: u64) -> PathEnds {
    PathEnds {
        port: port((local % 10) as u8),
        sgid: gid(local),
        dgid: gid(remote),
        slid: None,
        dlid: None,
    }
}

/// What some paths share with the path from host 1's port 1 to host 2's.
pub fn assess(paths: impl Into<Vec<PathEnds>>) -> Assess {
    Assess {
        query: 1,
        primary: Path {
            port: 1,
            slid: Lid(2),
            dlid: Lid(4),
            sgid: gid(11),
            dgid: gid(21),
            ..Path::default()
        },
        paths: paths.into(),
    }
}
