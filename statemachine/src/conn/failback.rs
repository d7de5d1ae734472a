// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going to the port where the policy wants a connection.
//!
//! A port that has been good for the hold-down is a *destination*. The active side has the alternate
//! lead there; when both ends are known to be Armed it migrates by order, and loads the path that it
//! left as alternate. The passive side asks for it, by a SAP that names its port: first to have the
//! alternate end there, and, when it does, to be moved. So only one end decides, the one that knows
//! that both have loaded the same path. It is an improvement and no rescue: a few connections of a host
//! do it at a time, and one that does not get there tries again after ever longer pauses.

use core::time::Duration;

use cm_msgs::Gid;
use cm_msgs::control::{Mode, Placement};
use cm_msgs::path::Path;

use super::failback_progress::Step;
use super::{Connection, Core, Side};
use crate::backoff::Backoff;
use crate::candidate::mix;
use crate::context::{ConnAlarm, Context};
use crate::port::Port;
use crate::time::Time;
use crate::trace::What;
use crate::view::Protection;

/// How long a connection may take before others get its place.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one question to the peer how it is to the next.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a wish of the peer's for its port holds: who means to go there says so again and again.
const STEERED: Duration = Duration::from_millis(1_500);
/// The pause after one that did not get there, besides the hold-down.
const PAUSE: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(60));
/// A peer cannot have a connection moved more often.
const PEERS_PAUSE: Duration = Duration::from_secs(1);

/// Whether a connection belongs elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    None,
    /// Not yet.
    At(Time),
    /// On this local port.
    Port(u8),
    /// Where the peer asks to be.
    Peer(Gid),
}

impl Core {
    /// Whether the peer has asked for such moves as often as it may.
    fn has_followed_enough(&self, cx: &Context, wish: Wish, path: &Path) -> bool {
        matches!(wish, Wish::Peer(_)) && self.following.is_spent(cx.now, &self.qp.primary, path)
    }

    /// Whether an alternate between these ports would lead past where the connection is to go.
    pub(super) fn is_astray(&self, cx: &Context, port: u8, dgid: Gid) -> bool {
        if let Some(destination) = self.destination(cx) {
            return port != destination;
        }
        // There, another alternate is best.
        let there = |gid: Gid| self.qp.primary.dgid == gid;
        let steered = self.failback.steered;
        let steered = steered.filter(|&(gid, until)| until > cx.now && !there(gid));
        let misses =
            |(gid, _)| dgid != gid || self.belongs(cx).is_some_and(|belongs| port != belongs);
        steered.is_some_and(misses)
    }

    /// The local port that it is on its way to.
    pub(super) fn destination(&self, cx: &Context) -> Option<u8> {
        if !self.failback.is_moving() {
            return None;
        }
        match self.wish(cx) {
            Wish::Port(port) => Some(port),
            _ => None,
        }
    }

    /// Whether a port could carry the connection for good.
    fn is_good_for(&self, port: &Port) -> bool {
        let primary = &self.qp.primary;
        port.is_settled() && port.has_pkey(primary.pkey) && port.status.mtu >= primary.mtu
    }

    fn wish(&self, cx: &Context) -> Wish {
        let policy = self.policy(cx);
        // Another LID leads to no other port.
        if policy.mode == Mode::Lid {
            return Wish::None;
        }
        let own = match policy.placement {
            Placement::Stay => Wish::None,
            Placement::Prefer(port) => self.preferred(cx, port.get(), policy.hold_down()),
            Placement::Spread => self.share(cx, policy.hold_down()),
        };
        match (own, self.failback.asked) {
            (Wish::None, Some(gid)) => Wish::Peer(gid),
            (own, _) => own,
        }
    }

    /// The local port where the policy wants the connection, if it could be there.
    fn belongs(&self, cx: &Context) -> Option<u8> {
        match self.policy(cx).placement {
            Placement::Stay => None,
            Placement::Prefer(port) => {
                let port = cx.ports.of_path(self.node_guid, port.get());
                let port = port.filter(|port| self.is_good_for(port));
                port.map(|port| port.id.port)
            }
            Placement::Spread => self.home(cx),
        }
    }

    /// Whether the peer can have the connection on this path: it ends where the peer wants it, and this
    /// end is not moved away from where its own policy wants it.
    pub(super) fn suits(&self, cx: &Context, path: &Path, gid: Gid) -> bool {
        path.dgid == gid && self.belongs(cx).is_none_or(|port| path.port == port)
    }

