// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on QPs and verbs contexts. Posting and polling are inline functions of verbs.h and never
//! come by here.
#![allow(unsafe_code)]

use std::ffi::c_int;

use cm_msgs::control::Cause;
use rdma_sys::{ibv_async_event, ibv_context, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};

use crate::export::export;
use crate::interpose::aside;
use crate::library::library;
use crate::real::real;

export!("ibv_destroy_qp", "IBVERBS_1.1", destroy_qp);
unsafe extern "C-unwind" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    aside((), || library().close_qp(qp));
    // SAFETY: the caller's own call.
    unsafe { (real().ibv_destroy_qp)(qp) }
}

export!("ibv_close_device", "IBVERBS_1.1", close_device);
unsafe extern "C-unwind" fn close_device(context: *mut ibv_context) -> c_int {
    aside((), || library().close_context(context as usize));
    // SAFETY: the caller's own call.
    unsafe { (real().ibv_close_device)(context) }
}

export!("ibv_modify_qp", "IBVERBS_1.1", modify_qp);
unsafe extern "C-unwind" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's attributes are valid as far as the mask says.
    if unsafe { ends_connection(attr, mask) } {
        aside((), || library().close_qp(qp));
    }
    // SAFETY: the caller's own call.
    unsafe { (real().ibv_modify_qp)(qp, attr, mask) }
}

/// Whether the application, or librdmacm for it, takes the QP out of its connection.
///
/// # Safety
/// `attr` is valid as far as the mask says.
unsafe fn ends_connection(attr: *const ibv_qp_attr, mask: c_int) -> bool {
    if mask as u32 & ibv_qp_attr_mask::IBV_QP_STATE.0 == 0 {
        return false;
    }
    // SAFETY: the mask names the state.
    let state = unsafe { (*attr).qp_state };
    matches!(
        state,
        ibv_qp_state::IBV_QPS_RESET | ibv_qp_state::IBV_QPS_ERR
    )
}

export!("ibv_get_async_event", "IBVERBS_1.1", get_async_event);
unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's own call.
    let result = unsafe { (real().ibv_get_async_event)(context, event) };
    if result == 0 {
        // SAFETY: it has succeeded, so there is an event. Its type is read as the number that it
        // is: a newer libibverbs may know more types than the Rust enumeration.
        let code = unsafe { (&raw const (*event).event_type).cast::<u32>().read() };
        if let Some(cause) = cause(code) {
            // SAFETY: these events are of a QP.
            let qp = unsafe { (*event).element.qp };
            aside((), || library().seen(qp, cause));
        }
    }
    result
}

/// `IBV_EVENT_PATH_MIG` and `IBV_EVENT_PATH_MIG_ERR`.
fn cause(code: u32) -> Option<Cause> {
    match code {
        6 => Some(Cause::PathMigrated),
        7 => Some(Cause::PathMigrationError),
        _ => None,
    }
}
