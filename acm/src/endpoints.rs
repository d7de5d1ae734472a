// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host is called: ports and partitions, and their names and addresses.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use cm_msgs::acm::{Address, Counters, Name, Status};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid, PKey};
use statemachine::{PortId, PortStatus};

use crate::net::UpPort;

/// Names an endpoint; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u32);

/// A local port, as far as ACM goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalPort {
    /// The device's name.
    pub device: String,
    /// LIDs, GID, partitions, MTU, and whether it is up.
    pub status: PortStatus,
    /// Its rate (`enum ibv_rate`).
    pub rate: u8,
    /// How long a packet lives in its subnet at most, 4.096 us * 2^n.
    pub subnet_timeout: u8,
    /// Its P_Key table by index; 0 for an empty entry.
    pub pkeys: Vec<PKey>,
}

impl LocalPort {
    /// The port for the talk with other hosts, if it can take part.
    pub fn up(&self) -> Option<UpPort> {
        let status = &self.status;
        let is_up = status.active && status.infiniband && status.sm_lid.is_unicast();
        is_up.then(|| UpPort {
            gid: status.gid,
            lid: status.lid,
            sm_lid: status.sm_lid,
            pkeys: self.pkeys.clone(),
            rate: self.rate,
            mtu: status.mtu,
            subnet_timeout: self.subnet_timeout,
        })
    }

    /// Where paths from it start: if that changes, they are wrong.
    pub(super) fn start(&self) -> impl PartialEq + use<> {
        let PortStatus { lid, gid, mtu, .. } = self.status;
        (lid, gid, mtu)
    }

    /// What paths from it may depend on: if that changes, they are in doubt. A link that is down
    /// may have any rate.
    pub(super) fn surroundings(&self) -> impl PartialEq + use<> {
        let PortStatus { active, sm_lid, .. } = self.status;
        (active, sm_lid, self.rate, self.subnet_timeout)
    }
}

/// Addresses that have left this host, of which it is remembered where they were.
const LEFT_LIMIT: usize = 4096;

/// An address of an IPoIB interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interface {
    /// GID of its port.
    pub gid: Gid,
    /// Its partition; the top bit does not count.
    pub pkey: PKey,
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that name the network.
    pub prefix_len: u8,
}

impl Interface {
    fn address(&self) -> Address {
        match self.ip {
            IpAddr::V4(ip) => Address::Ip(ip),
            IpAddr::V6(ip) => Address::Ip6(ip),
        }
    }

    /// The address as ibacm tells it: with the length of the network's part, if there is one.
    fn label(&self) -> String {
        let bits = if self.ip.is_ipv4() { 32 } else { 128 };
        if self.prefix_len == bits {
            self.ip.to_string()
        } else {
            format!("{}/{}", self.ip, self.prefix_len)
        }
    }
}

/// A name that the administrator gave to a port (`ibacm_addr.cfg`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Naming {
    /// The name or address.
    pub address: Address,
    /// The device.
    pub device: String,
    /// The port, counted from 1.
    pub port: u8,
    /// The partition; `None`: the first of the port's table.
    pub pkey: Option<PKey>,
}

/// A name or address of this host, and how it is told to people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnAddress {
    /// The name or address.
    pub address: Address,
    /// As text.
    pub label: String,
}

impl From<Address> for OwnAddress {
    fn from(address: Address) -> Self {
        let label = address.to_string();
        Self { address, label }
    }
}

/// A port and a partition of it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// The port.
    pub port: PortId,
    /// The partition.
    pub pkey: PKey,
    /// Its names and addresses, those of interfaces first.
    pub addresses: Vec<OwnAddress>,
    /// What was done for it.
    pub counters: Counters,
}

/// An address that has come to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The address.
    pub address: Address,
    /// The endpoint's port.
    pub port: PortId,
    /// Its partition.
    pub pkey: PKey,
    /// Another endpoint of this host had it before, or the endpoint's port had another GID. If not, it may
    /// have been there before this service was.
    pub moved: bool,
}

