// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections without traffic: moved in SQD, since hardware would not migrate them.
//!
//! A QP becomes Armed by a packet of the peer's (IBA 17.2.8.1). One that is silent since its alternate was loaded stays
//! in ReArm, and its next message would be sent over the primary, whatever became of that. IBA allows another primary
//! path in state SQD, so the alternate on which both ends have agreed can be made the primary there. Hardware does not
//! take the other end along: each end has to be moved, and what one end sends before the other has moved is sent again.

use cm_msgs::control::{MigrationState, Snapshot};
use cm_msgs::path::Path;

use super::qp::Core;
use super::{Connection, Side};
use crate::config::PortDown;
use crate::context::{ConnAlarm, Context};
use crate::guard::guard;
use crate::id::PortId;
use crate::time::Time;

impl Core {
    /// The alternate of a QP that waits for traffic.
    pub(super) fn idle_alternate(&self) -> Option<&Path> {
        let idle = self.qp.migration == MigrationState::Rearm && self.in_rts();
        self.qp.alternate.as_ref().filter(|_| idle)
    }

    /// Whether the device and the library, or the kernel module, can give this QP its alternate as primary.
    pub(super) fn can_move_idle(&self, cx: &Context) -> bool {
        let port = PortId::new(self.node_guid, self.qp.primary.port);
        cx.moves_idle(port, self.id.client) && !self.refuses_idle && has_like_paths(&self.qp)
    }

    /// Whether this end may be moved: it can be, and its host does not leave dead ports to the hardware.
    pub(super) fn may_be_moved(&self, cx: &Context) -> bool {
        guard!(IdleDevice, self.can_move_idle(cx)) && cx.config.port_down != PortDown::Wait
    }

    /// Whether the peer's end would follow to the `alternate`, on which both have agreed: it can be moved, or is Armed and
    /// migrates by order. Its daemon is running, and can order that, if it has answered the last probe of the alternate;
    /// where no daemon runs the kernel answers.
    fn peer_follows_idle(&self, cx: &Context, alternate: &Path) -> bool {
        let is_able = self.peer.is_armed_on(&self.qp.primary) || self.peer.moves_idle();
        // Without probes, by configuration, an agreed alternate counts as verified.
        let probed = self.probe_path(alternate);
        let is_there =
            cx.config.verify.is_zero() || probed.is_some_and(|path| cx.probes.has_daemon(&path));
        guard!(IdlePeer, is_able && is_there)
    }

    /// Whether the peer has reported that its end is on our primary and could follow now: it is Armed, or waits for traffic
    /// and can be moved. Asked where there is time for the peer to report.
    pub(super) fn peer_would_follow(&self) -> bool {
        let primary = &self.qp.primary;
        self.peer.is_armed_on(primary) || (self.peer.moves_idle() && self.peer.waits_on(primary))
    }

    /// Whether the QP would survive the loss of its primary though it waits for traffic. `agreed`: the peer has loaded
    /// the same alternate.
    pub(super) fn is_movable(&self, cx: &Context, agreed: bool) -> bool {
        let follows = |path: &Path| self.peer_follows_idle(cx, path);
        agreed
            && self.may_be_moved(cx)
            && self.following.may_lead_idle(cx.now)
            && self.idle_alternate().is_some_and(follows)
    }

    /// Whether the peer has left the primary for this alternate, and is to be followed.
    fn peer_has_left_idle(&self, now: Time, alternate: &Path) -> bool {
        self.peer.prefers(alternate, &self.qp.primary) && self.following.may_follow_idle(now)
    }

    /// Whether probes of the primary do not come back while those of the alternate all do.
    fn is_primary_hole(&self, cx: &Context, alternate: &Path) -> bool {
        let paths = self
            .probe_path(&self.qp.primary)
            .zip(self.probe_path(alternate));
        paths.is_some_and(|(primary, alternate)| cx.probes.is_hole_beside(&primary, &alternate))
    }

