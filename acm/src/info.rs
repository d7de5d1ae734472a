// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests about the service itself: counters (PERF) and endpoints (EP).

use cm_msgs::acm::{Counters, Endpoint as Config, Entry, Flags, Header, Info, Status, text};

use super::endpoints::{Endpoint, Endpoints};

/// What resolves for an endpoint, as EP queries tell it.
const PROVIDER: &str = "apmd";

/// What was done, for all endpoints or for one. Endpoint N is the Nth of all, as in an EP query,
/// where ibacm takes the number for a port's as well.
pub(crate) fn perf_request(endpoints: &Endpoints, header: &Header, body: &[u8], out: &mut Vec<u8>) {
    let [_, index, _] = header.data;
    let source = body
        .first_chunk()
        .map(Entry::decode)
        .filter(|entry| entry.flags.contains(Flags::SOURCE));
    let counters = match (index, body.len() >= Entry::LEN, source) {
        (0, false, _) | (_, true, None) => Some(endpoints.counters()),
        (0, true, Some(entry)) => counters_of(endpoints, &entry),
        (index, ..) => nth(endpoints, index, None).map(|endpoint| endpoint.counters),
    };
    let Some(counters) = counters else {
        let mut answer = header.answer(Status::SourceAddress);
        answer.data = [0, index, 0];
        out.extend(answer.encode());
        return;
    };
    let answer = Header {
        data: [Counters::COUNT, index, 0],
        length: (Header::LEN + Counters::LEN) as u16,
        ..header.answer(Status::Success)
    };
    out.extend(answer.encode());
    out.extend(counters.encode());
}

fn counters_of(endpoints: &Endpoints, entry: &Entry) -> Option<Counters> {
    let Info::Address(address) = entry.info else {
        return None;
    };
    let owner = endpoints.owner(&address)?;
    Some(owner.counters)
}

/// The endpoint with this number, counted from 1; `port`: among those on ports with this number.
fn nth(endpoints: &Endpoints, number: u8, port: Option<u8>) -> Option<&Endpoint> {
    let index = usize::from(number).checked_sub(1)?;
    endpoints.listed(port).nth(index)
}

/// The Nth endpoint, or the Nth on ports with a number.
pub(crate) fn endpoint_request(endpoints: &Endpoints, header: &Header, out: &mut Vec<u8>) {
    let [number, port, _] = header.data;
    let endpoint = nth(endpoints, number, (port != 0).then_some(port));
    let local = endpoint.and_then(|endpoint| endpoints.port(endpoint.port));
    let data = [number, 0, 0];
    let Some((endpoint, local)) = endpoint.zip(local) else {
        let answer = header.answer(Status::Invalid);
        out.extend(Header { data, ..answer }.encode());
        return;
    };
    let room = (usize::from(u16::MAX) - Header::LEN - Config::LEN) / cm_msgs::acm::ADDRESS_LEN;
    let addresses = endpoint
        .addresses
        .get(..room)
        .unwrap_or(&endpoint.addresses);
    let config = Config {
        device: endpoint.port.node_guid,
        port: endpoint.port.port,
        port_count: local.status.device_ports,
        pkey: endpoint.pkey,
        address_count: addresses.len() as u16,
        provider: text(PROVIDER),
    };
    let len = Header::LEN + Config::LEN + addresses.len() * cm_msgs::acm::ADDRESS_LEN;
    let answer = Header {
        data,
        length: len as u16,
        ..header.answer(Status::Success)
    };
    out.extend(answer.encode());
    out.extend(config.encode());
    for address in addresses {
        out.extend(text(&address.label));
    }
}
