// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread of the library's own in the application's process.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::leak_check::Untracked;

/// It works on small messages, and has no recursion.
const STACK_SIZE: usize = 256 * 1024;

struct Start {
    name: &'static CStr,
    work: Box<dyn FnOnce() + Send>,
}

/// Starts a detached thread. The standard library's would allocate before `work` runs, where a leak checker cannot be
/// told to leave that alone.
pub(crate) fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _untracked = Untracked::begin();
    let start = Box::into_raw(Box::new(Start {
        name,
        work: Box::new(work),
    }));
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used and destroyed once; both settings are valid ones.
    let result = unsafe {
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setstacksize(attributes, STACK_SIZE);
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        let result = libc::pthread_create(thread.as_mut_ptr(), attributes, run, start.cast());
        libc::pthread_attr_destroy(attributes);
        result
    };
    if result != 0 {
        // SAFETY: no thread has got it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(result));
    }
    Ok(())
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    let _untracked = Untracked::begin();
    // SAFETY: `spawn` gave it to this thread alone.
    let Start { name, work } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: the thread is this one. A name that it may not have is no reason to do without it.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    // The panic is on standard error already. The application continues without protection.
    let _ = catch_unwind(AssertUnwindSafe(work));
    ptr::null_mut()
}
