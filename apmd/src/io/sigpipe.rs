// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGPIPE, as this process inherited it, for the program that it becomes.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and [`Command`] has the program it runs not ignore it,
//! whatever was before. But systemd has its services ignore it (`IgnoreSIGPIPE=`), and so may a shell.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

static IGNORED_AT_START: AtomicBool = AtomicBool::new(false);

/// What is in this section is called before Rust's runtime begins.
// SAFETY: the section is an array of pointers to C functions that return nothing; those of the C runtime's
// arguments that one does not want it need not take. What is called uses nothing of Rust's runtime.
#[allow(unsafe_code)]
#[unsafe(link_section = ".init_array")]
#[used]
static AT_START: extern "C" fn() = look;

#[allow(unsafe_code)]
extern "C" fn look() {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, and there is room for what is, which the call has written if it succeeds.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    IGNORED_AT_START.store(ignored, Ordering::Relaxed);
}

/// Has the program ignore SIGPIPE if this process was to.
#[allow(unsafe_code)]
pub(crate) fn pass_on(command: &mut Command) {
    if IGNORED_AT_START.load(Ordering::Relaxed) {
        // SAFETY: what is called, in a child perhaps, is one system call: it takes no memory and no lock.
        unsafe { command.pre_exec(ignore) };
    }
}

#[allow(unsafe_code)]
fn ignore() -> io::Result<()> {
    // SAFETY: there is no handler that could be called at a bad time.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }?;
    Ok(())
}
