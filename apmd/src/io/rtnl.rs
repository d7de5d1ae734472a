// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carrier and addresses of IPoIB interfaces by rtnetlink: an interface's hardware address ends with
//! the GID of its port (RFC 4391, 9.1.1), and its broadcast address holds the partition (4.3).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;

use cm_msgs::{Gid, PKey};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};

use super::netlink::{self, Received, RouteSocket};

/// Multicast groups of link and address changes.
const GROUPS: [u32; 3] = [1, 5, 9];
const HARDWARE_ADDRESS_LEN: usize = 20;
const GID_AT: usize = 4;
const PKEY_AT: usize = 8;

/// An IPoIB interface, as far as its port goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) gid: Gid,
    pub(super) pkey: PKey,
    /// `None` while the interface is administratively down: then its carrier says nothing.
    pub(super) carrier: Option<bool>,
    pub(super) is_bond: bool,
}

/// What an interface's change means for its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkEvent {
    /// The carrier is lost.
    Lost(Gid),
    /// Something else is different.
    Changed(Gid),
    /// An address has come or gone.
    Addresses,
}

/// The rtnetlink socket and the interfaces that it told of.
#[derive(Debug)]
pub(crate) struct Rtnl {
    socket: RouteSocket,
    interfaces: HashMap<u32, Interface>,
    /// Addresses of all interfaces, and the bits of each that name its network.
    addresses: BTreeMap<(u32, IpAddr), u8>,
    sequence: u32,
    /// The question for all links that is not answered in full.
    links_asked: Option<u32>,
}

impl Rtnl {
    /// Opens the socket, subscribes, and asks for what is there now.
    ///
    /// # Errors
    /// The system says no.
    pub(crate) fn open() -> io::Result<Self> {
        let mut rtnl = Self {
            socket: RouteSocket::open(&GROUPS, None)?,
            interfaces: HashMap::new(),
            addresses: BTreeMap::new(),
            sequence: 0,
            links_asked: None,
        };
        rtnl.dump()?;
        Ok(rtnl)
    }

    /// Asks for all interfaces; the answers come as events. When the last is there, their addresses
    /// are asked for: the kernel takes one such question at a time.
    fn dump(&mut self) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        self.links_asked = Some(self.sequence);
        Ok(())
    }

    fn dump_addresses(&mut self) {
        self.links_asked = None;
        self.addresses.clear();
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        if let Err(error) = self.ask(question) {
            tracing::warn!(%error, "addresses not asked for");
        }
    }

    fn ask(&mut self, question: RouteNetlinkMessage) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        self.socket.send(self.sequence, flags, question)
    }

    /// Reads all there is. Of what the kernel had to drop, everything is asked for again.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn read(&mut self) -> io::Result<Vec<LinkEvent>> {
        let mut events = Vec::new();
        while let Some(received) = self.socket.receive()? {
            match received {
                Received::Datagram(datagram) => self.datagram(&datagram, &mut events),
                Received::Overrun => self.dump()?,
            }
        }
        Ok(events)
    }

    /// Name of the interface on the port with this GID.
    pub(crate) fn interface(&self, gid: Gid) -> Option<&str> {
        let mut names: Vec<_> = self
            .interfaces
            .values()
            .filter(|i| i.gid == gid && !i.is_bond)
            .map(|i| i.name.as_str())
            .collect();
        // Child interfaces of other partitions have the GID too; the parent has the shortest name.
        names.sort_by_key(|name| (name.len(), *name));
        names.first().copied()
    }

    /// The addresses of IPoIB interfaces that are up.
    pub(crate) fn addresses(&self) -> Vec<::acm::Interface> {
        let of_ipoib = self
            .addresses
            .iter()
            .filter_map(|((index, ip), prefix_len)| {
                let interface = self.interfaces.get(index)?;
                interface.carrier?;
                Some(::acm::Interface {
                    gid: interface.gid,
                    pkey: interface.pkey,
                    ip: *ip,
                    prefix_len: *prefix_len,
                })
            });
        of_ipoib.collect()
    }

    /// Bonds of IPoIB interfaces, by their addresses. A bond takes the link layer of what is in it.
    pub(crate) fn bonds(&self) -> BTreeMap<IpAddr, String> {
        let of_bond = self.addresses.keys().filter_map(|(index, ip)| {
            let interface = self.interfaces.get(index)?;
            interface.is_bond.then(|| (*ip, interface.name.clone()))
        });
        of_bond.collect()
    }

    fn new_address(&mut self, address: &AddressMessage) {
        if let Some(ip) = ip_of(address) {
            let key = (address.header.index, ip);
            self.addresses.insert(key, address.header.prefix_len);
        }
    }

    fn datagram(&mut self, datagram: &[u8], events: &mut Vec<LinkEvent>) {
        for message in netlink::readable(datagram) {
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    events.extend(self.new_link(&link));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                    events.extend(self.del_link(&link));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                    self.new_address(&address);
                    events.push(LinkEvent::Addresses);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(address)) => {
                    if let Some(ip) = ip_of(&address) {
                        self.addresses.remove(&(address.header.index, ip));
                    }
                    events.push(LinkEvent::Addresses);
                }
                NetlinkPayload::Done(_)
                    if self.links_asked == Some(message.header.sequence_number) =>
                {
                    self.dump_addresses();
                }
                _ => {}
            }
        }
    }

    fn new_link(&mut self, link: &LinkMessage) -> Option<LinkEvent> {
        let now = interface_of(link)?;
        let gid = now.gid;
        let before = self.interfaces.insert(link.header.index, now.clone());
        match before {
            Some(before) if before == now => None,
            Some(Interface {
                carrier: Some(true),
                ..
            }) if now.carrier == Some(false) => Some(LinkEvent::Lost(gid)),
            _ => Some(LinkEvent::Changed(gid)),
        }
    }

    fn del_link(&mut self, link: &LinkMessage) -> Option<LinkEvent> {
        let gone = self.interfaces.remove(&link.header.index)?;
        Some(LinkEvent::Changed(gone.gid))
    }
}

