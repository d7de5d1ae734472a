// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this program has rights that its caller has not.
#![allow(unsafe_code)]

/// Whether the kernel gave the program rights at exec that its caller does not have: set-user-ID,
/// set-group-ID, file capabilities, a security module. Its environment is then not to be trusted.
pub(crate) fn is_elevated() -> bool {
    // SAFETY: it reads the auxiliary vector, which the process keeps.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
