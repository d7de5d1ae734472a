// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who asks, and from whose share that is taken.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

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
    /// The users of this host that come by TCP. Nothing tells them apart, and each may use any local address.
    LocalByTcp,
    /// Another host, which came by TCP.
    Remote(Host),
    /// Nobody: a path in doubt is asked about again.
    Recheck,
}

/// Another host, as far as its address tells it from others: IPv4 by address, IPv6 by /64, of which a host may use any
/// address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(IpAddr);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

impl User {
    /// Of a TCP connection from `address`. `is_own`: whether that is an address of this host; those of loopback need not
    /// be known as such.
    pub fn by_tcp(address: IpAddr, is_own: bool) -> Self {
        match address.to_canonical() {
            address if is_own || address.is_loopback() => Self::LocalByTcp,
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::Remote(Host(Ipv6Addr::from_bits(network).into()))
            }
            address => Self::Remote(Host(address)),
        }
    }

    /// The user's number, of one of this host.
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::Local(uid) => Some(uid),
            _ => None,
        }
    }

    /// The other host that came by TCP.
    pub fn host(self) -> Option<Host> {
        match self {
            Self::Remote(host) => Some(host),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_by_tcp_is_a_host_or_this_one() {
        let by_tcp = |address: &str, is_own| User::by_tcp(address.parse().unwrap(), is_own);
        for address in ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(by_tcp(address, false), User::LocalByTcp, "{address}");
        }
        assert_eq!(by_tcp("10.0.0.1", true), User::LocalByTcp);
        assert_eq!(by_tcp("fd00::1", true), User::LocalByTcp);
        let shown = |address| by_tcp(address, false).host().map(|host| host.to_string());
        for (address, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00:1:2:3:4::5", "fd00:1:2:3::/64"),
            ("fd00:1:2:3::9", "fd00:1:2:3::/64"),
            ("fd00:1:2:4::9", "fd00:1:2:4::/64"),
        ] {
            assert_eq!(shown(address).as_deref(), Some(expected));
        }
        assert_ne!(by_tcp("10.0.0.1", false), by_tcp("10.0.0.2", false));
    }
}
