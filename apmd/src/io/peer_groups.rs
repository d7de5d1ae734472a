// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which groups the process at the other end of a Unix socket had when it connected.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

/// A process has no more (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Whether it was a member of `group`.
///
/// # Errors
/// The system does not say.
pub(crate) fn is_member(socket: BorrowedFd<'_>, group: u32) -> io::Result<bool> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
    Ok(credentials.gid() == group || supplementary(socket)?.contains(&group))
}

fn supplementary(socket: BorrowedFd<'_>) -> Result<Vec<libc::gid_t>, Errno> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        match read(socket, &mut groups) {
            Ok(count) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(Errno::ERANGE) if groups.len() < GROUPS_MAX => groups.resize(groups.len() * 2, 0),
            Err(error) => return Err(error),
        }
    }
}

/// How many there are.
#[allow(unsafe_code)]
fn read(socket: BorrowedFd<'_>, groups: &mut [libc::gid_t]) -> Result<usize, Errno> {
    let mut bytes = libc::socklen_t::try_from(size_of_val(groups)).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `bytes` bytes to where `groups` lies, which has as many, and
    // the number of them to `bytes`; both outlive the call, and every bit pattern is a `gid_t`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    Errno::result(result)?;
    Ok(bytes as usize / size_of::<libc::gid_t>())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn our_own_groups_are_ours() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let ours = nix::unistd::getgid().as_raw();
        assert!(is_member(one.as_fd(), ours).expect("it says"));
        for group in nix::unistd::getgroups().expect("groups") {
            assert!(is_member(one.as_fd(), group.as_raw()).expect("it says"));
        }
        assert!(!is_member(one.as_fd(), 0xfff_fff0).expect("it says"));
    }
}
