// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's interfaces, one module each. What is not safe in the daemon is here.

pub mod acm_stream;
pub mod ls;
pub mod neigh;
pub mod nldev;
pub mod routes;
pub mod rtnl;
pub mod sa_session;
pub mod seqpacket;
pub mod stream;
pub mod ud_qp;
pub mod umad;
pub mod verbs;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over a descriptor that the kernel has just handed out as a number.
#[allow(unsafe_code)]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes what a system call has just opened for it, and nothing else
    // knows the number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
