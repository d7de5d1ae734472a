// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's interfaces, one module each. What is not safe in the daemon is here.

/// `Type, field`: what is polled by the descriptor of one of its fields.
macro_rules! as_raw_fd {
    ($type:ty, $field:tt) => {
        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.$field.as_raw_fd()
            }
        }
    };
}

pub(crate) mod acm_stream;
#[cfg(test)]
mod any_datagram;
pub(crate) mod apm_module;
pub(crate) mod background;
pub(crate) mod host_kernel;
pub(crate) mod host_name;
pub(crate) mod id_file;
pub(crate) mod idle_trial;
pub(crate) mod ls;
pub(crate) mod neigh;
mod netlink;
pub(crate) mod nldev;
pub(crate) mod nvme;
#[cfg(test)]
mod own_network;
pub(crate) mod path_file;
pub(crate) mod peer_groups;
pub(crate) mod person;
pub(crate) mod port_tables;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod rdma_class;
pub(crate) mod routes;
pub(crate) mod rtnl;
pub(crate) mod sa_session;
pub mod seqpacket;
pub(crate) mod sigpipe;
mod socket_file;
pub(crate) mod stream;
pub(crate) mod text_file;
pub(crate) mod thread;
pub(crate) mod ud_qp;
pub(crate) mod umad;
pub(crate) mod verbs;
mod verbs_objects;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Takes over a descriptor that the kernel has just handed out as a number.
#[allow(unsafe_code)]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes what a system call has just opened for it, and nothing else
    // knows the number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// For a descriptor that a library has opened, which blocks.
fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// `source`, of which the poll says from now on when it can be read.
pub(crate) fn watched<T: AsRawFd>(
    source: T,
    registry: &Registry,
    token: impl Into<Token>,
) -> io::Result<T> {
    let fd = source.as_raw_fd();
    registry.register(&mut SourceFd(&fd), token.into(), Interest::READABLE)?;
    Ok(source)
}
