// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of the served ACM in the operators' form: those that are asked for, and no more at
//! once than the loop has time for.

use std::net::IpAddr;

use cm_msgs::acm::{Address, Name};
use cm_msgs::{Gid, Lid};
use serde::{Deserialize, Serialize};
use statemachine::Time;

use super::filter::DestinationFilter;
use ::acm::{KnownDestination, Service};

/// Destinations in one answer; the loop stands still while it is written.
pub(crate) const MOST: usize = 1000;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Destination {
    pub(crate) address: String,
    /// `name`, `ipv4 address`, `ipv6 address`, `gid` or `lid`.
    pub(crate) kind: String,
    /// The local device and port from which it is seen, such as `mlx5_0/1`.
    pub(crate) from: String,
    /// `known`, `doubtful`, `asking`, or `absent`.
    pub(crate) state: String,
    /// Its port's GID.
    pub(crate) gid: Option<String>,
    /// LID of the path to it.
    pub(crate) dlid: Option<u16>,
    /// Where the path came from.
    pub(crate) origin: Option<String>,
    /// For how long the path is believed; null: for ever, or there is none.
    pub(crate) seconds_left: Option<f64>,
    /// Requests that wait for it.
    pub(crate) waiting: usize,
}

/// Up to [`MOST`] of the destinations that fit, and how many fit.
pub(crate) fn show(
    now: Time,
    service: &Service,
    filter: &DestinationFilter,
) -> (Vec<Destination>, usize) {
    let addresses = filter.address.as_deref().map(addresses);
    let fits = |known: &KnownDestination| {
        let address = addresses.as_ref();
        address.is_none_or(|these| these.contains(&known.address))
            && filter
                .from
                .as_ref()
                .is_none_or(|from| is_seen_from(service, known, from))
            && filter
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

fn is_seen_from(service: &Service, known: &KnownDestination, from: &str) -> bool {
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

fn destination(service: &Service, known: &KnownDestination) -> Destination {
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

#[cfg(test)]
mod tests {
    use crate::observe::filter::DestinationFilter;
    use ::acm::{Client, LocalPort, Settings, User, frame};
    use cm_msgs::acm::{Flags, MAX_LEN, Resolve};
    use cm_msgs::sa::PathRecord;
    use cm_msgs::{Guid, PKey};
    use statemachine::{Origin, PortId, PortStatus, Random};

    use super::*;

    const NOW: Time = Time(1_000_000);
    const HERE: Gid = Gid([1; 16]);

    /// A host with one port, `hca0/1`.
    fn service() -> Service {
        let believed = std::time::Duration::from_secs(100);
        let settings = Settings {
            address_timeout: believed,
            route_timeout: believed,
            negative: believed,
            loopback: true,
            max_destinations: 5000,
            max_waiting: 5000,
        };
        let mut service = Service::new(settings, Random::new([7; 32]));
        let id = PortId {
            node_guid: Guid(0x10),
            port: 1,
        };
        let status = PortStatus {
            active: true,
            lid: Lid(1),
            lmc: 0,
            sm_lid: Lid(99),
            sm_guid: Guid(1),
            gid: HERE,
            pkeys: vec![PKey(0xffff)],
            mtu: 5,
            rate: 7,
            apm: true,
            moves_idle: false,
            infiniband: true,
            device_ports: 1,
        };
        let port = LocalPort {
            device: "hca0".to_owned(),
            status,
            rate: 7,
            subnet_timeout: 18,
            pkeys: vec![PKey(0xffff)],
        };
        service.handle_port(id, port);
        service
    }

    fn ask(service: &mut Service, user: u32, to: Address) {
        let mut buffer = [0; MAX_LEN];
        let from = Some(Address::Gid(HERE));
        let request = Resolve::request(1, from, to, Flags::default()).encode(&mut buffer);
        let (header, _) = frame(request).unwrap().unwrap();
        let mut out = Vec::new();
        let client = Client {
            key: user,
            user: User::Local(user),
        };
        service.handle_request(NOW, client, &header, request, &mut |_| None, &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn destinations_are_shown_by_what_is_wanted_and_not_all_at_once() {
        let mut service = service();
        let there = Gid("fe80::9".parse::<std::net::Ipv6Addr>().unwrap().octets());
        ask(&mut service, 1, Address::Gid(there));
        let number = service.poll_question().unwrap().query.query;
        let path = PathRecord {
            dgid: there,
            ..PathRecord::default()
        };
        service.handle_paths(NOW, number, Some(Origin::Sa), Ok(vec![path]));
        for lid in 500..1520 {
            ask(&mut service, lid.into(), Address::Lid(Lid(lid)));
        }
        let shown = |address: &str, from: &str, state: &str| {
            let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let filter = DestinationFilter {
                address: said(address),
                from: said(from),
                state: said(state),
            };
            let (shown, total) = show(NOW, &service, &filter);
            (shown.len(), total)
        };
        assert_eq!(shown("", "", ""), (MOST, 1021));
        assert_eq!(shown("", "hca0", "ask"), (MOST, 1020));
        assert_eq!(shown("", "hca0/1", "known"), (1, 1));
        assert_eq!(shown("", "hca0/2", ""), (0, 0));
        assert_eq!(shown("1234", "", ""), (1, 1));
        assert_eq!(shown("fe80::9", "", ""), (1, 1));
        assert_eq!(shown("fe80::9", "", "absent"), (0, 0));
        assert_eq!(shown("node-9", "", ""), (0, 0));
    }
}
