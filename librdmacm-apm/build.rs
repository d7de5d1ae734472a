// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linker arguments of the shared object.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=librdmacm-apm.map");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let link_arg = |arg: &str| println!("cargo:rustc-cdylib-link-arg={arg}");
    // rustc hands the linker a version script of its own. lld reads both; GNU ld refuses a named
    // version beside an anonymous one. lld is rustc's default on x86_64 only.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        link_arg("-fuse-ld=lld");
    }
    link_arg(&format!("-Wl,--version-script={root}/librdmacm-apm.map"));
    // The commit thread runs this code until the process ends: dlclose must not unmap it.
    link_arg("-Wl,-z,nodelete");
    // The real functions are looked up behind this object in the search order, so they have to be
    // there even if the program loads librdmacm later by dlopen.
    link_arg("-Wl,--no-as-needed");
}
