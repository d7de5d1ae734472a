// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service as its clients, the other hosts and the path sources see it.

use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::acm::{
    Address, Counters, Entry, Flags, Header, Info, MAX_LEN, Name, Op, Resolve, Status,
};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::{Origin, PortId, PortStatus, QueryError, Time};

use super::net::{Found, LookupError};
use super::*;
use crate::source::Question;

const NOW: Time = Time(1_000_000);
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
            active: true,
            lid: Lid(last.into()),
            lmc: 0,
            sm_lid: Lid(99),
            gid: gid(last),
            pkeys: vec![DEFAULT],
            mtu: 5,
            apm: true,
            infiniband: true,
            device_ports: 2,
        },
        rate: 7,
        subnet_timeout: 18,
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
    let mut service = Service::new(settings(), 7);
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
    service.handle_request(now, 1, &header, request, &mut source_of, &mut out);
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

/// The destination `last` is known by its GID.
fn learn(service: &mut Service, now: Time, last: u8) {
    assert_eq!(resolve(service, now, &to(Address::Gid(gid(last)))), None);
    sources_say(service, now, Ok(vec![path_to(last)]));
    assert_eq!(path_in(&later(service).unwrap()), path_to(last));
}

#[test]
fn a_gid_is_asked_for_once_and_then_known() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(Address::Gid(gid(9)))), None);
    let waits = resolve(&mut service, NOW, &to(Address::Gid(gid(9))));
    assert_eq!(waits, None, "while it is asked for");
    let Question { query, only, .. } = sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    assert_eq!((query.sgid, query.dgid), (gid(1), gid(9)));
    assert_eq!((query.slid, query.dlid, query.pkey), (None, None, DEFAULT));
    assert_eq!(only, None, "any source may answer");
    for _ in 0..2 {
        let answer = later(&mut service).unwrap();
        assert_eq!((path_in(&answer), answer.tid), (path_to(9), 0x55));
        assert_eq!(answer.entries().len(), 1, "the client knows its source");
    }
    let known = resolve(&mut service, NOW, &to(Address::Gid(gid(9)))).unwrap();
    assert_eq!(path_in(&known), path_to(9));
    assert!(!known.ack, "as ibacm does it");
}

#[test]
fn paths_grow_old() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let before = NOW + Duration::from_millis(9999);
    assert!(resolve(&mut service, before, &to(Address::Gid(gid(9)))).is_some());
    let after = NOW + Duration::from_secs(10);
    assert_eq!(
        resolve(&mut service, after, &cached_only(Address::Gid(gid(9))))
            .unwrap()
            .status,
        Status::NoData
    );
    sources_say(&mut service, after, Ok(vec![path_to(9)]));
    assert!(resolve(&mut service, after, &cached_only(Address::Gid(gid(9)))).is_some());
    let swept = after + Duration::from_secs(100);
    assert!(service.poll_timeout().is_some());
    service.handle_time(swept);
    assert_eq!(service.flush(), 0, "nothing old is kept");
}

#[test]
fn who_does_not_want_to_wait_starts_it_all_the_same() {
    let mut service = service();
    let answer = resolve(&mut service, NOW, &cached_only(Address::Gid(gid(9)))).unwrap();
    assert_eq!((answer.status, answer.entries().len()), (Status::NoData, 0));
    sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    assert_eq!(service.poll_answer(), None);
    let answer = resolve(&mut service, NOW, &cached_only(Address::Gid(gid(9)))).unwrap();
    assert_eq!(path_in(&answer), path_to(9));
}

#[test]
fn an_address_of_the_file_is_a_gid() {
    let mut service = service();
    service.set_known(known("10.0.0.9 fe80::9\nnode-9 fe80::9\n"));
    for address in [ip(9), name("NODE-9")] {
        assert_eq!(resolve(&mut service, NOW, &to(address)), None);
        assert_eq!(service.poll_lookup(), None);
        sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
        assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
    }
}

#[test]
fn other_hosts_are_asked_for_what_nobody_knows() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
    let lookup = service.poll_lookup().unwrap();
    assert_eq!((lookup.source, lookup.destination), (ip(1), ip(9)));
    assert_eq!(lookup.endpoint.port, port_id(1));
    assert_eq!(service.poll_question(), None);
    let found = Found {
        gid: gid(9),
        lid: Lid(9),
        path: None,
        until: None,
    };
    service.handle_lookup(NOW, lookup.number, Ok(found));
    sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
    // The path grows old before the address does.
    let after = NOW + Duration::from_secs(20);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert_eq!(service.poll_lookup(), None);
    sources_say(&mut service, after, Ok(vec![path_to(9)]));
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
}

