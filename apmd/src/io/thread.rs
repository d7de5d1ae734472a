// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads beside the failover loop.
//!
//! The loop has the priority that the unit gives the process: a host whose programs keep all its
//! processors busy is one whose connections want protection. A thread that works for strangers, or long,
//! would keep the loop waiting with the same priority; it gives it up.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;

/// The niceness of a process of which nobody said another.
const DEFAULT: libc::c_int = 0;

/// Starts a named thread with no more than a process's default priority.
///
/// # Errors
/// As [`Builder::spawn`].
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(error) = give_up_priority() {
            tracing::warn!(%error, "a thread keeps the failover loop's priority");
        }
        run()
    })
}

/// As Linux has it, 0 is the calling thread, not its process.
#[allow(unsafe_code)]
fn give_up_priority() -> io::Result<()> {
    Errno::clear();
    // SAFETY: numbers, no pointer.
    let niceness = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // -1 is a niceness, too.
    if niceness == -1 && Errno::last_raw() != 0 {
        return Err(io::Error::last_os_error());
    }
    if niceness < DEFAULT {
        // SAFETY: numbers, no pointer.
        Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, DEFAULT) })?;
    }
    Ok(())
}
