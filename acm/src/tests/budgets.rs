// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strangers who flood the service, and everybody else.

use paths::source::Urgency;

use super::*;

fn flooded() -> Service {
    let mut service = service();
    service.set_settings(Settings {
        max_destinations: 65536,
        max_waiting: 4096,
        ..settings()
    });
    for lid in 100..20_000 {
        resolve(&mut service, NOW, &to(Address::Lid(Lid(lid))));
    }
    service
}

/// Asks as another user; the answer, if it comes at once.
fn ask_as(service: &mut Service, user: User, request: &Resolve) -> Vec<u8> {
    let mut buffer = [0; MAX_LEN];
    let request = request.encode(&mut buffer);
    let (header, _) = frame(request).unwrap().unwrap();
    let client = Client { key: 2, user };
    let mut out = Vec::new();
    service.handle_request(NOW, client, &header, request, &mut |_| None, &mut out);
    out
}

fn questions(service: &mut Service) -> Vec<Question> {
    std::iter::from_fn(|| service.poll_question()).collect()
}

#[test]
fn a_flood_puts_few_questions_to_the_sources_and_makes_nobody_else_wait() {
    let mut service = flooded();
    assert!(questions(&mut service).len() < 64);
    assert!(service.waiting() < 4096);
    let other = ask_as(&mut service, User::Local(1001), &to(by_gid(9)));
    assert!(other.is_empty(), "not refused");
    let asked = questions(&mut service);
    let [Question { query, .. }] = asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(query.dgid, gid(9));
    service.handle_paths(NOW, query.query, Some(Origin::Sa), Ok(vec![path_to(9)]));
    let answer = service.poll_answer().unwrap();
    assert_eq!(answer.requester.user(), User::Local(1001));
    assert_eq!(answer.result, Ok(path_to(9)));
}

#[test]
fn nobody_waits_behind_a_flood_for_what_the_flood_asks_for_too() {
    let mut service = flooded();
    questions(&mut service);
    // The last one that the flood was given a place for.
    let waits = |known: &KnownDestination| known.state == State::Asking;
    let last = service.destinations(NOW).filter(waits);
    let last = last.map(|known| known.address).max_by_key(lid).unwrap();
    assert!(ask_as(&mut service, User::Local(1001), &to(last)).is_empty());
    let asked = questions(&mut service);
    let [Question { query, .. }] = asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(query.dlid.map(Address::Lid), Some(last));
}

fn lid(address: &Address) -> u16 {
    match address {
        Address::Lid(lid) => lid.0,
        _ => 0,
    }
}

#[test]
fn what_is_verified_or_checked_again_waits_for_the_engine() {
    let mut service = service();
    let verify = by_path(path_to(9), Flags::QUERY_SA);
    assert_eq!(resolve(&mut service, NOW, &verify), None);
    let [verification] = questions(&mut service)[..] else {
        panic!("one question");
    };
    assert_eq!(verification.urgency, Urgency::Recheck);
    learn(&mut service, NOW, 8);
    service.handle_fabric_changed(NOW);
    service.handle_time(NOW);
    let [recheck] = questions(&mut service)[..] else {
        panic!("one question");
    };
    assert_eq!(recheck.urgency, Urgency::Recheck);
}