#[test]
fn what_was_only_heard_is_believed_for_as_long_as_that() {
    let mut service = service();
    let heard = NOW + Duration::from_secs(5);
    for path in [None, Some(path_to(9))] {
        service.flush();
        assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
        let lookup = service.poll_lookup().unwrap();
        let found = Found {
            gid: gid(9),
            lid: Lid(9),
            path,
            until: Some(heard),
        };
        service.handle_lookup(NOW, lookup.number, Ok(found));
        if path.is_none() {
            sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
        }
        assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
        let before = NOW + Duration::from_millis(4999);
        assert!(resolve(&mut service, before, &to(ip(9))).is_some());
        assert_eq!(
            resolve(&mut service, heard, &cached_only(ip(9)))
                .unwrap()
                .status,
            Status::NoData
        );
        let lookup = service.poll_lookup().unwrap();
        let nobody = Err(LookupError::Unanswered);
        service.handle_lookup(heard, lookup.number, nobody);
    }
}

#[test]
fn a_path_from_the_group_needs_no_source() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
    let lookup = service.poll_lookup().unwrap();
    let found = Found {
        gid: gid(9),
        lid: Lid(9),
        path: Some(path_to(9)),
        until: None,
    };
    service.handle_lookup(NOW, lookup.number, Ok(found));
    assert_eq!(service.poll_question(), None);
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
}

#[test]
fn what_is_not_there_is_not_asked_for_at_once_again() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
    let lookup = service.poll_lookup().unwrap();
    service.handle_lookup(NOW, lookup.number, Err(LookupError::Unanswered));
    assert_eq!(later(&mut service).unwrap().status, Status::TimedOut);
    let again = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(again.status, Status::TimedOut);
    assert_eq!(service.poll_lookup(), None);
    let after = NOW + Duration::from_secs(1);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert!(service.poll_lookup().is_some());
}

#[test]
fn this_host_needs_no_question() {
    let mut service = service();
    let itself = path_in(&resolve(&mut service, NOW, &to(ip(1))).unwrap());
    let want = PathRecord {
        sgid: gid(1),
        dgid: gid(1),
        slid: Lid(1),
        dlid: Lid(1),
        reversible: true,
        pkey: DEFAULT,
        mtu: 5,
        rate: 7,
        ..PathRecord::default()
    };
    assert_eq!(itself, want);
    // Another port of this host is a destination like any other, but no other host is asked.
    assert_eq!(resolve(&mut service, NOW, &to(name("node-2"))), None);
    assert_eq!(service.poll_lookup(), None);
    assert_eq!(service.poll_question().unwrap().query.dgid, gid(2));
    // An address that moves to another host is no longer ours.
    service.set_interfaces(Vec::new());
    let moved = Resolve::request(1, Some(name("node-1")), ip(1), Flags::default());
    assert_eq!(resolve(&mut service, NOW, &moved), None);
    assert!(service.poll_lookup().is_some());
}

