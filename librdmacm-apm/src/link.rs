// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket to the daemon.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cm_msgs::control::{FromDaemon, FromLibrary, MAX_LEN};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, send, socket,
};
use nix::unistd::geteuid;

/// Messages kept for a daemon that does not read. More than that, and it is better to begin
/// anew: a fresh registration says all that the lost messages said.
const MAX_QUEUED: usize = 4096;

/// An open socket to the daemon.
pub(crate) struct Link {
    socket: OwnedFd,
    queue: VecDeque<FromLibrary>,
    /// The socket took no more of it.
    full: bool,
}

/// What came from the daemon.
#[derive(PartialEq, Debug)]
pub(crate) enum Received {
    /// A message.
    Message(FromDaemon),
    /// A packet that is no message.
    Garbage(String),
    /// Nothing more for now.
    Nothing,
    /// The daemon is gone.
    Closed,
}

/// Connects to the daemon's socket; never blocks. Permission is denied also where the listener is neither
/// root, nor this program's user, nor the owner of the socket's directory (the daemon's user, for the
/// default one): it could have paths of its own choice loaded.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    let listener = getsockopt(&fd, PeerCredentials)?.uid();
    if listener != 0 && listener != geteuid().as_raw() && Some(listener) != directory_owner(path) {
        let untrusted = format!("the listener is user {listener}, not root or the daemon's user");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, untrusted));
    }
    Ok(fd)
}

fn directory_owner(socket: &Path) -> Option<u32> {
    Some(socket.parent()?.metadata().ok()?.uid())
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            queue: VecDeque::new(),
            full: false,
        }
    }

    /// Whether something waits for the socket to become writable.
    pub(crate) fn wants_write(&self) -> bool {
        self.full
    }

    /// Queues a message until [`Self::flush`], and says how many are queued. `Err`: the daemon has not read
    /// for long.
    pub(crate) fn queue(&mut self, message: FromLibrary) -> Result<usize, Errno> {
        if self.queue.len() == MAX_QUEUED {
            return Err(Errno::ENOBUFS);
        }
        self.queue.push_back(message);
        Ok(self.queue.len())
    }

    /// Sends what is queued, as far as the socket takes it. `Err`: the daemon is gone.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.full = false;
        while let Some(message) = self.queue.front() {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.socket.as_raw_fd(), message.encode().as_ref(), flags) {
                Ok(_) => self.queue.pop_front(),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.full = true;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }

    /// The next packet.
    pub(crate) fn receive(&mut self) -> Received {
        // One byte more than any message, so that a longer packet does not pass for one.
        let mut bytes = [0; MAX_LEN + 1];
        loop {
            return match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => Received::Closed,
                Ok(len) => match FromDaemon::decode(&bytes[..len]) {
                    Ok(message) => Received::Message(message),
                    Err(error) => Received::Garbage(error.to_string()),
                },
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => Received::Nothing,
                Err(_) => Received::Closed,
            };
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_dir_all};
    use std::path::PathBuf;
    use std::sync::mpsc::channel;

    use nix::sys::socket::{Backlog, bind, listen};
    use nix::unistd::chown;

    use super::*;

    const NOBODY: u32 = 65534;

    fn listener(path: &Path, user: u32) -> OwnedFd {
        // By the system call: glibc's function changes the whole process, and this concerns one thread.
        // SAFETY: the call takes three numbers and changes this thread's credentials only.
        #[allow(unsafe_code)]
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, user, u32::MAX) };
        assert_eq!(changed, 0, "{}", io::Error::last_os_error());
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(socket.as_raw_fd(), &UnixAddr::new(path).expect("a path")).expect("a free name");
        listen(&socket, Backlog::new(4).expect("a length")).expect("it is bound");
        socket
    }

    fn directory(name: &str, owner: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("link-{}-{name}", std::process::id()));
        create_dir_all(&path).expect("temporary directory");
        // The other user may bind there, whichever of them it belongs to.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("its own directory");
        if owner != geteuid().as_raw() {
            chown(&path, Some(owner.into()), None).expect("root may");
        }
        path
    }

    /// What becomes of opening a socket in a directory of `owner` where `user` listens.
    fn opened(name: &str, owner: u32, user: u32) -> Result<(), io::ErrorKind> {
        let directory = directory(name, owner);
        let path = directory.join("apmd.sock");
        let (ready, listening) = channel();
        let (done, wait) = channel::<()>();
        let result = std::thread::scope(|scope| {
            let path = &path;
            scope.spawn(move || {
                let _socket = listener(path, user);
                ready.send(()).expect("it is waited for");
                // Until the other end has gone away.
                let _ = wait.recv();
            });
            listening.recv().expect("it listens");
            let result = open(path).map(drop).map_err(|error| error.kind());
            drop(done);
            result
        });
        remove_dir_all(&directory).expect("its own directory");
        result
    }

    #[test]
    fn only_root_the_own_user_and_the_directorys_owner_are_taken_for_the_daemon() {
        let own = geteuid().as_raw();
        assert_eq!(opened("own", own, own), Ok(()));
        if own != 0 {
            let required = std::env::var_os("APMD_REQUIRE_ROOT");
            let required = required.is_some_and(|required| required == "1");
            assert!(
                !required,
                "only root can listen as another user: run it as root"
            );
            eprintln!("skipped: only root can listen as another user");
            return;
        }
        assert_eq!(opened("daemon", NOBODY, NOBODY), Ok(()));
        let denied = Err(io::ErrorKind::PermissionDenied);
        assert_eq!(opened("stranger", own, NOBODY), denied);
        assert_eq!(opened("neighbour", NOBODY - 1, NOBODY), denied);
    }
}
