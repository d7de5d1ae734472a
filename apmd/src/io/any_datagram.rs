// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams of the kernel's netlink protocols that say anything: read as far as they make sense.

use netlink_packet_route::RouteNetlinkMessage;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{neigh, netlink, nldev};

/// An attribute: of any type, of one that nests; its length right or not.
fn attribute() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![3 => 0..80u16, 1 => any::<u16>()];
    let length = prop::option::weighted(0.1, any::<u16>());
    (kind, vec(any::<u8>(), 0..40), length).prop_map(|(kind, value, length)| {
        let length = length.unwrap_or(4 + value.len() as u16);
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

/// A message of a type that rtnetlink has (links, addresses, neighbours), of one that all have, or
/// of any; `SEQUENCE` is asked for.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        6 => prop::sample::select(vec![16u16, 17, 20, 21, 28, 29]),
        2 => prop::sample::select(vec![2u16, 3, 0x1401, 0x140a]),
        1 => any::<u16>(),
    ];
    let front = prop_oneof![Just(8), Just(12), Just(16), 0..20usize];
    let front = front.prop_flat_map(|len| vec(any::<u8>(), len));
    let length = prop::option::weighted(0.1, any::<u32>());
    (kind, front, vec(attribute(), 0..6), length).prop_map(|(kind, front, attributes, length)| {
        let body = [front, attributes.concat()].concat();
        let length = length.unwrap_or(16 + body.len() as u32);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(SEQUENCE.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    })
}

const SEQUENCE: u32 = 7;

proptest! {
    #[test]
    fn any_datagram(messages in vec(message(), 0..4), rest in vec(any::<u8>(), 0..40)) {
        let datagram = [messages.concat(), rest].concat();
        let count = netlink::messages(&datagram).count();
        prop_assert!(netlink::readable::<RouteNetlinkMessage>(&datagram).count() <= count);
        neigh::events_of(&datagram);
        nldev::read_all(&datagram, SEQUENCE);
    }

    #[test]
    fn any_bytes(datagram in vec(any::<u8>(), 0..300)) {
        let _ = netlink::readable::<RouteNetlinkMessage>(&datagram).count();
        neigh::events_of(&datagram);
        nldev::read_all(&datagram, SEQUENCE);
    }
}
