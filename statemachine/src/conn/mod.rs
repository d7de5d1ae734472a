// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection.

mod active;
mod association;
mod doubt;
mod library;
mod passive;
mod proposal;
mod protection;

use alloc::vec::Vec;

use cm_msgs::association::{PortAddress, ReqData};
use cm_msgs::cm::{self, Req};
use cm_msgs::control::{
    AppEvent, MigrationState, QpState, Refusal, Register, Report, Role, Snapshot,
};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, Qpn};

use self::active::Active;
pub(crate) use self::association::{Link, Mraed};
use self::library::{News, Outstanding};
use self::passive::Passive;
use crate::candidate::Endpoints;
use crate::context::{ConnAlarm, Context, Route};
use crate::input::{ConnId, MadSource, Origin, PortId, QueryError};
use crate::output::Order;
use crate::overlap::Overlap;
use crate::port::{Port, same_port};
use crate::time::Time;
use crate::trace::What;
use crate::view::{AssociationState, ConnectionCounters, ConnectionView, Protection};

/// What both sides have.
pub(crate) struct Core {
    pub(crate) id: ConnId,
    opted_in: bool,
    pub(crate) node_guid: Guid,
    pub(crate) qpn: Qpn,
    pub(crate) peer_qpn: Qpn,
    /// The QP as its library saw it last.
    pub(crate) qp: Snapshot,
    /// Since when it is in its migration state.
    since: Time,
    /// The one order that the library has not answered.
    order: Option<Outstanding>,
    /// The last thing that went wrong with an order, until one succeeds.
    trouble: Option<crate::view::Reason>,
    peer_ports: Vec<PortAddress>,
    refused: Option<Refusal>,
    counters: ConnectionCounters,
    protection: Protection,
    changed: Time,
    association: AssociationState,
}

/// Ports of a peer that are kept in mind.
const MAX_PEER_PORTS: usize = 8;

enum Side {
    Active(Active),
    Passive(Passive),
}

/// A connection that a library registered.
pub(crate) struct Connection {
    pub(crate) core: Core,
    side: Side,
}

impl Connection {
    /// Takes a connection over, or refuses it.
    pub(crate) fn new(cx: &mut Context, id: ConnId, register: &Register) -> Self {
        let Register {
            role,
            opted_in,
            node_guid,
            qpn,
            peer_qpn,
            snapshot,
        } = *register;
        let refused = refusal(cx, node_guid, snapshot.primary.port);
        let core = Core {
            id,
            opted_in,
            node_guid,
            qpn,
            peer_qpn,
            qp: snapshot,
            since: cx.now,
            order: None,
            trouble: None,
            peer_ports: Vec::new(),
            refused,
            counters: ConnectionCounters::default(),
            protection: Protection::Unprotected,
            changed: cx.now,
            association: AssociationState::None,
        };
        let side = match role {
            Role::Active => Side::Active(Active::default()),
            Role::Passive => Side::Passive(Passive::default()),
        };
        cx.trace(id, What::Registered);
        let mut conn = Self { core, side };
        if let Some(refusal) = refused {
            cx.trace(id, What::Refused(refusal));
            cx.order(id, Order::Refuse(refusal));
        } else if let Side::Active(active) = &mut conn.side {
            active.start(&mut conn.core, cx);
        }
        conn.drive(cx);
        conn
    }

    /// The library says what happened to the QP.
    pub(crate) fn report(&mut self, cx: &mut Context, report: &Report) {
        if self.core.refused.is_some() {
            return;
        }
        let news = self.core.report(cx, report);
        self.news(cx, &news);
    }

    fn news(&mut self, cx: &mut Context, news: &News) {
        match &mut self.side {
            Side::Active(active) => active.news(&mut self.core, cx, news),
            Side::Passive(passive) => passive.news(&mut self.core, cx, news),
        }
        self.drive(cx);
    }

    /// A port of the connection's device changed; `id` is now as the table says.
    pub(crate) fn port_changed(&mut self, cx: &mut Context, id: PortId) {
        if self.core.refused.is_some() {
            return self.reconsider(cx);
        }
        if let Side::Active(active) = &mut self.side {
            active.port_changed(&mut self.core, cx, id);
        }
        let down = cx.ports.get(id).is_none_or(|port| !port.is_up());
        let primary_lost = down && self.core.qp.primary.port == id.port;
        if primary_lost && self.core.qp.migration != MigrationState::Armed {
            cx.trace(self.core.id, What::PrimaryLost);
        }
        self.drive(cx);
    }

