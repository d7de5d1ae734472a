// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where messages to a connection's peer go, and whether one comes from it.

use alloc::vec::Vec;

use cm_msgs::cm::{self, Req};
use cm_msgs::path::{Path, PortAddress};

use super::qp::Core;
use crate::context::{Context, Route};
use crate::guard::guard;
use crate::id::PortId;
use crate::input::MadSource;
use crate::port::Port;
use crate::proven_ports::SentTo;
use crate::subnet::SubnetLid;

impl Core {
    /// The routes for MADs to the peer, in the order of trying: the primary's first, then the other
    /// rails, then across. Between the ports that a path of the QP's joins, a MAD goes as the QP's packets do, by the
    /// path's own LIDs and service level; by the ports' first LIDs after all others. None begins at a port
    /// that is down, or outside of the connection's partition, or ends at a LID that no port has: a QP in state
    /// Error may have been on its way there.
    pub(super) fn routes(&self, cx: &Context) -> Vec<Route> {
        let paths = self.along_paths(cx);
        let mut routes = Vec::new();
        let mut last = Vec::new();
        for (port, end) in self.pairs(cx) {
            let by_first_lids = Route {
                port: port.id,
                lid: end.lid(),
                sl: 0,
                path_bits: 0,
                pkey: self.qp.primary.pkey,
            };
            let before = routes.len();
            let joins = |(far, route): (SubnetLid, Route)| {
                (far == end && route.port == port.id).then_some(route)
            };
            routes.extend(paths.into_iter().flatten().filter_map(joins));
            if routes.len() == before {
                routes.push(by_first_lids);
            } else {
                last.push(by_first_lids);
            }
        }
        for route in last {
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
        routes
    }

    /// Local ports that carry MADs of the connection, each with a port of the peer's in the same subnet.
    fn pairs<'a>(&self, cx: &'a Context) -> Vec<(&'a Port, SubnetLid)> {
        let primary = self.qp.primary.port;
        let mut local: Vec<&Port> = cx
            .ports
            .of_device(self.node_guid)
            .filter(|p| p.is_up() && p.is_in_partition(self.qp.primary.pkey))
            .collect();
        local.sort_by_key(|port| (port.id.port != primary, port.id.port));
        let mut remote: Vec<SubnetLid> = Vec::new();
        let known = self.known_ports(cx).iter();
        let known = known.filter_map(|port| cx.ports.end_of(self.node_guid, port));
        let [primary, alternate] = self.far_ends(cx);
        for end in primary.into_iter().chain(known).chain(alternate) {
            if end.lid().is_unicast() && !remote.contains(&end) {
                remote.push(end);
            }
        }
        let mut pairs = Vec::new();
        for shift in 0..remote.len() {
            for (i, port) in local.iter().enumerate() {
                let end = remote[(i + shift) % remote.len()];
                if cx.ports.subnet(port.id) == Some(end.subnet()) {
                    pairs.push((*port, end));
                }
            }
        }
        pairs
    }

    /// The routes along its primary and its alternate, each with its far end; where its port has its LID.
    fn along_paths(&self, cx: &Context) -> [Option<(SubnetLid, Route)>; 2] {
        let paths = [Some(&self.qp.primary), self.qp.alternate.as_ref()];
        paths.map(|path| {
            let path = path?;
            Some((self.far_end(cx, path)?, self.along(cx, path)?))
        })
    }

    /// As packets along a path go; `None`: its port has not its LID.
    fn along(&self, cx: &Context, path: &Path) -> Option<Route> {
        let port = self.port_of(cx, path)?;
        port.has_lid(path.slid).then(|| Route {
            port: port.id,
            lid: path.dlid,
            sl: path.sl,
            // Seven bits at most, since an LMC is 7 at most.
            path_bits: (path.slid.0 - path.slid.base(port.status.lmc).0) as u8,
            pkey: self.qp.primary.pkey,
        })
    }

    /// The far ends of its primary and of its alternate.
    fn far_ends(&self, cx: &Context) -> [Option<SubnetLid>; 2] {
        let ends = [Some(&self.qp.primary), self.qp.alternate.as_ref()];
        ends.map(|path| self.far_end(cx, path?))
    }

