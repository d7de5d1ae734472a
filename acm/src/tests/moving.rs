// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that move from port to port: this host's own, and those of others.

use super::*;

fn interface(port: u8, last: u8) -> Interface {
    Interface {
        gid: gid(port),
        pkey: DEFAULT,
        ip: [10, 0, 0, last].into(),
        prefix_len: 24,
    }
}

/// What is to be announced: the address, the port, and whether it was at another one before.
fn arrivals(service: &mut Service) -> Vec<(Address, u8, bool)> {
    let arrivals = std::iter::from_fn(|| service.poll_arrival());
    let mut arrivals: Vec<_> = arrivals
        .map(|arrival| (arrival.address, arrival.port.port, arrival.moved))
        .collect();
    arrivals.sort();
    arrivals
}

/// The address 10.0.0.9 is known to be at the port of host 9.
fn known_at_9() -> Service {
    let mut service = service();
    let lookup = look_for(&mut service, NOW, ip(9));
    assert_eq!(lookup.held_by, None);
    service.handle_lookup(NOW, lookup.number, Ok(found(9)));
    sources_lead(&mut service, NOW, path_to(9));
    service
}

fn claim(service: &mut Service, now: Time, by: u8) {
    service.handle_claim(now, DEFAULT, ip(9), gid(by));
}

/// The check of a claim, which is asked without anybody wanting the address.
fn check(service: &mut Service, now: Time) -> Option<Lookup> {
    service.handle_time(now);
    service.poll_lookup()
}

#[test]
fn an_address_that_goes_to_the_other_port_has_moved() {
    let mut service = service();
    arrivals(&mut service);
    service.set_interfaces(vec![interface(2, 1)]);
    assert_eq!(arrivals(&mut service), [(ip(1), 2, true)]);
    service.set_interfaces(vec![interface(2, 1)]);
    assert_eq!(arrivals(&mut service), [], "nothing is different");
    // 'ip address del', and then 'ip address add' at the other interface.
    service.set_interfaces(vec![]);
    assert_eq!(arrivals(&mut service), []);
    assert_eq!(service.poll_departure(), Some(ip(1)));
    assert_eq!(service.poll_departure(), None);
    service.set_interfaces(vec![interface(1, 1)]);
    assert_eq!(arrivals(&mut service), [(ip(1), 1, true)]);
}

#[test]
fn an_address_that_this_host_did_not_have_has_come() {
    let mut service = service();
    arrivals(&mut service);
    service.set_interfaces(vec![interface(1, 1), interface(2, 7)]);
    assert_eq!(arrivals(&mut service), [(ip(7), 2, false)]);
}

#[test]
fn the_hosts_name_moves_when_its_first_port_goes_down() {
    let mut service = service();
    arrivals(&mut service);
    let mut down = local_port(1);
    down.status.active = false;
    service.handle_port(port_id(1), down);
    assert_eq!(arrivals(&mut service), [(name("node"), 2, true)]);
}

#[test]
fn with_the_gid_of_their_port_all_its_addresses_have_moved() {
    let mut service = service();
    arrivals(&mut service);
    let mut other = local_port(2);
    other.status.gid = gid(42);
    service.handle_port(port_id(2), other);
    assert_eq!(arrivals(&mut service), [(name("node-2"), 2, true)]);
}

#[test]
fn addresses_that_have_left_are_not_remembered_without_end() {
    let mut service = service();
    for round in 0..100u32 {
        let interfaces = (0..200u32).map(|number| Interface {
            ip: std::net::Ipv4Addr::from(0x0b00_0000 + round * 200 + number).into(),
            ..interface(1, 1)
        });
        service.set_interfaces(interfaces.collect());
    }
    while service.poll_arrival().is_some() {}
    service.set_interfaces(vec![interface(2, 1)]);
    assert_eq!(arrivals(&mut service), [(ip(1), 2, false)], "as if new");
}

#[test]
fn an_address_that_another_port_claims_is_asked_for_before_it_is_given_away() {
    let mut service = known_at_9();
    claim(&mut service, NOW, 8);
    let hasty = resolve(&mut service, NOW, &cached_only(ip(9))).unwrap();
    assert_eq!(hasty.status, Status::NoData);
    assert_eq!(resolve(&mut service, NOW, &to(ip(9))), None);
    let lookup = service.poll_lookup().unwrap();
    assert_eq!((lookup.destination, lookup.held_by), (ip(9), Some(gid(9))));
    service.handle_lookup(NOW, lookup.number, Ok(found(8)));
    sources_lead(&mut service, NOW, path_to(8));
    assert_eq!(service.stats().moved, 1);
    let known = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(path_in(&known), path_to(8));
}

