// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections in the operators' form: those that are asked for, a page at a time, because the loop
//! stands still while a page is written.

use std::ops::Bound;

use cm_msgs::Guid;
use cm_msgs::path;
use cm_msgs::path::PortAddress;
use paths::fabric::Common;
use paths::source::Ssa;
use serde::{Deserialize, Serialize};
use statemachine::view::{AssociationView, Protection};
use statemachine::{ConnId, ConnectionView, Engine, Time};

use super::model::{
    Alternate, Association, Candidate, Conn, ConnSums, GlobalRoute, Path, PeerPort, Program,
    QueuePair, SharedElement, Standing,
};
use super::ports::mtu_bytes;
use super::request::{ConnectionFilter, Refused};
use crate::client::Client;
use crate::devices::Devices;
use crate::io::seqpacket::Peer;

#[cfg(test)]
mod tests;

/// Connections in one page.
const SHOWN_MAX: usize = 256;
/// Connections looked at for one page.
const EXAMINED_MAX: usize = 4096;

/// Some of the connections that are asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConnectionPage {
    pub(crate) connections: Vec<Conn>,
    /// There may be more: ask for those after this one.
    pub(crate) next: Option<String>,
}

/// What connections are shown from, and to whom.
pub(crate) struct Connections<'a> {
    pub(crate) now: Time,
    pub(crate) engine: &'a Engine,
    pub(crate) devices: &'a Devices,
    pub(crate) client: &'a dyn Fn(u32) -> Option<&'a Client>,
    pub(crate) ssa: &'a Ssa,
    pub(crate) observer: Peer,
}

impl Connections<'_> {
    /// # Errors
    /// There is no such connection or device.
    pub(crate) fn page(&self, filter: &ConnectionFilter) -> Result<ConnectionPage, Refused> {
        let node_guid = self.node_guid(filter)?;
        let id = |text: &Option<String>| text.as_deref().map(connection_id).transpose();
        let range = match (id(&filter.id)?, id(&filter.after)?) {
            (Some(id), _) => (Bound::Included(id), Bound::Included(id)),
            (None, Some(after)) => (Bound::Excluded(after), Bound::Unbounded),
            (None, None) => (Bound::Unbounded, Bound::Unbounded),
        };
        let mut page = ConnectionPage::default();
        let mut examined = 0;
        for view in self.engine.connections_in(self.now, range) {
            examined += 1;
            let id = view.id;
            if self.fits(filter, node_guid, &view) {
                page.connections.push(self.show(view));
            }
            if page.connections.len() == SHOWN_MAX || examined == EXAMINED_MAX {
                page.next = Some(name(id));
                break;
            }
        }
        match &filter.id {
            Some(id) if examined == 0 => Err(refused(format!("conn {id}: no such connection"))),
            _ => Ok(page),
        }
    }

    /// The device that is asked for.
    fn node_guid(&self, filter: &ConnectionFilter) -> Result<Option<Guid>, Refused> {
        let Some(name) = &filter.device else {
            return Ok(None);
        };
        let device = self.devices.by_name(name);
        let (_, device) = device
            .ok_or_else(|| refused(format!("device {name}: not one that apmd looks after")))?;
        Ok(Some(device.verbs.node_guid))
    }

    fn fits(&self, filter: &ConnectionFilter, device: Option<Guid>, view: &ConnectionView) -> bool {
        let client = self.client(view);
        let state = filter.state.as_deref().unwrap_or("");
        filter.qpn.is_none_or(|qpn| view.qpn.0 == qpn)
            && device.is_none_or(|guid| view.node_guid == guid)
            && filter
                .pid
                .is_none_or(|pid| client.is_some_and(|client| client.peer.pid == pid))
            && (filter.command.is_none()
                || client.is_some_and(|client| client.command == filter.command))
            && view.protection.to_string().starts_with(state)
    }

    fn client(&self, view: &ConnectionView) -> Option<&Client> {
        let key = u32::try_from(view.id.client).ok()?;
        (self.client)(key)
    }

    fn peer_node(&self, view: &ConnectionView) -> Option<String> {
        let fabric = &self.ssa.known()?.fabric;
        let port = fabric.port_by_lid(view.primary.dlid)?;
        Some(fabric.node(fabric.port(port).node).name.to_string())
    }

    fn show(&self, view: ConnectionView) -> Conn {
        let client = self.client(&view);
        let device = self.devices.by_guid(view.node_guid);
        // Who knows both comm IDs and can send MADs could speak as the peer.
        let may_know = |client: &Client| client.peer.uid == self.observer.uid;
        let comm_ids = self.observer.uid == 0 || client.is_some_and(may_know);
        Conn {
            id: name(view.id),
            primary: path(&view.primary),
            alternate: alternate(&view, self.ssa),
            chosen: view.chosen.as_ref().map(candidate),
            runner_up: view.runner_up.as_ref().map(candidate),
            association: association(&view.association, comm_ids),
            counters: view.counters,
            qp: QueuePair {
                device: device
                    .map(|device| device.verbs.name.clone())
                    .unwrap_or_default(),
                node_guid: view.node_guid.to_string(),
                qpn: view.qpn.0,
                peer_qpn: view.peer_qpn.0,
                peer_node: self.peer_node(&view),
                role: view.role.to_string(),
                qp_state: view.qp_state.to_string(),
                migration: view.migration.to_string(),
            },
            program: Program {
                opted_in: view.opted_in,
                pid: client.map_or(0, |client| client.peer.pid),
                command: client
                    .and_then(|client| client.command.clone())
                    .unwrap_or_default(),
            },
            standing: Standing {
                protection: view.protection.to_string(),
                reason: view.reason.map(|reason| reason.to_string()),
                changed_seconds: (self.now - view.changed).as_secs_f64(),
            },
        }
    }
}