    /// The far end of one of its paths: in the subnet of the near end, whatever GIDs the application has put into
    /// the path, since no router is between.
    pub(super) fn far_end(&self, cx: &Context, path: &Path) -> Option<SubnetLid> {
        let port = PortId::new(self.node_guid, path.port);
        cx.ports.end(port, path.dlid)
    }

    /// The peer's ports; before its handshake those that another connection to the same port knows.
    fn known_ports<'a>(&'a self, cx: &'a Context) -> &'a [PortAddress] {
        if !self.peer.ports.is_empty() {
            return &self.peer.ports;
        }
        let primary = &self.qp.primary;
        self.far_end(cx, primary).map_or(&[], |far| {
            cx.proven_ports.at(self.node_guid, far, primary.dgid)
        })
    }

    /// An ID of ours is sent along one of these routes.
    pub(super) fn note_sent(&self, cx: &Context, to: &mut SentTo, routes: &[Route]) {
        let ends = routes
            .iter()
            .map(|route| cx.ports.end(route.port, route.lid));
        for end in ends.flatten() {
            to.add(end);
        }
    }

    /// The same, and before them along a path that a message is about: so the message tries it. Only
    /// where the path leads to a port of the peer's.
    pub(super) fn routes_by(&self, cx: &Context, path: &Path) -> Vec<Route> {
        let leads_there =
            self.is_usable(cx, path) && !self.is_suspect(cx, path) && self.leads_to_peer(cx, path);
        let first = leads_there.then(|| self.along(cx, path)).flatten();
        let others = self.routes(cx).into_iter();
        let others = others.filter(|route| first != Some(*route));
        first.into_iter().chain(others).collect()
    }

    /// The route back to a sender, if it leads to the peer and can be taken; or the first that does.
    /// What names our communication ID goes nowhere else: that is what makes it a proof.
    pub(super) fn route_back(&self, cx: &Context, source: &MadSource) -> Option<Route> {
        let back = Route::from(source);
        let up = cx.ports.get(back.port).is_some_and(Port::is_up);
        if up && self.knows(cx, source) {
            return Some(back);
        }
        self.routes(cx).first().copied()
    }

    /// Answers a message of the peer's.
    pub(super) fn answer(
        &self,
        cx: &mut Context,
        source: &MadSource,
        message: impl Into<cm::Message>,
    ) {
        if let Some(route) = self.route_back(cx, source) {
            cx.reply(route, source.transaction_id, message);
        }
    }

    /// Whether a MAD comes from a daemon on a port that is known to be the peer's.
    pub(super) fn knows(&self, cx: &Context, source: &MadSource) -> bool {
        // By its LID, where an answer goes. A GRH counts for nothing: what it names is elsewhere if the LID is.
        let from = cx.ports.end(source.port, source.lid);
        let is_end = from.is_some() && self.far_ends(cx).contains(&from);
        // QP1 is the kernel's: only who may open umad can send from it, while any user has QPs.
        source.qpn == 1
            && guard!(
                WhereTheQpLeads,
                is_end
                    || self
                        .peer
                        .ports
                        .iter()
                        .any(|port| cx.ports.is_from(source, port))
            )
    }

    /// Whether a MAD came in the connection's own partition. Memberships are the HCA's to check: it does
    /// not let a limited member's packet in by a limited key (IBA 10.9.1.1), and tells only which of the
    /// port's own keys let it in.
    pub(crate) fn is_partition_of(&self, source: &MadSource) -> bool {
        source.is_in(self.qp.primary.pkey)
    }

    /// Whether a path that a REQ names is one of the QP's: one end may have left its primary for the alternate, and
    /// the other may not know that yet. Who sent the REQ is another question.
    pub(super) fn has_path_of(&self, cx: &Context, req: &Req) -> bool {
        let ours = [Some(&self.qp.primary), self.qp.alternate.as_ref()];
        let mut ours = ours.into_iter().flatten();
        let theirs = [&req.primary, &req.alternate];
        ours.any(|path| {
            let lmc = self.port_of(cx, path).map_or(0, |port| port.status.lmc);
            theirs.iter().any(|fields| {
                path.slid.is_one_port_with(fields.remote_port_lid, lmc)
                    && path.dlid.is_one_port_with(fields.local_port_lid, lmc)
            })
        })
    }
}
