// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection's policy allows, and what happens when it becomes another.

use cm_msgs::control::{Mode, Policy, PolicyOverride};
use cm_msgs::path::Path;

use super::{Connection, Core, Side};
use crate::candidate::Shared;
use crate::context::Context;

impl Core {
    /// The policy in effect.
    pub(super) fn policy(&self, cx: &Context) -> Policy {
        self.policy.over(cx.config.policy)
    }

    /// Whether a path has both ports of the primary.
    pub(super) fn has_same_ports(&self, cx: &Context, path: &Path) -> bool {
        self.candidate_pool(cx).shared(path) == Shared::BothPorts
    }

    /// Whether the policy allows a path as alternate.
    pub(super) fn allows(&self, cx: &Context, path: &Path) -> bool {
        let mode = self.policy(cx).mode;
        mode == Mode::Any || mode.allows(self.has_same_ports(cx, path))
    }

    /// The mode that forbids the alternate that the QP has. It stays loaded until there is another,
    /// and still saves the connection; it is only not what was asked for.
    pub(super) fn forbidden_by(&self, cx: &Context) -> Option<Mode> {
        let loaded = self.loaded()?;
        (!self.allows(cx, loaded)).then(|| self.policy(cx).mode)
    }
}

impl Connection {
    /// The application or an operator says how the connection is to be protected.
    pub(crate) fn set_policy(&mut self, cx: &mut Context, policy: PolicyOverride) {
        self.catch_up(cx);
        if core::mem::replace(&mut self.core.policy, policy) != policy {
            self.policy_changed(cx);
        }
    }

    /// Its policy, or what it is by default, has become another.
    pub(crate) fn policy_changed(&mut self, cx: &mut Context) {
        match &mut self.side {
            Side::Active(active) => active.negotiation.policy_changed(&self.core, cx),
            Side::Passive(passive) => passive.policy_changed(&self.core, cx),
        }
        self.drive(cx);
    }
}
