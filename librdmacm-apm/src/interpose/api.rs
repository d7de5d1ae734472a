// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rdma_apm.h`: for programs that connect QPs without librdmacm.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use cm_msgs::Gid;
use cm_msgs::control::Role;
use nix::errno::Errno;
use rdma_sys::{ibv_gid, ibv_qp, ibv_qp_type, rdma_cm_id};

use crate::connection::QpKey;
use crate::export::export;
use crate::interpose::aside;
use crate::interpose::id::can_have_apm;
use crate::library::library;
use crate::option::of_type;

export!("rdma_enable_apm", "RDMACM_APM_1.0", enable_apm);
unsafe extern "C-unwind" fn enable_apm(id: *mut rdma_cm_id, alternates: c_int) -> c_int {
    // SAFETY: an id that is not null is valid.
    let possible = unsafe { can_have_apm(id) };
    // As in the kernel where it comes from: the errno is returned, and not set.
    let Some(wish) = of_type(alternates).filter(|_| possible) else {
        return -(Errno::EINVAL as c_int);
    };
    // SAFETY: the id is valid.
    aside((), || unsafe { library().asked(id, wish) });
    0
}

fn fail(errno: Errno) -> c_int {
    errno.set();
    -1
}

export!("rdma_apm_attach_qp", "RDMACM_APM_1.0", attach_qp);
unsafe extern "C-unwind" fn attach_qp(
    qp: *mut ibv_qp,
    role: c_int,
    peer_gid: *const ibv_gid,
) -> c_int {
    let Some(qp) = NonNull::new(qp) else {
        return fail(Errno::EINVAL);
    };
    let role = u8::try_from(role).ok().and_then(Role::from_code);
    // SAFETY: the caller's QP exists.
    let connected = unsafe { qp.as_ref() }.qp_type == ibv_qp_type::IBV_QPT_RC;
    let Some(role) = role.filter(|_| connected) else {
        return fail(Errno::EINVAL);
    };
    // SAFETY: null or a GID.
    let gid = unsafe { peer_gid.as_ref().map_or([0; 16], |gid| gid.raw) };
    // SAFETY: the caller's QP exists, and the call that destroys it comes by here as this one has.
    let added = aside(true, || unsafe { library().attach(qp, role, Gid(gid)) });
    if added { 0 } else { fail(Errno::EEXIST) }
}

export!("rdma_apm_detach_qp", "RDMACM_APM_1.0", detach_qp);
unsafe extern "C-unwind" fn detach_qp(qp: *mut ibv_qp) -> c_int {
    let connection = aside(None, || library().registry.by_qp(QpKey(qp as usize)));
    let Some(connection) = connection else {
        return fail(Errno::ENOENT);
    };
    aside((), || library().close(&connection));
    0
}

export!("rdma_apm_get_state", "RDMACM_APM_1.0", get_state);
unsafe extern "C-unwind" fn get_state(qp: *mut ibv_qp) -> c_int {
    match aside(Err(Errno::ENOENT), || library().protection(qp)) {
        Ok(state) => state.into(),
        Err(errno) => fail(errno),
    }
}