    /// What was refused for want of a port or a LID may be possible now: a daemon that has just
    /// started hears of its libraries and of its ports in any order.
    fn reconsider(&mut self, cx: &mut Context) {
        if refusal(cx, self.core.node_guid, self.core.qp.primary.port).is_some() {
            return;
        }
        self.core.refused = None;
        cx.trace(self.core.id, What::Registered);
        self.core.query(cx);
        if let Side::Active(active) = &mut self.side {
            active.start(&mut self.core, cx);
        }
        self.drive(cx);
    }

    pub(crate) fn timeout(&mut self, cx: &mut Context, alarm: ConnAlarm) {
        match (alarm, &mut self.side) {
            (ConnAlarm::Order, _) => {
                let news = self.core.order_overdue(cx);
                return self.news(cx, &news);
            }
            (ConnAlarm::MigrateHold, _) => {}
            (_, Side::Active(active)) => active.timeout(&mut self.core, cx, alarm),
            (_, Side::Passive(passive)) => passive.timeout(&mut self.core, cx),
        }
        self.drive(cx);
    }

    /// An answer to a path query.
    pub(crate) fn paths(
        &mut self,
        cx: &mut Context,
        query: u32,
        result: Result<&[cm_msgs::sa::PathRecord], QueryError>,
        origin: Option<Origin>,
    ) {
        if let Side::Active(active) = &mut self.side {
            active.paths(&mut self.core, cx, query, result, origin);
        }
        self.drive(cx);
    }

    /// What ways share with the primary.
    pub(crate) fn assessed(&mut self, cx: &mut Context, query: u32, overlaps: &[Option<Overlap>]) {
        if let Side::Active(active) = &mut self.side {
            active.assessed(&self.core, cx, query, overlaps);
        }
        self.drive(cx);
    }

    /// What ways share may be another thing than before. The active side chooses.
    pub(crate) fn fabric_changed(&mut self, cx: &mut Context) {
        if let Side::Active(active) = &mut self.side {
            active.fabric_changed(&self.core, cx);
            self.drive(cx);
        }
    }

    /// Whether a REQ is meant for this connection, and comes from its peer.
    pub(crate) fn is_asked_by(
        &self,
        source: &MadSource,
        cx: &Context,
        req: &Req,
        data: &ReqData,
    ) -> bool {
        let Side::Passive(_) = self.side else {
            return false;
        };
        self.core.qpn == data.peer_qpn
            && self.core.peer_qpn == req.local_qpn
            && self.core.is_peer(cx, source, req, data)
    }

    /// A REQ that [`Self::is_asked_by`] has confirmed.
    pub(crate) fn req(&mut self, cx: &mut Context, source: &MadSource, req: &Req, data: &ReqData) {
        if let Side::Passive(passive) = &mut self.side {
            passive.req(&mut self.core, cx, source, req, data);
        }
        self.drive(cx);
    }

    /// A message for one of the connection's communication IDs.
    pub(crate) fn message(&mut self, cx: &mut Context, source: &MadSource, message: &cm::Message) {
        match &mut self.side {
            Side::Active(active) => active.message(&mut self.core, cx, source, message),
            Side::Passive(passive) => passive.message(&mut self.core, cx, source, message),
        }
        self.drive(cx);
    }

    /// Does what is due: the one place that decides to act, called after whatever happened.
    fn drive(&mut self, cx: &mut Context) {
        if self.core.refused.is_none() && self.core.order.is_none() {
            if self.core.must_migrate(cx) {
                self.core.migrate(cx);
            } else {
                match &mut self.side {
                    Side::Active(active) => active.drive(&mut self.core, cx),
                    Side::Passive(passive) => passive.drive(&mut self.core, cx),
                }
            }
        }
        self.note_protection(cx);
    }

    /// Takes the connection apart. What is left is the association to close, if there is one.
    pub(crate) fn close(&mut self, cx: &mut Context) -> Option<(Link, Vec<Route>)> {
        for alarm in ConnAlarm::ALL {
            cx.stop(self.core.id, alarm);
        }
        cx.trace(self.core.id, What::Closed);
        let routes = self.core.routes(cx);
        let link = match &mut self.side {
            Side::Active(active) => active.close(&mut self.core, cx),
            Side::Passive(passive) => passive.close(cx),
        };
        link.map(|link| (link, routes))
    }

