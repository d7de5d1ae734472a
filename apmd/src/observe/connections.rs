// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections in the operators' form: those that are asked for, a page at a time, because the loop
//! stands still while a page is written.

use std::ops::Bound;

use cm_msgs::Guid;
use cm_msgs::association::VERSION;
use cm_msgs::control::{self, Placement, PolicyOverride, PolicyWords};
use cm_msgs::path;
use cm_msgs::path::PortAddress;
use paths::fabric::Common;
use paths::sa::NodeNames;
use paths::source::Ssa;
use serde::{Deserialize, Serialize};
use statemachine::view::{self, AssociationView, Grade, Identity, PortView, ProbeView, Protection};
use statemachine::{ConnId, ConnectionView, Engine, Input, PortId, Time};

use super::filter::{ConnectionFilter, is_owner};
use super::impossible::LocalDevice;
use super::model::{
    Alternate, Association, Candidate, Conn, ConnSums, GlobalRoute, Past, Path, PeerDaemon,
    PeerPort, PlainUnits, Policy, Probing, Program, QueuePair, SharedElement, Standing,
};
use super::ports::{mtu_bytes, rate_mbps};
use super::request::Refused;
use crate::client::Client;
use crate::devices::Devices;
use crate::io::seqpacket::Peer;
use crate::kernel;
use crate::peer_daemons::{self, PeerDaemons};

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
    pub(crate) client: &'a dyn Fn(ConnId) -> Option<&'a Client>,
    /// What undoes the protection of one that is armed, in words.
    pub(crate) warnings: &'a dyn Fn(ConnId) -> Vec<String>,
    pub(crate) ssa: &'a Ssa,
    /// Names of peers' nodes, of subnet administration.
    pub(crate) names: &'a NodeNames,
    pub(crate) peer_daemons: &'a PeerDaemons,
    pub(crate) observer: Peer,
    /// Whether to say what happened to them.
    pub(crate) history: bool,
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
        let ports = self.engine.ports();
        let mut examined = 0;
        for identity in self.engine.identities_in(range) {
            examined += 1;
            let id = identity.id;
            let view = match self.may_fit(filter, node_guid, &identity) {
                true => self.engine.connections_in(self.now, id..=id).next(),
                false => None,
            };
            if let Some(view) = view.filter(|view| has_state(filter, view)) {
                page.connections.push(self.show(view, &ports));
            }
            if page.connections.len() == SHOWN_MAX || examined == EXAMINED_MAX {
                page.next = Some(name(id));
                break;
            }
        }
        match &filter.id {
            Some(id) if examined == 0 => Err(no_such_connection(id)),
            _ => Ok(page),
        }
    }

    /// The device that is asked for.
    fn node_guid(&self, filter: &ConnectionFilter) -> Result<Option<Guid>, Refused> {
        let Some(name) = &filter.device else {
            return Ok(None);
        };
        let device = self.devices.by_name(name);
        let (_, device) =
            device.ok_or_else(|| refused(format!("device {name}: not one that apmd manages")))?;
        Ok(Some(device.node_guid))
    }

    /// What can be said without a view, which costs more than all of this.
    fn may_fit(&self, filter: &ConnectionFilter, device: Option<Guid>, conn: &Identity) -> bool {
        let client = (self.client)(conn.id);
        filter.qpn.is_none_or(|qpn| conn.qpn.0 == qpn)
            && device.is_none_or(|guid| conn.node_guid == guid)
            && filter
                .pid
                .is_none_or(|pid| client.is_some_and(|client| client.peer.pid == pid))
            && (filter.command.is_none()
                || client.is_some_and(|client| client.command == filter.command))
            && filter.owner.as_ref().is_none_or(|owner| {
                client.is_some_and(|Client { peer, command }| {
                    is_owner(owner, command.as_deref().unwrap_or_default(), peer.pid)
                })
            })
    }

    fn client(&self, view: &ConnectionView) -> Option<&Client> {
        (self.client)(view.id)
    }

    fn warnings(&self, view: &ConnectionView, ports: &[PortView]) -> Vec<String> {
        let is_armed = view.protection == Protection::Armed;
        let device = self.local_device(view, ports);
        let obstacles = device.obstacles(&view.policy, view.primary.port, is_armed);
        let warnings = (self.warnings)(view.id);
        warnings.into_iter().chain(obstacles).collect()
    }

    fn local_device<'a>(&'a self, view: &ConnectionView, ports: &'a [PortView]) -> LocalDevice<'a> {
        let device = self.devices.by_guid(view.node_guid);
        LocalDevice {
            name: device.map_or("", |device| &device.name),
            node_guid: view.node_guid,
            ports,
        }
    }

    /// The name of the peer's node: of the fabric's data, or of subnet administration.
    fn peer_node(&self, view: &ConnectionView) -> Option<String> {
        self.node_in_fabric(&view.primary).or_else(|| {
            let paths = [Some(&view.primary), view.alternate.as_ref()];
            let name = |path: &path::Path| {
                let port = PortId::new(view.node_guid, path.port);
                self.names.name(port, path.dlid)
            };
            // Both lead to ports of one node.
            let name = paths.into_iter().flatten().find_map(name);
            name.map(str::to_owned)
        })
    }

    fn node_in_fabric(&self, to: &path::Path) -> Option<String> {
        let fabric = &self.ssa.known()?.fabric;
        let path::Path { dgid, dlid, .. } = *to;
        // Two subnets may have equal LIDs.
        let by_guid = Some(dgid).filter(|gid| !gid.is_unspecified());
        let by_guid = by_guid.and_then(|gid| fabric.port_by_guid(gid.interface_id()));
        let port = by_guid.or_else(|| fabric.port_by_lid(dlid))?;
        Some(fabric.node(fabric.port(port).node).name.to_string())
    }

    fn peer_daemon(&self, view: &ConnectionView) -> PeerDaemon {
        let paths = [Some(&view.primary), view.alternate.as_ref()];
        let far = |path: &path::Path| (PortId::new(view.node_guid, path.port), path.dlid);
        let paths = paths.into_iter().flatten().map(far);
        let heard = view.association.heard;
        let found = self.peer_daemons.of(self.now, paths, heard);
        let (state, heard, silent) = match found {
            peer_daemons::PeerDaemon::Answers(heard) => ("answers", Some(heard), None),
            peer_daemons::PeerDaemon::Silent { since, heard } => ("silent", heard, Some(since)),
            peer_daemons::PeerDaemon::Unknown(heard) => ("unknown", heard, None),
        };
        PeerDaemon {
            state: state.to_owned(),
            heard_seconds: heard.map(|age| age.as_secs_f64()),
            silent_seconds: silent.map(|age| age.as_secs_f64()),
            // Whoever speaks another version is not heard in an association.
            protocol_version: view.association.heard.map(|_| VERSION),
        }
    }

    fn show(&self, view: ConnectionView, ports: &[PortView]) -> Conn {
        let client = self.client(&view);
        let alternate = alternate(&view, self.ssa);
        let grade = grade(&view, alternate.as_ref());
        let grade_detail = grade.as_ref().and_then(|(_, detail)| detail.clone());
        let device = self.devices.by_guid(view.node_guid);
        // Who knows both comm IDs and can send MADs could speak as the peer.
        let may_know = |client: &Client| client.peer.uid == self.observer.uid;
        let comm_ids = self.observer.uid == 0 || client.is_some_and(may_know);
        Conn {
            id: name(view.id),
            primary: path(&view.primary),
            alternate,
            probing: probing(&view),
            chosen: view.chosen.as_ref().map(candidate),
            runner_up: view.runner_up.as_ref().map(candidate),
            association: Association {
                peer_daemon: self.peer_daemon(&view),
                ..association(&view.association, comm_ids)
            },
            counters: view.counters,
            history: self
                .history
                .then(|| view.history.iter().map(past).collect()),
            qp: QueuePair {
                device: device.map(|device| device.name.clone()).unwrap_or_default(),
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
                by: match view.id.client {
                    kernel::CLIENT => "kernel".to_owned(),
                    _ => "library".to_owned(),
                },
            },
            standing: Standing {
                warnings: self.warnings(&view, ports),
                policy: policy(&view),
                standing_order: view.standing_order,
                protection: view.protection.to_string(),
                grade: grade.map(|(word, _)| word.to_owned()),
                grade_detail,
                reason: view.reason.map(|reason| reason.to_string()),
                changed_seconds: (self.now - view.changed).as_secs_f64(),
                held: view.held.map(|held| held.to_string()),
                obstacle: view.obstacle.map(|held| held.to_string()),
            },
        }
    }
}

