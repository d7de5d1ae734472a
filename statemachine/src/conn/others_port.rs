// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that a peer names as its own, and that are this host's or another one's.

use cm_msgs::Gid;
use cm_msgs::path::{Path, PortAddress};

use super::qp::Core;
use crate::context::Context;
use crate::input::MadSource;
use crate::port_hosts::FarEnd;
use crate::subnet::SubnetLid;
use crate::time::Time;

impl Core {
    /// A message of the open association came from there.
    pub(super) fn note_sender(&self, cx: &mut Context, source: &MadSource) {
        if let Some(from) = cx.ports.end(source.port, source.lid) {
            let said = self.peer.reported();
            cx.port_hosts.spoke(self.node_guid, from, said, cx.now);
        }
    }

    /// When the peer's host said something last, from any port that it has reported.
    pub(super) fn peer_heard(&self, cx: &Context) -> Option<Time> {
        let ports = self.peer.reported().iter();
        let ends = ports.filter_map(|port| cx.ports.end_of(self.node_guid, port));
        ends.filter_map(|end| cx.port_hosts.heard(self.node_guid, end))
            .max()
    }

    /// Whether a path that a source knows ends at a port that is not the peer's. That its GID and its LID are one port's
    /// is the source's word.
    pub(super) fn leads_to_anothers(&self, cx: &Context, path: &Path) -> bool {
        let is_anothers =
            |end| self.is_own_end(cx, end) || self.is_shown_anothers(cx, end, Some(path.dgid));
        self.is_own_port(cx, path.dgid) || self.far_end(cx, path).is_some_and(is_anothers)
    }

    /// The same of a path that the peer names in a message, both GID and LID. What comes from that very LID comes from
    /// no port of this host, and if it has the association's names, from the peer.
    pub(super) fn is_named_anothers(&self, cx: &Context, path: &Path, source: &MadSource) -> bool {
        let end = self.far_end(cx, path);
        let is_proven = source.port.port == path.port
            && end.is_some()
            && end == cx.ports.end(source.port, source.lid);
        let is_anothers = |end| self.is_own_end(cx, end) || self.is_shown_anothers(cx, end, None);
        self.is_own_port(cx, path.dgid) || (!is_proven && end.is_some_and(is_anothers))
    }

    /// The same of a port that the peer names.
    pub(super) fn is_anothers_port(&self, cx: &Context, port: &PortAddress) -> bool {
        let end = cx.ports.end_of(self.node_guid, port);
        self.is_own_port(cx, port.gid)
            || end.is_some_and(|end| self.is_shown_anothers(cx, end, Some(port.gid)))
    }

    fn is_shown_anothers(&self, cx: &Context, end: SubnetLid, gid: Option<Gid>) -> bool {
        let primary = &self.qp.primary;
        let peer = self.far_end(cx, primary).map(|at| FarEnd {
            at,
            gid: primary.dgid,
        });
        peer.is_some_and(|peer| {
            cx.port_hosts
                .is_anothers(self.node_guid, end, gid, peer, cx.now)
        })
    }

    /// Whether a port is this host's, and the peer is another host.
    fn is_own_port(&self, cx: &Context, gid: Gid) -> bool {
        let mut own = cx.ports.iter();
        let is_own = own.any(|own| own.status.gid.interface_id() == gid.interface_id());
        is_own && !gid.is_unspecified() && !self.leads_here(cx)
    }

    /// Whether the connection's other end is on this host as well.
    fn leads_here(&self, cx: &Context) -> bool {
        let end = self.far_end(cx, &self.qp.primary);
        end.is_some_and(|end| self.is_own_lid(cx, end))
    }

    /// Whether a port is this host's by its LID, and the peer is another host.
    fn is_own_end(&self, cx: &Context, end: SubnetLid) -> bool {
        self.is_own_lid(cx, end) && !self.leads_here(cx)
    }

    fn is_own_lid(&self, cx: &Context, end: SubnetLid) -> bool {
        let mut own = cx.ports.iter();
        own.any(|own| own.is_up() && cx.ports.end(own.id, own.status.lid) == Some(end))
    }
}
