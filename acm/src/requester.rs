// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who asks, and from whose share that is taken.

use std::net::IpAddr;

use cm_msgs::Gid;
use cm_msgs::acm::{Address, Header};

use super::kernel;

/// Whose share a request is taken from. The order is of no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum User {
    /// The kernel, which asks for everybody: part of every share is kept for it.
    Kernel,
    /// A user of this host, by number.
    Local(u32),
    /// Another host, or any user of this one who came by TCP.
    Remote(IpAddr),
    /// Nobody: a path in doubt is asked about again.
    Recheck,
}

impl User {
    /// The user's number, of one of this host.
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::Local(uid) => Some(uid),
            _ => None,
        }
    }

    /// The address of one who came by TCP.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Remote(address) => Some(address),
            _ => None,
        }
    }

    pub(crate) fn is_privileged(self) -> bool {
        self == Self::Kernel
    }
}

/// A client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its key; never used twice.
    pub key: u32,
    /// Whose it is.
    pub user: User,
}

/// Who gets an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requester {
    /// A client.
    Client {
        /// Which.
        client: Client,
        /// The header of its request.
        header: Header,
        /// What it is told besides the path.
        extra: Extra,
    },
    /// The kernel.
    Kernel(kernel::Request),
}

impl Requester {
    /// Whose share the request is taken from.
    pub fn user(&self) -> User {
        match self {
            Self::Client { client, .. } => client.user,
            Self::Kernel(_) => User::Kernel,
        }
    }
}

/// What an answer to a client says besides the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extra {
    /// Nothing.
    Nothing,
    /// The source that was chosen, where the client left the choice.
    Source(Address),
    /// That the SA knows the path.
    Verification,
}

/// A request that waits for a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) requester: Requester,
    /// The destination must be this port, if that is specified.
    pub(crate) dgid: Gid,
}
