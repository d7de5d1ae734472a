// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on the application's standard error: seldom, and more if asked.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::privilege;

/// Says what a user has to know.
pub(crate) fn warn(text: &dyn Display) {
    if takes_a_line(stderr().as_fd()) {
        // An application may have closed its standard error; that is no reason to fail.
        let _ = stderr().write_all(format!("librdmacm-apm: {text}\n").as_bytes());
    }
}

/// Whether a line can be written: where nobody reads any more that would be a SIGPIPE, which is the
/// application's end, and where nobody reads now the thread would wait.
fn takes_a_line(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
    // Whatever is wrong with it is told beside its being writable.
    poll(&mut fds, PollTimeout::ZERO) == Ok(1) && fds[0].revents() == Some(PollFlags::POLLOUT)
}

/// Logs what happens, if `RDMA_APM_DEBUG` is set by a caller who may set it.
pub(crate) fn debug(text: &dyn Display) {
    static ON: OnceLock<bool> = OnceLock::new();
    let is_asked = || std::env::var_os("RDMA_APM_DEBUG").is_some_and(|v| v != "0");
    if *ON.get_or_init(|| is_asked() && !privilege::is_elevated()) {
        warn(text);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::pipe;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn only_where_somebody_reads_a_line_is_written() {
        let (reader, mut writer) = pipe().expect("a pipe");
        assert!(takes_a_line(writer.as_fd()));
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("it is a pipe");
        while writer.write(&[0; 4096]).is_ok() {}
        assert!(!takes_a_line(writer.as_fd()), "it is full");
        drop(reader);
        assert!(!takes_a_line(writer.as_fd()), "nobody reads");
        assert!(takes_a_line(
            File::create("/dev/null").expect("it is there").as_fd()
        ));
    }
}
