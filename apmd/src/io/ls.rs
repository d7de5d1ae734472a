// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RDMA netlink group on which the kernel asks user space for paths (`RDMA_NL_GROUP_LS`). As
//! long as somebody listens there, the kernel asks here first.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use acm::kernel;
use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, NetlinkAddr};

use super::netlink;

/// Bit of group 3 in the mask of groups.
const GROUP_LS: u32 = 1 << 2;
/// A request has 68 bytes of header and 84 of attributes at most.
const REQUEST_MAX: usize = 1024;

/// The socket.
#[derive(Debug)]
pub(crate) struct Ls {
    fd: OwnedFd,
}

impl Ls {
    /// Opens it and joins the group, once the kernel has shown that it takes answers from this process. Newer kernels let
    /// everybody listen (6.12 does), and each of their requests would wait for an answer that they do not take.
    ///
    /// # Errors
    /// The kernel has no RDMA netlink, or no right to it (CAP_NET_ADMIN).
    pub(crate) fn open() -> io::Result<Self> {
        let ls = Self {
            fd: netlink::rdma_socket()?,
        };
        ls.try_to_answer()?;
        let own: NetlinkAddr = socket::getsockname(ls.fd.as_raw_fd())?;
        let joined = NetlinkAddr::new(own.pid(), GROUP_LS);
        socket::bind(ls.fd.as_raw_fd(), &joined)?;
        Ok(ls)
    }

    /// The kernel acknowledges before the call that sends returns.
    fn try_to_answer(&self) -> io::Result<()> {
        self.send(&kernel::trial())?;
        let message = self.receive()?.unwrap_or_default();
        match kernel::acknowledged(&message) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::Error::other(
                "the kernel does not say whether it takes answers",
            )),
        }
    }

    /// The next message of the kernel's; `None` when there is none. What the kernel had to drop, it
    /// asks the SA after a while.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; REQUEST_MAX];
        loop {
            match socket::recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(len) => {
                    buffer.truncate(len);
                    return Ok(Some(buffer));
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR | Errno::ENOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a message to the kernel.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        let kernel = NetlinkAddr::new(0, 0);
        socket::sendto(self.fd.as_raw_fd(), message, &kernel, MsgFlags::empty())?;
        Ok(())
    }
}

as_raw_fd!(Ls, fd);
