// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host of two ports and what its libraries say.

use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Register, Role, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use statemachine::{Config, ConnId, Engine, Input, Payer, PortId, PortStatus, Random, Time};

pub(crate) fn guid(host: usize) -> Guid {
    Guid(0x1000 * (host as u64 + 1))
}

pub(crate) fn port(host: usize, number: u8) -> PortId {
    PortId::new(guid(host), number)
}

pub(crate) fn lid(host: usize, number: u8) -> Lid {
    Lid(10 * (host as u16 + 1) + u16::from(number))
}

pub(crate) fn gid(host: usize, number: u8) -> Gid {
    Gid::new(0xfe80 << 48, Guid(guid(host).0 + u64::from(number)))
}

pub(crate) fn status(host: usize, number: u8, active: bool) -> PortStatus {
    PortStatus {
        active,
        lid: lid(host, number),
        lmc: 0,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
        gid: gid(host, number),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    }
}

/// From a port of `host` to a port of the other.
pub(crate) fn path(host: usize, from: u8, to: u8) -> Path {
    Path {
        port: from,
        mtu: 4,
        slid: lid(host, from),
        dlid: lid(1 - host, to),
        pkey: PKey::DEFAULT_FULL,
        sgid: gid(host, from),
        dgid: gid(1 - host, to),
        ..Path::default()
    }
}

pub(crate) fn id(conn: usize) -> ConnId {
    ConnId {
        client: conn as u32 / 1000 + 1,
        conn: conn as u32,
    }
}

pub(crate) fn snapshot(primary: Path, alternate: Option<Path>) -> Snapshot {
    Snapshot {
        qp_state: QpState::Rts,
        migration: match alternate {
            Some(_) => MigrationState::Armed,
            None => MigrationState::Migrated,
        },
        primary,
        alternate,
    }
}

pub(crate) fn register(host: usize, role: Role, conn: usize, snapshot: Snapshot) -> Input {
    let qpn = |host: usize| Qpn((conn as u32 + 1) << 1 | host as u32);
    let register = Register {
        role,
        opted_in: false,
        node_guid: guid(host),
        qpn: qpn(host),
        peer_qpn: qpn(1 - host),
        policy: PolicyOverride::default(),
        snapshot,
    };
    let id = id(conn);
    Input::Register(id, Payer(id.client.into()), register)
}

/// A configuration with room for all.
pub(crate) fn config() -> Config {
    Config {
        connection_limit: 100_000,
        ..Config::default()
    }
}

/// An engine that knows its ports.
pub(crate) fn engine(host: usize, config: Config) -> Engine {
    let mut engine = Engine::new(config, Random::new([host as u8 + 1; 32]));
    engine.set_trace_level(None);
    for number in [1, 2] {
        let up = Some(status(host, number, true));
        engine.handle(Time(1), Input::Port(port(host, number), up));
    }
    engine
}