    pub(crate) fn peer_ports(&self) -> &[PortAddress] {
        &self.core.peer_ports
    }
}

/// Why a connection on this port cannot be looked after, if so.
fn refusal(cx: &Context, node_guid: Guid, port: u8) -> Option<Refusal> {
    let Some(port) = cx.ports.of_path(node_guid, port) else {
        return Some(Refusal::NoDevice);
    };
    let status = &port.status;
    if !status.infiniband {
        Some(Refusal::NotInfiniBand)
    } else if !status.apm {
        Some(Refusal::NoApm)
    } else if status.device_ports < 2 && status.lmc == 0 {
        Some(Refusal::OnePath)
    } else {
        None
    }
}

impl Core {
    fn is_armed(&self) -> bool {
        self.qp.migration == MigrationState::Armed && self.qp.alternate.is_some()
    }

    fn in_rts(&self) -> bool {
        self.qp.qp_state == QpState::Rts
    }

    /// The local port of one of its paths.
    fn port_of<'a>(&self, cx: &'a Context, path: &Path) -> Option<&'a Port> {
        cx.ports.of_path(self.node_guid, path.port)
    }

    /// Whether the local end of a path is in service, and is what the path says that it is.
    fn is_up(&self, cx: &Context, path: &Path) -> bool {
        let fits = |port: &Port| port.has_lid(path.slid) && port.has_pkey(path.pkey);
        self.port_of(cx, path)
            .is_some_and(|port| port.is_up() && fits(port))
    }

    /// The alternate that the QP has, if it counts (in state Migrated it does not).
    fn loaded(&self) -> Option<&Path> {
        self.qp
            .alternate
            .as_ref()
            .filter(|_| self.qp.migration != MigrationState::Migrated)
    }

    /// Whether `path` is the alternate that the QP has.
    fn has_loaded(&self, path: &Path) -> bool {
        self.loaded()
            .is_some_and(|loaded| loaded.same_way(path) && loaded.sl == path.sl)
    }

    /// What there is to choose an alternate from.
    fn endpoints<'a>(&'a self, cx: &'a Context) -> Endpoints<'a> {
        Endpoints {
            ports: &cx.ports,
            node_guid: self.node_guid,
            primary: &self.qp.primary,
            peer_ports: &self.peer_ports,
            salt: u64::from(self.qpn.0) << 24 ^ u64::from(self.peer_qpn.0),
        }
    }

    /// LMC of the subnet.
    fn lmc(&self, cx: &Context) -> u8 {
        self.port_of(cx, &self.qp.primary)
            .map_or(0, |port| port.status.lmc)
    }

    /// The ways for MADs to the peer, in the order of trying: the primary's first, then the other
    /// rails, then across. The primary's local port is no way while it is down.
    fn routes(&self, cx: &Context) -> Vec<Route> {
        let lmc = self.lmc(cx);
        let primary = self.qp.primary.port;
        let mut local: Vec<&Port> = cx
            .ports
            .of_device(self.node_guid)
            .filter(|p| p.is_up())
            .collect();
        local.sort_by_key(|port| (port.id.port != primary, port.id.port));
        let mut remote: Vec<Lid> = Vec::new();
        let known = self.peer_ports.iter().map(|port| port.lid);
        let alternate = self.qp.alternate.map(|path| path.dlid);
        for lid in [self.qp.primary.dlid]
            .into_iter()
            .chain(known)
            .chain(alternate)
        {
            if lid != Lid(0) && !remote.iter().any(|&known| same_port(known, lid, lmc)) {
                remote.push(lid);
            }
        }
        (0..remote.len())
            .flat_map(|turn| {
                let ways = local.iter().enumerate();
                let remote = &remote;
                ways.map(move |(i, port)| Route {
                    port: port.id,
                    lid: remote[(i + turn) % remote.len()],
                })
            })
            .collect()
    }

    /// The way back to a sender, or another one if the local port is down meanwhile.
    fn way_back(&self, cx: &Context, route: Route) -> Route {
        let up = cx.ports.get(route.port).is_some_and(Port::is_up);
        if up {
            route
        } else {
            self.routes(cx).first().copied().unwrap_or(route)
        }
    }

    /// Whether a MAD comes from a daemon on a port that is known to be the peer's.
    fn knows(&self, cx: &Context, source: &MadSource) -> bool {
        let lmc = cx.ports.get(source.port).map_or(0, |port| port.status.lmc);
        let paths = [Some(&self.qp.primary), self.qp.alternate.as_ref()];
        let known = self.peer_ports.iter().copied();
        let known = known.chain(paths.into_iter().flatten().map(remote_end));
        source.qpn == 1 && known.into_iter().any(|port| is_from(source, port, lmc))
    }

    /// Whether a REQ's sender is who the QP is connected to: it sends from a port that it names,
    /// and the QP's path ends at one.
    fn is_peer(&self, cx: &Context, source: &MadSource, req: &Req, data: &ReqData) -> bool {
        let lmc = self.lmc(cx);
        let primary = PortAddress {
            gid: req.primary.local_port_gid,
            lid: req.primary.local_port_lid,
        };
        let named = data.ports.as_slice().iter().copied().chain([primary]);
        let mut ours = [Some(&self.qp.primary), self.qp.alternate.as_ref()]
            .into_iter()
            .flatten();
        source.qpn == 1
            && named.clone().any(|port| is_from(source, port, lmc))
            && ours.any(|path| named.clone().any(|port| ends_at(path, port, lmc)))
    }

    /// Fills in GIDs that the QP's attributes do not show.
    fn complete_paths(&mut self, lmc: u8) {
        let ports = &self.peer_ports;
        let complete = |path: &mut Path| {
            if path.dgid.is_unspecified()
                && let Some(port) = ports.iter().find(|p| same_port(p.lid, path.dlid, lmc))
            {
                path.dgid = port.gid;
            }
        };
        complete(&mut self.qp.primary);
        self.qp.alternate.as_mut().map(complete);
    }

    /// A port of the peer's was seen to have this LID (path bits may be in it).
    fn learn(&mut self, gid: Gid, lid: Lid, lmc: u8) {
        let lid = Lid(lid.0 >> lmc.min(7) << lmc.min(7));
        if let Some(port) = self.peer_ports.iter_mut().find(|port| port.gid == gid) {
            port.lid = lid;
        } else if self.peer_ports.len() < MAX_PEER_PORTS {
            self.peer_ports.push(PortAddress { gid, lid });
        }
        self.complete_paths(lmc);
    }

    fn event(&self, cx: &mut Context, event: AppEvent, status: u8) {
        if self.opted_in {
            cx.trace(self.id, What::Event(event));
            cx.order(self.id, Order::Event(event, status));
        }
    }
}

