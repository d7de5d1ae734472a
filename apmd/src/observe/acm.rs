// SPDX-License-Identifier: MIT OR Apache-2.0
//! The served ACM in the operators' form, as JSON. Described in `docs/apmctl.md`; keys are added,
//! never changed.

use std::collections::BTreeMap;

use cm_msgs::Guid;
use serde::{Deserialize, Serialize};
use statemachine::Time;

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
    /// Destinations that are known, looked for, or known not to be there.
    pub destinations: Vec<Destination>,
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

/// A destination.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Destination {
    /// The address.
    pub address: String,
    /// `name`, `ipv4 address`, `ipv6 address`, `gid` or `lid`.
    pub kind: String,
    /// The local device and port from which it is seen, such as `mlx5_0/1`.
    pub from: String,
    /// `known`, `doubtful`, `asking`, or `absent`.
    pub state: String,
    /// Its port's GID.
    pub gid: Option<String>,
    /// LID of the path to it.
    pub dlid: Option<u16>,
    /// Where the path came from.
    pub origin: Option<String>,
    /// For how long the path is believed; null: for ever, or there is none.
    pub seconds_left: Option<f64>,
    /// Requests that wait for it.
    pub waiting: usize,
}

/// The talk with other hosts: groups joined, and what was said in them since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Multicast {
    /// GIDs of the groups that each device and port, such as `mlx5_0/1`, is in.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Questions asked.
    pub questions: u64,
    /// Further copies of them.
    pub questions_repeated: u64,
    /// Answers to them.
    pub answers: u64,
    /// Questions that nobody answered.
    pub unanswered: u64,
    /// Answers to questions that were not, or no longer, asked.
    pub late: u64,
    /// Questions of others, from which their addresses were learnt.
    pub heard: u64,
    /// Addresses that were known from what was heard.
    pub heard_used: u64,
    /// Questions of others for addresses of this host, answered.
    pub answers_sent: u64,
    /// Those of members of other groups only, not answered.
    pub no_common_group: u64,
    /// Datagrams that made no sense.
    pub malformed: u64,
}

/// The resolver's part of [`Acm`]; `device` names devices.
pub fn show_multicast(net: &Net, device: impl Fn(Guid) -> Option<String>) -> Multicast {
    let net::Counters {
        questions,
        questions_repeated,
        answers,
        unanswered,
        late,
        heard,
        heard_used,
        answers_sent,
        no_common_group,
        malformed,
    } = net.counters();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (endpoint, members) in net.endpoints() {
        let name = device(endpoint.port.node_guid).unwrap_or_default();
        let of_port = groups.entry(format!("{name}/{}", endpoint.port.port));
        let members = members.iter().map(|member| member.mgid.to_string());
        of_port.or_default().extend(members);
    }
    Multicast {
        groups,
        questions,
        questions_repeated,
        answers,
        unanswered,
        late,
        heard,
        heard_used,
        answers_sent,
        no_common_group,
        malformed,
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
pub fn show(now: Time, service: &Service) -> Acm {
    let counters = service.counters();
    let stats = service.stats();
    Acm {
        endpoints: service
            .endpoints()
            .map(|it| endpoint(service, it))
            .collect(),
        destinations: destinations(now, service),
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

fn destinations(now: Time, service: &Service) -> Vec<Destination> {
    let mut destinations: Vec<_> = service
        .destinations(now)
        .map(|known| Destination {
            address: known.address.to_string(),
            kind: known.address.kind().to_string(),
            from: match (service.device(known.from), service.endpoint(known.from)) {
                (Some(device), Some(from)) => format!("{device}/{}", from.port.port),
                _ => String::new(),
            },
            state: known.state.to_string(),
            gid: known.gid.map(|gid| gid.to_string()),
            dlid: known.dlid.map(|lid| lid.0),
            origin: known.origin.map(|origin| origin.to_string()),
            seconds_left: known.left.map(|left| left.as_secs_f64()),
            waiting: known.waiting,
        })
        .collect();
    destinations
        .sort_by(|a, b| (&a.from, &a.kind, &a.address).cmp(&(&b.from, &b.kind, &b.address)));
    destinations
}
