// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs that a program makes past libibverbs, through the interface of its device (mlx5's
//! DevX): no call of theirs comes by here again, and nobody can load a path into them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::{Once, OnceLock};

use nix::errno::Errno;
use rdma_sys::ibv_context;

use crate::export::export;
use crate::interpose::aside;
use crate::library::library;
use crate::real::of_provider;

type Create = unsafe extern "C-unwind" fn(
    *mut ibv_context,
    *const c_void,
    usize,
    *mut c_void,
    usize,
) -> *mut c_void;

/// `MLX5_CMD_OP_CREATE_QP`, in the first two bytes of a command, big-endian (Linux,
/// include/linux/mlx5/mlx5_ifc.h).
const CREATE_QP: [u8; 2] = [0x05, 0x00];

export!("mlx5dv_devx_obj_create", "MLX5_1.7", devx_obj_create);
unsafe extern "C-unwind" fn devx_obj_create(
    context: *mut ibv_context,
    command: *const c_void,
    length: usize,
    out: *mut c_void,
    out_length: usize,
) -> *mut c_void {
    let Some(create) = real() else {
        Errno::EOPNOTSUPP.set();
        return ptr::null_mut();
    };
    // SAFETY: the caller's own call.
    let object = unsafe { create(context, command, length, out, out_length) };
    let is_qp = || {
        // SAFETY: the call has just read a command of that length there.
        length >= 2 && unsafe { command.cast::<[u8; 2]>().read() } == CREATE_QP
    };
    if !object.is_null() && is_qp() {
        aside((), say_once);
    }
    object
}

/// libmlx5's own, looked up until it is found once: it may be loaded at any time.
fn real() -> Option<Create> {
    static REAL: OnceLock<Create> = OnceLock::new();
    if let Some(&create) = REAL.get() {
        return Some(create);
    }
    let found = of_provider(c"libmlx5.so.1", c"mlx5dv_devx_obj_create", c"MLX5_1.7");
    if found.is_null() {
        return None;
    }
    // SAFETY: the symbol is the function whose C prototype `Create` repeats, and function pointers
    // are as wide as data pointers here.
    let create: Create = unsafe { transmute_copy(&found) };
    Some(*REAL.get_or_init(|| create))
}

fn say_once() {
    static ONCE: Once = Once::new();
    if library().wants_all() {
        ONCE.call_once(|| {
            crate::log::warn(
                &"this program makes queue pairs past libibverbs (mlx5 DevX): those are not protected",
            );
        });
    }
}