fn remote_end(path: &Path) -> PortAddress {
    PortAddress {
        gid: path.dgid,
        lid: path.dlid,
    }
}

fn is_from(source: &MadSource, port: PortAddress, lmc: u8) -> bool {
    same_port(port.lid, source.lid, lmc)
        || source
            .gid
            .is_some_and(|gid| gid == port.gid && gid != Gid::default())
}

fn ends_at(path: &Path, port: PortAddress, lmc: u8) -> bool {
    same_port(port.lid, path.dlid, lmc) || (path.dgid == port.gid && !path.dgid.is_unspecified())
}

impl Connection {
    /// What an operator may see.
    pub(crate) fn view(&self, cx: &Context, now: Time) -> ConnectionView {
        let (protection, reason) = self.judge(cx, now);
        let core = &self.core;
        let (role, active) = match &self.side {
            Side::Active(active) => (Role::Active, Some(active)),
            Side::Passive(_) => (Role::Passive, None),
        };
        ConnectionView {
            id: core.id,
            role,
            opted_in: core.opted_in,
            node_guid: core.node_guid,
            qpn: core.qpn,
            peer_qpn: core.peer_qpn,
            qp_state: core.qp.qp_state,
            migration: core.qp.migration,
            primary: core.qp.primary,
            alternate: core.qp.alternate,
            protection,
            reason,
            alternate_origin: active.and_then(|active| active.origin(core)),
            overlap: active.and_then(|active| active.overlap(core, cx)),
            chosen: active.and_then(Active::chosen),
            runner_up: active.and_then(Active::runner_up),
            association: self.association_view(),
            counters: core.counters,
            changed: core.changed,
        }
    }
}
