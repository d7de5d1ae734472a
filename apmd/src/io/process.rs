// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that cannot be mistaken for a later one of the same number.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

/// A process, held by a pidfd.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    pidfd: OwnedFd,
}

impl Process {
    /// The process at the other end of a Unix socket, which calls itself `pid`.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn of_peer(socket: BorrowedFd<'_>, pid: i32) -> io::Result<Self> {
        let pidfd = match getsockopt(&socket, sockopt::PeerPidfd) {
            // Before Linux 6.5. A process that ends between its connect and here and whose number
            // is given away meanwhile would be mistaken for its successor: the numbers have to
            // go round once in that time.
            Err(Errno::ENOPROTOOPT) => open_pidfd(pid)?,
            opened => opened?,
        };
        Ok(Self { pid, pidfd })
    }

    /// Whether a thread of it is left.
    pub(crate) fn is_alive(&self) -> bool {
        // A pidfd becomes readable when the last thread ends.
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
    }

    /// Whether task `tid` is a thread of it.
    pub(crate) fn has_thread(&self, tid: i32) -> bool {
        // In this order: while the process lives, the directory is its own.
        let thread = format!("/proc/{}/task/{tid}", self.pid);
        (tid == self.pid || Path::new(&thread).exists()) && self.is_alive()
    }

    /// Whether it is the one of this number that started then, in nanoseconds since the host did.
    pub(crate) fn is(&self, pid: i32, started: Option<u64>) -> bool {
        // In this order, as above.
        let same_start = started.is_none_or(|at| start_ticks(pid) == Some(at / NS_PER_TICK));
        pid == self.pid && same_start && self.is_alive()
    }
}

/// `/proc` counts in hundredths of a second (`USER_HZ`), on every architecture that has InfiniBand.
const NS_PER_TICK: u64 = 10_000_000;

/// Field 22 of `/proc/PID/stat`; the second is a name in parentheses, in which anything may be.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[allow(unsafe_code)]
fn open_pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: two numbers, no pointer.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(result)?;
    i32::try_from(fd)
        .map(crate::io::owned)
        .map_err(|_| Errno::EBADF)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn process(pid: u32) -> Process {
        let pid = pid.cast_signed();
        Process {
            pid,
            pidfd: open_pidfd(pid).unwrap(),
        }
    }

    #[test]
    fn a_process_has_its_threads_and_no_others() {
        let this = process(std::process::id());
        let tid = || nix::unistd::gettid().as_raw();
        assert!(this.has_thread(tid()));
        let (thread, was_its) = std::thread::scope(|scope| {
            scope
                .spawn(|| (tid(), this.has_thread(tid())))
                .join()
                .unwrap()
        });
        assert!(was_its);
        assert_ne!(thread, this.pid);
        assert!(!this.has_thread(nix::unistd::getppid().as_raw()));
    }

    #[test]
    fn an_ended_process_has_nothing() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = process(child.id());
        assert!(process.is_alive() && process.has_thread(process.pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive() && !process.has_thread(process.pid));
    }

    #[test]
    fn a_process_has_its_number_and_its_start() {
        let this = process(std::process::id());
        let at = start_ticks(this.pid).unwrap() * NS_PER_TICK;
        assert!(at > 0 && this.is(this.pid, Some(at)) && this.is(this.pid, Some(at + 9_999_999)));
        assert!(!this.is(this.pid, Some(at + NS_PER_TICK)) && this.is(this.pid, None));
        let parent = nix::unistd::getppid().as_raw();
        assert!(!this.is(parent, None));
    }

    #[test]
    fn the_peer_of_a_socket_is_found() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let pid = std::process::id().cast_signed();
        let peer = Process::of_peer(one.as_fd(), pid).unwrap();
        assert!(peer.is_alive() && peer.has_thread(pid));
    }
}
