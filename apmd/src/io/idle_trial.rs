// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a device can give a queue pair another primary path in SQD: tried with a queue pair of our own, which is
//! connected to itself and never sends.
//!
//! No capability tells: mlx5 claims that a QP's port can be changed, and has no way from RTS to SQD
//! (`__mlx5_ib_modify_qp`); mlx4's driver has all three transitions, and its firmware decides.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rdma_sys as ffi;

use super::verbs::{Device, check};
use super::verbs_objects::{Cq, Pd, Qp};

type Mask = ffi::ibv_qp_attr_mask;

/// Where the paths lead: any unicast LID, since nothing is sent.
const SOME_LID: u16 = 1;
/// 4.096 us * 2^14 = 67 ms; nothing waits for it.
const ACK_TIMEOUT: u8 = 14;

/// A queue pair on its way through the states.
struct Trial {
    // Dropped in this order.
    qp: Qp,
    _cq: Cq,
    _pd: Pd,
}

/// Takes a queue pair from its first state over port `from` to RTS and SQD, gives it a primary path over port `to`
/// there, and takes it back to RTS.
///
/// # Errors
/// The device refuses one of these, or says afterwards that the queue pair is elsewhere.
pub(crate) fn moves_idle(device: &Device, from: u8, to: u8) -> io::Result<()> {
    let trial = Trial::new(device)?;
    trial.connect(from, to)?;
    trial.set_state(ffi::ibv_qp_state::IBV_QPS_SQD)?;
    trial.set_primary(to)?;
    trial.set_state(ffi::ibv_qp_state::IBV_QPS_RTS)?;
    match trial.place()? {
        (ffi::ibv_qp_state::IBV_QPS_RTS, port) if port == to => Ok(()),
        (state, port) => Err(io::Error::other(format!(
            "the queue pair is in state {state} on port {port} after it was moved to port {to}"
        ))),
    }
}

impl Trial {
    fn new(device: &Device) -> io::Result<Self> {
        let context = device.context();
        // SAFETY: the context is open as long as the device is.
        let pd = Pd::made(unsafe { ffi::ibv_alloc_pd(context.as_ptr()) })?;
        // SAFETY: the context is open.
        let cq = Cq::made(unsafe {
            ffi::ibv_create_cq(context.as_ptr(), 1, ptr::null_mut(), ptr::null_mut(), 0)
        })?;
        // SAFETY: integers and pointers, for which zero is a value.
        let mut attr: ffi::ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.send_cq = cq.as_ptr();
        attr.recv_cq = cq.as_ptr();
        attr.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        attr.cap.max_send_wr = 1;
        attr.cap.max_recv_wr = 1;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        // SAFETY: protection domain and queue exist, and `attr` outlives the call.
        let qp = Qp::made(unsafe { ffi::ibv_create_qp(pd.as_ptr(), &raw mut attr) })?;
        Ok(Self {
            qp,
            _cq: cq,
            _pd: pd,
        })
    }

    /// Reset to RTS, connected to itself, with an alternate path loaded.
    fn connect(&self, from: u8, to: u8) -> io::Result<()> {
        let mut attr = Self::attr();
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = from;
        let init = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_PKEY_INDEX.0
            | Mask::IBV_QP_PORT.0
            | Mask::IBV_QP_ACCESS_FLAGS.0;
        self.modify(&mut attr, init)?;

        let mut attr = Self::attr();
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = ffi::ibv_mtu::IBV_MTU_256;
        // SAFETY: the queue pair exists; the field does not change.
        attr.dest_qp_num = unsafe { (*self.qp.as_ptr()).qp_num };
        attr.ah_attr = address(from);
        let rtr = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_AV.0
            | Mask::IBV_QP_PATH_MTU.0
            | Mask::IBV_QP_DEST_QPN.0
            | Mask::IBV_QP_RQ_PSN.0
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | Mask::IBV_QP_MIN_RNR_TIMER.0;
        self.modify(&mut attr, rtr)?;

        let mut attr = Self::attr();
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
        attr.timeout = ACK_TIMEOUT;
        attr.path_mig_state = ffi::ibv_mig_state::IBV_MIG_REARM;
        attr.alt_ah_attr = address(to);
        attr.alt_port_num = to;
        attr.alt_timeout = ACK_TIMEOUT;
        let rts = Mask::IBV_QP_STATE.0
            | Mask::IBV_QP_TIMEOUT.0
            | Mask::IBV_QP_RETRY_CNT.0
            | Mask::IBV_QP_RNR_RETRY.0
            | Mask::IBV_QP_SQ_PSN.0
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC.0
            | Mask::IBV_QP_ALT_PATH.0
            | Mask::IBV_QP_PATH_MIG_STATE.0;
        self.modify(&mut attr, rts)
    }

    /// As librdmacm-apm does it.
    fn set_primary(&self, port: u8) -> io::Result<()> {
        let mut attr = Self::attr();
        attr.ah_attr = address(port);
        attr.port_num = port;
        attr.timeout = ACK_TIMEOUT;
        let mask = Mask::IBV_QP_AV.0
            | Mask::IBV_QP_PKEY_INDEX.0
            | Mask::IBV_QP_PORT.0
            | Mask::IBV_QP_TIMEOUT.0;
        self.modify(&mut attr, mask)
    }

    fn set_state(&self, state: ffi::ibv_qp_state::Type) -> io::Result<()> {
        let mut attr = Self::attr();
        attr.qp_state = state;
        self.modify(&mut attr, Mask::IBV_QP_STATE.0)
    }

    /// Its state and the port of its primary path.
    fn place(&self) -> io::Result<(ffi::ibv_qp_state::Type, u8)> {
        let mut attr = Self::attr();
        // SAFETY: integers and pointers, for which zero is a value.
        let mut init: ffi::ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        let mask = (Mask::IBV_QP_STATE.0 | Mask::IBV_QP_PORT.0) as i32;
        // SAFETY: the queue pair exists, and there is room for what the call writes.
        check(unsafe { ffi::ibv_query_qp(self.qp.as_ptr(), &raw mut attr, mask, &raw mut init) })?;
        Ok((attr.qp_state, attr.port_num))
    }

    fn modify(&self, attr: &mut ffi::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair exists, and every attribute in the mask is set or zero.
        check(unsafe { ffi::ibv_modify_qp(self.qp.as_ptr(), attr, mask as i32) })
    }

    fn attr() -> ffi::ibv_qp_attr {
        // SAFETY: integers, for which zero is a value; of the enumerations, which are integers here, as well.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

fn address(port: u8) -> ffi::ibv_ah_attr {
    // SAFETY: integers, for which zero is a value.
    let mut address: ffi::ibv_ah_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    address.dlid = SOME_LID;
    address.port_num = port;
    address
}
