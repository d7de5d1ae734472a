// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection.

mod active;
mod announcement;
mod association;
mod charging;
mod departure;
mod disconnect;
mod doubt;
mod failback;
mod failback_progress;
mod following;
mod granting;
mod history;
mod idle;
mod leaving;
mod moved;
mod noticed;
mod orders;
mod others_port;
mod passive;
mod peer;
mod policy;
mod probing;
mod proposal;
mod protection;
mod qp;
mod refusal;
mod routes;
#[cfg(test)]
mod sample;
mod standing;
mod watched;

use alloc::boxed::Box;
use alloc::vec::Vec;

use cm_msgs::Lid;
use cm_msgs::association::ReqData;
use cm_msgs::cm::{self, Dreq, Req, Sap};
use cm_msgs::control::{MigrationState, Refusal, Register, Report, Role};

use self::active::{Active, Standing};
pub(crate) use self::association::{CommIds, MraReceived};
use self::departure::Departure;
use self::failback_progress::Failback;
use self::following::Following;
use self::history::History;
use self::orders::{OrderKind, Orders, QpChange};
use self::passive::Passive;
use self::peer::{OwnEnd, OwnState, Peer};
use self::protection::ProtectionRecord;
use self::qp::{Core, counting};
use self::standing::StandingOrder;
use self::watched::Watched;

use crate::context::{ConnAlarm, Context, Route};
use crate::exchange::RoundTrip;
use crate::guard::guard;
use crate::id::{ConnId, Payer, PortId};
use crate::input::MadSource;
use crate::members::Member;
use crate::output::Order;
use crate::overlap::Overlap;
use crate::questions::Answer;
use crate::schedule::{Claim, Class, Waiter};
use crate::time::Time;
use crate::trace::What;
use crate::verifications::VerifyAt;
use crate::view::{ConnectionCounters, ConnectionView, Grade, Identity, Protection, Transition};

/// Boxed, since an active side knows much more.
#[cfg_attr(test, derive(Clone, Debug))]
enum Side {
    Active(Box<Active>),
    Passive(Box<Passive>),
}

/// A connection that a library registered.
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Connection {
    pub(crate) core: Core,
    side: Side,
    record: ProtectionRecord,
    seen: Seen,
}

/// Changes of ports and of the fabric that a connection has taken in. Both counts wrap.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct Seen {
    ports: u32,
    fabric: u32,
}

impl Connection {
    /// Takes a connection over, or refuses it; `refused`: its owner has said so.
    pub(crate) fn new(
        cx: &mut Context,
        id: ConnId,
        payer: Payer,
        register: &Register,
        refused: Option<Refusal>,
    ) -> Self {
        let Register {
            role,
            opted_in,
            node_guid,
            qpn,
            peer_qpn,
            policy,
            snapshot,
        } = *register;
        let snapshot = counting(snapshot);
        let far = snapshot.primary.dlid;
        cx.path_index
            .add(Member { payer, far, id }, node_guid, &snapshot);
        let refused = refused.or_else(|| refusal::reason(cx, node_guid, &snapshot));
        let port = PortId::new(node_guid, snapshot.primary.port);
        let own = OwnState::new(&OwnEnd {
            qp: &snapshot,
            distrusted: false,
            moves_idle: cx.moves_idle(port, id.client) && idle::has_like_paths(&snapshot),
            place: cx.ports.place(port),
            ports: &cx.ports.announce(node_guid),
        });
        let core = Core {
            id,
            payer,
            far,
            opted_in,
            policy,
            node_guid,
            qpn,
            peer_qpn,
            qp: snapshot,
            since: cx.now,
            orders: Orders::default(),
            standing: StandingOrder::default(),
            departure: Departure::default(),
            following: Following::default(),
            history: History::default(),
            peer: Peer::default(),
            round_trip: RoundTrip::default(),
            distrusted: false,
            refuses_idle: false,
            relabelled_from: Lid::default(),
            own,
            vouches_for: None,
            verify_at: VerifyAt::default(),
            refused,
            failback: Failback::new(cx.now),
            watched: Watched::default(),
            counters: ConnectionCounters::default(),
            flight: None,
            unaided: 0,
        };
        let side = match role {
            Role::Active => Side::Active(Box::default()),
            Role::Passive => Side::Passive(Box::default()),
        };
        cx.trace(id, What::Registered);
        let record = ProtectionRecord::new(cx.now);
        let seen = Seen {
            ports: cx.ports.changes(),
            fabric: cx.fabric_changes,
        };
        let mut conn = Self {
            core,
            side,
            record,
            seen,
        };
        if let Some(refusal) = refused {
            cx.trace(id, What::Refused(refusal));
            cx.order(id, Order::Refuse(refusal));
        } else {
            conn.start(cx);
        }
        conn.drive(cx);
        conn
    }

