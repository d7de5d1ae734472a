// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on ids.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::slice;

use cm_msgs::Qpn;
use cm_msgs::control::Role;
use nix::errno::Errno;
use rdma_sys::{
    ibv_pd, ibv_qp_init_attr, ibv_qp_type, rdma_addrinfo, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param, rdma_event_channel,
};

use crate::connection::IdKey;
use crate::export::export;
use crate::interpose::{aside, outer};
use crate::library::{IdView, library};
use crate::option::Request;
use crate::real::real;

export!("rdma_create_id", "RDMACM_1.0", create_id);
unsafe extern "C-unwind" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    aside((), || library().begins());
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_create_id)(channel, id, context, ps) });
    if result == 0 {
        // SAFETY: it has succeeded, so there is an id.
        aside((), || library().new_id(unsafe { *id }));
    }
    result
}

export!("rdma_create_ep", "RDMACM_1.0", create_ep);
unsafe extern "C-unwind" fn create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    aside((), || library().begins());
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_create_ep)(id, res, pd, qp_init_attr) });
    if result == 0 {
        // SAFETY: it has succeeded, so there is an id.
        aside((), || library().new_id(unsafe { *id }));
    }
    result
}

export!("rdma_get_request", "RDMACM_1.0", get_request);
unsafe extern "C-unwind" fn get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_get_request)(listen, id) });
    if result == 0 {
        // SAFETY: it has succeeded, so there is an id.
        let child = unsafe { *id };
        aside((), || {
            library()
                .registry
                .inherit(IdKey(child as usize), IdKey(listen as usize));
        });
    }
    result
}

export!("rdma_connect", "RDMACM_1.0", connect);
unsafe extern "C-unwind" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's id is valid, and its parameters are, if there are some.
    let waits = aside(None, || unsafe {
        library().prepare(id, Role::Active, qp_num(param));
        Some(IdView::of(id)).filter(IdView::is_synchronous)
    });
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_connect)(id, param) });
    if let (Some(view), 0) = (waits, result) {
        // SAFETY: nobody but the caller has to do with a synchronous id.
        unsafe { after_connect(id, view) };
    }
    result
}

export!("rdma_accept", "RDMACM_1.0", accept);
unsafe extern "C-unwind" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's id is valid, and its parameters are, if there are some.
    let view = aside(None, || unsafe {
        library().prepare(id, Role::Passive, qp_num(param));
        Some(IdView::of(id))
    });
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_accept)(id, param) });
    if let (Some(view), 0) = (view, result) {
        // The QP is in RTS now, and not every application reads ESTABLISHED. One that does may have
        // destroyed the id in another thread by now.
        aside((), || library().established(view));
    }
    result
}

export!("rdma_establish", "RDMACM_1.2", establish);
unsafe extern "C-unwind" fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's id is valid.
    let view = aside(None, || Some(unsafe { IdView::of(id) }));
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_establish)(id) });
    if let (Some(view), 0) = (view, result) {
        aside((), || library().established(view));
    }
    result
}

/// The number of the QP that an application made by itself. Without parameters, or for an id with
/// a QP, it is not used.
///
/// # Safety
/// `param` is null or valid.
unsafe fn qp_num(param: *const rdma_conn_param) -> Option<Qpn> {
    // SAFETY: see above.
    unsafe { param.as_ref() }.map(|param| Qpn(param.qp_num & 0xff_ffff))
}

/// A synchronous id is established when its connect returns; that librdmacm got the event by
/// `rdma_get_cm_event` may have escaped us. An asynchronous one is not looked at: another thread that has
/// its event may have destroyed it by now.
///
/// # Safety
/// `id` is a valid id.
unsafe fn after_connect(id: *mut rdma_cm_id, view: IdView) {
    // SAFETY: the id is valid. Only a synchronous one has an event, which is valid as long as the
    // id holds it.
    let event = unsafe { (*id).event.as_ref() };
    if event.is_some_and(|event| event.event == rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED) {
        aside((), || library().established(view));
    }
}

export!("rdma_disconnect", "RDMACM_1.0", disconnect);
unsafe extern "C-unwind" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's id is valid.
    aside((), || unsafe { library().disconnect_id(id) });
    // SAFETY: the caller's own call.
    outer(|| unsafe { (real().rdma_disconnect)(id) })
}

export!("rdma_destroy_qp", "RDMACM_1.0", destroy_qp);
unsafe extern "C-unwind" fn destroy_qp(id: *mut rdma_cm_id) {
    aside((), || library().close_id(id));
    // SAFETY: the caller's own call.
    outer(|| unsafe { (real().rdma_destroy_qp)(id) });
}

export!("rdma_destroy_id", "RDMACM_1.0", destroy_id);
unsafe extern "C-unwind" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    aside((), || library().destroys_id(id));
    // SAFETY: the caller's own call.
    outer(|| unsafe { (real().rdma_destroy_id)(id) })
}

export!("rdma_destroy_ep", "RDMACM_1.0", destroy_ep);
unsafe extern "C-unwind" fn destroy_ep(id: *mut rdma_cm_id) {
    aside((), || library().destroys_id(id));
    // SAFETY: the caller's own call.
    outer(|| unsafe { (real().rdma_destroy_ep)(id) });
}

export!("rdma_set_option", "RDMACM_1.0", set_option);
unsafe extern "C-unwind" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller's value has that length.
    let bytes = (!value.is_null()).then(|| unsafe { slice::from_raw_parts(value.cast(), len) });
    match Request::read(level, name, bytes) {
        // SAFETY: an id that is not null is valid.
        Request::Apm(wish) if unsafe { can_have_apm(id) } => {
            // SAFETY: the id is valid.
            aside((), || unsafe { library().asked(id, wish) });
            return 0;
        }
        Request::Apm(_) | Request::Invalid => {
            Errno::EINVAL.set();
            return -1;
        }
        Request::AckTimeout => {
            // SAFETY: the caller's own call.
            let result = unsafe { (real().rdma_set_option)(id, level, name, value, len) };
            if result == 0 {
                aside((), || {
                    library().registry.own_ack_timeout(IdKey(id as usize));
                });
            }
            return result;
        }
        Request::Foreign => {}
    }
    // SAFETY: the caller's own call.
    unsafe { (real().rdma_set_option)(id, level, name, value, len) }
}

/// # Safety
/// `id` is null or valid.
pub(super) unsafe fn can_have_apm(id: *mut rdma_cm_id) -> bool {
    // SAFETY: see above.
    unsafe { id.as_ref() }.is_some_and(|id| id.qp_type == ibv_qp_type::IBV_QPT_RC)
}
