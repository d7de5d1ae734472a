// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both sides of a connection have: the QP as its library saw it last, and the peer's ports.

use alloc::boxed::Box;
use alloc::sync::Arc;

use cm_msgs::association::State;
use cm_msgs::control::{
    AppEvent, Cause, Load, Migrate, MigrationState, Mode, PolicyOverride, QpState, Refusal, Report,
    Snapshot,
};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};

use super::departure::Departure;
use super::failback_progress::Failback;
use super::following::Following;
use super::history::History;
use super::orders::{OrderEnd, OrderKind, Orders, QpChange};
use super::peer::{OwnEnd, OwnState, Peer};
use super::standing::StandingOrder;
use super::watched::Watched;
use crate::candidate::CandidatePool;
use crate::config::PortDown;
use crate::context::{ConnAlarm, Context};
use crate::exchange::RoundTrip;
use crate::guard::guard;
use crate::id::{ConnId, Payer, PortId};
use crate::input::QueryError;
use crate::output::Order;
use crate::port::Port;
use crate::proven_ports::SentTo;
use crate::schedule::Flight;
use crate::subnet::SubnetLid;
use crate::time::Time;
use crate::trace::{MigratedBy, PathLids, What};
use crate::verifications::VerifyAt;
use crate::view::{ConnectionCounters, Reason};

/// What both sides of a connection have.
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Core {
    pub(crate) id: ConnId,
    pub(super) payer: Payer,
    /// The LID that its primary led to when it was registered.
    pub(super) far: Lid,
    pub(super) opted_in: bool,
    /// What was said of its policy.
    pub(super) policy: PolicyOverride,
    pub(crate) node_guid: Guid,
    pub(crate) qpn: Qpn,
    pub(crate) peer_qpn: Qpn,
    /// The QP as its library saw it last.
    pub(crate) qp: Snapshot,
    /// Since when it is in its migration state.
    pub(super) since: Time,
    pub(super) orders: Orders,
    pub(super) standing: StandingOrder,
    /// The alternate that the QP has is no good, whatever its ports say: its HCA or the peer has said so.
    pub(super) distrusted: bool,
    /// It cannot be moved while it waits for traffic: that was refused.
    pub(super) refuses_idle: bool,
    /// The primary's local LID before its port got the one that the primary shows, or 0: the peer's QP sends to the
    /// old one.
    pub(super) relabelled_from: Lid,
    pub(super) departure: Departure,
    pub(super) following: Following,
    pub(super) history: History,
    pub(super) peer: Peer,
    pub(super) own: OwnState,
    /// The far-end port of which its handshake has proven the host's ports, for others as well.
    pub(super) vouches_for: Option<SubnetLid>,
    pub(super) verify_at: VerifyAt,
    /// How long the peer's daemon takes to answer.
    pub(crate) round_trip: RoundTrip,
    pub(super) refused: Option<Refusal>,
    pub(super) failback: Failback,
    /// Its paths that are probed.
    pub(super) watched: Watched,
    pub(super) counters: ConnectionCounters,
    /// Requests of its own without an answer.
    pub(super) flight: Option<Box<Flight>>,
    /// How often in a row it acted by itself, as a passive end without an alternate.
    pub(super) unaided: u8,
}

/// Ports of a peer that are kept in mind: it may name any number.
const MAX_PEER_PORTS: usize = 8;

/// A queue pair with what counts of it: an alternate that is the primary itself is none, whatever
/// migration state it was loaded in.
pub(super) fn counting(snapshot: Snapshot) -> Snapshot {
    let is_other = |path: &Path| !path.same_way(&snapshot.primary);
    Snapshot {
        alternate: snapshot.alternate.filter(is_other),
        ..snapshot
    }
}

impl Core {
    pub(super) fn is_armed(&self) -> bool {
        self.qp.migration == MigrationState::Armed && self.qp.alternate.is_some()
    }

    pub(super) fn in_rts(&self) -> bool {
        self.qp.qp_state == QpState::Rts
    }

    /// Whether it has an alternate that carries packets, as far as ports, probes and both ends tell.
    pub(super) fn has_good_alternate(&self, cx: &Context) -> bool {
        let carries = |path: &Path| self.is_usable(cx, path) && !self.is_suspect(cx, path);
        !self.distrusted && self.loaded().is_some_and(carries)
    }

