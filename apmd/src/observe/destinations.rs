// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of the served ACM in the operators' form: those that are wanted, and no more at
//! once than the loop has time for.

use std::net::IpAddr;

use cm_msgs::acm::{Address, Name};
use cm_msgs::{Gid, Lid};
use serde::{Deserialize, Serialize};
use statemachine::Time;

use crate::acm::{Known, Service};

/// Destinations in one answer; the loop stands still while it is written.
pub const MOST: usize = 1000;

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

/// Which destinations are wanted; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// The address: a name, an IP address, a GID or a LID.
    pub address: Option<String>,
    /// The local device, or device and port such as `mlx5_0/1`, from which it is seen.
    pub from: Option<String>,
    /// How its state begins.
    pub state: Option<String>,
}

impl Wanted {
    /// Whether all are.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// Up to [`MOST`] of the destinations that are wanted, and how many there are of these.
pub fn show(now: Time, service: &Service, wanted: &Wanted) -> (Vec<Destination>, usize) {
    let addresses = wanted.address.as_deref().map(addresses);
    let fits = |known: &Known| {
        let address = addresses.as_ref();
        address.is_none_or(|these| these.contains(&known.address))
            && wanted
                .from
                .as_ref()
                .is_none_or(|from| is_seen_from(service, known, from))
            && wanted
                .state
                .as_ref()
                .is_none_or(|state| known.state.word().starts_with(state))
    };
    let mut shown = Vec::new();
    let mut total = 0;
    for known in service.destinations(now).filter(fits) {
        total += 1;
        if shown.len() < MOST {
            shown.push(destination(service, &known));
        }
    }
    shown.sort_by(|a, b| (&a.from, &a.kind, &a.address).cmp(&(&b.from, &b.kind, &b.address)));
    (shown, total)
}

/// What a text may be the address of.
fn addresses(text: &str) -> Vec<Address> {
    let mut addresses = Vec::new();
    match text.parse() {
        Ok(IpAddr::V4(ip)) => addresses.push(Address::Ip(ip)),
        Ok(IpAddr::V6(ip)) => {
            addresses.extend([Address::Ip6(ip), Address::Gid(Gid(ip.octets()))]);
        }
        Err(_) => addresses.extend(Name::new(text).map(Address::Name)),
    }
    addresses.extend(text.parse().map(|lid| Address::Lid(Lid(lid))));
    addresses
}

fn is_seen_from(service: &Service, known: &Known, from: &str) -> bool {
    let (device, port) = match from.rsplit_once('/') {
        Some((device, port)) => (device, Some(port)),
        None => (from, None),
    };
    let is_port = |port: &str| {
        let endpoint = service.endpoint(known.from);
        endpoint.is_some_and(|endpoint| port.parse() == Ok(endpoint.port.port))
    };
    service.device(known.from) == Some(device) && port.is_none_or(is_port)
}

fn destination(service: &Service, known: &Known) -> Destination {
    Destination {
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
    }
}
