// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket to the daemon.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cm_msgs::control::{FromDaemon, FromLibrary, MAX_LEN};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

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

/// Connects to the daemon's socket; never blocks.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
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
