// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caught functions: thin, each calls the real one and tells the library what happened.
//!
//! librdmacm calls its own public functions, so ours are entered from within the real ones too.
//! Applications cancel threads that wait in these calls (`pthread_cancel`), which unwinds the
//! thread through our frames: no destructor may be pending where a real function is called.
#![allow(unsafe_code)]

pub(crate) mod api;
pub(crate) mod channel;
pub(crate) mod devx;
pub(crate) mod id;
pub(crate) mod verbs;

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;

/// Runs our side of a call: it leaves `errno` as it was, the thread is not cancelled in it, and a
/// panic, which would be our fault, stays ours.
fn aside<T>(default: T, f: impl FnOnce() -> T) -> T {
    let errno = Errno::last_raw();
    let cancelable = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or(default);
    set_cancel_state(cancelable);
    Errno::set_raw(errno);
    result
}

/// Runs a real function under a lock of ours: the thread is not cancelled in it. It has its own `errno`.
fn uncancelled<T>(f: impl FnOnce() -> T) -> T {
    let cancelable = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let result = f();
    let errno = Errno::last_raw();
    set_cancel_state(cancelable);
    Errno::set_raw(errno);
    result
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Sets the calling thread's cancelability; returns what it was.
fn set_cancel_state(state: c_int) -> c_int {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    let mut old = 0;
    // SAFETY: the state is one of the two that exist, or was returned by this very function.
    unsafe { pthread_setcancelstate(state, &mut old) };
    old
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Calls a real function that may call public functions in turn.
fn outer<T>(f: impl FnOnce() -> T) -> T {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let result = f();
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    result
}

/// Whether the application called, not librdmacm.
fn called_by_application() -> bool {
    DEPTH.with(|depth| depth.get() == 0)
}