fn has_state(filter: &ConnectionFilter, view: &ConnectionView) -> bool {
    let state = filter.state.as_deref().unwrap_or_default();
    view.protection.to_string().starts_with(state)
}

/// Of a grade, as scripts take it.
pub(crate) fn grade_word(grade: Grade) -> &'static str {
    match grade {
        Grade::Full => "full",
        Grade::SameSwitch(_) => "same_switch",
        Grade::SamePort => "same_port",
        Grade::Unverified => "unverified",
    }
}

/// What an armed connection's protection covers: a word, and what is shared. The passive side does not
/// score alternates, but its daemon may know the fabric.
fn grade(
    view: &ConnectionView,
    alternate: Option<&Alternate>,
) -> Option<(&'static str, Option<String>)> {
    let grade = view.grade?;
    let shared = alternate.and_then(|alternate| alternate.shared.as_ref());
    let mut shared = shared.into_iter().flatten();
    let shared = shared.find(|element| element.avoidable);
    Some(match (grade, shared) {
        (Grade::Full | Grade::SameSwitch(_), Some(element)) => {
            ("same_switch", Some(element.name.clone()))
        }
        (Grade::SameSwitch(overlap), None) => (grade_word(grade), Some(overlap.to_string())),
        _ => (grade_word(grade), None),
    })
}

