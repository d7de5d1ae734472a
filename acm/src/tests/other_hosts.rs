// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that other hosts are asked for.

use super::*;

#[test]
fn other_hosts_are_asked_for_what_nobody_knows() {
    let mut service = service();
    let lookup = look_for(&mut service, NOW, ip(9));
    assert_eq!((lookup.source, lookup.destination), (ip(1), ip(9)));
    assert_eq!(lookup.endpoint.port, port_id(1));
    assert_eq!(service.poll_question(), None);
    let found = found(9);
    service.handle_lookup(NOW, lookup.number, Ok(found));
    sources_lead(&mut service, NOW, path_to(9));
    // The path grows old before the address does.
    let after = NOW + Duration::from_secs(20);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert_eq!(service.poll_lookup(), None);
    sources_lead(&mut service, after, path_to(9));
}

#[test]
fn what_was_only_heard_is_believed_for_as_long_as_that() {
    let mut service = service();
    let heard = NOW + Duration::from_secs(5);
    for path in [None, Some(path_to(9))] {
        service.flush();
        let lookup = look_for(&mut service, NOW, ip(9));
        let found = Location {
            path,
            until: Some(heard),
            ..found(9)
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
    let lookup = look_for(&mut service, NOW, ip(9));
    let found = Location {
        path: Some(path_to(9)),
        ..found(9)
    };
    service.handle_lookup(NOW, lookup.number, Ok(found));
    assert_eq!(service.poll_question(), None);
    assert_eq!(path_in(&later(&mut service).unwrap()), path_to(9));
}

#[test]
fn what_is_not_there_is_not_asked_for_at_once_again() {
    let mut service = service();
    let lookup = look_for(&mut service, NOW, ip(9));
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
fn an_address_without_a_path_is_looked_for_anew() {
    let mut service = service();
    let lookup = look_for(&mut service, NOW, ip(9));
    let found = found(9);
    service.handle_lookup(NOW, lookup.number, Ok(found));
    sources_say(&mut service, NOW, Err(QueryError::NoPath));
    assert_eq!(later(&mut service).unwrap().status, Status::NoData);
    let after = NOW + Duration::from_secs(1);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert_eq!(service.poll_question(), None, "it may have moved");
    assert_eq!(service.poll_lookup().unwrap().destination, ip(9));
}
