// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM's client protocol as ib_acme and ibacm speak it: `vectors/acm_*.hex`, of a little-endian host.
#![cfg(target_endian = "little")]

use cm_msgs::acm::{
    Address, Counters, Endpoint, Entry, Flags, Header, Info, MAX_LEN, Op, Resolve, Status,
};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid, PKey};

use crate::vectors::bytes;

macro_rules! vector {
    ($name:literal) => {
        bytes(include_str!(concat!("../vectors/acm_", $name, ".hex")))
    };
}

/// The message, which must encode to the vector.
fn resolve(vector: &[u8]) -> Resolve {
    let message = Resolve::decode(vector).unwrap();
    let mut buffer = [0; MAX_LEN];
    assert_eq!(message.encode(&mut buffer), vector);
    message
}

fn gid(text: &str) -> Gid {
    text.parse().unwrap()
}

fn ip(last: u8) -> Address {
    Address::Ip([10, 0, 1, last].into())
}

/// From 10.0.1.1, LID 4, to LID 5, as OpenSM gave it.
fn path() -> PathRecord {
    PathRecord {
        dgid: gid("fe80::253:4843:4100:201"),
        sgid: gid("fe80::253:4843:4100:101"),
        dlid: Lid(5),
        slid: Lid(4),
        reversible: true,
        pkey: PKey(0xffff),
        mtu_selector: 2,
        mtu: 5,
        rate_selector: 2,
        rate: 7,
        packet_life_time_selector: 2,
        packet_life_time: 18,
        ..PathRecord::default()
    }
}

#[test]
fn a_request_by_address() {
    let want = Resolve::request(0, Some(ip(1)), ip(2), Flags::default());
    assert_eq!(resolve(&vector!("resolve")), want);
}

#[test]
fn an_answer_has_the_path_first_and_then_the_source() {
    let answer = resolve(&vector!("resolved"));
    let [first, second] = answer.entries() else {
        panic!("{answer:?}")
    };
    assert_eq!((answer.ack, answer.status), (false, Status::Success));
    let loopback = PathRecord {
        dgid: path().sgid,
        dlid: Lid(4),
        mtu_selector: 0,
        rate_selector: 0,
        packet_life_time_selector: 0,
        packet_life_time: 0,
        ..path()
    };
    assert_eq!(*first, Entry::path(Flags::WHOLE_PATH, loopback));
    assert_eq!(*second, Entry::address(Flags::SOURCE, ip(1)));
}

#[test]
fn a_path_is_verified() {
    let request = resolve(&vector!("verify"));
    assert_eq!(request.entries(), [Entry::path(Flags::QUERY_SA, path())]);
    let answer = resolve(&vector!("verified"));
    assert_eq!(answer.entries(), request.entries());
    assert!(answer.ack && !request.ack);
}

#[test]
fn a_request_for_what_is_known_already() {
    let request = resolve(&vector!("gid_cached"));
    let [Entry { flags, info }] = request.entries() else {
        panic!("{request:?}")
    };
    assert_eq!(*flags, Flags::NO_DELAY);
    let Info::Path(asked) = info else {
        panic!("{info:?}")
    };
    assert_eq!(
        (asked.dgid, asked.reversible, asked.numb_path),
        (path().dgid, true, 1)
    );
    let answer = resolve(&vector!("no_data"));
    assert_eq!((answer.status, answer.entries().len()), (Status::NoData, 0));
}

#[test]
fn counters() {
    let answer = vector!("perf");
    let (head, body) = answer.split_first_chunk().unwrap();
    let header = Header::decode(head);
    assert_eq!(header.encode(), *head);
    assert_eq!((header.op, header.ack, header.length), (Op::Perf, true, 72));
    assert_eq!(header.data, [Counters::COUNT, 0, 0]);
    let want = Counters {
        error: 3,
        resolve: 20,
        no_data: 3,
        addr_query: 3,
        route_query: 15,
        route_cache: 3,
        ..Counters::default()
    };
    assert_eq!(Counters::decode(body.try_into().unwrap()), want);
}

#[test]
fn an_endpoint() {
    let answer = vector!("endpoint");
    let (head, body) = answer.split_first_chunk().unwrap();
    let header = Header::decode(head);
    assert_eq!(
        (header.op, header.length, header.data),
        (Op::Endpoint, 224, [1, 0, 0])
    );
    let (config, addresses) = body.split_first_chunk().unwrap();
    let endpoint = Endpoint::decode(config);
    assert_eq!(endpoint.device, Guid(0x0253_4843_4100_0300));
    assert_eq!(
        (endpoint.port, endpoint.port_count, endpoint.pkey),
        (1, 2, PKey(0xffff))
    );
    assert_eq!(endpoint.provider, cm_msgs::acm::text("ibacmp"));
    let want = ["fe80::253:4843:4100:301/64", "apm-5"].map(cm_msgs::acm::text);
    assert_eq!(usize::from(endpoint.address_count), want.len());
    assert_eq!(addresses, want.as_flattened());
}
