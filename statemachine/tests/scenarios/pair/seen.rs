// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be seen of it, and what must hold.

use cm_msgs::cm;
use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};
use statemachine::view::Protection;
use statemachine::{ConnId, ConnectionView, MadSource, Time, Trace};

use super::{ACTIVE, Host, Pair, PortOf, Qp, base_lid};

impl Pair {
    /// Keeps MADs of this name from now on.
    pub(crate) fn record(&mut self, name: &'static str) {
        self.record = Some(name);
    }

    pub(crate) fn recorded(&self) -> &[(usize, MadSource, cm::Message)] {
        &self.recorded
    }

    /// Transaction ID of the last MAD of this name.
    pub(crate) fn last_transaction(&self, name: &str) -> u32 {
        self.transactions[name]
    }

    /// Forgets what the engines said.
    pub(crate) fn forget_traces(&mut self) {
        self.traces.clear();
    }

    /// What a host's engine said since then.
    pub(crate) fn traces(&self, host: usize) -> impl Iterator<Item = &Trace> {
        let of_host = self.traces.iter().filter(move |(of, _)| *of == host);
        of_host.map(|(_, trace)| trace)
    }

    pub(crate) fn id(&self, host: usize, conn: usize) -> ConnId {
        ConnId {
            client: self.hosts[host].client,
            conn: conn as u32,
        }
    }

    pub(crate) fn view(&self, host: usize) -> ConnectionView {
        self.views(host).into_iter().next().expect("a connection")
    }

    pub(crate) fn views(&self, host: usize) -> Vec<ConnectionView> {
        let engine = self.hosts[host].engine.as_ref().expect("a daemon");
        engine.connections(Time(self.now)).collect()
    }

    pub(crate) fn qp(&self, host: usize) -> &Qp {
        &self.hosts[host].qps[0]
    }

    /// Whether none of its QPs has broken.
    pub(crate) fn is_alive(&self, host: usize) -> bool {
        self.hosts[host]
            .qps
            .iter()
            .all(|qp| qp.state == QpState::Rts)
    }

    pub(crate) fn all_sent(&self, host: usize) -> usize {
        self.hosts[host].sent.values().sum()
    }

    /// The pair of ports that a QP's path joins, from host 0's point of view.
    pub(crate) fn rails(path: &Path) -> (u8, PortOf) {
        let remote = [(0, 1), (0, 2), (1, 1), (1, 2)];
        let remote = remote
            .into_iter()
            .find(|&port| base_lid(port).0 == path.dlid.0 & !7);
        (path.port, remote.expect("a known LID"))
    }

    pub(crate) fn is_armed(&self) -> bool {
        let armed = |host: &Host| {
            host.qps
                .iter()
                .all(|qp| qp.migration == MigrationState::Armed)
                && host.qps.iter().all(|qp| qp.state == QpState::Rts)
        };
        self.hosts.iter().all(armed)
    }

    /// Invariant 1, and that both ends say what is true.
    pub(crate) fn assert_armed(&self) {
        for conn in 0..self.hosts[0].qps.len() {
            let [a, b] = [0, 1].map(|host| &self.hosts[host].qps[conn]);
            for (host, qp) in [(0, a), (1, b)] {
                let why = self.hosts[host]
                    .engine
                    .as_ref()
                    .map(|_| self.views(host)[conn].clone());
                assert_eq!(qp.state, QpState::Rts, "host {host}: {why:#?}");
                assert_eq!(qp.migration, MigrationState::Armed, "host {host}: {why:#?}");
            }
            assert!(is_reverse(&a.primary, &b.primary), "{a:?} {b:?}");
            let [left, right] = [a, b].map(|qp| qp.alternate.expect("armed"));
            assert!(
                is_reverse(&left, &right),
                "alternates {left:?} and {right:?}"
            );
            for host in 0..2 {
                if self.hosts[host].engine.is_some() {
                    let view = &self.views(host)[conn];
                    assert_eq!(view.protection, Protection::Armed, "{view:#?}");
                    assert_eq!(view.reason, None);
                }
            }
        }
    }

    /// All ports are up and above suspicion: alternates take other ports on both sides, and no
    /// other pair of LIDs there is known to share less with the primary.
    pub(crate) fn assert_best_alternates(&self) {
        for (conn, qp) in self.hosts[ACTIVE].qps.iter().enumerate() {
            let (primary, alternate) = (&qp.primary, qp.alternate.expect("armed"));
            let ports = |path: &Path| (path.slid.0 & !7, path.dlid.0 & !7);
            let [old, new] = [ports(primary), ports(&alternate)];
            assert!(old.0 != new.0 && old.1 != new.1, "{conn}: {old:?} {new:?}");
            let of = |lids| self.fabric.overlap(primary, lids);
            let overlap = of((alternate.slid, alternate.dlid));
            assert_eq!(self.views(ACTIVE)[conn].overlap, overlap);
            for offset in 0..1 << self.net.lmc {
                let other = of((Lid(new.0 | offset), Lid(new.1 | offset)));
                let better = match (other, overlap) {
                    (Some(other), Some(overlap)) => other < overlap,
                    (Some(other), None) => other.is_none(),
                    (None, _) => false,
                };
                assert!(
                    !better,
                    "{conn}: offset {offset}: {other:?}, not {overlap:?}"
                );
            }
        }
    }

    /// Nothing of a daemon's stays awake.
    pub(crate) fn assert_asleep(&self, host: usize) {
        let engine = self.hosts[host].engine.as_ref().expect("a daemon");
        // All that is left to do is to probe paths, and to make sure of the association now and then.
        let next = engine.next_alarm().map(|at| at - Time(self.now));
        assert!(
            next.is_none_or(|wait| wait.as_secs() >= 60),
            "host {host}: {next:?} {:#?}",
            self.views(host)
        );
    }

    /// What ports say of their connections is what the connections say.
    pub(super) fn assert_counted(&self, host: usize) {
        let Some(engine) = &self.hosts[host].engine else {
            return;
        };
        let views = || engine.connections(Time(self.now));
        for port in engine.ports() {
            let is_here = |path: &Path| path.port == port.id.port;
            let primaries = views().filter(|view| is_here(&view.primary)).count();
            let alternates = views().filter(|view| view.alternate.as_ref().is_some_and(is_here));
            assert_eq!(
                (port.primaries, port.alternates),
                (primaries, alternates.count()),
                "host {host} port {}",
                port.id.port
            );
        }
    }
}

/// Whether `peer` is this path seen from its other end.
pub(super) fn is_reverse(path: &Path, peer: &Path) -> bool {
    let is_port =
        |dgid: Gid, sgid: Gid| dgid.is_unspecified() || dgid.interface_id() == sgid.interface_id();
    path.slid == peer.dlid
        && path.dlid == peer.slid
        && is_port(path.dgid, peer.sgid)
        && is_port(peer.dgid, path.sgid)
}
