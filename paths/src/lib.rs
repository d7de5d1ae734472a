// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where paths come from: the client of subnet administration ([`sa`]), the list of sources with
//! their limits and health ([`source`]), and the fabric as data, with when to read it again
//! ([`fabric`]). Sans-IO: time, answers and files' texts are inputs; what is to be sent or read is
//! polled for.
#![forbid(unsafe_code)]

pub mod fabric;
pub mod sa;
pub mod source;