#[test]
fn names_are_the_hosts_unless_others_are_given() {
    let mut service = service();
    let labels = |service: &Service| {
        let mut labels = Vec::new();
        for endpoint in service.endpoints() {
            labels.push(
                endpoint
                    .addresses
                    .iter()
                    .map(|own| own.label.clone())
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
        labels
    };
    assert_eq!(labels(&service), ["10.0.0.1/24 node node-1", "node-2"]);
    let naming = Naming {
        address: name("rail-b"),
        device: "hca0".to_owned(),
        port: 2,
        pkey: None,
    };
    service.set_names(Some(vec![naming]), None);
    assert_eq!(labels(&service), ["10.0.0.1/24", "rail-b"]);
    let mut down = local_port(1);
    down.status.active = false;
    service.handle_port(port_id(1), down);
    assert_eq!(labels(&service), ["rail-b"]);
}

#[test]
fn the_source_is_chosen_and_told() {
    let mut service = service();
    service.set_known(known("10.0.0.9 fe80::9\n"));
    let open = Resolve::request(0x55, None, ip(9), Flags::default());
    assert_eq!(resolve(&mut service, NOW, &open), None);
    sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    let slow = later(&mut service).unwrap();
    let fast = resolve(&mut service, NOW, &open).unwrap();
    for answer in [slow, fast] {
        assert_eq!(path_in(&answer), path_to(9));
        let source = Entry::address(Flags::SOURCE, ip(1));
        assert_eq!(answer.entries()[1..], [source], "after the path");
    }
}

#[test]
fn requests_that_make_no_sense() {
    let mut service = service();
    let source = Entry::address(Flags::SOURCE, ip(1));
    let destination = Entry::address(Flags::DESTINATION, ip(9));
    let odd = |flags| Entry {
        flags,
        info: Info::Other(7),
    };
    let cases: [(&[Entry], Status); 8] = [
        (&[], Status::DestinationType),
        (&[source], Status::DestinationType),
        (&[source, source, destination], Status::SourceAddress),
        (
            &[source, destination, destination],
            Status::DestinationAddress,
        ),
        (&[odd(Flags::SOURCE), destination], Status::SourceType),
        (&[source, odd(Flags::DESTINATION)], Status::DestinationType),
        (
            &[Entry::address(Flags::SOURCE, ip(200)), destination],
            Status::SourceAddress,
        ),
        (
            &[Entry::path(Flags::default(), PathRecord::default())],
            Status::DestinationAddress,
        ),
    ];
    for (entries, status) in cases {
        let mut request = Resolve::empty(3);
        for entry in entries {
            assert!(request.push(*entry));
        }
        let answer = resolve(&mut service, NOW, &request).unwrap();
        assert_eq!(
            (answer.status, answer.tid, answer.ack),
            (status, 3, true),
            "{entries:?}"
        );
    }
    let unknown = Header::request(Op::Other(9), 4, 16).encode();
    let answer = Header::decode(ask(&mut service, NOW, &unknown).first_chunk().unwrap());
    assert_eq!((answer.status, answer.tid), (Status::Invalid, 4));
}

#[test]
fn a_path_is_completed() {
    let mut service = service();
    let by_lid = by_path(
        PathRecord {
            dlid: Lid(9),
            ..PathRecord::default()
        },
        Flags::default(),
    );
    assert_eq!(resolve(&mut service, NOW, &by_lid), None);
    let question = sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    assert_eq!(
        (question.query.dgid, question.query.dlid),
        (Gid::default(), Some(Lid(9)))
    );
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
    let with_gid = |dgid| {
        let dlid = Lid(9);
        by_path(
            PathRecord {
                dgid,
                dlid,
                ..PathRecord::default()
            },
            Flags::default(),
        )
    };
    let same = resolve(&mut service, NOW, &with_gid(gid(9))).unwrap();
    assert_eq!(path_in(&same), path_to(9));
    let other = resolve(&mut service, NOW, &with_gid(gid(8))).unwrap();
    assert_eq!(other.status, Status::NoData, "that lid is another port's");
    let elsewhere = PathRecord {
        sgid: gid(77),
        dgid: gid(9),
        ..PathRecord::default()
    };
    let foreign = resolve(&mut service, NOW, &by_path(elsewhere, Flags::default())).unwrap();
    assert_eq!(foreign.status, Status::SourceAddress);
}

#[test]
fn a_path_is_verified_by_asking() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let verify = by_path(path_to(9), Flags::QUERY_SA);
    assert_eq!(resolve(&mut service, NOW, &verify), None, "known or not");
    let question = sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    let lids = (question.query.slid, question.query.dlid);
    assert_eq!(lids, (Some(Lid(1)), Some(Lid(9))));
    assert_eq!(question.only, Some(Origin::Sa), "\"SA verification\"");
    let answer = later(&mut service).unwrap();
    assert_eq!((answer.status, answer.ack), (Status::Success, true));
    assert_eq!(
        answer.entries()[0].flags,
        Flags::QUERY_SA,
        "as it was asked"
    );
    resolve(&mut service, NOW, &verify);
    let changed = PathRecord {
        mtu: 4,
        ..path_to(9)
    };
    sources_say(&mut service, NOW, Ok(vec![changed]));
    assert_eq!(later(&mut service).unwrap().status, Status::NoData);
    resolve(&mut service, NOW, &verify);
    sources_say(&mut service, NOW, Err(QueryError::Timeout));
    assert_eq!(later(&mut service).unwrap().status, Status::TimedOut);
}

#[test]
fn a_reported_link_puts_paths_in_doubt_until_the_subnet_has_settled() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_link_report(NOW);
    let mut asked = Vec::new();
    while let Some(at) = service
        .poll_timeout()
        .filter(|at| *at < NOW + Duration::from_secs(30))
    {
        service.handle_time(at);
        sources_say(&mut service, at, Ok(vec![path_to(9)]));
        asked.push((at - NOW).as_secs());
    }
    assert_eq!(asked, [0, 1, 4, 16]);
}

