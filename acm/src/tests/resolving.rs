// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths as clients ask for them: from memory, from files, from the sources.

use super::*;

#[test]
fn a_gid_is_asked_for_once_and_then_known() {
    let mut service = service();
    assert_eq!(resolve(&mut service, NOW, &to(by_gid(9))), None);
    let waits = resolve(&mut service, NOW, &to(by_gid(9)));
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
    let known = resolve(&mut service, NOW, &to(by_gid(9))).unwrap();
    assert_eq!(path_in(&known), path_to(9));
    assert!(!known.ack, "as ibacm does it");
}

#[test]
fn paths_grow_old() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let before = NOW + Duration::from_millis(9999);
    assert!(resolve(&mut service, before, &to(by_gid(9))).is_some());
    let after = NOW + Duration::from_secs(10);
    assert_eq!(
        resolve(&mut service, after, &cached_only(by_gid(9)))
            .unwrap()
            .status,
        Status::NoData
    );
    sources_say(&mut service, after, Ok(vec![path_to(9)]));
    assert!(resolve(&mut service, after, &cached_only(by_gid(9))).is_some());
    let swept = after + Duration::from_secs(100);
    assert!(service.poll_timeout().is_some());
    service.handle_time(swept);
    assert_eq!(service.flush(), 0, "nothing old is kept");
}

#[test]
fn who_does_not_want_to_wait_starts_it_all_the_same() {
    let mut service = service();
    let answer = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
    assert_eq!((answer.status, answer.entries().len()), (Status::NoData, 0));
    sources_say(&mut service, NOW, Ok(vec![path_to(9)]));
    assert_eq!(service.poll_answer(), None);
    let answer = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
    assert_eq!(path_in(&answer), path_to(9));
}

#[test]
fn an_address_of_the_file_is_a_gid() {
    let mut service = service();
    service.set_known(known("10.0.0.9 fe80::9\nnode-9 fe80::9\n"));
    for address in [ip(9), name("NODE-9")] {
        assert_eq!(resolve(&mut service, NOW, &to(address)), None);
        assert_eq!(service.poll_lookup(), None);
        sources_lead(&mut service, NOW, path_to(9));
    }
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
fn paths_of_the_file_are_taken_until_they_are_in_doubt() {
    let mut service = service();
    service.set_routes(vec![path_to(9)]);
    // The file does not have it, and the CM's timeouts are made of it: the port's, as with ibacm.
    let as_filed = PathRecord {
        packet_life_time: 18,
        ..path_to(9)
    };
    let request = to(by_gid(9));
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
fn verifications_are_limited() {
    let mut service = service();
    let verify = by_path(path_to(9), Flags::QUERY_SA);
    for _ in 0..2 {
        for _ in 0..MOST_OF_ONE_USER {
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
fn room_is_limited() {
    let mut service = service();
    for last in 100..100 + MOST_OF_ONE_USER {
        assert_eq!(resolve(&mut service, NOW, &to(by_gid(last))), None);
    }
    let full = resolve(&mut service, NOW, &to(by_gid(104))).unwrap();
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
