// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's neighbour tables by rtnetlink, and the interfaces and addresses that they hang on.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{self, Received, RouteSocket};
use super::rtnl;
use crate::neigh::{Change, Entry, Event, Interface, Key, LinkAddress, Subnet};

/// `NDA_PROTOCOL` of our entries: a number that nobody else uses (`/etc/iproute2/rt_protos`).
pub(crate) const PROTOCOL: u8 = 0x2c;

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`.
const GROUPS: [u32; 4] = [1, 3, 5, 9];
/// Room for a burst of news about tens of thousands of neighbours.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Sequence number of dumps; requests count from 1.
const DUMP: u32 = u32::MAX;

/// What is being told of all there is; the kernel does one such thing at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dump {
    Links,
    Addresses,
    Entries,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct NeighTable {
    socket: RouteSocket,
    dump: Option<Dump>,
    /// Something was lost while a dump was under way.
    again: bool,
}

impl NeighTable {
    /// Opens the socket, subscribes, and asks for what is there now.
    ///
    /// # Errors
    /// The system says no.
    pub(crate) fn open() -> io::Result<Self> {
        let mut table = Self {
            socket: RouteSocket::open(&GROUPS, Some(RECEIVE_BUFFER))?,
            dump: None,
            again: false,
        };
        table.start(Dump::Links)?;
        Ok(table)
    }

    fn start(&mut self, dump: Dump) -> io::Result<()> {
        let question = match dump {
            Dump::Links => RouteNetlinkMessage::GetLink(LinkMessage::default()),
            Dump::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            Dump::Entries => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        };
        self.dump = Some(dump);
        self.socket.send(DUMP, NLM_F_REQUEST | NLM_F_DUMP, question)
    }

    /// Asks for a change; [`Event::Done`] with the number tells what became of it.
    ///
    /// # Errors
    /// The system does not take the request.
    pub(crate) fn request(&self, number: u32, change: Change) -> io::Result<()> {
        let request = NLM_F_REQUEST | NLM_F_ACK;
        match change {
            Change::Set(key, address) => {
                let message = RouteNetlinkMessage::NewNeighbour(entry(key, address));
                let flags = request | NLM_F_CREATE | NLM_F_REPLACE;
                self.socket.send(number, flags, message)
            }
            Change::Remove(key) => {
                let message = RouteNetlinkMessage::DelNeighbour(named(key));
                self.socket.send(number, request, message)
            }
        }
    }

    /// Reads all there is.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(received) = self.socket.receive()? {
            match received {
                Received::Datagram(datagram) => self.datagram(&datagram, &mut events)?,
                Received::Overrun => self.lost(&mut events)?,
            }
        }
        Ok(events)
    }

    /// The kernel had to drop news: everything is asked for again.
    fn lost(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        events.push(Event::Lost);
        match self.dump {
            Some(_) => self.again = true,
            None => self.start(Dump::Links)?,
        }
        Ok(())
    }

    fn datagram(&mut self, datagram: &[u8], events: &mut Vec<Event>) -> io::Result<()> {
        for message in netlink::readable(datagram) {
            match message.payload {
                NetlinkPayload::InnerMessage(told) => events.extend(event(&told)),
                NetlinkPayload::Done(_) => self.dumped(events)?,
                NetlinkPayload::Error(error) => {
                    let result = error.code.map_or(Ok(()), |code| Err(-code.get()));
                    events.push(Event::Done(message.header.sequence_number, result));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn dumped(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let next = match self.dump.take() {
            _ if std::mem::take(&mut self.again) => {
                events.push(Event::Lost);
                Dump::Links
            }
            Some(Dump::Links) => Dump::Addresses,
            Some(Dump::Addresses) => Dump::Entries,
            Some(Dump::Entries) | None => {
                events.push(Event::Complete);
                return Ok(());
            }
        };
        self.start(next)
    }
}

as_raw_fd!(NeighTable, socket);

fn named(key: Key) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = match key.ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.ifindex = key.interface;
    message.attributes = vec![NeighbourAttribute::Destination(key.ip.into())];
    message
}

/// An entry as we make it; why like this, `crate::neigh` says.
fn entry(key: Key, address: LinkAddress) -> NeighbourMessage {
    let mut message = named(key);
    message.header.state = NeighbourState::Reachable;
    message.header.flags = NeighbourFlags::ExtLearned;
    message.attributes.extend([
        NeighbourAttribute::LinkLayerAddress(address.encode().to_vec()),
        NeighbourAttribute::Protocol(RouteProtocol::from(PROTOCOL)),
    ]);
    message
}

fn event(told: &RouteNetlinkMessage) -> Option<Event> {
    match told {
        RouteNetlinkMessage::NewLink(link) => {
            let interface = interface(link)?;
            Some(Event::Interface(link.header.index, interface))
        }
        RouteNetlinkMessage::DelLink(link) => {
            interface(link).map(|_| Event::InterfaceGone(link.header.index))
        }
        RouteNetlinkMessage::NewAddress(address) => subnet(address).map(Event::Address),
        RouteNetlinkMessage::DelAddress(address) => subnet(address).map(Event::AddressGone),
        RouteNetlinkMessage::NewNeighbour(neighbour) => new_entry(neighbour),
        RouteNetlinkMessage::DelNeighbour(neighbour) => key(neighbour).map(Event::EntryGone),
        _ => None,
    }
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let known = rtnl::interface_of(link)?;
    Some(Interface {
        name: known.name,
        gid: known.gid,
        pkey: known.pkey,
        up: known.carrier == Some(true),
    })
}

fn subnet(address: &AddressMessage) -> Option<Subnet> {
    Some(Subnet {
        interface: address.header.index,
        ip: rtnl::ip_of(address)?,
        prefix_len: address.header.prefix_len,
    })
}

fn key(neighbour: &NeighbourMessage) -> Option<Key> {
    let ip = neighbour
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
            _ => None,
        });
    Some(Key {
        interface: neighbour.header.ifindex,
        ip: ip?,
    })
}

/// An entry of an IPoIB interface, or one of which it is not known where it leads; those of
/// multicast addresses are the kernel's business.
fn new_entry(neighbour: &NeighbourMessage) -> Option<Event> {
    let key = key(neighbour)?;
    let known = !matches!(
        neighbour.header.state,
        NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
    );
    let mut address = None;
    let mut ours = false;
    for attribute in &neighbour.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => address = LinkAddress::decode(bytes),
            NeighbourAttribute::Protocol(protocol) => ours = u8::from(*protocol) == PROTOCOL,
            _ => {}
        }
    }
    let address = address.filter(|_| known);
    (!key.ip.is_multicast()).then_some(Event::Entry(key, Entry { address, ours }))
}

/// All that the readers of news look at.
#[cfg(test)]
pub(super) fn events_of(datagram: &[u8]) {
    for message in netlink::readable(datagram) {
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) =
            &message.payload
        {
            let _ = rtnl::ip_of(address);
        }
        if let NetlinkPayload::InnerMessage(told) = message.payload {
            let _ = event(&told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::{Gid, Qpn};
    use netlink_packet_core::NetlinkMessage;

    const KEY: Key = Key {
        interface: 3,
        ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 2)),
    };

    fn address() -> LinkAddress {
        LinkAddress {
            flags: 0x80,
            qpn: Qpn(0x11),
            gid: Gid([7; 16]),
        }
    }

    fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn told(bytes: &[u8]) -> Vec<Event> {
        let mut table = NeighTable::open().expect("rtnetlink needs no privilege to read");
        let mut events = Vec::new();
        table.datagram(bytes, &mut events).unwrap();
        events
    }

    #[test]
    fn our_entries_are_known_again() {
        let told = told(&bytes(RouteNetlinkMessage::NewNeighbour(entry(
            KEY,
            address(),
        ))));
        let ours = Entry {
            address: Some(address()),
            ours: true,
        };
        assert_eq!(told, [Event::Entry(KEY, ours)]);
    }

    #[test]
    fn an_entry_that_leads_nowhere_has_no_address() {
        let mut failed = entry(KEY, address());
        failed.header.state = NeighbourState::Failed;
        failed
            .attributes
            .retain(|a| !matches!(a, NeighbourAttribute::Protocol(_)));
        let nothing = Entry {
            address: None,
            ours: false,
        };
        let told = told(&bytes(RouteNetlinkMessage::NewNeighbour(failed)));
        assert_eq!(told, [Event::Entry(KEY, nothing)]);
    }

    #[test]
    fn what_follows_an_unreadable_message_is_read() {
        let whole = bytes(RouteNetlinkMessage::NewNeighbour(entry(KEY, address())));
        let mut unreadable = whole.clone();
        unreadable[28] = 2;
        assert_eq!(told(&unreadable), []);
        assert_eq!(told(&[unreadable, whole].concat()).len(), 1);
    }

    #[test]
    fn cut_datagrams_are_read_as_far_as_they_go() {
        let whole = bytes(RouteNetlinkMessage::NewNeighbour(entry(KEY, address())));
        for len in 0..whole.len() {
            assert_eq!(told(&whole[..len]), [], "cut to {len}");
        }
    }

    #[test]
    fn everything_there_is_is_told_and_then_complete() {
        let mut table = NeighTable::open().expect("rtnetlink needs no privilege to read");
        let mut events = Vec::new();
        while !events.contains(&Event::Complete) {
            events.extend(table.read().unwrap());
        }
        let loopback =
            |event: &Event| matches!(event, Event::Address(subnet) if subnet.ip.is_loopback());
        assert!(events.iter().any(loopback), "{events:?}");
    }
}