/// One of the counters.
type Counter = fn(&mut Counters) -> &mut u64;

/// All ports and endpoints of this host.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    ports: BTreeMap<PortId, LocalPort>,
    interfaces: Vec<Interface>,
    /// `None`: the host's own name, as `ib_acme -A` would give it.
    namings: Option<Vec<Naming>>,
    host_name: Option<Name>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// By device name, port and place in the port's table of partitions.
    order: Vec<EndpointId>,
    owners: HashMap<Address, EndpointId>,
    /// Where each address was last, also of those that have gone.
    last_at: HashMap<Address, (EndpointId, Gid)>,
    arrivals: VecDeque<Arrival>,
    departures: VecDeque<Address>,
    next_id: u32,
    /// Of all endpoints, and of requests that were for none.
    counters: Counters,
}

impl Endpoints {
    /// What the ports are called.
    pub(super) fn set_names(&mut self, namings: Option<Vec<Naming>>, host_name: Option<Name>) {
        self.namings = namings;
        self.host_name = host_name;
        self.assign();
    }

    /// The addresses of all IPoIB interfaces.
    pub(super) fn set_interfaces(&mut self, mut interfaces: Vec<Interface>) {
        interfaces.sort();
        interfaces.dedup();
        self.interfaces = interfaces;
        self.assign();
    }

    /// A port is (now) like this.
    pub(super) fn set_port(&mut self, id: PortId, port: LocalPort) {
        self.ports.insert(id, port);
        self.assign();
    }

    /// A port has gone.
    pub(super) fn remove_port(&mut self, id: PortId) {
        self.ports.remove(&id);
        self.assign();
    }

    /// A port.
    pub(super) fn port(&self, id: PortId) -> Option<&LocalPort> {
        self.ports.get(&id)
    }

    /// The endpoint with this name.
    pub(super) fn get(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(&id)
    }

