// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verbs objects that a queue pair is made of, each destroyed once.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use rdma_sys as ffi;

macro_rules! object {
    ($name:ident, $type:ident, $destroy:ident) => {
        #[derive(Debug)]
        pub(super) struct $name(NonNull<ffi::$type>);

        impl $name {
            /// Takes over what a creating call has returned.
            pub(super) fn made(object: *mut ffi::$type) -> io::Result<Self> {
                NonNull::new(object)
                    .map(Self)
                    .ok_or_else(io::Error::last_os_error)
            }

            pub(super) fn as_ptr(&self) -> *mut ffi::$type {
                self.0.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // The fields of their owners are dropped in their order: what was made from this one is gone.
                // SAFETY: the object was made by the creating call and is this value's alone.
                unsafe { ffi::$destroy(self.0.as_ptr()) };
            }
        }
    };
}

object!(Pd, ibv_pd, ibv_dealloc_pd);
object!(Channel, ibv_comp_channel, ibv_destroy_comp_channel);
object!(Cq, ibv_cq, ibv_destroy_cq);
object!(Mr, ibv_mr, ibv_dereg_mr);
object!(Qp, ibv_qp, ibv_destroy_qp);
object!(Handle, ibv_ah, ibv_destroy_ah);
