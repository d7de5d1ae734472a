// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unix sockets that keep packets apart (`SOCK_SEQPACKET`), non-blocking.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Group;

pub use super::socket_file::ListenError;
use super::socket_file::{at, clear_the_way};

/// How long a daemon that starts tries to connect to the one that has its socket.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket that is listened on; its file goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Whose the file is.
    group: u32,
    not_given: Option<NotGiven>,
}

/// A group to which the socket was to belong, and does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NotGiven {
    /// Its name.
    pub(crate) group: String,
    /// Why.
    pub(crate) error: Errno,
}

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process, as this process's pid namespace names it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// A connected socket.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
}

/// What came of receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    /// A packet of this many bytes. One too long for the buffer was cut and counts in full.
    Packet(usize),
    /// Nothing for now.
    Nothing,
    /// The other end is gone.
    End,
}

fn new_socket(flags: SockFlag) -> Result<OwnedFd, Errno> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

impl Listener {
    /// Listens on `path` with access `mode`, for `group` where that group exists. A socket that a
    /// dead daemon left is replaced.
    ///
    /// # Errors
    /// Somebody listens there, something else is there, or the system says no.
    pub fn bind(path: &Path, mode: u32, group: &str) -> Result<Self, ListenError> {
        let io = at(path);
        clear_the_way(path, |path| Packets::connect(path, PATIENCE))?;
        let fd = new_socket(SockFlag::SOCK_NONBLOCK).map_err(|e| io(e.into()))?;
        let address = UnixAddr::new(path).map_err(|e| io(e.into()))?;
        // Nobody gets in between bind and chmod: a socket refuses until it is listened on.
        socket::bind(fd.as_raw_fd(), &address).map_err(|e| io(e.into()))?;
        let mut listener = Self {
            fd,
            path: path.to_owned(),
            group: 0,
            not_given: None,
        };
        if let Ok(Some(group)) = Group::from_name(group) {
            listener.not_given = give_to(path, group).err();
        }
        listener.group = std::fs::metadata(path).map_err(&io)?.gid();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(&io)?;
        socket::listen(&listener.fd, Backlog::new(128).unwrap_or(Backlog::MAXCONN))
            .map_err(|e| io(e.into()))?;
        Ok(listener)
    }

    /// The group whose members may use it, whatever its mode says of others.
    pub(crate) fn group(&self) -> u32 {
        self.group
    }

    /// Whose the file was to be, if it could not be given to that group.
    pub(crate) fn not_given(&self) -> Option<&NotGiven> {
        self.not_given.as_ref()
    }

    /// The next caller; `None` when nobody waits.
    ///
    /// # Errors
    /// Mostly: no file descriptor left.
    pub fn accept(&self) -> io::Result<Option<(Packets, Peer)>> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = loop {
            match socket::accept4(self.fd.as_raw_fd(), flags) {
                Ok(fd) => break crate::io::owned(fd),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let credentials = socket::getsockopt(&fd, sockopt::PeerCredentials)?;
        let peer = Peer {
            pid: credentials.pid(),
            uid: credentials.uid(),
        };
        Ok(Some((Packets { fd }, peer)))
    }
}

/// A daemon that is not root may give a file only to its own groups; then its owner's group does.
fn give_to(path: &Path, Group { name, gid, .. }: Group) -> Result<(), NotGiven> {
    nix::unistd::chown(path, None, Some(gid)).map_err(|error| {
        tracing::warn!(path = %path.display(), group = name, %error, "group of the socket not set");
        NotGiven { group: name, error }
    })
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "socket not removed");
        }
    }
}

impl Packets {
    /// Calls the listener at `path`. This one blocks, for `patience` at most: then it fails
    /// with [`io::ErrorKind::WouldBlock`], [`send`](Self::send) had no room, and
    /// [`receive`](Self::receive) got nothing.
    ///
    /// # Errors
    /// Nobody listens there, or not to us.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        let fd = new_socket(SockFlag::empty())?;
        let micros = patience.as_micros().min(i64::MAX as u128) as i64;
        let timeout = TimeVal::microseconds(micros);
        socket::setsockopt(&fd, sockopt::SendTimeout, &timeout)?;
        socket::setsockopt(&fd, sockopt::ReceiveTimeout, &timeout)?;
        socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { fd })
    }

    /// Receives a packet into `buffer`.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Receive> {
        loop {
            return match socket::recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
                Ok(0) => Ok(Receive::End),
                Ok(len) => Ok(Receive::Packet(len)),
                Err(Errno::EAGAIN) => Ok(Receive::Nothing),
                Err(Errno::ECONNRESET) => Ok(Receive::End),
                Err(Errno::EINTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Bounds the kernel's memory for packets that the other end has not read.
    ///
    /// # Errors
    /// The system says no.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(socket::setsockopt(&self.fd, sockopt::SndBuf, &bytes)?)
    }

    /// Sends a packet; `false` when there is no room for it now.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<bool> {
        loop {
            return match socket::send(self.fd.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => Ok(true),
                Err(Errno::EAGAIN) => Ok(false),
                Err(Errno::EINTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

as_raw_fd!(Listener, fd);

as_raw_fd!(Packets, fd);

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
