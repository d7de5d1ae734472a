// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer's application has disconnected.

use cm_msgs::association::DreqData;
use cm_msgs::cm::Dreq;

use super::Core;
use crate::context::Context;
use crate::output::Order;

impl Core {
    /// A DREQ that names the open association, so the peer's daemon sent it: tells the library if the
    /// application there disconnected. The CM's own DREQ may go out of a port that is dead, since the
    /// CM knows nothing of migrations.
    pub(super) fn disconnected(&self, cx: &mut Context, dreq: &Dreq) {
        // One of an apmd that knows nothing of this says nothing.
        if DreqData::decode(&dreq.private_data).is_ok_and(|data| data.disconnected) {
            cx.order(self.id, Order::Disconnected);
        }
    }
}