#[test]
fn many_reports_of_links_start_no_more_than_one_round_a_second() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let mut asked = Vec::new();
    for tenth in 0..30 {
        let at = NOW + Duration::from_millis(tenth * 100);
        service.handle_link_report(at);
        while let Some(due) = service.poll_timeout().filter(|due| *due <= at) {
            service.handle_time(due.max(at));
            if let Some(question) = service.poll_question() {
                let path = Ok(vec![path_to(9)]);
                service.handle_paths(at, question.query.query, Some(Origin::Sa), path);
                asked.push(tenth);
            }
        }
    }
    assert_eq!(asked, [0, 10, 20]);
    // What somebody wants is asked about at once.
    let last = NOW + Duration::from_millis(2950);
    service.handle_link_report(last);
    let wanted = resolve(&mut service, last, &to(Address::Gid(gid(9))));
    assert_eq!((wanted, service.poll_question().is_some()), (None, true));
}

#[test]
fn after_a_change_what_nobody_wanted_for_long_is_asked_about_when_it_is_wanted() {
    let mut service = service();
    let for_ever = Duration::ZERO;
    service.set_settings(Settings {
        route_timeout: for_ever,
        ..settings()
    });
    let later_on = NOW + Duration::from_secs(3600);
    learn(&mut service, NOW, 8);
    learn(&mut service, NOW, 9);
    assert!(resolve(&mut service, later_on, &to(Address::Gid(gid(9)))).is_some());
    service.handle_fabric_changed(later_on);
    service.handle_time(later_on);
    let asked = sources_say(&mut service, later_on, Ok(vec![path_to(9)]));
    assert_eq!(asked.query.dgid, gid(9));
    let wanted = resolve(&mut service, later_on, &to(Address::Gid(gid(8))));
    assert_eq!(wanted, None);
    assert_eq!(service.poll_question().unwrap().query.dgid, gid(8));
}

#[test]
fn after_a_change_paths_are_asked_about_before_they_are_given_away() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_fabric_changed(NOW);
    let request = to(Address::Gid(gid(9)));
    assert_eq!(resolve(&mut service, NOW, &request), None);
    let new = PathRecord {
        sl: 3,
        ..path_to(9)
    };
    sources_say(&mut service, NOW, Ok(vec![new]));
    assert_eq!(path_in(&later(&mut service).unwrap()), new);
    assert_eq!(path_in(&resolve(&mut service, NOW, &request).unwrap()), new);
}

#[test]
fn after_a_change_hosts_that_have_gone_are_dropped_without_being_asked_for() {
    let mut service = service();
    learn(&mut service, NOW, 8);
    learn(&mut service, NOW, 9);
    service.handle_fabric_changed(NOW);
    assert_eq!(service.poll_timeout(), Some(NOW));
    service.handle_time(NOW);
    while let Some(Question {
        query: question, ..
    }) = service.poll_question()
    {
        let result = match question.dgid == gid(8) {
            true => Ok(vec![path_to(8)]),
            false => Err(QueryError::NoPath),
        };
        service.handle_paths(NOW, question.query, Some(Origin::Sa), result);
    }
    let there = resolve(&mut service, NOW, &to(Address::Gid(gid(8)))).unwrap();
    assert_eq!(path_in(&there), path_to(8));
    let gone = resolve(&mut service, NOW, &to(Address::Gid(gid(9)))).unwrap();
    assert_eq!(gone.status, Status::NoData);
    assert_eq!(service.stats().dropped, 1);
}

#[test]
fn what_was_asked_before_a_change_is_asked_once_more() {
    let mut service = service();
    let request = to(Address::Gid(gid(9)));
    let mut moved = local_port(1);
    moved.status.lid = Lid(44);
    let changes: [fn(&mut Service, LocalPort); 3] = [
        |service, _| service.handle_fabric_changed(NOW),
        |service, _| service.handle_port_event(NOW, port_id(1)),
        |service, moved| service.handle_port(port_id(1), moved),
    ];
    for change in changes {
        service.flush();
        assert_eq!(resolve(&mut service, NOW, &request), None);
        let before = service.poll_question().expect("a question").query.query;
        change(&mut service, moved.clone());
        service.handle_paths(NOW, before, Some(Origin::Sa), Ok(vec![path_to(9)]));
        assert_eq!(service.poll_answer(), None, "it may be older");
        let new = PathRecord {
            sl: 3,
            ..path_to(9)
        };
        sources_say(&mut service, NOW, Ok(vec![new]));
        assert_eq!(path_in(&later(&mut service).unwrap()), new);
        assert_eq!(path_in(&resolve(&mut service, NOW, &request).unwrap()), new);
    }
}

