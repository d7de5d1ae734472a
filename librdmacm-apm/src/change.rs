// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a modify of the application's means to us.
#![allow(unsafe_code)]

use std::ffi::c_int;

use rdma_sys::{ibv_mig_state, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};

/// What a modify does if it succeeds, as far as its attributes tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The application, or librdmacm for it, takes the QP out of its connection.
    EndsConnection,
    /// The application sets the alternate path or the migration state.
    Paths,
    /// To RTS. Migrated is what a QP's migration state is by then anyway: programs that say so manage no paths.
    ReadyToSend,
    /// To RTR, where one-way receivers stay.
    ReadyToReceive,
    Other,
}

impl Change {
    /// What a modify with these attributes would be.
    ///
    /// # Safety
    /// `attr` is valid as far as the mask says.
    pub(crate) unsafe fn of(attr: *const ibv_qp_attr, mask: c_int) -> Self {
        type Mask = ibv_qp_attr_mask;

        let has = |bits: Mask| mask as u32 & bits.0 != 0;
        // The state is read as a number: the caller may know states that the headers here do not have.
        let state = has(Mask::IBV_QP_STATE)
            // SAFETY: the mask names the state.
            .then(|| unsafe { (&raw const (*attr).qp_state).cast::<u32>().read() });
        let is = |wanted: ibv_qp_state::Type| state == Some(wanted);
        let to_rts = is(ibv_qp_state::IBV_QPS_RTS);
        let migration = has(Mask::IBV_QP_PATH_MIG_STATE)
            // SAFETY: the mask names it.
            .then(|| unsafe { (&raw const (*attr).path_mig_state).cast::<u32>().read() });
        let sets_migration = match migration {
            Some(ibv_mig_state::IBV_MIG_MIGRATED) => !to_rts,
            other => other.is_some(),
        };
        if is(ibv_qp_state::IBV_QPS_RESET) || is(ibv_qp_state::IBV_QPS_ERR) {
            Self::EndsConnection
        } else if has(Mask::IBV_QP_ALT_PATH) || sets_migration {
            Self::Paths
        } else if to_rts {
            Self::ReadyToSend
        } else if is(ibv_qp_state::IBV_QPS_RTR) {
            Self::ReadyToReceive
        } else {
            Self::Other
        }
    }
}
