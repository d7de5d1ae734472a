// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host knows without asking: its own ports and addresses, and what ibacm's data files say.

use std::collections::HashMap;
use std::net::IpAddr;

use cm_msgs::acm::Address;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, PKey};

use super::endpoints::{EndpointId, Endpoints, LocalPort};

#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) endpoints: Endpoints,
    /// Ports of addresses, from a file.
    pub(crate) addresses: pathdb::Addresses,
    /// Paths, from a file, by the ports at their ends.
    routes: HashMap<(Gid, Gid), PathRecord>,
}

impl Local {
    pub(crate) fn set_routes(&mut self, routes: Vec<PathRecord>) {
        let by_ends = |route: PathRecord| ((route.sgid, route.dgid), route);
        self.routes = routes.into_iter().map(by_ends).collect();
    }

    /// The path of the file between two ports, for an endpoint on the first one.
    pub(crate) fn route(&self, port: &LocalPort, dgid: Gid, pkey: PKey) -> Option<PathRecord> {
        let route = self.routes.get(&(port.status.gid, dgid))?;
        (route.slid == port.status.lid).then_some(PathRecord {
            pkey,
            packet_life_time: port.subnet_timeout,
            ..*route
        })
    }

    /// The path of an endpoint to itself, if the address is its own.
    pub(crate) fn loopback(&self, from: EndpointId, to: &Address) -> Option<PathRecord> {
        let owner = self.endpoints.owner(to).filter(|owner| owner.id == from)?;
        let port = self.endpoints.port(owner.port)?;
        Some(PathRecord {
            dgid: port.status.gid,
            sgid: port.status.gid,
            dlid: port.status.lid,
            slid: port.status.lid,
            reversible: true,
            pkey: owner.pkey,
            mtu: port.status.mtu,
            rate: port.rate,
            ..PathRecord::default()
        })
    }

    /// The port of this host that has the address.
    pub(crate) fn own_gid(&self, address: &Address) -> Option<Gid> {
        let owner = self.endpoints.owner(address)?;
        Some(self.endpoints.port(owner.port)?.status.gid)
    }

    /// The port of an address by the file.
    pub(crate) fn listed(&self, address: &Address, pkey: PKey) -> Option<Gid> {
        let listed = |address: pathdb::Address| {
            let mut entries = self.addresses.find(&address);
            let entry = entries.find(|entry| (entry.pkey.0 ^ pkey.0) & 0x7fff == 0)?;
            Some(Gid(entry.gid.0))
        };
        match address {
            Address::Ip(ip) => listed(IpAddr::V4(*ip).into()),
            Address::Ip6(ip) => listed(IpAddr::V6(*ip).into()),
            // As it is written, and then without regard to case: the file has it in one way.
            Address::Name(name) => {
                let name = name.to_string();
                let written = name.parse().ok().and_then(listed);
                written.or_else(|| name.to_ascii_lowercase().parse().ok().and_then(listed))
            }
            Address::Gid(_) | Address::Lid(_) => None,
        }
    }
}
