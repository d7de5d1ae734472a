// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's end of the daemon's socket, for one who does not use it as the library does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cm_msgs::control::{FromDaemon, FromLibrary, MAX_LEN};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

/// A connection to a daemon.
pub(super) struct Library(OwnedFd);

impl Library {
    /// Connects; nothing blocks from then on.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(fd))
    }

    /// Sends a message. Whether there was room.
    pub(super) fn send(&self, message: &FromLibrary) -> io::Result<bool> {
        let bytes = message.encode();
        match send(self.0.as_raw_fd(), bytes.as_ref(), MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn hello(&self) -> io::Result<bool> {
        self.send(&FromLibrary::Hello {
            command: *b"apm-abuse\0\0\0\0\0\0\0",
        })
    }

    /// What the daemon says, if it says something.
    pub(super) fn receive(&self) -> io::Result<Option<FromDaemon>> {
        let mut buffer = [0; MAX_LEN];
        match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => FromDaemon::decode(&buffer[..len])
                .map(Some)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Library {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