/// The interface's own address: of a point-to-point link, `IFA_ADDRESS` is the other end's.
pub(super) fn ip_of(message: &AddressMessage) -> Option<IpAddr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => return Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            _ => {}
        }
    }
    address
}

/// What an IPoIB link is now; `None` for other links.
pub(super) fn interface_of(link: &LinkMessage) -> Option<Interface> {
    if link.header.link_layer_type != LinkLayerType::Infiniband {
        return None;
    }
    let mut name = String::new();
    let mut gid = None;
    let mut pkey = PKey::DEFAULT_FULL;
    let mut is_bond = false;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(address) if address.len() == HARDWARE_ADDRESS_LEN => {
                gid = address[GID_AT..].first_chunk().copied().map(Gid);
            }
            LinkAttribute::Broadcast(address) if address.len() == HARDWARE_ADDRESS_LEN => {
                if let Some(bytes) = address[PKEY_AT..].first_chunk() {
                    pkey = PKey(u16::from_be_bytes(*bytes));
                }
            }
            LinkAttribute::LinkInfo(infos) => {
                is_bond = infos.contains(&LinkInfo::Kind(InfoKind::Bond));
            }
            LinkAttribute::IfName(text) => name.clone_from(text),
            _ => {}
        }
    }
    let flags = link.header.flags;
    let up = flags.contains(LinkFlags::Up);
    let carrier = up.then_some(flags.contains(LinkFlags::LowerUp));
    Some(Interface {
        name,
        gid: gid?,
        pkey,
        carrier,
        is_bond,
    })
}

