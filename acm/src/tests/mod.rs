// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service as its clients, the other hosts and the path sources see it.

mod budgets;
mod changes;
mod moving;
mod other_hosts;
mod requests;
mod resolving;

use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::acm::{
    Address, Counters, Entry, Flags, Header, Info, MAX_LEN, Name, Op, Resolve, Status,
};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::{Origin, PortId, PortStatus, QueryError, Random, Time};

use super::net::{Location, Lookup, LookupError};
use super::*;
use paths::source::Question;

const NOW: Time = Time(1_000_000);
/// Requests that one user may have waiting, of 4.
const MOST_OF_ONE_USER: u8 = 3;
const CLIENT: Client = Client {
    key: 1,
    user: User::Local(1000),
};
const DEFAULT: PKey = PKey(0xffff);

fn settings() -> Settings {
    Settings {
        address_timeout: Duration::from_secs(100),
        route_timeout: Duration::from_secs(10),
        negative: Duration::from_secs(1),
        loopback: true,
        max_destinations: 8,
        max_waiting: 4,
    }
}

fn gid(last: u8) -> Gid {
    Gid::new(0xfe80 << 48, Guid(last.into()))
}

fn ip(last: u8) -> Address {
    Address::Ip([10, 0, 0, last].into())
}

fn by_gid(last: u8) -> Address {
    Address::Gid(gid(last))
}

fn name(text: &str) -> Address {
    Address::Name(Name::new(text).unwrap())
}

fn port_id(port: u8) -> PortId {
    PortId {
        node_guid: Guid(0x10),
        port,
    }
}

fn local_port(last: u8) -> LocalPort {
    LocalPort {
        device: "hca0".to_owned(),
        status: PortStatus {
            moves_idle: false,
            active: true,
            lid: Lid(last.into()),
            lmc: 0,
            sm_lid: Lid(99),
            sm_guid: Guid(99),
            gid: gid(last),
            pkeys: vec![DEFAULT],
            mtu: 5,
            rate: 7,
            apm: true,
            infiniband: true,
            device_ports: 2,
        },
        rate: 7,
        subnet_timeout: 18,
        pkeys: vec![DEFAULT],
    }
}

fn path_to(last: u8) -> PathRecord {
    PathRecord {
        sgid: gid(1),
        dgid: gid(last),
        slid: Lid(1),
        dlid: Lid(last.into()),
        reversible: true,
        pkey: DEFAULT,
        mtu: 5,
        rate: 7,
        ..PathRecord::default()
    }
}

/// A host with ports 1 and 2, whose address is 10.0.0.1.
fn service() -> Service {
    let mut service = Service::new(settings(), Random::new([7; 32]));
    service.set_names(None, Some(Name::new("node").unwrap()));
    for port in [1, 2] {
        service.handle_port(port_id(port), local_port(port));
    }
    service.set_interfaces(vec![Interface {
        gid: gid(1),
        pkey: DEFAULT,
        ip: [10, 0, 0, 1].into(),
        prefix_len: 24,
    }]);
    service
}

fn known(text: &str) -> pathdb::Addresses {
    pathdb::Addresses::read_from(std::path::Path::new("hosts"), text.as_bytes()).unwrap()
}

/// What client 1 is answered at once.
fn ask(service: &mut Service, now: Time, request: &[u8]) -> Vec<u8> {
    let (header, len) = frame(request).unwrap().unwrap();
    assert_eq!(len, request.len());
    let mut source_of = |to: IpAddr| (to.is_ipv4()).then_some([10, 0, 0, 1].into());
    let mut out = Vec::new();
    service.handle_request(now, CLIENT, &header, request, &mut source_of, &mut out);
    out
}

fn resolve(service: &mut Service, now: Time, request: &Resolve) -> Option<Resolve> {
    let mut buffer = [0; MAX_LEN];
    let answer = ask(service, now, request.encode(&mut buffer));
    (!answer.is_empty()).then(|| Resolve::decode(&answer).unwrap())
}

fn to(destination: Address) -> Resolve {
    Resolve::request(0x55, Some(ip(1)), destination, Flags::default())
}

fn cached_only(destination: Address) -> Resolve {
    Resolve::request(0x55, Some(ip(1)), destination, Flags::NO_DELAY)
}

fn by_path(path: PathRecord, flags: Flags) -> Resolve {
    let mut request = Resolve::empty(0x55);
    request.push(Entry::path(flags, path));
    request
}

fn path_in(answer: &Resolve) -> PathRecord {
    assert_eq!(answer.status, Status::Success);
    let first = answer.entries()[0];
    assert_eq!(first.flags, Flags::WHOLE_PATH);
    match first.info {
        Info::Path(path) => path,
        other => panic!("{other:?}"),
    }
}

/// The answer that client 1 gets later.
fn later(service: &mut Service) -> Option<Resolve> {
    let mut out = Vec::new();
    let key = service.poll_answer()?.for_client(&mut out);
    assert_eq!(key, Some(1));
    Some(Resolve::decode(&out).unwrap())
}

/// The sources' answer to the one question there is.
fn sources_say(
    service: &mut Service,
    now: Time,
    result: Result<Vec<PathRecord>, QueryError>,
) -> Question {
    let question = service.poll_question().expect("a question");
    assert_eq!(service.poll_question(), None);
    service.handle_paths(now, question.query.query, Some(Origin::Sa), result);
    question
}

/// The sources answer the one question there is with `path`, and client 1 gets it.
fn sources_lead(service: &mut Service, now: Time, path: PathRecord) {
    sources_say(service, now, Ok(vec![path]));
    assert_eq!(path_in(&later(service).unwrap()), path);
}

/// The question to other hosts that is asked for an address.
fn look_for(service: &mut Service, now: Time, address: Address) -> Lookup {
    assert_eq!(resolve(service, now, &to(address)), None);
    service.poll_lookup().expect("a question")
}

/// What the host `last` answers.
fn found(last: u8) -> Location {
    Location {
        gid: gid(last),
        lid: Lid(last.into()),
        path: None,
        until: None,
    }
}

/// The destination `last` is known by its GID.
fn learn(service: &mut Service, now: Time, last: u8) {
    assert_eq!(resolve(service, now, &to(by_gid(last))), None);
    sources_lead(service, now, path_to(last));
}