    fn start(&mut self, cx: &mut Context) {
        match &mut self.side {
            Side::Active(active) => active.start(&mut self.core, cx),
            Side::Passive(passive) => passive.start(&self.core, cx),
        }
    }

    /// Both ends took themselves for the active side, or both for the passive.
    fn change_sides(&mut self, cx: &mut Context) {
        let id = self.core.id;
        for alarm in [ConnAlarm::Association, ConnAlarm::Rearm, ConnAlarm::Unasked] {
            cx.stop(id, alarm);
        }
        self.side = match &mut self.side {
            Side::Active(active) => {
                active.close(&mut self.core, cx);
                Side::Passive(Box::default())
            }
            Side::Passive(passive) => {
                passive.close(&mut self.core, cx);
                Side::Active(Box::default())
            }
        };
        cx.trace(id, What::Role(self.role()));
        self.start(cx);
    }

    fn role(&self) -> Role {
        match &self.side {
            Side::Active(_) => Role::Active,
            Side::Passive(_) => Role::Passive,
        }
    }

    /// It is this connection's turn to have an association opened.
    pub(crate) fn admitted(&mut self, cx: &mut Context) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            active.admitted(&mut self.core, cx);
        }
        self.drive(cx);
    }

    /// The library says what happened to the QP.
    pub(crate) fn report(&mut self, cx: &mut Context, report: &Report) {
        let was_behind = self.is_behind(cx);
        self.catch_up(cx);
        if self.core.refused.is_some() {
            return;
        }
        let before = self.core.reported();
        let change = self.core.report(cx, report);
        // Libraries and the module report again what is known, and some often: that must cost nothing.
        let is_news = change != QpChange::default() || self.core.reported() != before;
        if was_behind || is_news {
            self.qp_changed(cx, &change);
        }
    }

    fn qp_changed(&mut self, cx: &mut Context, change: &QpChange) {
        match &mut self.side {
            Side::Active(active) => active.qp_changed(&mut self.core, cx, change),
            Side::Passive(passive) => passive.qp_changed(&mut self.core, cx, change),
        }
        self.drive(cx);
    }

    /// Looks at what happened, in a round of those that must migrate, or of all.
    pub(crate) fn look(&mut self, cx: &mut Context, class: Class) {
        let passes = match class {
            Class::Migrate => !self.core.must_migrate(cx, self.may_go_by_probes()),
            _ => !self.is_behind(cx),
        };
        if !passes {
            self.catch_up(cx);
            self.drive(cx);
        }
    }

    /// It waited for room, and there is some.
    pub(crate) fn room(&mut self, cx: &mut Context) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            active.room(&mut self.core, cx);
        }
        self.drive(cx);
    }

    fn is_behind(&self, cx: &Context) -> bool {
        let Seen { ports, fabric } = self.seen;
        fabric != cx.fabric_changes || cx.ports.changed_after(self.core.node_guid, ports).is_some()
    }

    /// Takes in what happened to ports and the fabric since it last looked. Before whatever else
    /// happens to it: what it decides rests on how things are.
    fn catch_up(&mut self, cx: &mut Context) {
        while let Some((id, number)) = cx.ports.changed_after(self.core.node_guid, self.seen.ports)
        {
            self.seen.ports = number;
            self.port_changed(cx, id);
        }
        self.seen.ports = cx.ports.changes();
        if self.seen.fabric != cx.fabric_changes {
            self.seen.fabric = cx.fabric_changes;
            self.fabric_changed(cx);
        }
    }

    /// A port of the connection's device changed; `id` is now as the table says.
    fn port_changed(&mut self, cx: &mut Context, id: PortId) {
        self.core.following.port_changed();
        self.own_ability_changed(cx);
        if self.core.refused.is_some() {
            return self.reconsider(cx);
        }
        match &mut self.side {
            Side::Active(active) => active.port_changed(&mut self.core, cx, id),
            Side::Passive(passive) => passive.port_changed(&self.core, cx),
        }
        if self.core.qp.primary.port != id.port {
            return;
        }
        if self.core.is_primary_lost(cx) {
            self.core.hasten_suspect_alternate(cx);
        }
        let down = cx.ports.get(id).is_none_or(|port| !port.is_up());
        if down && self.core.qp.migration != MigrationState::Armed {
            cx.trace(self.core.id, What::PrimaryLost);
            self.core.history.push(cx.now, Transition::PrimaryLost);
        }
    }

    /// What was refused for want of a port or a LID may be possible now: a daemon that has just
    /// started hears of its libraries and of its ports in any order.
    fn reconsider(&mut self, cx: &mut Context) {
        let by_owner = self.core.refused == Some(Refusal::GlobalRoute);
        if by_owner || refusal::reason(cx, self.core.node_guid, &self.core.qp).is_some() {
            return;
        }
        self.core.refused = None;
        cx.trace(self.core.id, What::Registered);
        self.core.query(cx);
        self.start(cx);
    }

    pub(crate) fn timeout(&mut self, cx: &mut Context, alarm: ConnAlarm) {
        self.catch_up(cx);
        match (alarm, &mut self.side) {
            (ConnAlarm::Order, _) => {
                let change = self.core.order_overdue(cx);
                return self.qp_changed(cx, &change);
            }
            (ConnAlarm::Unprotected, _) => return self.warn_unprotected(cx),
            (
                ConnAlarm::MigrateHold
                | ConnAlarm::StandHold
                | ConnAlarm::Failback
                | ConnAlarm::Steered,
                _,
            ) => {}
            (ConnAlarm::Departure, _) => self.departure_due(cx.now),
            (ConnAlarm::Unasked, Side::Passive(passive)) => {
                if passive.is_unasked(&self.core) {
                    self.change_sides(cx);
                } else if passive.is_open() {
                    passive.make_sure_of_peer(&mut self.core);
                } else {
                    passive.start(&self.core, cx);
                }
            }
            (_, Side::Active(active)) => active.timeout(&mut self.core, cx, alarm),
            (_, Side::Passive(passive)) => passive.timeout(&mut self.core, cx, alarm),
        }
        self.drive(cx);
    }

    /// Nothing has shown for long that the peer still has the association.
    pub(crate) fn verify(&mut self, cx: &mut Context) {
        self.catch_up(cx);
        self.core.verify(cx);
        self.drive(cx);
    }

    /// An answer to a path query.
    pub(crate) fn paths(&mut self, cx: &mut Context, answer: &Answer) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            let result = answer.result.as_ref().as_deref().map_err(|error| *error);
            active.paths(&mut self.core, cx, answer.number, result, answer.origin);
        }
        self.drive(cx);
    }

    /// What paths share with the primary.
    pub(crate) fn assessed(&mut self, cx: &mut Context, query: u32, overlaps: &[Option<Overlap>]) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            active.negotiation.assessed(&self.core, cx, query, overlaps);
        }
        self.drive(cx);
    }

    /// What paths share may be another thing than before. The active side chooses.
    fn fabric_changed(&mut self, cx: &mut Context) {
        if let Side::Active(active) = &mut self.side {
            active.negotiation.fabric_changed(&self.core, cx);
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
        self.core.qpn == data.peer_qpn
            && self.core.peer_qpn == req.local_qpn
            && source.qpn == 1
            && self.core.has_path_of(cx, req)
    }

    /// A REQ that [`Self::is_asked_by`] has confirmed.
    pub(crate) fn req(&mut self, cx: &mut Context, source: &MadSource, req: &Req, data: &ReqData) {
        self.catch_up(cx);
        match (self.core.refused, &mut self.side) {
            (Some(why), side) => {
                refusal::answer_req(&self.core, cx, source, req, why);
                if let Side::Passive(passive) = side {
                    passive.has_refused();
                }
            }
            (None, Side::Active(active)) => active.req(&mut self.core, cx, source, req),
            (None, Side::Passive(passive)) => passive.req(&mut self.core, cx, source, req, data),
        }
        self.drive(cx);
    }

    /// A message for one of the connection's communication IDs.
    pub(crate) fn message(&mut self, cx: &mut Context, source: &MadSource, message: &cm::Message) {
        self.catch_up(cx);
        match &mut self.side {
            Side::Active(active) => {
                if active.message(&mut self.core, cx, source, message) == Standing::Yielded {
                    self.change_sides(cx);
                }
            }
            Side::Passive(passive) => passive.message(&mut self.core, cx, source, message),
        }
        self.drive(cx);
    }

    /// A SAP of an association that this end gave up.
    pub(crate) fn late_sap(&mut self, cx: &mut Context, sap: &Sap) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            active.late_sap(&mut self.core, cx, sap);
        }
        self.drive(cx);
    }

    /// A DREQ of an association that this end gave up. It ends something, and counts from the peer's ports only.
    pub(crate) fn late_dreq(&mut self, cx: &mut Context, source: &MadSource, dreq: &Dreq) {
        if let Side::Active(active) = &mut self.side
            && self.core.knows(cx, source)
        {
            active.late_dreq(&self.core, cx, dreq);
        }
    }

    fn is_open(&self) -> bool {
        match &self.side {
            Side::Active(active) => active.is_open(),
            Side::Passive(passive) => passive.is_open(),
        }
    }

    /// Whether probes alone may be a reason to leave the primary for the alternate: the peer is known to have loaded the
    /// same one, which the active side knows, and hardware has not left that path since a probe of it came back.
    fn may_go_by_probes(&self) -> bool {
        let Side::Active(active) = &self.side else {
            return false;
        };
        let alternate = self.core.loaded();
        let alternate = alternate.and_then(|path| self.core.probe_path(path));
        let doubts = |path| active.negotiation.doubts(&self.core, path);
        active.negotiation.is_settled() && !alternate.as_ref().is_some_and(doubts)
    }

    /// Whether the QP must leave its primary now for the alternate that it has loaded.
    fn must_leave(&self, cx: &Context) -> bool {
        self.core.must_migrate(cx, self.may_go_by_probes())
            || self
                .core
                .must_move_idle(cx, self.has_agreed(), self.may_go_by_probes())
    }

    /// Does what is due: the one place that decides to act, called after whatever happened.
    fn drive(&mut self, cx: &mut Context) {
        self.consider_failback(cx);
        let free = guard!(OneOrder, self.core.orders.outstanding().is_none());
        if self.core.refused.is_none() && free {
            if self.must_leave(cx) {
                self.core.leave_primary(cx);
            } else if !self.depart(cx) {
                match &mut self.side {
                    Side::Active(active) => active.drive(&mut self.core, cx),
                    Side::Passive(passive) => passive.drive(&mut self.core, cx),
                }
            }
        }
        self.core.peer.share_ports(&mut cx.peer_ports);
        let open = self.is_open();
        self.core.review_proof(cx, open);
        self.watch_paths(cx);
        self.stand(cx);
        self.note_protection(cx);
        let in_flight = match &self.side {
            Side::Active(active) => active.in_flight(),
            Side::Passive(passive) => passive.in_flight(),
        };
        self.core.note_in_flight(cx, in_flight);
    }

    /// Tells the library if it may do something else by itself than before.
    pub(crate) fn stand(&mut self, cx: &mut Context) {
        // What the QP is like is not known while it is being asked.
        let asking = self.core.orders.outstanding() == Some(OrderKind::Query);
        if self.core.refused.is_none() && !asking {
            self.core.stand(cx);
        }
    }

    /// Takes the connection apart. What is left is the association to close, if there is one.
    pub(crate) fn close(&mut self, cx: &mut Context) -> Option<(CommIds, Vec<Route>)> {
        for alarm in ConnAlarm::ALL {
            cx.stop(self.core.id, alarm);
        }
        self.core.verify_no_more(cx);
        cx.failbacks.remove(self.core.id);
        self.unwatch_paths(cx);
        cx.trace(self.core.id, What::Closed);
        let member = self.core.member();
        let Core { node_guid, qp, .. } = &self.core;
        cx.path_index.remove(member, *node_guid, qp);
        cx.path_index.expose(member, *node_guid, false);
        cx.schedule.leave(Waiter::Conn(self.core.id));
        self.core.vouch_no_more(cx);
        let routes = self.core.routes(cx);
        let ids = match &mut self.side {
            Side::Active(active) => active.close(&mut self.core, cx),
            Side::Passive(passive) => passive.close(&mut self.core, cx),
        };
        self.core.note_in_flight(cx, 0);
        ids.map(|ids| (ids, routes))
    }

    /// What a request about it is charged to that protects nobody.
    pub(crate) fn closing_claim(&self, cx: &Context) -> Claim {
        Claim {
            class: Class::Improve,
            ..self.core.claim(cx)
        }
    }
}

