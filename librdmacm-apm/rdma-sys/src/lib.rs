// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the project uses of libibverbs and librdmacm: declarations, made from the headers of the machine that builds it.
//! What the headers define as inline functions is compiled with a name of its own.
//!
//! It is made by `build.rs`, which lists the names. The crate of this name on crates.io has them all, and is built with a
//! bindgen that no libclang since 16 suits, of which Debian 13 has no older one.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unnameable_types,
    unsafe_code,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::use_self
)]

use libc::{
    pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
};

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
