// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions behind ours.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

use rdma_sys::{
    ibv_async_event, ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_addrinfo,
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

macro_rules! real {
    ($($version:literal { $($name:ident($($type:ty),*) $(-> $ret:ty)?;)+ })+) => {
        /// The next definition of each caught function in the dynamic linker's search order.
        /// They may unwind: a thread that is cancelled in one of them is unwound from there.
        #[derive(Clone, Copy)]
        pub(crate) struct Real {
            $($(pub(crate) $name: unsafe extern "C-unwind" fn($($type),*) $(-> $ret)?,)+)+
        }

        impl Real {
            fn look_up() -> Self {
                Self { $($($name: {
                    let symbol = concat!(stringify!($name), "\0");
                    let version = concat!($version, "\0");
                    let found = next(symbol, version);
                    // SAFETY: the symbol is the function whose C prototype the field's type
                    // repeats, and function pointers are as wide as data pointers here.
                    unsafe { transmute_copy(&found) }
                },)+)+ }
            }
        }
    };
}

real! {
    "RDMACM_1.0" {
        rdma_create_event_channel() -> *mut rdma_event_channel;
        rdma_destroy_event_channel(*mut rdma_event_channel);
        rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, u32) -> c_int;
        rdma_create_ep(*mut *mut rdma_cm_id, *mut rdma_addrinfo, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
        rdma_destroy_ep(*mut rdma_cm_id);
        rdma_destroy_id(*mut rdma_cm_id) -> c_int;
        rdma_destroy_qp(*mut rdma_cm_id);
        rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_disconnect(*mut rdma_cm_id) -> c_int;
        rdma_get_request(*mut rdma_cm_id, *mut *mut rdma_cm_id) -> c_int;
        rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
        rdma_event_str(u32) -> *const c_char;
        rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    }
    "RDMACM_1.2" {
        rdma_establish(*mut rdma_cm_id) -> c_int;
    }
    "IBVERBS_1.1" {
        ibv_close_device(*mut ibv_context) -> c_int;
        ibv_destroy_qp(*mut ibv_qp) -> c_int;
        ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    }
}

/// The real functions. This object needs librdmacm and libibverbs itself, so each of them exists
/// behind it; if not, the installation is broken and no call could be served.
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(Real::look_up)
}

/// The symbol's next definition: of this version, or else of any (another build of rdma-core).
fn next(symbol: &'static str, version: &'static str) -> *mut c_void {
    let name = symbol.as_ptr().cast::<c_char>();
    // SAFETY: both strings end in NUL.
    let mut found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr().cast()) };
    if found.is_null() {
        // SAFETY: as above.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
    }
    if found.is_null() {
        let name = CStr::from_bytes_with_nul(symbol.as_bytes()).unwrap_or_default();
        crate::log::warn(&format_args!(
            "{} not found behind this library: load it before librdmacm",
            name.to_string_lossy()
        ));
        std::process::abort();
    }
    found
}

/// A function of a device's own library, which a program need not have: behind this one in the search
/// order, or in a library that is loaded apart (as UCX and libibverbs load theirs). Null if there is
/// none.
pub(crate) fn of_provider(library: &CStr, symbol: &CStr, version: &CStr) -> *mut c_void {
    let behind = |handle| {
        // SAFETY: the handle is RTLD_NEXT or of a library that stays loaded, the strings end in NUL.
        unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }
    };
    let found = behind(libc::RTLD_NEXT);
    if !found.is_null() {
        return found;
    }
    // SAFETY: nothing is loaded that is not there already.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return handle;
    }
    behind(handle)
}