    fn preferred(&self, cx: &Context, port: u8, hold_down: Duration) -> Wish {
        let port = cx.ports.of_path(self.node_guid, port);
        let other = port.filter(|port| port.id.port != self.qp.primary.port);
        match other.filter(|port| self.is_good_for(port)) {
            Some(port) => self.due(cx, port.id.port, port.good_since() + hold_down, hold_down),
            None => Wish::None,
        }
    }

    /// Which of the ports, when all of those that are good have been so for the hold-down: where ports
    /// come and go, connections are not sent after them.
    fn share(&self, cx: &Context, hold_down: Duration) -> Wish {
        let ports = cx.ports.of_device(self.node_guid);
        let good = ports.filter(|port| self.is_good_for(port));
        let Some(since) = good.map(Port::good_since).max() else {
            return Wish::None;
        };
        match self.home(cx) {
            Some(port) if port != self.qp.primary.port => {
                self.due(cx, port, since + hold_down, hold_down)
            }
            _ => Wish::None,
        }
    }

    /// The connection's own of the good ports: the one with the highest hash of both. So a lost port's
    /// connections divide over the others, all others stay, and both ends, if both spread, name ports
    /// of the same number.
    fn home(&self, cx: &Context) -> Option<u8> {
        let (low, high) = (
            self.qpn.0.min(self.peer_qpn.0),
            self.qpn.0.max(self.peer_qpn.0),
        );
        let connection = mix(u64::from(low) << 24 | u64::from(high));
        let ports = cx.ports.of_device(self.node_guid);
        let good = ports.filter(|port| self.is_good_for(port));
        let numbers = good.map(|port| port.id.port);
        numbers.max_by_key(|&port| mix(connection ^ u64::from(port)))
    }

    fn due(&self, cx: &Context, port: u8, good: Time, hold_down: Duration) -> Wish {
        let arrived = self.failback.arrived;
        let due = good.max(arrived + hold_down).max(self.failback.not_before);
        match due > cx.now {
            true => Wish::At(due),
            false => Wish::Port(port),
        }
    }

    /// Whether the alternate leads to where the connection is to go.
    fn leads(&self, cx: &Context, wish: Wish, path: &Path) -> bool {
        match wish {
            Wish::Port(port) => path.port == port,
            Wish::Peer(gid) => self.suits(cx, path, gid),
            Wish::None | Wish::At(_) => false,
        }
    }

    /// The peer would have the alternate end at this port of its own.
    pub(super) fn steered_to(&mut self, cx: &mut Context, gid: Gid) {
        self.failback.steered = Some((gid, cx.now + STEERED));
        // Then it may be another that is best.
        cx.set(self.id, ConnAlarm::Steered, STEERED);
    }

    /// The peer, whose alternate ends at this port and is armed, asks to be moved there.
    pub(super) fn asked_to_move(&mut self, cx: &Context, gid: Gid) {
        // Nor can it have others wait again and again for one that does not get there.
        let since = (self.failback.arrived + PEERS_PAUSE).max(self.failback.not_before);
        if since <= cx.now {
            self.failback.asked = Some(gid);
        }
    }

    /// Whether the peer is to be asked how it is.
    pub(super) fn asks_state(&self, cx: &Context) -> bool {
        self.failback.ask_at.is_some_and(|at| at <= cx.now)
    }

    /// It is asked.
    pub(super) fn state_asked(&mut self, cx: &Context) {
        if self.failback.ask_at.is_some() {
            self.failback.ask_at = Some(cx.now + ASK_AGAIN);
        }
    }

    /// It does not go any more, or has arrived.
    fn rest(&mut self, cx: &mut Context) {
        self.failback.step = Step::Resting;
        self.failback.asked = None;
        self.failback.ask_at = None;
        cx.failbacks.remove(self.id);
        cx.stop(self.id, ConnAlarm::Failback);
    }

    /// It has not got there in time.
    fn give_up(&mut self, cx: &mut Context) {
        let pause = cx.jitter(PAUSE.after(self.failback.failures));
        self.failback.failures += 1;
        self.failback.not_before = cx.now + pause;
        self.rest(cx);
    }
}

impl Connection {
    /// It is this connection's turn.
    pub(crate) fn fail_back(&mut self, cx: &mut Context) {
        self.catch_up(cx);
        let core = &mut self.core;
        if core.failback.step != Step::Queued {
            return cx.failbacks.remove(core.id);
        }
        core.failback.step = Step::Moving(cx.now + PATIENCE);
        core.failback.ask_at = matches!(self.side, Side::Passive(_)).then_some(cx.now);
        if let Wish::Port(port) = core.wish(cx) {
            cx.trace(core.id, What::GoesTo(port));
        }
        self.aim_changed(cx);
        self.drive(cx);
    }

