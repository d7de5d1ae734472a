// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on the application's standard error: seldom, and more if asked.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

/// Says what a user has to know.
pub(crate) fn warn(text: &dyn Display) {
    // An application may have closed its standard error; that is no reason to fail.
    let _ = writeln!(std::io::stderr(), "librdmacm-apm: {text}");
}

/// Says what happens, if `RDMA_APM_DEBUG` is set.
pub(crate) fn debug(text: &dyn Display) {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| std::env::var_os("RDMA_APM_DEBUG").is_some_and(|v| v != "0")) {
        warn(text);
    }
}