    /// What was done, for whatever endpoint.
    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Counts for all and for an endpoint.
    pub(super) fn count(&mut self, id: EndpointId, which: Counter) {
        *which(&mut self.counters) += 1;
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            *which(&mut endpoint.counters) += 1;
        }
    }

    /// Counts a request, which may be for no endpoint.
    pub(super) fn count_request(&mut self, id: Option<EndpointId>) {
        match id {
            Some(id) => self.count(id, |counters| &mut counters.resolve),
            None => self.counters.resolve += 1,
        }
    }

    /// Counts a request that failed.
    pub(super) fn count_failure(&mut self, id: Option<EndpointId>, status: Status) {
        let which: Counter = match status {
            Status::NoData => |counters| &mut counters.no_data,
            _ => |counters| &mut counters.error,
        };
        match id {
            Some(id) => self.count(id, which),
            None => *which(&mut self.counters) += 1,
        }
    }

    /// The next address that has come to an endpoint.
    pub(super) fn poll_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// The next address that this host does not have any more.
    pub(super) fn poll_departure(&mut self) -> Option<Address> {
        self.departures.pop_front()
    }

    /// The endpoints in a partition, as members of either kind.
    pub(super) fn in_partition(&self, pkey: PKey) -> impl Iterator<Item = EndpointId> {
        let in_it = self.in_order();
        in_it
            .filter(move |endpoint| same_partition(endpoint.pkey, pkey))
            .map(|endpoint| endpoint.id)
    }

    /// The endpoints of a port.
    pub(super) fn on(&self, port: PortId) -> Vec<EndpointId> {
        let on_port = self.in_order().filter(|endpoint| endpoint.port == port);
        on_port.map(|endpoint| endpoint.id).collect()
    }

    /// The endpoint that has the address, if its port is up.
    pub(super) fn owner(&self, address: &Address) -> Option<&Endpoint> {
        let owned = match address {
            Address::Gid(gid) => self.first(|port, _| port.status.gid == *gid),
            Address::Lid(lid) => self.first(|port, _| port.status.has_lid(*lid)),
            _ => self.endpoints.get(self.owners.get(address)?),
        };
        owned.filter(|endpoint| self.is_up(endpoint.port))
    }

    /// The first endpoint from which a path with these parts may start. `None` also where a LID is all that tells, and
    /// ports in different subnets have it.
    pub(super) fn start_of(&self, path: &PathRecord) -> Option<&Endpoint> {
        let may_start = |port: &LocalPort, pkey| {
            let status = &port.status;
            let partition = path.pkey == PKey(0) || same_partition(path.pkey, pkey);
            let in_subnet = path.dgid.is_unspecified()
                || path.dgid.subnet_prefix() == status.gid.subnet_prefix();
            let from_here = if !path.sgid.is_unspecified() {
                path.sgid == status.gid
            } else if path.slid != Lid(0) {
                status.has_lid(path.slid) && in_subnet
            } else {
                in_subnet
            };
            partition && from_here
        };
        let first = self.first(may_start)?;
        let here = &self.ports.get(&first.port)?.status;
        let is_elsewhere =
            |port: &LocalPort, pkey| may_start(port, pkey) && are_apart(&port.status, here);
        let by_lid = path.sgid.is_unspecified() && path.slid != Lid(0);
        let is_ambiguous = by_lid && self.first(is_elsewhere).is_some();
        (!is_ambiguous).then_some(first)
    }

    /// Every endpoint that answers for something and whose port is up, in the order of ports;
    /// `port`: only of ports with this number.
    pub(super) fn listed(&self, port: Option<u8>) -> impl Iterator<Item = &Endpoint> {
        self.in_order().filter(move |endpoint| {
            self.is_up(endpoint.port)
                && !endpoint.addresses.is_empty()
                && port.is_none_or(|port| endpoint.port.port == port)
        })
    }

    /// Every endpoint, in the order of device names, ports and partitions.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Endpoint> {
        self.order.iter().filter_map(|id| self.endpoints.get(id))
    }

    fn sort(&mut self) {
        let mut order: Vec<_> = self.endpoints.values().collect();
        order.sort_by_key(|endpoint| {
            let port = self.ports.get(&endpoint.port);
            let place = port.and_then(|port| {
                let mut pkeys = port.status.pkeys.iter();
                pkeys.position(|pkey| *pkey == endpoint.pkey)
            });
            let device = port.map(|port| port.device.as_str());
            (device, endpoint.port.port, place)
        });
        self.order = order.into_iter().map(|endpoint| endpoint.id).collect();
    }

    fn first(&self, wanted: impl Fn(&LocalPort, PKey) -> bool) -> Option<&Endpoint> {
        self.in_order().find(|endpoint| {
            let port = self.ports.get(&endpoint.port);
            port.is_some_and(|port| port.status.active && wanted(port, endpoint.pkey))
        })
    }

    fn is_up(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|port| port.status.active)
    }

    /// Makes endpoints of ports and partitions, and gives them their addresses.
    fn assign(&mut self) {
        let before = std::mem::take(&mut self.endpoints);
        for (id, port) in &self.ports {
            for pkey in &port.status.pkeys {
                let was = before
                    .values()
                    .find(|was| was.port == *id && was.pkey == *pkey);
                let endpoint = was.cloned().unwrap_or_else(|| {
                    self.next_id += 1;
                    Endpoint {
                        id: EndpointId(self.next_id),
                        port: *id,
                        pkey: *pkey,
                        addresses: Vec::new(),
                        counters: Counters::default(),
                    }
                });
                self.endpoints.insert(endpoint.id, endpoint);
            }
        }
        self.sort();
        let addresses: Vec<_> = self
            .in_order()
            .map(|endpoint| (endpoint.id, self.addresses_of(endpoint)))
            .collect();
        let owners_before = std::mem::take(&mut self.owners);
        for (id, addresses) in addresses {
            for address in &addresses {
                self.owners.entry(address.address).or_insert(id);
            }
            if let Some(endpoint) = self.endpoints.get_mut(&id) {
                endpoint.addresses = addresses;
            }
        }
        self.note_arrivals(&owners_before);
    }

    /// Compares where each address is with where it was last.
    fn note_arrivals(&mut self, owners_before: &HashMap<Address, EndpointId>) {
        if self.last_at.len() > self.owners.len() + LEFT_LIMIT {
            let owners = &self.owners;
            self.last_at
                .retain(|address, _| owners.contains_key(address));
        }
        let has_gone = |address: &&Address| !self.owners.contains_key(*address);
        let gone = owners_before.keys().filter(has_gone).copied();
        self.departures.extend(gone);
        for (address, id) in &self.owners {
            let Some(endpoint) = self.endpoints.get(id) else {
                continue;
            };
            let Some(port) = self.ports.get(&endpoint.port) else {
                continue;
            };
            let at = (*id, port.status.gid);
            let was = self.last_at.insert(*address, at);
            let moved = was.is_some_and(|was| was != at);
            if moved || owners_before.get(address) != Some(id) {
                self.arrivals.push_back(Arrival {
                    address: *address,
                    port: endpoint.port,
                    pkey: endpoint.pkey,
                    moved,
                });
            }
        }
    }

    fn addresses_of(&self, endpoint: &Endpoint) -> Vec<OwnAddress> {
        let Some(port) = self.ports.get(&endpoint.port) else {
            return Vec::new();
        };
        let interfaces = self.interfaces.iter().filter(|interface| {
            interface.gid == port.status.gid && same_partition(interface.pkey, endpoint.pkey)
        });
        let mut addresses: Vec<_> = interfaces
            .map(|interface| OwnAddress {
                address: interface.address(),
                label: interface.label(),
            })
            .collect();
        let default = port.status.pkeys.first() == Some(&endpoint.pkey);
        match &self.namings {
            Some(namings) => {
                let named = namings.iter().filter(|naming| {
                    let here = naming.device == port.device && naming.port == endpoint.port.port;
                    let pkey = naming.pkey;
                    here && pkey.map_or(default, |pkey| same_partition(pkey, endpoint.pkey))
                });
                addresses.extend(named.map(|naming| naming.address.into()));
            }
            None if default => {
                addresses.extend(self.host_names(endpoint.port).map(OwnAddress::from));
            }
            None => {}
        }
        addresses
    }

    /// The names that `ib_acme -A` gives to a port: the host's own to the first that is up, and to
    /// every one the host's with its number among all ports.
    fn host_names(&self, id: PortId) -> impl Iterator<Item = Address> {
        let mut ports: Vec<_> = self.ports.iter().collect();
        ports.sort_by_key(|(id, port)| (port.device.as_str(), id.port));
        let first_up = ports.iter().find(|(_, port)| port.status.active);
        let host = self
            .host_name
            .filter(|_| first_up.is_some_and(|(up, _)| **up == id));
        let number = ports.iter().position(|(other, _)| **other == id);
        let numbered = self
            .host_name
            .zip(number)
            .and_then(|(host, number)| Name::new(&format!("{host}-{}", number + 1)).ok());
        host.into_iter().chain(numbered).map(Address::Name)
    }
}

/// Whether both keys name one partition, whatever the membership.
fn same_partition(a: PKey, b: PKey) -> bool {
    a.partition() == b.partition()
}

/// Whether two ports are in different subnets, as their subnet managers and LIDs tell.
fn are_apart(a: &PortStatus, b: &PortStatus) -> bool {
    a.gid != b.gid && (!a.may_share_subnet_with(b) || a.has_lid(b.lid))
}