fn probing(view: &ConnectionView) -> Probing {
    let ms = |probe: ProbeView| probe.age.map(|age| age.as_secs_f64() * 1_000.0);
    Probing {
        primary_health: view.primary_probe.health,
        primary_probe_age_ms: ms(view.primary_probe),
        alternate_health: view.alternate_probe.health,
        alternate_probe_age_ms: ms(view.alternate_probe),
    }
}

/// Connections by protection, and of those that are armed what that covers.
pub(crate) fn sums(protections: impl Iterator<Item = (Protection, Option<Grade>)>) -> ConnSums {
    let mut sums = ConnSums::default();
    for (protection, grade) in protections {
        sums.total += 1;
        match grade {
            Some(Grade::SameSwitch(_)) => sums.armed_same_switch += 1,
            Some(Grade::SamePort) => sums.armed_same_port += 1,
            Some(Grade::Unverified) => sums.armed_unverified += 1,
            Some(Grade::Full) | None => {}
        }
        *match protection {
            Protection::Armed => &mut sums.armed,
            Protection::Rearming => &mut sums.waiting.rearming,
            Protection::RearmingIdle | Protection::IdleMovable => {
                sums.waiting.idle_movable += usize::from(protection == Protection::IdleMovable);
                sums.waiting.rearming_idle += 1;
                &mut sums.waiting.rearming
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

/// What the engine is to be told, for an operator who sets a connection's policy.
///
/// # Errors
/// The words are none, there is no such connection, its device has no such port, or it is another user's: who may look at all
/// connections may change his own only, unless he may change anything.
pub(crate) fn set_policy(
    words: &str,
    filter: &ConnectionFilter,
    connections: &Connections<'_>,
    may_change: bool,
) -> Result<Input, Refused> {
    let only = ConnectionFilter {
        id: filter.id.clone(),
        ..ConnectionFilter::default()
    };
    let Some(id) = filter.id.as_deref().filter(|_| *filter == only) else {
        return Err(refused("which connection? name it by its ID".to_owned()));
    };
    let words = PolicyWords::read(words.split_ascii_whitespace());
    let words = words.map_err(|error| refused(error.to_string()))?;
    let key = connection_id(id)?;
    let mut views = connections
        .engine
        .connections_in(connections.now, key..=key);
    let view = views.next();
    let view = view.ok_or_else(|| no_such_connection(id))?;
    let owner = connections.client(&view).map(|client| client.peer.uid);
    let uid = connections.observer.uid;
    if !may_change && owner != Some(uid) {
        return Err(refused(format!(
            "conn {id}: only root, members of the group of apmd's socket and the program's own user \
             may set its policy"
        )));
    }
    let said = words.applied_to(view.policy);
    let ports = connections.engine.ports();
    let device = connections.local_device(&view, &ports);
    if let Some(why) = said.placement.and_then(|wanted| device.refuses(wanted)) {
        return Err(refused(format!("conn {id}: {why}")));
    }
    Ok(Input::Policy(key, said.and(view.policy_override)))
}

/// What is answered to who names one that is not there; `apmctl` knows it by these words.
pub(crate) fn no_such_connection(id: &str) -> Refused {
    refused(format!("conn {id}: no such connection"))
}

fn refused(error: String) -> Refused {
    Refused { error }
}

pub(crate) fn name(id: ConnId) -> String {
    format!("{}.{}", id.client, id.conn)
}

pub(crate) fn connection_id(text: &str) -> Result<ConnId, Refused> {
    let id = text.split_once('.').and_then(|(client, conn)| {
        Some(ConnId {
            client: client.parse().ok()?,
            conn: conn.parse().ok()?,
        })
    });
    id.ok_or_else(|| refused(format!("{text}: no connection ID, such as 3.1")))
}

fn policy(view: &ConnectionView) -> Policy {
    let control::Policy {
        mode,
        placement,
        hold_down: _,
    } = view.policy;
    Policy {
        mode: mode.to_string(),
        failback: match placement {
            Placement::Stay | Placement::Spread => "stay".to_owned(),
            Placement::Prefer(port) => format!("prefer {port}"),
        },
        spread: placement == Placement::Spread,
        hold_down_seconds: view.policy.hold_down().as_secs_f64(),
        by_default: view.policy_override == PolicyOverride::default(),
    }
}

fn past(past: &view::Past) -> Past {
    let event = match past.what {
        view::Transition::Protection { .. } => "protection",
        view::Transition::Association(_) => "association",
        view::Transition::Migrated { .. } => "migrated",
        view::Transition::PrimaryLost => "primary_lost",
    };
    let stall_ms = match past.what {
        view::Transition::Migrated { stall, .. } => stall.map(view::Stall::millis),
        _ => None,
    };
    Past {
        seconds_ago: past.ago.as_secs_f64(),
        event: event.to_owned(),
        stall_ms,
        text: past.what.to_string(),
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
        route: GlobalRoute {
            global: path.global,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
        },
        plain: PlainUnits {
            rate_mbps: rate_mbps(path.rate),
            ack_timeout_ns: ack_timeout_ns(path.ack_timeout),
        },
    }
}

/// 4.096 us times a power of two (IBA 9.9.2.1.1); 0 is none, and greater codes there are not.
fn ack_timeout_ns(code: u8) -> Option<u64> {
    matches!(code, 1..=31).then(|| 4096 << code)
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
        drained: view.drained_peer_ports.contains(&port.gid),
    };
    Association {
        state: view.state.to_string(),
        local_comm_id: view.local_comm_id.filter(|_| comm_ids),
        remote_comm_id: view.remote_comm_id.filter(|_| comm_ids),
        comm_ids_hidden: !comm_ids,
        peer_ports: view.peer_ports.iter().map(peer_port).collect(),
        peer_daemon: PeerDaemon::default(),
    }
}