as_raw_fd!(Rtnl, socket);

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NetlinkMessage;

    fn link(index: u32, flags: LinkFlags, layer: LinkLayerType) -> Vec<u8> {
        link_of_kind(index, flags, layer, None)
    }

    fn link_of_kind(
        index: u32,
        flags: LinkFlags,
        layer: LinkLayerType,
        kind: Option<InfoKind>,
    ) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = flags;
        link.header.link_layer_type = layer;
        let mut address = vec![0x80, 0, 0, 0x48];
        address.extend([7; 16]);
        link.attributes = vec![
            LinkAttribute::IfName(format!("ib{index}")),
            LinkAttribute::Address(address),
        ];
        let info = kind.map(|kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
        link.attributes.extend(info);
        let message = RouteNetlinkMessage::NewLink(link);
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn carrier_loss_names_the_port() {
        let mut rtnl = Rtnl::open().expect("rtnetlink needs no privilege");
        let gid = Gid([7; 16]);
        let events = |rtnl: &mut Rtnl, flags, layer| {
            let mut events = Vec::new();
            rtnl.datagram(&link(9999, flags, layer), &mut events);
            events
        };
        let ib = LinkLayerType::Infiniband;
        let up = LinkFlags::Up | LinkFlags::LowerUp;
        assert_eq!(events(&mut rtnl, up, ib), [LinkEvent::Changed(gid)]);
        assert_eq!(events(&mut rtnl, up, ib), [], "nothing is different");
        assert_eq!(events(&mut rtnl, LinkFlags::Up, ib), [LinkEvent::Lost(gid)]);
        assert_eq!(events(&mut rtnl, up, ib), [LinkEvent::Changed(gid)]);
        assert_eq!(
            events(&mut rtnl, LinkFlags::empty(), ib),
            [LinkEvent::Changed(gid)],
            "an interface taken down says nothing about its port"
        );
        assert_eq!(events(&mut rtnl, up, LinkLayerType::Ether), []);
        assert_eq!(rtnl.interface(gid), Some("ib9999"));
    }

    fn address(index: u32, ip: IpAddr, add: bool) -> Vec<u8> {
        let mut address = AddressMessage::default();
        address.header.index = index;
        address.header.prefix_len = 24;
        address.attributes = vec![AddressAttribute::Address(ip), AddressAttribute::Local(ip)];
        let message = match add {
            true => RouteNetlinkMessage::NewAddress(address),
            false => RouteNetlinkMessage::DelAddress(address),
        };
        let mut message = NetlinkMessage::from(message);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn addresses_belong_to_ports() {
        let mut rtnl = Rtnl::open().expect("rtnetlink needs no privilege");
        let ip = IpAddr::from([10, 0, 1, 7]);
        let mut events = Vec::new();
        rtnl.datagram(&address(9999, ip, true), &mut events);
        assert_eq!(rtnl.addresses(), [], "not known to be IPoIB's");
        let up = LinkFlags::Up | LinkFlags::LowerUp;
        rtnl.datagram(&link(9999, up, LinkLayerType::Infiniband), &mut events);
        let interface = ::acm::Interface {
            gid: Gid([7; 16]),
            pkey: PKey(0xffff),
            ip,
            prefix_len: 24,
        };
        assert_eq!(rtnl.addresses(), [interface]);
        events.clear();
        rtnl.datagram(&address(9999, ip, false), &mut events);
        assert_eq!(events, [LinkEvent::Addresses]);
        assert_eq!(rtnl.addresses(), []);
    }

    #[test]
    fn a_bond_of_ipoib_interfaces_is_one_of_them_and_known_by_its_kind() {
        let mut rtnl = Rtnl::open().expect("rtnetlink needs no privilege");
        let (up, ib) = (
            LinkFlags::Up | LinkFlags::LowerUp,
            LinkLayerType::Infiniband,
        );
        let mut events = Vec::new();
        let mut hear = |bytes: Vec<u8>| rtnl.datagram(&bytes, &mut events);
        let bond = |layer| link_of_kind(9990, up, layer, Some(InfoKind::Bond));
        hear(link(9991, up, ib));
        hear(link_of_kind(9992, up, ib, Some(InfoKind::Vlan)));
        hear(bond(LinkLayerType::Ether));
        for (index, last) in [(9990, 1), (9991, 2), (9992, 3)] {
            hear(address(index, IpAddr::from([10, 0, 1, last]), true));
        }
        assert_eq!(rtnl.bonds(), BTreeMap::new(), "one of Ethernet interfaces");
        rtnl.datagram(&bond(ib), &mut events);
        let expected = (IpAddr::from([10, 0, 1, 1]), "ib9990".to_owned());
        assert_eq!(rtnl.bonds(), BTreeMap::from([expected]));
        let name = rtnl.interface(Gid([7; 16]));
        assert!(name.is_some_and(|name| name != "ib9990"), "{name:?}");
    }

    #[test]
    fn what_follows_an_unreadable_message_is_read() {
        let mut rtnl = Rtnl::open().expect("rtnetlink needs no privilege");
        let link = link(9999, LinkFlags::Up, LinkLayerType::Infiniband);
        let mut unreadable = link.clone();
        // Its first attribute, the name, is said to have two bytes, less than its own head.
        unreadable[32] = 2;
        let mut events = Vec::new();
        rtnl.datagram(&unreadable, &mut events);
        assert_eq!(events, []);
        rtnl.datagram(&[unreadable, link].concat(), &mut events);
        assert_eq!(events, [LinkEvent::Changed(Gid([7; 16]))]);
    }

    #[test]
    fn cut_datagrams_are_read_as_far_as_they_go() {
        let mut rtnl = Rtnl::open().expect("rtnetlink needs no privilege");
        let bytes = link(9999, LinkFlags::Up, LinkLayerType::Infiniband);
        for len in 0..bytes.len() {
            let mut events = Vec::new();
            rtnl.datagram(&bytes[..len], &mut events);
            assert_eq!(events, [], "cut to {len}");
        }
    }
}