impl Connection {
    pub(crate) fn protection(&self, cx: &Context, now: Time) -> (Protection, Option<Grade>) {
        let (protection, _) = self.judge(cx, now);
        let armed = protection == Protection::Armed;
        let grade = armed.then(|| self.grade(cx, self.overlap(cx))).flatten();
        (protection, grade)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            id: self.core.id,
            node_guid: self.core.node_guid,
            qpn: self.core.qpn,
            port: self.core.qp.primary.port,
            dlid: self.core.qp.primary.dlid,
        }
    }

    /// What an operator may see.
    pub(crate) fn view(&self, cx: &Context, now: Time) -> ConnectionView {
        let (protection, reason) = self.judge(cx, now);
        let core = &self.core;
        let negotiation = match &self.side {
            Side::Active(active) => Some(&active.negotiation),
            Side::Passive(_) => None,
        };
        let overlap = self.overlap(cx);
        let grade = self.grade(cx, overlap);
        let (primary_probe, alternate_probe) = self.probe_views(cx, now);
        let ranked = negotiation.map(|negotiation| negotiation.ranked(core, cx));
        let [chosen, runner_up] = ranked.unwrap_or_default();
        ConnectionView {
            id: core.id,
            role: self.role(),
            opted_in: core.opted_in,
            node_guid: core.node_guid,
            qpn: core.qpn,
            peer_qpn: core.peer_qpn,
            policy: core.policy(cx),
            policy_override: core.policy,
            qp_state: core.qp.qp_state,
            migration: core.qp.migration,
            primary: core.qp.primary,
            alternate: core.qp.alternate,
            protection,
            reason,
            standing_order: core.standing.holds() && core.loaded().is_some(),
            alternate_origin: negotiation.and_then(|negotiation| negotiation.origin(core)),
            overlap,
            grade: grade.filter(|_| protection == Protection::Armed),
            primary_probe,
            alternate_probe,
            chosen,
            runner_up,
            association: self.association_view(cx),
            counters: core.counters,
            changed: self.record.changed(),
            held: self.held(cx, now),
            obstacle: self.obstacle_to_leaving(cx),
            history: core.history.view(now),
        }
    }
}
