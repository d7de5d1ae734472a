// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaving a primary that works, because an operator wants it: one connection by order, or all that
//! have their primary on a port that is drained.
//!
//! Unlike a migration away from what is dead, this one can wait until it is safe: a QP that migrates
//! while the peer's is not Armed gets no packet through (IBA 17.2.8), and its connection dies. So the
//! peer is told first, and its answer says how its QP is.

use cm_msgs::path::Path;

use super::departure::Departure;
use super::{Connection, Core, Side};
use crate::context::{ConnAlarm, Context};
use crate::id::PortId;
use crate::input::Command;
use crate::time::Time;
use crate::view::Held;

impl Core {
    /// Whether one of a path's ends is on a port that is drained.
    pub(super) fn is_drained(&self, cx: &Context, path: &Path) -> bool {
        self.begins_drained(cx, path) || self.peer.drains(path.dgid)
    }

    pub(super) fn begins_drained(&self, cx: &Context, path: &Path) -> bool {
        cx.ports.is_drained(PortId::new(self.node_guid, path.port))
    }

    /// Whether the QP is to leave its primary though that works. A far port that is drained is the
    /// peer's to leave: it knows best when.
    fn is_to_leave(&self, cx: &Context, now: Time) -> bool {
        self.departure.is_ordered(now) || self.begins_drained(cx, &self.qp.primary)
    }

    /// What keeps it from leaving; `None`: nothing.
    fn held(&self, cx: &Context, negotiating: bool) -> Option<Held> {
        let of_peer = || {
            if !self.own.has_told_that_it_leaves() {
                Some(Held::PeerSilent)
            } else if !self.peer_would_follow() {
                Some(Held::PeerNotArmed)
            } else {
                None
            }
        };
        self.obstacle(cx, negotiating).or_else(of_peer)
    }

    /// The same, as far as this end knows before it tells the peer that it leaves.
    fn obstacle(&self, cx: &Context, negotiating: bool) -> Option<Held> {
        // The primary works: it is not left for an alternate that may not.
        let good = |path: &&Path| self.is_usable(cx, path) && !self.is_suspect(cx, path);
        let loaded = self.loaded().filter(good);
        let can_go = self.in_rts() && (self.is_armed() || self.is_movable(cx, true));
        let Some(alternate) = loaded.filter(|_| can_go) else {
            return Some(Held::NotArmed);
        };
        if self.is_drained(cx, alternate) {
            // Moved there, it would be in the way of whoever drains that.
            Some(Held::AlternateDrained)
        } else if cx.is_set(self.id, ConnAlarm::MigrateHold) {
            Some(Held::OrderFailed)
        } else if negotiating {
            Some(Held::Negotiating)
        } else if !self.is_verified(cx, alternate) {
            Some(Held::Unverified)
        } else {
            None
        }
    }

    /// It stays where it is. The peer may have been told otherwise.
    fn stay(&mut self, cx: &mut Context) {
        if self.departure.was_ordered() || self.own.leaves() {
            self.end_departure(cx);
        }
        self.own.withdraw_leaving();
    }

    /// Nothing of it is left to do.
    pub(super) fn end_departure(&mut self, cx: &mut Context) {
        self.departure = Departure::default();
        cx.stop(self.id, ConnAlarm::Departure);
    }
}

impl Connection {
    /// An operator's command.
    pub(crate) fn command(&mut self, cx: &mut Context, command: Command) {
        self.catch_up(cx);
        if self.core.refused.is_some() {
            return;
        }
        match command {
            Command::Migrate { within } => {
                self.core.departure = Departure::ordered(cx.now + within);
            }
            Command::Rearm => match &mut self.side {
                Side::Active(active) => active.look_again(&mut self.core, cx),
                Side::Passive(passive) => passive.look_again(&mut self.core, cx),
            },
        }
        self.drive(cx);
    }

    /// Leaves the primary if that is wanted and safe; if it is only wanted, does what is needed
    /// first. Whether an order went out.
    pub(super) fn depart(&mut self, cx: &mut Context) -> bool {
        let negotiating = self.is_negotiating();
        let core = &mut self.core;
        if !core.is_to_leave(cx, cx.now) {
            core.stay(cx);
            return false;
        }
        match core.held(cx, negotiating) {
            None => {
                core.go_over(cx);
                return true;
            }
            // The next announcement says so.
            Some(Held::PeerSilent) => core.own.set_leaves(true),
            Some(Held::PeerNotArmed) => core.departure.pause(cx.now, |pause| cx.jitter(pause)),
            Some(_) => core.own.set_leaves(false),
        }
        if let Some(at) = core.departure.next_change(cx.now) {
            cx.set(core.id, ConnAlarm::Departure, at - cx.now);
        }
        false
    }

    /// The peer's end may be armed by now, and it is asked again; or the operator's order has expired.
    pub(super) fn departure_due(&mut self, now: Time) {
        if self.core.departure.take_expired_pause(now) {
            self.core.own.tell_again_that_it_leaves();
        }
    }

    /// Whether the two ends may be about to have different alternates.
    fn is_negotiating(&self) -> bool {
        match &self.side {
            Side::Active(active) => active.negotiation.is_unsettled(),
            Side::Passive(passive) => passive.is_busy(),
        }
    }

    /// What would keep it from leaving its primary now if that were wanted, before the peer is asked.
    pub(super) fn obstacle_to_leaving(&self, cx: &Context) -> Option<Held> {
        let obstacle = self.core.obstacle(cx, self.is_negotiating());
        obstacle.or_else(|| (!self.is_open()).then_some(Held::PeerSilent))
    }

    /// Why it has not left its primary yet, if it is to.
    pub(super) fn held(&self, cx: &Context, now: Time) -> Option<Held> {
        let core = &self.core;
        if core.refused.is_none() && core.is_to_and_fro(now) {
            return Some(Held::ToAndFro);
        }
        if core.refused.is_some() || !core.is_to_leave(cx, now) {
            return None;
        }
        if core.orders.is_leaving() {
            return Some(Held::Migrating);
        }
        Some(
            core.held(cx, self.is_negotiating())
                .unwrap_or(Held::Migrating),
        )
    }
}