    /// Where the alternate should lead is another thing than before.
    fn aim_changed(&mut self, cx: &mut Context) {
        match &mut self.side {
            Side::Active(active) => active.negotiation.aim_changed(&self.core, cx),
            Side::Passive(passive) => passive.ask_again(&self.core, cx),
        }
    }

    /// Looks where the connection belongs, after whatever happened to it.
    pub(super) fn consider_failback(&mut self, cx: &mut Context) {
        let core = &mut self.core;
        core.failback.tidy(cx.now);
        let resting = core.failback.step == Step::Resting && core.failback.asked.is_none();
        if resting && core.policy(cx).placement == Placement::Stay {
            return;
        }
        let before = core.failback.step;
        self.step(cx);
        // One that has just come to rest may have to try again.
        if self.core.failback.step == Step::Resting && before != Step::Resting {
            self.step(cx);
        }
    }

    fn step(&mut self, cx: &mut Context) {
        let core = &mut self.core;
        let wish = match core.refused {
            None if core.in_rts() => core.wish(cx),
            _ => Wish::None,
        };
        match (core.failback.step, wish) {
            (Step::Resting, Wish::None) => {
                if core.failback.failures > 0 {
                    core.failback.failures = 0;
                }
                cx.stop(core.id, ConnAlarm::Failback);
            }
            (Step::Resting, Wish::At(due)) => {
                let wait = due - cx.now;
                cx.set(core.id, ConnAlarm::Failback, wait);
            }
            // Without an alternate that is first, and one whose peer is silent cannot arm.
            (Step::Resting, Wish::Port(_) | Wish::Peer(_)) => {
                cx.stop(core.id, ConnAlarm::Failback);
                if core.is_armed() {
                    core.failback.step = Step::Queued;
                    cx.failbacks.enqueue(core.id, core.payer);
                }
            }
            (Step::Queued, Wish::Port(_) | Wish::Peer(_)) if core.is_armed() => {}
            (Step::Queued, _) => core.rest(cx),
            (Step::Moving(until), Wish::Port(_) | Wish::Peer(_)) if until > cx.now => {
                self.move_on(cx, wish, until);
            }
            (Step::Moving(_), Wish::Port(_) | Wish::Peer(_)) => {
                core.give_up(cx);
                self.aim_changed(cx);
            }
            (Step::Moving(until), _) if core.failback.arrived == cx.now => {
                core.failback.step = Step::Arrived(until);
                core.failback.ask_at = None;
                cx.set(core.id, ConnAlarm::Failback, until - cx.now);
            }
            (Step::Moving(_), _) => {
                core.rest(cx);
                self.aim_changed(cx);
            }
            (Step::Arrived(until), _) => {
                let (protection, _) = self.judge(cx, cx.now);
                if protection == Protection::Armed || until <= cx.now {
                    self.core.rest(cx);
                }
            }
        }
    }

    /// It is on its way, and has not arrived.
    fn move_on(&mut self, cx: &mut Context, wish: Wish, until: Time) {
        let core = &mut self.core;
        cx.set(
            core.id,
            ConnAlarm::Failback,
            (until - cx.now).min(ASK_AGAIN),
        );
        let armed = core.qp.alternate.filter(|_| core.is_armed());
        let ready = armed.is_some_and(|path| {
            core.leads(cx, wish, &path)
                && core.is_usable(cx, &path)
                && !core.is_suspect(cx, &path)
                && !core.has_followed_enough(cx, wish, &path)
        });
        let Side::Active(active) = &self.side else {
            // Says it until it is moved, or time is up.
            core.failback.ask_at.get_or_insert(cx.now);
            return;
        };
        let free =
            core.orders.outstanding().is_none() && !cx.is_set(core.id, ConnAlarm::MigrateHold);
        if !ready || !free || !active.negotiation.is_settled() {
            return;
        }
        if core.peer.is_armed() && core.peer.is_on(&core.qp.primary) {
            // The answer, if one has to be waited for, has it looked at again.
            let answers = |path: &Path| core.is_verified(cx, path) && core.answers_still(cx, path);
            if let Some(path) = armed.filter(answers) {
                if let Wish::Peer(_) = wish {
                    let primary = core.qp.primary;
                    core.following.ordered(cx.now, &primary, &path);
                }
                core.migrate(cx);
                core.failback.by_choice = true;
            }
        } else {
            core.failback.ask_at.get_or_insert(cx.now);
        }
    }
}
