// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caught functions: thin, each calls the real one and tells the library what happened.
//!
//! librdmacm calls its own public functions, so ours are entered from within the real ones too.

pub(crate) mod api;
pub(crate) mod channel;
pub(crate) mod id;
pub(crate) mod verbs;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;

/// Runs our side of a call: it leaves `errno` as it was, and a panic, which would be our fault,
/// stays ours.
fn aside<T>(default: T, f: impl FnOnce() -> T) -> T {
    let errno = Errno::last_raw();
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or(default);
    Errno::set_raw(errno);
    result
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