#[test]
fn what_somebody_wanted_lately_is_asked_for_without_waiting_for_that() {
    let mut service = known_at_9();
    claim(&mut service, NOW, 8);
    let lookup = check(&mut service, NOW).expect("a question");
    assert_eq!(lookup.held_by, Some(gid(9)));
    service.handle_lookup(NOW, lookup.number, Ok(found(8)));
    sources_say(&mut service, NOW, Ok(vec![path_to(8)]));
    let known = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(path_in(&known), path_to(8));
}

#[test]
fn a_claim_that_is_not_true_costs_one_question() {
    let mut service = known_at_9();
    claim(&mut service, NOW, 8);
    let lookup = check(&mut service, NOW).expect("a question");
    service.handle_lookup(NOW, lookup.number, Ok(found(9)));
    assert_eq!(service.poll_question(), None, "the path is known");
    let known = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(path_in(&known), path_to(9));
    assert_eq!(service.stats().moved, 0);
    // The next one is heeded a second later.
    let soon = NOW + Duration::from_millis(999);
    claim(&mut service, soon, 8);
    assert_eq!(check(&mut service, soon), None);
    let later = NOW + Duration::from_secs(1);
    claim(&mut service, later, 8);
    assert!(check(&mut service, later).is_some());
}

#[test]
fn a_claim_by_the_port_that_has_the_address_is_no_news() {
    let mut service = known_at_9();
    claim(&mut service, NOW, 9);
    service.handle_claim(NOW, PKey(0x8001), ip(9), gid(8));
    assert_eq!(check(&mut service, NOW), None);
    let known = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(path_in(&known), path_to(9));
}

#[test]
fn a_claimed_address_that_nobody_answers_for_is_forgotten() {
    let mut service = known_at_9();
    claim(&mut service, NOW, 8);
    let lookup = check(&mut service, NOW).expect("a question");
    service.handle_lookup(NOW, lookup.number, Err(LookupError::Unanswered));
    assert_eq!(service.stats().dropped, 1);
    let after = NOW + Duration::from_secs(1);
    assert_eq!(resolve(&mut service, after, &to(ip(9))), None);
    assert_eq!(service.poll_lookup().unwrap().held_by, None);
}

#[test]
fn a_claim_that_comes_while_the_path_is_asked_for_is_checked_first() {
    let mut service = service();
    let lookup = look_for(&mut service, NOW, ip(9));
    service.handle_lookup(NOW, lookup.number, Ok(found(9)));
    let before = service.poll_question().expect("a question");
    claim(&mut service, NOW, 8);
    let path = Ok(vec![path_to(9)]);
    service.handle_paths(NOW, before.query.query, Some(Origin::Sa), path);
    assert_eq!(service.poll_answer(), None, "it leads to the old port");
    let lookup = service.poll_lookup().unwrap();
    service.handle_lookup(NOW, lookup.number, Ok(found(8)));
    sources_lead(&mut service, NOW, path_to(8));
}

#[test]
fn a_file_is_believed_and_not_a_claim() {
    let mut service = known_at_9();
    service.set_known(known(&format!("10.0.0.9 {}\n", gid(9))));
    claim(&mut service, NOW, 8);
    service.handle_time(NOW);
    assert_eq!(service.poll_lookup(), None);
}

#[test]
fn of_many_claims_at_once_sixteen_are_checked_and_the_others_when_they_are_wanted() {
    let mut service = service();
    service.set_settings(Settings {
        max_destinations: 100,
        ..settings()
    });
    for last in 100..130 {
        let lookup = look_for(&mut service, NOW, ip(last));
        service.handle_lookup(NOW, lookup.number, Ok(found(last)));
        sources_lead(&mut service, NOW, path_to(last));
    }
    for last in 100..130 {
        service.handle_claim(NOW, DEFAULT, ip(last), gid(8));
    }
    let mut checked = Vec::new();
    service.handle_time(NOW);
    while let Some(lookup) = service.poll_lookup() {
        service.handle_lookup(NOW, lookup.number, Ok(found(8)));
        sources_say(&mut service, NOW, Ok(vec![path_to(8)]));
        checked.push(lookup.destination);
    }
    assert_eq!(checked.len(), 16);
    let unchecked = (100..130).map(ip).find(|ip| !checked.contains(ip)).unwrap();
    let lookup = look_for(&mut service, NOW, unchecked);
    assert!(lookup.held_by.is_some());
}
