// SPDX-License-Identifier: MIT OR Apache-2.0
//! The served ACM in the operators' form, as JSON. Described in `docs/apmctl.md`; keys are added,
//! never changed.

use std::collections::BTreeMap;

use cm_msgs::Guid;
use serde::{Deserialize, Serialize};
use statemachine::Time;

use super::destinations::{self, Destination};
use super::filter::DestinationFilter;
use ::acm::net::{self, Net};
use ::acm::{self, Service};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Acm {
    /// Files by which clients find it.
    pub(crate) served_at: Vec<String>,
    /// The kernel's path requests are served.
    pub(crate) kernel: bool,
    pub(crate) clients: usize,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Destinations that are known, looked for, or known not to be there: those that fit,
    /// up to [`destinations::MOST`].
    pub(crate) destinations: Vec<Destination>,
    /// How many there are of these.
    #[serde(default)]
    pub(crate) destinations_total: usize,
    pub(crate) waiting: usize,
    /// Resolution between hosts.
    #[serde(default)]
    pub(crate) multicast: Multicast,
    pub(crate) counters: Counters,
}

/// A port and a partition whose addresses are served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) device: String,
    pub(crate) port: u8,
    pub(crate) pkey: u16,
    pub(crate) addresses: Vec<String>,
}

/// Resolution between hosts by multicast.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Multicast {
    /// GIDs of the groups that each device and port, such as `mlx5_0/1`, is in.
    pub(crate) groups: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    pub(crate) counters: net::Counters,
}

/// The resolver's part of [`Acm`]; `device` names devices.
pub(crate) fn show_multicast(net: &Net, device: impl Fn(Guid) -> Option<String>) -> Multicast {
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

/// Since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Requests for a path.
    pub(crate) resolve: u64,
    /// Of these, those of the kernel.
    pub(crate) kernel: u64,
    /// Requests that ended in an error.
    pub(crate) error: u64,
    /// Requests for which there was no data.
    pub(crate) no_data: u64,
    /// Addresses asked for at other hosts.
    pub(crate) addr_query: u64,
    /// Addresses that were known without their path.
    pub(crate) addr_cache: u64,
    /// Paths asked for at the path sources.
    pub(crate) route_query: u64,
    /// Paths that were known.
    pub(crate) route_cache: u64,
    /// Paths asked for again because the fabric had changed.
    pub(crate) rechecked: u64,
    /// Destinations dropped because they, or the path there, had gone.
    pub(crate) dropped: u64,
    /// Addresses that were found at another port than before.
    #[serde(default)]
    pub(crate) moved: u64,
}

/// The service's part of [`Acm`].
pub(crate) fn show(now: Time, service: &Service, filter: &DestinationFilter) -> Acm {
    let counters = service.counters();
    let stats = service.stats();
    let (destinations, destinations_total) = destinations::show(now, service, filter);
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
            moved: stats.moved,
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
