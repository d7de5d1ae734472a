// SPDX-License-Identifier: MIT OR Apache-2.0
//! LeakSanitizer, in programs that are built with it. It looks at what threads that exist can reach. In a forked
//! child the commit thread does not exist, and all that only it could reach would be called leaked.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::transmute;

/// While it lives, LeakSanitizer takes what the thread allocates, and what can be reached from there, for in use.
pub(crate) struct Untracked;

impl Untracked {
    pub(crate) fn begin() -> Self {
        call(c"__lsan_disable");
        Self
    }
}

impl Drop for Untracked {
    fn drop(&mut self) {
        call(c"__lsan_enable");
    }
}

/// Calls a function of `sanitizer/lsan_interface.h`, if the program has it.
fn call(name: &CStr) {
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !found.is_null() {
        // SAFETY: both are `void f(void)` there, and nobody else may define a name that begins with two underscores.
        let function: extern "C" fn() = unsafe { transmute(found) };
        function();
    }
}
