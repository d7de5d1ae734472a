// SPDX-License-Identifier: MIT OR Apache-2.0
//! From which local address the kernel would send to another.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use statemachine::Time;

use super::netlink::RouteSocket;

/// Multicast groups of what the choice hangs on: links, addresses, routes, rules and next hops.
const GROUPS: [u32; 8] = [1, 5, 7, 8, 9, 11, 19, 32];
/// The kernel's least. That something changed is enough to know, and the loss of a message says so.
const RECEIVE_BUFFER: usize = 1;
/// How long a choice is believed: there are settings whose changes rtnetlink does not tell of, such
/// as address labels.
const BELIEVED: Duration = Duration::from_secs(10);
/// Choices kept.
const KEPT: usize = 1 << 16;

/// Asks the kernel's routes, and remembers what they said until something changes. Nothing is sent.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Without it nothing is remembered.
    changes: Option<RouteSocket>,
    chosen: HashMap<IpAddr, (IpAddr, Time)>,
}

impl Routes {
    /// Subscribes to changes. [`Routes::read_changes`] must be called whenever its descriptor becomes
    /// readable; without a subscription the routes are asked every time.
    ///
    /// # Errors
    /// The system says no.
    pub(crate) fn subscribe(&mut self) -> io::Result<RawFd> {
        let socket = RouteSocket::open(&GROUPS, Some(RECEIVE_BUFFER))?;
        Ok(self.changes.insert(socket).as_raw_fd())
    }

    /// Something has changed: what was remembered is forgotten.
    ///
    /// # Errors
    /// The socket is broken, and from now on nothing is remembered.
    pub(crate) fn read_changes(&mut self) -> io::Result<()> {
        let Some(socket) = &mut self.changes else {
            return Ok(());
        };
        self.chosen.clear();
        loop {
            match socket.receive() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.changes = None;
                    return Err(error);
                }
            }
        }
    }

    /// The local address; `None` if there is no route.
    pub(crate) fn source_to(&mut self, now: Time, destination: IpAddr) -> Option<IpAddr> {
        if let Some((source, until)) = self.chosen.get(&destination)
            && now < *until
        {
            return Some(*source);
        }
        let source = ask(destination)?;
        if self.changes.is_some() {
            if self.chosen.len() >= KEPT {
                self.chosen.clear();
            }
            self.chosen.insert(destination, (source, now + BELIEVED));
        }
        Some(source)
    }
}

/// Every question needs a socket of its own: one that was connected before keeps its address.
fn ask(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Any port but 0, which connect refuses.
    socket.connect((destination, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::super::own_network::{in_own_network, ip};
    use super::*;

    const NOW: Time = Time(1);

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_kernel_chooses_the_source_anew_after_a_change() {
        in_own_network(chooses_anew);
    }

    fn chooses_anew() {
        ip("link set lo up");
        ip("address add 10.1.0.1/24 dev lo");
        ip("address add fd01::1/64 dev lo nodad");
        let mut routes = Routes::default();
        routes.subscribe().expect("rtnetlink");
        let chosen = |routes: &mut Routes, to| routes.source_to(NOW, address(to));
        let here = [
            ("127.0.0.7", "127.0.0.1"),
            ("10.1.0.7", "10.1.0.1"),
            ("fd01::7", "fd01::1"),
        ];
        for (to, from) in here {
            assert_eq!(chosen(&mut routes, to), Some(address(from)));
        }
        assert_eq!(chosen(&mut routes, "10.2.0.7"), None);

        // Remembered, until its time is over or a change is heard of.
        ip("address add 10.2.0.1/24 dev lo");
        ip("route change local 10.1.0.0/24 dev lo table local src 10.2.0.1");
        let later = |after| routes.chosen[&address("10.1.0.7")].1.0 <= (NOW + after).0;
        assert!(later(BELIEVED) && !later(BELIEVED / 2));
        assert_eq!(chosen(&mut routes, "10.1.0.7"), Some(address("10.1.0.1")));
        let then = NOW + BELIEVED;
        let source = routes.source_to(then, address("10.1.0.7"));
        assert_eq!(source, Some(address("10.2.0.1")));
        assert_eq!(chosen(&mut routes, "fd01::7"), Some(address("fd01::1")));
        ip("address delete fd01::1/64 dev lo");
        routes.read_changes().expect("the socket works");
        assert_eq!(chosen(&mut routes, "fd01::7"), None);
        assert_eq!(chosen(&mut routes, "10.2.0.7"), Some(address("10.2.0.1")));

        // What does not fit into the socket's buffer was a change as well.
        assert!(!routes.chosen.is_empty());
        for number in 2..40 {
            ip(&format!("address add 10.3.0.{number}/32 dev lo"));
        }
        routes.read_changes().expect("the socket works");
        assert!(routes.chosen.is_empty());
    }
}
