// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts with two ports each on one subnet, a stranger, and what is on its way between them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::vec;

use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn, cm};

use crate::id::PortId;
use crate::input::PortStatus;

/// Host numbers.
pub(super) const ACTIVE: usize = 0;
pub(super) const PASSIVE: usize = 1;

/// A third host's port, which sends what it likes.
pub(super) const STRANGER: Lid = Lid(0x99);

/// A MAD on its way.
#[derive(Clone, Debug)]
pub(super) struct Mad {
    pub(super) to: usize,
    /// The port at which it arrives.
    pub(super) port: u8,
    pub(super) from: Lid,
    pub(super) transaction: u32,
    pub(super) message: cm::Message,
    /// Of all of this.
    pub(super) fingerprint: u64,
}

impl Mad {
    pub(super) fn new(
        (to, port): (usize, u8),
        from: Lid,
        transaction: u32,
        message: cm::Message,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        (to, port, from, transaction).hash(&mut hasher);
        message.encode(0x2d, 0).hash(&mut hasher);
        Self {
            to,
            port,
            from,
            transaction,
            message,
            fingerprint: hasher.finish(),
        }
    }
}

pub(super) fn node(host: usize) -> Guid {
    Guid((host as u64 + 1) << 8)
}

pub(super) fn port_id(host: usize, port: u8) -> PortId {
    PortId::new(node(host), port)
}

pub(super) fn qpn(host: usize) -> Qpn {
    Qpn(0x100 + host as u32)
}

pub(super) fn gid(host: usize, port: u8) -> Gid {
    Gid::new(0xfe80 << 48, Guid(node(host).0 + u64::from(port)))
}

pub(super) fn stranger_gid() -> Gid {
    Gid::new(0xfe80 << 48, Guid(0x9901))
}

pub(super) fn lid(host: usize, port: u8) -> Lid {
    Lid(0x10 * (host as u16 + 1) + u16::from(port))
}

const PORTS: [(usize, u8); 4] = [(0, 1), (0, 2), (1, 1), (1, 2)];

pub(super) fn port_at(at: Lid) -> Option<(usize, u8)> {
    PORTS
        .into_iter()
        .find(|&(host, port)| lid(host, port) == at)
}

pub(super) fn port_of(of: Gid) -> Option<(usize, u8)> {
    PORTS
        .into_iter()
        .find(|&(host, port)| gid(host, port) == of)
}

pub(super) fn port_status(host: usize, port: u8, up: bool) -> PortStatus {
    PortStatus {
        active: up,
        lid: lid(host, port),
        lmc: 0,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
        gid: gid(host, port),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    }
}

/// A connection's first path: between the first ports.
pub(super) fn first_path(host: usize) -> Path {
    Path {
        port: 1,
        mtu: 4,
        rate: 7,
        ack_timeout: 14,
        slid: lid(host, 1),
        dlid: lid(1 - host, 1),
        pkey: PKey::DEFAULT_FULL,
        sgid: gid(host, 1),
        dgid: gid(1 - host, 1),
        ..Path::default()
    }
}

/// Whether `peer` is this path seen from its other end.
pub(super) fn is_reverse(path: &Path, peer: &Path) -> bool {
    path.slid == peer.dlid && path.dlid == peer.slid
}
