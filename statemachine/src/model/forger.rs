// SPDX-License-Identifier: MIT OR Apache-2.0
//! A third host, whose root sends what it likes. It knows the QPNs, LIDs and GIDs of the connection, and
//! of the communication IDs those that somebody sends to it.

use cm_msgs::association::{PeerPort, Ports, PrimaryPath, ReqData, State};
use cm_msgs::cm::{Dreq, PathFields, Req};
use cm_msgs::{Lid, PKey};

use super::network::{Mad, STRANGER, gid, lid, node, qpn, stranger_gid};
use super::world::World;
use crate::config::SERVICE_ID;

/// What the stranger sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Forgery {
    /// A REQ for the connection that names the stranger's port as the peer's.
    OwnPort,
    /// A REQ for the connection by which the peer has gone over to the second ports.
    Moved,
    /// A DREQ with IDs that it made up.
    Disconnect,
}

impl Forgery {
    pub(super) const ALL: [Self; 3] = [Self::OwnPort, Self::Moved, Self::Disconnect];
}

/// Its own communication ID.
const OWN_ID: u32 = 0x0bad_1dea;

/// A MAD for `to`.
pub(super) fn forge(world: &World, to: usize, forgery: Forgery) -> Mad {
    let port = if world.is_up(to, 1) { 1 } else { 2 };
    let message = match forgery {
        Forgery::OwnPort => req(to, 1, [(stranger_gid(), STRANGER)].map(peer_port)).into(),
        Forgery::Moved => {
            let ports = [1, 2].map(|port| peer_port((gid(1 - to, port), lid(1 - to, port))));
            req(to, 2, ports).into()
        }
        Forgery::Disconnect => Dreq {
            local_comm_id: OWN_ID,
            remote_comm_id: OWN_ID + 1,
            remote_qpn_eecn: qpn(to),
            ..Dreq::default()
        }
        .into(),
    };
    Mad::new((to, port), STRANGER, 7, message)
}

fn peer_port((gid, lid): (cm_msgs::Gid, Lid)) -> PeerPort {
    PeerPort {
        gid,
        lid,
        lmc: 0,
        up: true,
        drained: false,
    }
}

/// What the peer's daemon would send, but for its state.
fn req<const N: usize>(to: usize, on: u8, ports: [PeerPort; N]) -> Req {
    let peer = 1 - to;
    let state = State {
        sequence: 0x4000_0000,
        primary: PrimaryPath {
            port: on,
            local: lid(peer, on),
            remote: lid(to, on),
        },
        ports: Ports::new(ports),
        ..State::default()
    };
    let data = ReqData {
        peer_qpn: qpn(to),
        state,
    };
    Req {
        local_comm_id: OWN_ID,
        service_id: SERVICE_ID,
        local_ca_guid: node(peer),
        local_qpn: qpn(peer),
        partition_key: PKey::DEFAULT_FULL,
        primary: PathFields {
            local_port_lid: lid(peer, 1),
            remote_port_lid: lid(to, 1),
            local_port_gid: gid(peer, 1),
            remote_port_gid: gid(to, 1),
            ..PathFields::default()
        },
        sap_supported: true,
        private_data: data.encode(),
        ..Req::default()
    }
}
