// SPDX-License-Identifier: MIT OR Apache-2.0
//! The served ACM in the operators' form, as JSON. Described in `docs/apmctl.md`; keys are added,
//! never changed.

use std::collections::BTreeMap;

use cm_msgs::Guid;
use serde::{Deserialize, Serialize};
use statemachine::Time;

use super::destinations::{self, Destination, Wanted};
use crate::acm::net::{self, Net};
use crate::acm::{self, Service};

/// The served ACM.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Acm {
    /// Files by which clients find it.
    pub served_at: Vec<String>,
    /// The kernel's path requests are heard.
    pub kernel: bool,
    /// Clients that are connected.
    pub clients: usize,
    /// Names and addresses of this host.
    pub endpoints: Vec<Endpoint>,
    /// Destinations that are known, looked for, or known not to be there: those that were wanted,
    /// up to [`destinations::MOST`].
    pub destinations: Vec<Destination>,
    /// How many there are of these.
    #[serde(default)]
    pub destinations_total: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// The talk with other hosts.
    #[serde(default)]
    pub multicast: Multicast,
    /// What was done.
    pub counters: Counters,
}

/// A port and a partition that is answered for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// The device's name.
    pub device: String,
    /// The port.
    pub port: u8,
    /// The partition.
    pub pkey: u16,
    /// Its names and addresses.
    pub addresses: Vec<String>,
}

/// The talk with other hosts: groups joined, and what was said in them since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Multicast {
    /// GIDs of the groups that each device and port, such as `mlx5_0/1`, is in.
    pub groups: BTreeMap<String, Vec<String>>,
    /// What was said.
    #[serde(flatten)]
    pub counters: net::Counters,
}

/// The resolver's part of [`Acm`]; `device` names devices.
pub fn show_multicast(net: &Net, device: impl Fn(Guid) -> Option<String>) -> Multicast {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (endpoint, members) in net.endpoints() {
        let name = device(endpoint.port.node_guid).unwrap_or_default();
        let of_port = groups.entry(format!("{name}/{}", endpoint.port.port));
        let members = members.iter().map(|member| member.mgid.to_string());
        of_port.or_default().extend(members);
    }
    Multicast {
        groups,
        counters: net.counters(),
    }
}

/// What was done, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Requests for a path.
    pub resolve: u64,
    /// Of these, those of the kernel.
    pub kernel: u64,
    /// Requests that ended in an error.
    pub error: u64,
    /// Requests for which there was no data.
    pub no_data: u64,
    /// Addresses asked for at other hosts.
    pub addr_query: u64,
    /// Addresses that were known without their path.
    pub addr_cache: u64,
    /// Paths asked for at the path sources.
    pub route_query: u64,
    /// Paths that were known.
    pub route_cache: u64,
    /// Paths asked for again because the fabric had changed.
    pub rechecked: u64,
    /// Destinations dropped because they, or the path there, had gone.
    pub dropped: u64,
}

/// The service's part of [`Acm`].
pub fn show(now: Time, service: &Service, wanted: &Wanted) -> Acm {
    let counters = service.counters();
    let stats = service.stats();
    let (destinations, destinations_total) = destinations::show(now, service, wanted);
    Acm {
        endpoints: service
            .endpoints()
            .map(|it| endpoint(service, it))
            .collect(),
        destinations,
        destinations_total,
        waiting: service.waiting(),
        counters: Counters {
            resolve: counters.resolve,
            kernel: stats.kernel_requests,
            error: counters.error,
            no_data: counters.no_data,
            addr_query: counters.addr_query,
            addr_cache: counters.addr_cache,
            route_query: counters.route_query,
            route_cache: counters.route_cache,
            rechecked: stats.rechecked,
            dropped: stats.dropped,
        },
        ..Acm::default()
    }
}

fn endpoint(service: &Service, endpoint: &acm::Endpoint) -> Endpoint {
    let addresses = endpoint.addresses.iter().map(|own| own.label.clone());
    Endpoint {
        device: service.device(endpoint.id).unwrap_or_default().to_owned(),
        port: endpoint.port.port,
        pkey: endpoint.pkey.0,
        addresses: addresses.collect(),
    }
}