#[test]
fn an_address_without_a_path_is_looked_for_anew() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
    let lookup = service.poll_lookup().unwrap();
    let found = Found {
        gid: gid(9),
        lid: Lid(9),
        path: None,
        until: None,
    };
    service.handle_lookup(NOW, lookup.number, Ok(found));
    sources_say(&mut service, NOW, Err(QueryError::NoPath));
    assert_eq!(later(&mut service).unwrap().status, Status::NoData);
    let after = NOW + Duration::from_secs(1);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert_eq!(service.poll_question(), None, "it may have moved");
    assert_eq!(service.poll_lookup().unwrap().destination, ip(9));
}

#[test]
fn verifications_are_limited() {
    let mut service = service();
    let verify = by_path(path_to(9), Flags::QUERY_SA);
    for _ in 0..2 {
        for _ in 0..4 {
            assert_eq!(resolve(&mut service, NOW, &verify), None);
        }
        let full = resolve(&mut service, NOW, &verify).unwrap();
        assert_eq!(full.status, Status::NoMemory, "too many wait");
        while let Some(Question { query, .. }) = service.poll_question() {
            service.handle_paths(NOW, query.query, None, Ok(vec![path_to(9)]));
            assert_eq!(later(&mut service).unwrap().status, Status::Success);
        }
    }
}

#[test]
fn a_path_in_doubt_is_better_than_none() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_fabric_changed(NOW);
    let request = to(Address::Gid(gid(9)));
    let hasty = resolve(&mut service, NOW, &cached_only(Address::Gid(gid(9)))).unwrap();
    assert_eq!(path_in(&hasty), path_to(9));
    assert_eq!(resolve(&mut service, NOW, &request), None);
    sources_say(&mut service, NOW, Err(QueryError::Timeout));
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
    let soon = NOW + Duration::from_secs(5);
    assert!(
        resolve(&mut service, soon, &request).is_some(),
        "nobody waits twice"
    );
    let retry = service.poll_timeout().unwrap();
    assert_eq!(retry, NOW + Duration::from_secs(10));
}

#[test]
fn a_port_that_leaves_the_fabric_takes_its_addresses_along() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_gid_gone(gid(9));
    let asked = resolve(&mut service, NOW, &cached_only(Address::Gid(gid(9)))).unwrap();
    assert_eq!(asked.status, Status::NoData);
}

#[test]
fn a_local_port_with_another_lid_has_other_paths() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let mut moved = local_port(1);
    moved.status.lid = Lid(44);
    service.handle_port(port_id(1), moved);
    let asked = resolve(&mut service, NOW, &cached_only(Address::Gid(gid(9)))).unwrap();
    assert_eq!(asked.status, Status::NoData);
    let mut down = local_port(1);
    down.status.active = false;
    service.handle_port(port_id(1), down);
    let asked = resolve(&mut service, NOW, &to(Address::Gid(gid(9)))).unwrap();
    assert_eq!(asked.status, Status::SourceAddress);
}

#[test]
fn paths_of_the_file_are_taken_until_they_are_in_doubt() {
    let mut service = service();
    service.set_routes(vec![path_to(9)]);
    // The file does not have it, and the CM's timeouts are made of it: the port's, as with ibacm.
    let as_filed = PathRecord {
        packet_life_time: 18,
        ..path_to(9)
    };
    let request = to(Address::Gid(gid(9)));
    assert_eq!(
        path_in(&resolve(&mut service, NOW, &request).unwrap()),
        as_filed
    );
    service.handle_fabric_changed(NOW);
    assert_eq!(resolve(&mut service, NOW, &request), None);
    sources_say(&mut service, NOW, Err(QueryError::Unreachable));
    assert_eq!(path_in(&later(&mut service).unwrap()), as_filed);
}

