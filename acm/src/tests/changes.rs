// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was learnt before the fabric, or a port of this host, changed.

use super::*;

/// The path to a destination after the subnet manager has routed around something.
fn rerouted(last: u8) -> PathRecord {
    PathRecord {
        sl: 3,
        ..path_to(last)
    }
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
    let wanted = resolve(&mut service, last, &to(by_gid(9)));
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
    assert!(resolve(&mut service, later_on, &to(by_gid(9))).is_some());
    service.handle_fabric_changed(later_on);
    service.handle_time(later_on);
    let asked = sources_say(&mut service, later_on, Ok(vec![path_to(9)]));
    assert_eq!(asked.query.dgid, gid(9));
    let wanted = resolve(&mut service, later_on, &to(by_gid(8)));
    assert_eq!(wanted, None);
    assert_eq!(service.poll_question().unwrap().query.dgid, gid(8));
}

#[test]
fn after_a_change_paths_are_asked_about_before_they_are_given_away() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_fabric_changed(NOW);
    let request = to(by_gid(9));
    assert_eq!(resolve(&mut service, NOW, &request), None);
    sources_lead(&mut service, NOW, rerouted(9));
    let known = resolve(&mut service, NOW, &request).unwrap();
    assert_eq!(path_in(&known), rerouted(9));
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
    let there = resolve(&mut service, NOW, &to(by_gid(8))).unwrap();
    assert_eq!(path_in(&there), path_to(8));
    let gone = resolve(&mut service, NOW, &to(by_gid(9))).unwrap();
    assert_eq!(gone.status, Status::NoData);
    assert_eq!(service.stats().dropped, 1);
}

#[test]
fn paths_in_doubt_are_asked_about_a_few_at_a_time() {
    let mut service = service();
    service.set_settings(Settings {
        max_destinations: 100,
        ..settings()
    });
    for last in 100..120 {
        learn(&mut service, NOW, last);
    }
    service.handle_fabric_changed(NOW);
    service.handle_time(NOW);
    let mut asked: Vec<_> = std::iter::from_fn(|| service.poll_question()).collect();
    assert_eq!(
        (asked.len(), service.poll_timeout().unwrap() > NOW),
        (16, true)
    );
    let mut rounds = 0;
    while let Some(Question { query, .. }) = asked.pop() {
        let path = Ok(vec![rerouted(query.dgid.0[15])]);
        service.handle_paths(NOW, query.query, Some(Origin::Sa), path);
        asked.extend(service.poll_question());
        rounds += 1;
    }
    assert_eq!((rounds, service.stats().rechecked), (20, 20));
}

#[test]
fn what_was_asked_before_a_change_is_asked_once_more() {
    let mut service = service();
    let request = to(by_gid(9));
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
        sources_lead(&mut service, NOW, rerouted(9));
        let known = resolve(&mut service, NOW, &request).unwrap();
        assert_eq!(path_in(&known), rerouted(9));
    }
}

#[test]
fn what_other_hosts_were_asked_before_a_change_is_asked_once_more() {
    let mut service = service();
    let before = look_for(&mut service, NOW, ip(9));
    service.handle_fabric_changed(NOW);
    let old = Location {
        path: Some(path_to(9)),
        ..found(9)
    };
    service.handle_lookup(NOW, before.number, Ok(old));
    assert_eq!(service.poll_answer(), None, "the path may be older");
    let again = service.poll_lookup().expect("a question");
    assert_eq!(again.destination, ip(9));
    let new = Location {
        path: Some(rerouted(9)),
        ..found(9)
    };
    service.handle_lookup(NOW, again.number, Ok(new));
    assert_eq!(path_in(&later(&mut service).unwrap()), rerouted(9));
    let known = resolve(&mut service, NOW, &to(ip(9))).unwrap();
    assert_eq!(path_in(&known), rerouted(9));
}

#[test]
fn a_path_in_doubt_is_better_than_none() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    service.handle_fabric_changed(NOW);
    let request = to(by_gid(9));
    let hasty = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
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
    let asked = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
    assert_eq!(asked.status, Status::NoData);
}

#[test]
fn a_local_port_with_another_lid_has_other_paths() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let mut moved = local_port(1);
    moved.status.lid = Lid(44);
    service.handle_port(port_id(1), moved);
    let asked = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
    assert_eq!(asked.status, Status::NoData);
    let mut down = local_port(1);
    down.status.active = false;
    service.handle_port(port_id(1), down);
    let asked = resolve(&mut service, NOW, &to(by_gid(9))).unwrap();
    assert_eq!(asked.status, Status::SourceAddress);
}

#[test]
fn a_local_port_with_another_rate_has_paths_in_doubt() {
    let mut service = service();
    learn(&mut service, NOW, 9);
    let itself = |service: &mut Service| path_in(&resolve(service, NOW, &to(ip(1))).unwrap());
    assert_eq!(itself(&mut service).rate, 7);
    let slower = LocalPort {
        rate: 3,
        ..local_port(1)
    };
    service.handle_port(port_id(1), slower);
    assert_eq!(itself(&mut service).rate, 3);
    let hasty = resolve(&mut service, NOW, &cached_only(by_gid(9))).unwrap();
    assert_eq!(path_in(&hasty), path_to(9));
    assert_eq!(resolve(&mut service, NOW, &to(by_gid(9))), None);
    sources_lead(&mut service, NOW, rerouted(9));
}