/// Connections by protection.
pub(crate) fn sums(protections: impl Iterator<Item = Protection>) -> ConnSums {
    let mut sums = ConnSums::default();
    for protection in protections {
        sums.total += 1;
        *match protection {
            Protection::Armed => &mut sums.armed,
            Protection::Rearming => &mut sums.rearming,
            Protection::RearmingIdle => {
                sums.rearming_idle += 1;
                &mut sums.rearming
            }
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

fn refused(error: String) -> Refused {
    Refused { error }
}

pub(crate) fn name(id: ConnId) -> String {
    format!("{}.{}", id.client, id.conn)
}

fn connection_id(text: &str) -> Result<ConnId, Refused> {
    let id = text.split_once('.').and_then(|(client, conn)| {
        Some(ConnId {
            client: client.parse().ok()?,
            conn: conn.parse().ok()?,
        })
    });
    id.ok_or_else(|| refused(format!("{text}: no connection ID, such as 3.1")))
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
        route: GlobalRoute {
            global: path.global,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
        },
    }
}

fn alternate(view: &ConnectionView, ssa: &Ssa) -> Option<Alternate> {
    let alternate = view.alternate.as_ref()?;
    let common = ssa.common(&view.primary, alternate);
    let shared = |Common { name, avoidable }| SharedElement { name, avoidable };
    Some(Alternate {
        path: path(alternate),
        shared: common.map(|common| common.into_iter().map(shared).collect()),
        origin: view.alternate_origin.map(|origin| origin.to_string()),
        overlap: view.overlap,
    })
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
        overlap: candidate.score.overlap,
    }
}

fn association(view: &AssociationView, comm_ids: bool) -> Association {
    let peer_port = |port: &PortAddress| PeerPort {
        gid: port.gid.to_string(),
        lid: port.lid.0,
    };
    Association {
        state: view.state.to_string(),
        local_comm_id: view.local_comm_id.filter(|_| comm_ids),
        remote_comm_id: view.remote_comm_id.filter(|_| comm_ids),
        comm_ids_hidden: !comm_ids,
        peer_ports: view.peer_ports.iter().map(peer_port).collect(),
    }
}