#[test]
fn room_is_limited() {
    let mut service = service();
    for last in 100..104 {
        assert_eq!(
            resolve(&mut service, NOW, &to(Address::Gid(gid(last)))),
            None
        );
    }
    let full = resolve(&mut service, NOW, &to(Address::Gid(gid(104)))).unwrap();
    assert_eq!(full.status, Status::NoMemory, "too many wait");
    while let Some(Question { query, .. }) = service.poll_question() {
        let last = query.dgid.0[15];
        service.handle_paths(NOW, query.query, None, Ok(vec![path_to(last)]));
    }
    while later(&mut service).is_some() {}
    for last in 110..130 {
        learn(&mut service, NOW, last);
    }
    assert!(service.flush() <= 8);
}

#[test]
fn counters_are_those_of_ibacm() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    resolve(&mut service, NOW, &to(Address::Gid(gid(9))));
    resolve(&mut service, NOW, &cached_only(Address::Gid(gid(10))));
    let want = Counters {
        resolve: 3,
        no_data: 1,
        route_query: 2,
        route_cache: 1,
        ..Counters::default()
    };
    let mut one = Header::request(Op::Perf, 9, 16);
    one.data = [0, 1, 0];
    let mut by_address = Header::request(Op::Perf, 9, 88).encode().to_vec();
    by_address.extend(Entry::address(Flags::SOURCE, ip(1)).encode());
    let all = Header::request(Op::Perf, 9, 16);
    for request in [all.encode().to_vec(), one.encode().to_vec(), by_address] {
        let answer = ask(&mut service, NOW, &request);
        let header = Header::decode(answer.first_chunk().unwrap());
        assert_eq!((header.data[0], header.length, header.ack), (7, 72, true));
        assert_eq!(Counters::decode(answer[16..].try_into().unwrap()), want);
    }
    let mut none = Header::request(Op::Perf, 9, 16);
    none.data = [0, 3, 0];
    let answer = Header::decode(
        ask(&mut service, NOW, &none.encode())
            .first_chunk()
            .unwrap(),
    );
    assert_eq!((answer.status, answer.length), (Status::SourceAddress, 16));
}

#[test]
fn endpoints_are_listed_by_number_and_port() {
    let mut service = service();
    let mut query = |number, port| {
        let mut request = Header::request(Op::Endpoint, 9, 16);
        request.data = [number, port, 0];
        ask(&mut service, NOW, &request.encode())
    };
    let first = query(1, 1);
    assert_eq!(first.len(), 16 + 80 + 3 * 64);
    let header = Header::decode(first.first_chunk().unwrap());
    assert_eq!((header.status, header.data), (Status::Success, [1, 0, 0]));
    let config = cm_msgs::acm::Endpoint::decode(first[16..].first_chunk().unwrap());
    assert_eq!(
        (config.device, config.port, config.port_count),
        (Guid(0x10), 1, 2)
    );
    assert_eq!(
        first[96..].split(|byte| *byte == 0).next(),
        Some(&b"10.0.0.1/24"[..])
    );
    assert_eq!(
        query(2, 0),
        query(1, 2)
            .into_iter()
            .enumerate()
            .map(|(at, byte)| if at == 3 { 2 } else { byte })
            .collect::<Vec<_>>()
    );
    for none in [query(0, 0), query(3, 0), query(2, 1)] {
        let header = Header::decode(none.first_chunk().unwrap());
        assert_eq!((header.status, none.len()), (Status::Invalid, 16));
    }
}

#[test]
fn the_kernel_is_answered_or_sent_to_the_sa() {
    let mut service = service();
    let request = kernel::Request {
        sequence: 5,
        one_way: false,
        path: PathRecord {
            sgid: gid(1),
            dgid: gid(9),
            traffic_class: 4,
            ..PathRecord::default()
        },
    };
    service.handle_kernel(NOW, request);
    sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    let slow = service.poll_answer().unwrap().for_kernel().unwrap();
    service.handle_kernel(NOW, request);
    let fast = service.poll_answer().unwrap().for_kernel().unwrap();
    assert_eq!(slow, fast);
    assert_eq!(slow, request.answer(&path_to(9)));
    let with_qos = kernel::Request {
        path: PathRecord {
            qos_class: 1,
            ..request.path
        },
        ..request
    };
    let foreign = kernel::Request {
        path: PathRecord {
            sgid: gid(77),
            ..request.path
        },
        ..request
    };
    for refused in [with_qos, foreign] {
        service.handle_kernel(NOW, refused);
        let answer = service.poll_answer().unwrap().for_kernel().unwrap();
        assert_eq!(answer, kernel::refusal(5));
    }
    assert_eq!(service.stats().kernel_requests, 4);
}
