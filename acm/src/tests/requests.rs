// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of all kinds, byte for byte, and those that make no sense.

use super::*;

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
fn counters_are_those_of_ibacm() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    resolve(&mut service, NOW, &to(by_gid(9)));
    resolve(&mut service, NOW, &cached_only(by_gid(10)));
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

/// Two rails, each with its own subnet manager, give both ports one LID: that source LID identifies neither port.
#[test]
fn a_source_lid_that_ports_of_two_subnets_have_names_neither() {
    let mut service = service();
    let rail = |last: u8, prefix: u64, sm_guid: u64| {
        let mut port = local_port(last);
        port.status.lid = Lid(4);
        port.status.gid = Gid::new(prefix, Guid(last.into()));
        port.status.sm_guid = Guid(sm_guid);
        port
    };
    let asked = |service: &mut Service, dgid: Gid| {
        let path = PathRecord {
            slid: Lid(4),
            dlid: Lid(9),
            dgid,
            ..PathRecord::default()
        };
        let answer = resolve(service, NOW, &by_path(path, Flags::default()));
        let port = service.poll_question().map(|question| question.query.port);
        (answer.map(|answer| answer.status), port)
    };
    service.handle_port(port_id(1), rail(1, 7, 98));
    service.handle_port(port_id(2), rail(2, 7, 99));
    let unclear = (Some(Status::SourceAddress), None);
    assert_eq!(asked(&mut service, Gid::default()), unclear);
    assert_eq!(asked(&mut service, Gid::new(7, Guid(0x31))), unclear);
    // Where prefixes differ the destination's tells.
    service.handle_port(port_id(2), rail(2, 8, 99));
    assert_eq!(asked(&mut service, Gid::default()), unclear);
    let second = asked(&mut service, Gid::new(8, Guid(0x31)));
    assert_eq!(second, (None, Some(port_id(2))));
}