    /// Probes the alternate again at once while the primary is suspect, until enough answers in a row show that MADs are
    /// not lost in general.
    pub(super) fn compare_idle_paths(&self, cx: &mut Context) {
        let Some(alternate) = self.idle_alternate() else {
            return;
        };
        let undecided =
            self.is_suspect(cx, &self.qp.primary) && !self.is_primary_hole(cx, alternate);
        if let Some(alternate) = self.probe_path(alternate).filter(|_| undecided) {
            cx.probes.hasten(cx.now, &alternate);
        }
    }

    /// Whether the QP, which waits for traffic, must be moved to its alternate now, for the reasons of
    /// [`Self::must_migrate`]. If it is the first to leave, the peer has to be able to follow: if the primary's port
    /// comes back, a connection of which one end has been moved is worse off than one that was left alone. Nor does
    /// hardware take the peer along: it has to be told by MADs. Where some of these are lost or late, lost probes are no
    /// reason to go, since the primary may carry packets all the time. `by_probes`: they may be one.
    pub(super) fn must_move_idle(&self, cx: &Context, agreed: bool, by_probes: bool) -> bool {
        let Some(alternate) = self.idle_alternate() else {
            return false;
        };
        let follows = self.peer_has_left_idle(cx.now, alternate);
        let by_probes = by_probes && self.is_primary_hole(cx, alternate);
        let leads = self.is_movable(cx, agreed) && self.has_lost_primary(cx, alternate, by_probes);
        (follows || leads)
            && self.may_be_moved(cx)
            && guard!(AlternateUp, self.is_up(cx, alternate))
            // An order that has just failed would fail again.
            && !cx.is_set(self.id, ConnAlarm::MigrateHold)
    }
}

/// Whether both paths have a GRH, or none. The kernel module loads no alternate with one, and gives a primary with one no
/// other.
pub(super) fn has_like_paths(qp: &Snapshot) -> bool {
    let is_alike = |alternate: &Path| alternate.global == qp.primary.global;
    qp.alternate.as_ref().is_none_or(is_alike)
}

impl Connection {
    /// Its library has said that it can move the QP while it waits for traffic.
    pub(crate) fn owner_moves_idle(&mut self, cx: &mut Context) {
        self.catch_up(cx);
        self.own_ability_changed(cx);
        self.drive(cx);
    }

    /// This end may be able to move the QP while idle now, or no longer.
    pub(super) fn own_ability_changed(&mut self, cx: &mut Context) {
        let changed = self.core.refresh_own(cx);
        if let Side::Active(active) = &mut self.side
            && changed
        {
            active.confirm_soon(&self.core, cx);
        }
    }

    /// Whether the peer is known to have loaded the alternate that this end has.
    pub(super) fn has_agreed(&self) -> bool {
        match &self.side {
            Side::Active(active) => active.negotiation.is_settled(),
            Side::Passive(passive) => passive.has_agreed(&self.core),
        }
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::control::QpState;

    use super::*;
    use crate::config::Config;
    use crate::conn::sample;
    use crate::random::Random;

    #[test]
    fn only_a_queue_pair_in_rts_that_waits_for_traffic_is_moved_idle() {
        let mut cx = Context::new(Config::default(), Random::new([1; 32]));
        let mut core = sample::core(&mut cx);
        core.qp.alternate = Some(Path::default());
        let mut is_idle = |qp_state, migration| {
            (core.qp.qp_state, core.qp.migration) = (qp_state, migration);
            core.idle_alternate().is_some()
        };
        assert!(is_idle(QpState::Rts, MigrationState::Rearm));
        assert!(!is_idle(QpState::Sqd, MigrationState::Rearm));
        assert!(!is_idle(QpState::Rts, MigrationState::Armed));
        assert!(!is_idle(QpState::Rts, MigrationState::Migrated));
    }
}
