// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on QPs and verbs contexts. Posting and polling are inline functions of verbs.h and never
//! come by here.
#![allow(unsafe_code)]

use std::ffi::c_int;

use cm_msgs::control::Cause;
use rdma_sys::{ibv_async_event, ibv_context, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask};

use crate::change::Change;
use crate::export::export;
use crate::interpose::{aside, uncancelled};
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
    let change = unsafe { Change::of(attr, mask) };
    // SAFETY: the caller's own call.
    let modify = || unsafe { (real().ibv_modify_qp)(qp, attr, mask) };
    // What it does counts when it has succeeded. Until then the commit thread keeps off the QP: it must not load
    // a path between the application's modify and the moment in which that counts.
    // Nor must a change find the QP in the middle of a move.
    let states = mask as u32 & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0;
    let result = match aside(None, || library().known_by(qp)) {
        Some(connection) if library().takes(&connection, change) => {
            uncancelled(|| connection.release_qp_by(modify))
        }
        Some(connection) => uncancelled(|| connection.change_by_owner(states, modify)),
        None => modify(),
    };
    if result == 0 {
        // SAFETY: the QP exists: the application has just changed it, and it is an error to destroy
        // it in another thread meanwhile.
        aside((), || unsafe { library().modified(qp, change) });
    }
    result
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
        } else if code == PORT_ERR {
            aside((), || library().port_failed(context as usize));
        }
    }
    result
}

/// `IBV_EVENT_PORT_ERR`.
const PORT_ERR: u32 = 10;

/// `IBV_EVENT_PATH_MIG` and `IBV_EVENT_PATH_MIG_ERR`.
fn cause(code: u32) -> Option<Cause> {
    match code {
        6 => Some(Cause::PathMigrated),
        7 => Some(Cause::PathMigrationError),
        _ => None,
    }
}
