// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standing orders: a QP leaves its primary at once when the local port fails, whether or not there
//! is a daemon.

use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::path::Path;
use nix::errno::Errno;

use crate::order;
use crate::queue_pair::{Address, KnownGids, QueuePair};

/// A QP may leave this primary by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StandingOrder {
    primary: Address,
}

impl StandingOrder {
    /// `None`: the QP is not on that primary (any more), or has no alternate.
    pub(crate) fn for_qp(
        qp: &dyn QueuePair,
        gids: &KnownGids,
        primary: &Path,
    ) -> Result<Option<Self>, Errno> {
        let snapshot = qp.read(gids)?;
        if !order::is_current(&snapshot, primary) || snapshot.alternate.is_none() {
            return Ok(None);
        }
        let address = qp.glance()?.primary;
        // It may have moved between the two looks.
        let same = (address.port, address.dlid) == (primary.port, primary.dlid);
        Ok(same.then_some(Self { primary: address }))
    }

    /// The port whose failure it is for.
    pub(crate) fn port(&self) -> u8 {
        self.primary.port
    }

    /// Migrates the QP if it still is as the order expects. Whether it did.
    pub(crate) fn carry_out(&self, qp: &dyn QueuePair) -> Result<bool, Errno> {
        let now = qp.glance()?;
        let fits = now.qp_state == QpState::Rts
            && now.migration == MigrationState::Armed
            && now.primary == self.primary;
        if !fits {
            return Ok(false);
        }
        match qp.migrate() {
            // The hardware may have been faster.
            Err(_) if qp.glance()?.primary != self.primary => Ok(false),
            result => result.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::model::{Model, path};

    fn order(model: &Model, primary: u8) -> Option<StandingOrder> {
        let order = StandingOrder::for_qp(model, &KnownGids::default(), &path(primary));
        order.expect("the model can be read")
    }

    fn armed() -> (Model, StandingOrder) {
        let model = Model::new(path(1));
        model.arm(path(2));
        let order = order(&model, 1).expect("it is on that path");
        (model, order)
    }

    #[test]
    fn an_armed_qp_leaves_the_named_primary_once() {
        let (model, order) = armed();
        assert_eq!(order.port(), 1);
        assert_eq!(order.carry_out(&model), Ok(true));
        assert_eq!(model.snapshot().primary, path(2));
        assert_eq!(order.carry_out(&model), Ok(false));
        model.arm(path(1));
        assert_eq!(order.carry_out(&model), Ok(false), "another primary");
        assert_eq!(model.modifies(), 1);
    }

    #[test]
    fn what_is_not_armed_in_rts_is_not_modified() {
        let (model, order) = armed();
        model.set(|qp| qp.migration = MigrationState::Rearm);
        assert_eq!(order.carry_out(&model), Ok(false));
        model.arm(path(2));
        model.set(|qp| qp.qp_state = QpState::Sqd);
        assert_eq!(order.carry_out(&model), Ok(false));
        assert_eq!(model.modifies(), 0);
    }

    #[test]
    fn a_path_that_the_qp_is_not_on_gives_no_order() {
        let model = Model::new(path(1));
        assert_eq!(order(&model, 1), None, "no alternate");
        model.arm(path(2));
        assert_eq!(order(&model, 2), None);
    }

    #[test]
    fn hardware_may_be_faster() {
        let (model, order) = armed();
        model.before_next_modify(|qp| {
            qp.primary = path(2);
            qp.migration = MigrationState::Migrated;
        });
        assert_eq!(order.carry_out(&model), Ok(false));
    }

    #[test]
    fn a_refused_modify_is_an_error() {
        let (model, order) = armed();
        model.refuse(Errno::EINVAL);
        assert_eq!(order.carry_out(&model), Err(Errno::EINVAL));
    }
}