    /// The peer has said of the alternate that the QP has whether it is any good.
    pub(super) fn distrust(&mut self, cx: &Context, distrusted: bool) {
        self.distrusted = distrusted;
        self.refresh_own(cx);
    }

    /// What stands in the way of any alternate, if it is a port that is not up.
    pub(super) fn missing_port(&self, cx: &Context) -> Option<Reason> {
        let lmc = self.lmc(cx);
        match self.policy(cx).mode {
            // Another LID of the same ports would do.
            Mode::Any if lmc > 0 => return None,
            Mode::Lid => return (lmc == 0).then_some(Reason::Policy(Mode::Lid)),
            Mode::Any | Mode::Port => {}
        }
        let primary = &self.qp.primary;
        let mut here = cx.ports.of_device(self.node_guid);
        if !here.any(|port| port.is_up() && port.id.port != primary.port) {
            return Some(Reason::NoSecondPort);
        }
        let end = self.candidate_pool(cx).far_port(primary);
        let there = self.peer.ports.iter().enumerate();
        let mut there = there.filter(|&(at, _)| Some(at) != end).peekable();
        let named = there.peek().is_some();
        (named && there.all(|(_, port)| port.lid == Lid(0))).then_some(Reason::NoSecondPortAtPeer)
    }

    /// What of its partition stands in the way of an alternate, where all that is known besides is `why`.
    pub(super) fn outside_partition(&self, cx: &Context, why: Reason) -> Option<Reason> {
        if self.policy(cx).mode == Mode::Lid {
            return None;
        }
        let Path { port, pkey, .. } = self.qp.primary;
        let mut others = cx.ports.of_device(self.node_guid);
        let outside = others
            .find(|other| other.is_up() && other.id.port != port && !other.has_pkey(pkey))
            .map(|other| Reason::NotInPartition(other.id.port, pkey));
        // In the default partition is everybody, as a rule: there it is more likely the port.
        let asked = why == Reason::NoPath(QueryError::NoPath);
        let is_special = (pkey.0 ^ PKey::DEFAULT_FULL.0) & 0x7fff != 0;
        outside.or((asked && is_special).then_some(Reason::NoPathInPartition(pkey)))
    }

