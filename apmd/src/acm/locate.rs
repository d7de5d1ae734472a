// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port that has an address, as far as it is known without asking.

use std::net::IpAddr;

use cm_msgs::acm::Address;
use cm_msgs::{Gid, Lid, PKey};
use statemachine::Time;

use super::cache::Key;
use super::service::Service;

/// Where an address is.
pub(super) enum Port {
    Gid(Gid),
    Lid(Lid),
}

impl Service {
    /// Where an address is, if that is known without asking.
    pub(super) fn port_of(&self, now: Time, key: Key, pkey: PKey) -> Option<Port> {
        match key.to {
            Address::Gid(gid) => return Some(Port::Gid(gid)),
            Address::Lid(lid) => return Some(Port::Lid(lid)),
            Address::Name(_) | Address::Ip(_) | Address::Ip6(_) => {}
        }
        let own = self.endpoints.owner(&key.to);
        let own = own.and_then(|owner| self.endpoints.port(owner.port));
        let own = own.map(|port| port.status.gid);
        let cached = || self.cache.get(&key)?.gid(now);
        own.or_else(|| self.listed(&key.to, pkey))
            .or_else(cached)
            .map(Port::Gid)
    }

    /// The port of an address by the file.
    pub(super) fn listed(&self, address: &Address, pkey: PKey) -> Option<Gid> {
        let listed = |address: pathdb::Address| {
            let mut entries = self.known.find(&address);
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
