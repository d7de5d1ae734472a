// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standing orders: whether a library may migrate by itself when the primary's local port fails.

use cm_msgs::control::Stand;
use cm_msgs::path::Path;

use super::qp::Core;
use crate::config::PortDown;
use crate::context::{ConnAlarm, Context};
use crate::output::Order;
use crate::probe::PathHealth;

impl Core {
    /// Whether the library may leave the primary for this alternate by itself. A blip of the
    /// primary's port must not move a connection to where it would die.
    pub(super) fn may_stand(&self, cx: &Context, alternate: &Path) -> bool {
        let verified = self.health(cx, alternate) == PathHealth::Verified;
        verified
            && cx.config.port_down == PortDown::Migrate
            && self.in_rts()
            && self.is_usable(cx, alternate)
    }

    /// Tells the library if it may do something else than it was told last.
    pub(super) fn stand(&mut self, cx: &mut Context) {
        let allowed = match (self.orders.loading(), self.loaded()) {
            (Some(loading), _) => self.may_stand(cx, loading),
            (None, Some(loaded)) => !self.distrusted && self.may_stand(cx, loaded),
            // Without an alternate there is nothing that it could do.
            (None, None) => return,
        };
        if self.standing.told == Some(allowed) {
            return;
        }
        // Nothing answers it, and a peer could make its port come and go at any pace: what takes
        // back is said at once, and what allows again waits.
        if allowed && cx.is_set(self.id, ConnAlarm::StandHold) {
            return;
        }
        if self.standing.told == Some(true) {
            cx.set(self.id, ConnAlarm::StandHold, cx.config.port_hold_off);
        }
        self.standing.told = Some(allowed);
        let primary = self.qp.primary;
        cx.order(self.id, Order::Stand(Stand { primary, allowed }));
    }
}