    /// The local port of one of its paths.
    pub(super) fn port_of<'a>(&self, cx: &'a Context, path: &Path) -> Option<&'a Port> {
        cx.ports.of_path(self.node_guid, path.port)
    }

    /// Whether the local end of a path is in service, and is what the path says that it is.
    pub(super) fn is_up(&self, cx: &Context, path: &Path) -> bool {
        let fits = |port: &Port| port.has_lid(path.slid) && port.has_pkey(path.pkey);
        self.port_of(cx, path)
            .is_some_and(|port| port.is_up() && fits(port))
    }

    /// The alternate that the QP has, if it counts (in state Migrated it does not).
    pub(super) fn loaded(&self) -> Option<&Path> {
        self.qp
            .alternate
            .as_ref()
            .filter(|_| self.qp.migration != MigrationState::Migrated)
    }

    /// Whether `path` is the alternate that the QP has.
    pub(super) fn has_loaded(&self, path: &Path) -> bool {
        self.loaded()
            .is_some_and(|loaded| loaded.same_way(path) && loaded.sl == path.sl)
    }

    /// What there is to choose an alternate from.
    pub(super) fn candidate_pool<'a>(&'a self, cx: &'a Context) -> CandidatePool<'a> {
        CandidatePool {
            ports: &cx.ports,
            node_guid: self.node_guid,
            primary: &self.qp.primary,
            peer_ports: &self.peer.ports,
            salt: u64::from(self.qpn.0) << 24 ^ u64::from(self.peer_qpn.0),
        }
    }

    /// LMC of the subnet.
    pub(super) fn lmc(&self, cx: &Context) -> u8 {
        self.port_of(cx, &self.qp.primary)
            .map_or(0, |port| port.status.lmc)
    }

    /// Fills in the far GIDs that the QP's attributes do not show, and those that have had another prefix since.
    /// What a path's packets carry themselves, in a GRH, stays as it is.
    pub(super) fn complete_paths(&mut self, cx: &Context) {
        let far_gid = |path: &Path| {
            let at = self.candidate_pool(cx).far_port(path);
            let port = at.and_then(|at| self.peer.ports.get(at));
            let by_peer = || {
                let is_primary = path.same_way(&self.qp.primary);
                let tells = is_primary && self.orders.outstanding().is_none();
                let gid = || self.peer.far_gid_of(path, self.loaded());
                tells.then(gid).flatten()
            };
            port.map(|port| port.gid).or_else(by_peer)
        };
        let complete = |path: &Path| match far_gid(path) {
            Some(gid) if path.dgid.is_unspecified() || !path.global => gid,
            _ => path.dgid,
        };
        let primary = complete(&self.qp.primary);
        let alternate = self.qp.alternate.as_ref().map(complete);
        self.qp.primary.dgid = primary;
        if let (Some(path), Some(gid)) = (&mut self.qp.alternate, alternate) {
            path.dgid = gid;
        }
    }

    /// What was known of the far ends of `old`'s paths, and of the alternate that is being loaded, is known of the same
    /// paths in the QP as it is now.
    fn keep_gids(&mut self, old: &Snapshot) {
        let loading = self.orders.loading();
        let known = [Some(&old.primary), old.alternate.as_ref(), loading];
        let now = [Some(&mut self.qp.primary), self.qp.alternate.as_mut()];
        for path in now.into_iter().flatten() {
            let mut same = known.into_iter().flatten();
            if path.dgid.is_unspecified()
                && let Some(same) = same.find(|known| known.same_way(path))
            {
                path.dgid = same.dgid;
            }
        }
    }

    /// A port of the peer's was seen to have this LID (path bits may be in it).
    pub(super) fn learn(&mut self, cx: &Context, gid: Gid, lid: Lid, lmc: u8) {
        // Ports are told apart by their base LID; a path may name any of the 2^LMC.
        let lid = lid.base(lmc);
        let gid = self.peer.reported_gid(gid, lid).unwrap_or(gid);
        let ports = &self.peer.ports;
        let is_it = |port: &PortAddress| port.gid.interface_id() == gid.interface_id();
        match ports.iter().position(is_it) {
            Some(at) if ports[at] == (PortAddress { gid, lid }) => {}
            Some(at) => Arc::make_mut(&mut self.peer.ports)[at] = PortAddress { gid, lid },
            None if ports.len() < MAX_PEER_PORTS => {
                Arc::make_mut(&mut self.peer.ports).push(PortAddress { gid, lid });
            }
            None => {}
        }
        self.complete_paths(cx);
    }

    pub(super) fn event(&self, cx: &mut Context, event: AppEvent, status: u8) {
        if self.opted_in {
            cx.trace(self.id, What::Event(event));
            cx.order(self.id, Order::Event(event, status));
        }
    }

    // ---- orders and reports ----

    pub(super) fn load(&mut self, cx: &mut Context, alternate: Path) {
        self.event(cx, AppEvent::LoadAltPath, 0);
        cx.trace(self.id, What::Load(PathLids::from(&alternate)));
        let token = self.orders.begin_load(cx, self.id, alternate);
        let standing = self.may_stand(cx, &alternate);
        self.standing.load(standing);
        let load = Load {
            token,
            primary: self.qp.primary,
            alternate,
            standing,
        };
        cx.order(self.id, Order::Load(load));
    }

    pub(super) fn migrate(&mut self, cx: &mut Context) {
        self.failback.must();
        let primary = self.qp.primary;
        cx.trace(self.id, What::Migrate(PathLids::from(&primary)));
        let token = self.orders.begin(cx, self.id, OrderKind::Migrate);
        cx.order(self.id, Order::Migrate(Migrate { token, primary }));
    }

    /// Has the QP leave its primary for its alternate, whether it is Armed or waits for traffic.
    pub(super) fn go_over(&mut self, cx: &mut Context) {
        match self.is_armed() {
            true => self.migrate(cx),
            false => self.move_idle(cx),
        }
    }

    /// Has the QP leave its primary though it waits for traffic.
    fn move_idle(&mut self, cx: &mut Context) {
        self.failback.must();
        self.following.moved_idle(cx.now);
        let primary = self.qp.primary;
        cx.trace(self.id, What::MoveIdle(PathLids::from(&primary)));
        let token = self.orders.begin(cx, self.id, OrderKind::MoveIdle);
        cx.order(self.id, Order::MoveIdle(Migrate { token, primary }));
    }

    pub(super) fn query(&mut self, cx: &mut Context) {
        let token = self.orders.begin(cx, self.id, OrderKind::Query);
        cx.order(self.id, Order::Query(token));
    }

    /// Whether the QP must leave its primary now for its armed alternate: the local end of the primary is lost,
    /// the peer has left it, or its probes are lost while those of the alternate come back.
    ///
    /// A lost port may be back before the hardware's retries end, so it is no reason to go to an alternate that
    /// is suspect or whose far port is known to be down. Probes are no reason unless the peer has `agreed` to this
    /// alternate: it could not follow.
    pub(super) fn must_migrate(&self, cx: &Context, agreed: bool) -> bool {
        let Some(alternate) = self
            .qp
            .alternate
            .filter(|_| guard!(OnlyArmed, self.is_armed()))
        else {
            return false;
        };
        (self.peer_has_left(cx.now, &alternate) || self.has_lost_primary(cx, &alternate, agreed))
            && cx.config.port_down != PortDown::Wait
            && self.in_rts()
            && guard!(AlternateUp, self.is_up(cx, &alternate))
            // An order that has just failed would fail again.
            && !cx.is_set(self.id, ConnAlarm::MigrateHold)
    }

    /// Whether the peer has left the primary for this alternate, and is to be followed.
    fn peer_has_left(&self, now: Time, alternate: &Path) -> bool {
        let primary = &self.qp.primary;
        self.peer.prefers(alternate, primary) && !self.following.is_spent(now, primary, alternate)
    }

    /// Whether the primary carries nothing any more, and the alternate does, as ports and the peer tell, or, if they count,
    /// probes.
    pub(super) fn has_lost_primary(&self, cx: &Context, alternate: &Path, by_probes: bool) -> bool {
        let leads_on = !self.peer_lacks_port_of(cx, alternate) && !self.is_suspect(cx, alternate);
        let is_hollow = by_probes && self.is_primary_hollow(cx, alternate);
        (self.is_primary_lost(cx) && leads_on)
            || (is_hollow && !self.following.is_spent(cx.now, &self.qp.primary, alternate))
    }

    /// Leaves it for the alternate, because [`Self::must_migrate`] or [`Self::must_move_idle`], or because the peer has.
    pub(super) fn leave_primary(&mut self, cx: &mut Context) {
        let primary = self.qp.primary;
        // What hardware would not do is limited otherwise.
        let follows_idle =
            |alternate: &Path| !self.is_armed() && self.peer.prefers(alternate, &primary);
        let counts = |path: &Path| !self.is_primary_lost(cx) && !follows_idle(path);
        if let Some(alternate) = self.qp.alternate.filter(counts) {
            self.following.ordered(cx.now, &primary, &alternate);
            if self.following.is_spent(cx.now, &primary, &alternate) {
                cx.trace(self.id, What::ToAndFro);
            }
        }
        self.go_over(cx);
    }

    /// Whether it has been moved to and fro between its two paths so often that it stays.
    pub(super) fn is_to_and_fro(&self, now: Time) -> bool {
        let spent = |path: &Path| self.following.is_spent(now, &self.qp.primary, path);
        self.loaded().is_some_and(spent)
    }

    /// Whether nothing arrives by the primary any more, as the local port shows: it is down or gone, has another
    /// LID, to which the peer's QP does not send, or has left the connection's partition.
    pub(super) fn is_primary_lost(&self, cx: &Context) -> bool {
        self.has_lost_port(cx, &self.qp.primary)
    }

    /// The same of a path that is the primary one, or was until just now.
    pub(super) fn has_lost_port(&self, cx: &Context, path: &Path) -> bool {
        self.relabelled_from != Lid(0) || !self.is_up(cx, path)
    }

    /// Updates what is announced of this end. Returns whether its ability to be moved while idle has changed.
    pub(super) fn refresh_own(&mut self, cx: &Context) -> bool {
        let ports = cx.ports.announce(self.node_guid);
        let port = PortId::new(self.node_guid, self.qp.primary.port);
        let moves_idle = self.can_move_idle(cx);
        self.own.refresh(&OwnEnd {
            qp: &self.qp,
            distrusted: self.distrusted,
            moves_idle,
            place: cx.ports.place(port),
            ports: &ports,
        })
    }

    /// Whether the peer has to be told how this end is.
    pub(super) fn has_news(&self) -> bool {
        self.own.is_news_to(&self.peer, &self.qp.primary)
    }

    /// Whether a path ends at a port that is known to be the peer's, by its GID and its LID.
    pub(super) fn leads_to_peer(&self, cx: &Context, path: &Path) -> bool {
        let lmc = self.port_of(cx, path).map_or(0, |port| port.status.lmc);
        let known = self.peer.ports.iter().copied();
        let mut known = known.chain([self.qp.primary.remote_end()]);
        known.any(|port| port.gid == path.dgid && port.lid.is_one_port_with(path.dlid, lmc))
    }

    /// Whether the peer says that nothing arrives at its end of a path.
    pub(super) fn peer_lacks_port_of(&self, cx: &Context, path: &Path) -> bool {
        let lmc = self.port_of(cx, path).map_or(0, |port| port.status.lmc);
        self.peer.lacks_port_of(path, lmc)
    }

    /// Whether a path could be used from here, and the peer does not say that nothing arrives at its end of it.
    pub(super) fn is_usable(&self, cx: &Context, path: &Path) -> bool {
        self.is_up(cx, path) && !self.peer_lacks_port_of(cx, path)
    }

    /// The handshake with the peer is complete, and this is what it said in it; `sent` was our last, and
    /// our ID went `to` there.
    pub(super) fn proven(&mut self, cx: &mut Context, state: &State, sent: u32, to: SentTo) {
        self.peer.proven(state);
        self.vouch(cx, to);
        self.own.forgotten();
        self.own.told(sent);
        self.complete_paths(cx);
        self.verify_later(cx);
    }

    /// What the peer has said of its ports is for others as well, if it cannot have been said elsewhere
    /// than at the port that our ID was sent to.
    fn vouch(&mut self, cx: &mut Context, to: SentTo) {
        self.vouch_no_more(cx);
        let SentTo::Port(far) = to else { return };
        let gid = if self.far_end(cx, &self.qp.primary) == Some(far) {
            self.qp.primary.dgid
        } else {
            Gid::default()
        };
        self.peer.share_ports(&mut cx.peer_ports);
        let ports = &self.peer.ports;
        if cx.proven_ports.prove(self.node_guid, far, gid, ports) {
            self.vouches_for = Some(far);
        }
    }

    /// Its association is over.
    pub(super) fn vouch_no_more(&mut self, cx: &mut Context) {
        if let Some(far) = self.vouches_for.take() {
            cx.proven_ports.ended(self.node_guid, far);
        }
    }

    /// What it vouches for is still so while its association is open.
    pub(super) fn review_proof(&mut self, cx: &mut Context, open: bool) {
        let news = self.peer.take_other_ports();
        if !open {
            self.vouch_no_more(cx);
        } else if let Some(far) = self.vouches_for.filter(|_| news) {
            cx.proven_ports.told(self.node_guid, far, &self.peer.ports);
        }
    }

    fn verify_later(&mut self, cx: &mut Context) {
        let at = cx.now + cx.jitter(cx.config.verify_after);
        cx.verifications.set(self.id, &mut self.verify_at, at);
    }

    /// Its association is not open any more.
    pub(super) fn verify_no_more(&mut self, cx: &mut Context) {
        cx.verifications.cancel(self.id, &mut self.verify_at);
    }

    /// Nothing tells an end that the other has closed if all of its DREQs were lost. So it is told our
    /// state again now and then, and says so if it knows of no association.
    pub(super) fn verify(&mut self, cx: &mut Context) {
        self.own.forgotten();
        self.verify_later(cx);
    }

    /// What a report can change, besides what it does to orders.
    pub(super) fn reported(&self) -> (Snapshot, bool, Lid) {
        (self.qp, self.distrusted, self.relabelled_from)
    }

    /// Takes a report in. Libraries report in order, so its snapshot is the latest truth, whatever
    /// its cause.
    pub(super) fn report(&mut self, cx: &mut Context, report: &Report) -> QpChange {
        let by = match (report.cause, self.orders.outstanding()) {
            (Cause::StandingOrder, _) => MigratedBy::StandingOrder,
            (_, Some(OrderKind::Migrate)) => MigratedBy::Order,
            // It may have become Armed before the order came.
            (_, Some(OrderKind::MoveIdle)) => match report.snapshot.migration {
                MigrationState::Migrated => MigratedBy::Order,
                MigrationState::Rearm | MigrationState::Armed => MigratedBy::IdleMove,
            },
            _ => MigratedBy::Hardware,
        };
        let ended = self.orders.matches(cx, report.cause);
        let old = core::mem::replace(&mut self.qp, counting(report.snapshot));
        cx.path_index
            .change(self.member(), self.node_guid, &old, &self.qp);
        self.keep_gids(&old);
        self.complete_paths(cx);
        if old.migration != self.qp.migration || !old.primary.same_way(&self.qp.primary) {
            self.since = cx.now;
        }
        if let Some((kind, end)) = ended {
            self.end(cx, kind, end);
        }
        self.distrusted |= report.cause == Cause::PathMigrationError;
        self.note_relabelling(cx, &old.primary);
        let moved =
            !old.primary.same_way(&self.qp.primary) && !self.is_relabelled(cx, &old.primary);
        let cause = moved.then(|| self.cause(cx, &old.primary, by));
        if moved {
            self.peer.followed_to(&self.qp.primary);
            self.failback.moved(cx.now);
            self.standing.moved(self.orders.loading().is_some());
            self.distrusted = false;
            self.relabelled_from = Lid(0);
            self.end_departure(cx);
        }
        self.refresh_own(cx);
        let abandoned = cause.map(|cause| self.abandoned(cx, old.primary, by, cause));
        QpChange {
            ended,
            abandoned,
            alternate_broken: report.cause == Cause::PathMigrationError,
        }
    }

    /// Whether the primary is the path that was `old`, and only the port's base LID has changed. A QP holds the
    /// path bits, and is shown with the LID that its port has when it is read.
    fn is_relabelled(&self, cx: &Context, old: &Path) -> bool {
        let new = &self.qp.primary;
        let same_ends = (old.port, old.dlid) == (new.port, new.dlid);
        same_ends && old.slid != new.slid && !old.slid.is_one_port_with(new.slid, self.lmc(cx))
    }

    fn note_relabelling(&mut self, cx: &mut Context, old: &Path) {
        if !self.is_relabelled(cx, old) {
            return;
        }
        self.relabelled_from = match self.relabelled_from {
            Lid(0) => old.slid,
            first if first == self.qp.primary.slid => Lid(0),
            first => first,
        };
        // An order to leave it named the old LID. One that names the new LID is not stale.
        cx.stop(self.id, ConnAlarm::MigrateHold);
    }

    /// The library has taken too long over its order.
    pub(super) fn order_overdue(&mut self, cx: &mut Context) -> QpChange {
        let Some(kind) = self.orders.outstanding() else {
            return QpChange::default();
        };
        if self.orders.is_unknown() {
            // The question is on its way to a library that does not read: a second one would wait
            // behind it.
            return QpChange::default();
        }
        cx.trace(self.id, What::LibrarySilent);
        self.end(cx, kind, OrderEnd::Silent);
        // An overdue order is no ended one.
        if guard!(OverdueOrder, false) {
            return QpChange::default();
        }
        // It may carry the order out yet: nothing is decided until it has said how the QP is then.
        self.query(cx);
        self.orders.unknown();
        QpChange {
            ended: Some((kind, OrderEnd::Silent)),
            ..QpChange::default()
        }
    }

    fn end(&mut self, cx: &mut Context, kind: OrderKind, end: OrderEnd) {
        self.orders.end(cx, self.id, kind, end);
        if kind == OrderKind::Load {
            self.standing.load_ended(end == OrderEnd::Done);
        }
        match end {
            OrderEnd::Done => {}
            OrderEnd::Stale => {
                self.counters.stale_loads += 1;
                cx.trace(self.id, What::Stale);
            }
            OrderEnd::Failed(errno) => {
                self.counters.failed_orders += 1;
                cx.trace(self.id, What::OrderFailed { errno });
            }
            OrderEnd::Silent => self.counters.failed_orders += 1,
        }
        self.refuses_idle |= kind == OrderKind::MoveIdle && end.is_refusal();
        match (kind, end) {
            (OrderKind::Load, OrderEnd::Done) => {
                self.counters.loads += 1;
                self.distrusted = false;
                self.event(cx, AppEvent::AltPathLoaded, 0);
            }
            (
                OrderKind::Migrate | OrderKind::MoveIdle,
                OrderEnd::Stale | OrderEnd::Failed(_) | OrderEnd::Silent,
            ) => {
                self.departure.give_up();
                let delay = cx.backoff_delay(0);
                cx.set(self.id, ConnAlarm::MigrateHold, delay);
            }
            _ => {}
        }
    }
}
