// SPDX-License-Identifier: MIT OR Apache-2.0
use alloc::vec;

use cm_msgs::{Gid, Guid, Lid, PKey};

use super::of_port::{MAX_INITIAL, MAX_UNDER_WAY};
use super::*;
use crate::id::{Payer, PortId};

fn id(conn: u32) -> ConnId {
    ConnId { client: 1, conn }
}

/// The question for a path to this LID.
fn query(dlid: u16) -> PathQuery {
    PathQuery {
        query: 0,
        port: PortId::new(Guid(1), 1),
        sgid: Gid([1; 16]),
        dgid: Gid([2; 16]),
        slid: None,
        dlid: Some(Lid(dlid)),
        pkey: PKey::DEFAULT_FULL,
    }
}

/// One connection asks, each for a path of its own; the number of the question.
fn ask(questions: &mut Questions, urgency: Urgency, conn: u16) -> u32 {
    ask_at(questions, Time(0), urgency, conn).0
}

fn ask_at(questions: &mut Questions, now: Time, urgency: Urgency, conn: u16) -> (u32, bool) {
    questions.paths(now, id(conn.into()), Payer(1), urgency, query(conn))
}

fn find(questions: &mut Questions, now: Time, number: u32) {
    let paths = vec![PathRecord::default()];
    questions.answered(now, number, Ok(paths), None);
}

/// The destinations of the questions that are let out now.
fn polled(questions: &mut Questions) -> Vec<u16> {
    let polled = core::iter::from_fn(|| questions.poll_paths());
    polled
        .filter_map(|query| query.dlid)
        .map(|lid| lid.0)
        .collect()
}

fn told(questions: &mut Questions) -> Vec<(u32, u32)> {
    core::iter::from_fn(|| questions.next_answer())
        .map(|(id, answer)| (id.conn, answer.number))
        .collect()
}

#[test]
fn equal_queries_share_one_question() {
    let mut questions = Questions::default();
    let mut numbered = |conn, query: PathQuery| {
        questions.paths(Time(0), id(conn), Payer(1), Urgency::Initial, query)
    };
    let (number, new) = numbered(
        1,
        PathQuery {
            query: 7,
            ..query(1)
        },
    );
    assert!(new);
    let (same, new) = numbered(
        2,
        PathQuery {
            query: 9,
            ..query(1)
        },
    );
    assert_eq!((same, new), (number, false));
    let out = questions.poll_paths().map(|query| query.query);
    assert_eq!(out, Some(number));
    assert_eq!(questions.poll_paths(), None);
    find(&mut questions, Time(0), number);
    assert_eq!(told(&mut questions), [(1, number), (2, number)]);
    assert!(questions.numbers.is_empty(), "nothing is waited for");
}

#[test]
fn nothing_is_left_of_a_question_that_is_not_answered_in_time() {
    let mut questions = Questions::default();
    let number = ask(&mut questions, Urgency::Rearm, 1);
    let out = questions.poll_paths().map(|query| query.query);
    assert_eq!(out, Some(number));
    questions.timed_out(Time(5), number);
    assert_eq!(told(&mut questions), [(1, number)], "who asked hears it");
    assert_eq!(questions.poll_withdrawn(), Some(number));
    assert!(questions.questions.is_empty() && questions.ports.is_empty());
    questions.timed_out(Time(6), number);
    assert_eq!(questions.poll_withdrawn(), None, "once");
}

#[test]
fn an_answer_is_reused_for_one_second() {
    let mut questions = Questions::default();
    let [first, second] = [1, 2].map(|conn| ask(&mut questions, Urgency::Rearm, conn));
    find(&mut questions, Time(0), first);
    let half = Time(0) + RECENT / 2;
    find(&mut questions, half, second);
    told(&mut questions);
    let (number, new) = ask_at(&mut questions, half, Urgency::Rearm, 1);
    assert!(!new && number != first, "its own number");
    assert_eq!(told(&mut questions), [(1, number)]);
    let late = Time(0) + RECENT;
    assert!(ask_at(&mut questions, late, Urgency::Rearm, 1).1);
    assert!(!ask_at(&mut questions, late, Urgency::Rearm, 2).1);
    questions.forget_recent();
    assert!(ask_at(&mut questions, late, Urgency::Rearm, 2).1);
}

#[test]
fn an_answer_that_is_not_what_the_peer_says_is_not_reused_unless_it_has_just_come() {
    let mut questions = Questions::default();
    let number = ask(&mut questions, Urgency::Rearm, 1);
    find(&mut questions, Time(0), number);
    let later = Time(0) + BELIEVED;
    let just_before = Time(later.0 - 1);
    questions.disbelieve(
        just_before,
        PathQuery {
            query: 7,
            ..query(1)
        },
    );
    assert!(!ask_at(&mut questions, just_before, Urgency::Rearm, 1).1);
    questions.disbelieve(later, query(2));
    assert!(
        !ask_at(&mut questions, later, Urgency::Rearm, 1).1,
        "another one"
    );
    questions.disbelieve(
        later,
        PathQuery {
            query: 7,
            ..query(1)
        },
    );
    assert!(ask_at(&mut questions, later, Urgency::Rearm, 1).1);
}

#[test]
fn recent_answers_are_limited_and_failures_are_not_kept() {
    let mut questions = Questions::default();
    let conns = 1..=MAX_RECENT as u16 + 10;
    for conn in conns {
        let number = ask(&mut questions, Urgency::Rearm, conn);
        find(&mut questions, Time(0), number);
    }
    assert_eq!(questions.recent.len(), MAX_RECENT);
    // Those of a second ago make room for it.
    let now = Time(0) + RECENT;
    let number = ask_at(&mut questions, now, Urgency::Rearm, 1).0;
    find(&mut questions, now, number);
    assert_eq!(questions.recent.len(), 1);
    for result in [Ok(Vec::new()), Err(QueryError::NoPath)] {
        let number = ask_at(&mut questions, now, Urgency::Rearm, 2).0;
        questions.answered(now, number, result, None);
    }
    assert_eq!(questions.recent.len(), 1);
}

#[test]
fn first_queries_of_new_connections_are_limited() {
    let mut questions = Questions::default();
    for conn in 0..50 {
        ask(&mut questions, Urgency::Initial, conn);
    }
    assert_eq!(polled(&mut questions).len(), MAX_INITIAL);
    for conn in 100..150 {
        ask(&mut questions, Urgency::Rearm, conn);
    }
    let rearm: Vec<u16> = (100..).take(MAX_UNDER_WAY - MAX_INITIAL).collect();
    assert_eq!(polled(&mut questions), rearm, "and no more than these");
}

#[test]
fn one_first_query_at_a_time_while_a_connection_rearms() {
    let mut questions = Questions::default();
    ask(&mut questions, Urgency::Rearm, 100);
    let initial: Vec<u32> = (0..3)
        .map(|conn| ask(&mut questions, Urgency::Initial, conn))
        .collect();
    assert_eq!(polled(&mut questions), [0, 100]);
    find(&mut questions, Time(0), initial[0]);
    assert_eq!(polled(&mut questions), [1]);
}

#[test]
fn queries_of_connections_that_were_armed_leave_one_place_to_a_first_query() {
    let mut questions = Questions::default();
    for conn in 0..50 {
        ask(&mut questions, Urgency::Rearm, conn);
    }
    assert_eq!(polled(&mut questions).len(), MAX_UNDER_WAY - 1);
    ask(&mut questions, Urgency::Initial, 100);
    assert_eq!(polled(&mut questions), [100]);
}

#[test]
fn a_question_has_the_urgency_of_its_most_urgent_member() {
    let mut questions = Questions::default();
    let join = |questions: &mut Questions, urgency, conn, dlid| {
        questions.paths(Time(0), id(conn), Payer(1), urgency, query(dlid))
    };
    for dlid in [1, 2] {
        ask(&mut questions, Urgency::Initial, dlid);
    }
    ask(&mut questions, Urgency::Rearm, 3);
    join(&mut questions, Urgency::Rearm, 12, 2);
    join(&mut questions, Urgency::Initial, 13, 3);
    assert_eq!(
        polled(&mut questions),
        [1, 2, 3],
        "one of the others, and then these"
    );
    // It is under way, and not asked again.
    join(&mut questions, Urgency::Rearm, 11, 1);
    assert!(polled(&mut questions).is_empty());
}

#[test]
fn a_question_without_members_is_removed() {
    let mut questions = Questions::default();
    let number = ask(&mut questions, Urgency::Initial, 1);
    questions.paths(Time(0), id(2), Payer(1), Urgency::Initial, query(1));
    assert!(questions.leave(id(1), number), "another waits");
    assert!(!questions.leave(id(2), number));
    assert!(polled(&mut questions).is_empty());
    assert!(ask_at(&mut questions, Time(0), Urgency::Initial, 1).1);
}

#[test]
fn a_connection_that_leaves_gets_no_answer_and_the_others_do() {
    let mut questions = Questions::default();
    let number = ask(&mut questions, Urgency::Initial, 1);
    questions.paths(Time(0), id(2), Payer(1), Urgency::Initial, query(1));
    let other = ask(&mut questions, Urgency::Initial, 3);
    questions.paths(Time(0), id(1), Payer(1), Urgency::Initial, query(3));
    for number in [number, other] {
        find(&mut questions, Time(0), number);
    }
    assert!(questions.has_answers());
    assert!(!questions.leave(id(1), number));
    assert_eq!(told(&mut questions), [(2, number), (1, other), (3, other)]);
    assert!(!questions.has_answers());
}

#[test]
fn an_assessment_is_asked_for_once_and_not_after_it_is_withdrawn() {
    let mut questions = Questions::default();
    let assess = |questions: &mut Questions, conn| {
        questions.assess(id(conn), |number| {
            Query::Paths(PathQuery {
                query: number,
                ..query(1)
            })
        })
    };
    let [one, other] = [1, 2].map(|conn| assess(&mut questions, conn));
    assert!(!questions.leave(id(1), one));
    let asked = questions.poll_assessment().map(|(id, _)| id);
    assert_eq!(asked, Some(id(2)));
    assert!(questions.poll_assessment().is_none());
    assert_eq!(questions.assessed(other), Some(id(2)));
    assert_eq!(
        [one, other].map(|number| questions.assessed(number)),
        [None; 2]
    );
}

/// A source may answer slower than connections that were armed ask.
#[test]
fn a_first_query_leaves_though_others_that_were_armed_ask_all_the_time() {
    let mut questions = Questions::default();
    ask(&mut questions, Urgency::Initial, 60_000);
    for conn in 0..200 {
        ask(&mut questions, Urgency::Rearm, conn);
    }
    for _ in 0..100 {
        let query = questions.poll_paths().expect("there always is one");
        let lid = query.dlid.expect("named").0;
        if lid == 60_000 {
            return;
        }
        questions.answered(Time(0), query.query, Err(QueryError::NoPath), None);
        told(&mut questions);
        ask(&mut questions, Urgency::Rearm, lid);
    }
    panic!("100 queries of others have left, and this one has not");
}

#[test]
fn a_users_query_does_not_stand_behind_all_of_anothers() {
    for urgency in [Urgency::Rearm, Urgency::Initial] {
        let mut questions = Questions::default();
        for conn in 0..3_000 {
            ask(&mut questions, urgency, conn);
        }
        let other = ConnId { client: 2, conn: 1 };
        // One of its own, and one that the first user will ask for when all others are answered.
        for lid in [40_000, 2_999] {
            questions.paths(Time(0), other, Payer(2), urgency, query(lid));
        }
        let mut order = Vec::new();
        while let Some(asked) = questions.poll_paths() {
            order.extend(asked.dlid.map(|lid| lid.0));
            questions.answered(Time(0), asked.query, Err(QueryError::NoPath), None);
        }
        assert_eq!(order[..5], [0, 2_999, 1, 40_000, 2], "{urgency:?}");
        assert_eq!(order.len(), 3_001);
    }
}

/// A query that another payer joins keeps its place, even if that payer is more urgent and has a long line.
#[test]
fn who_joins_a_query_does_not_delay_it() {
    let mut questions = Questions::default();
    ask(&mut questions, Urgency::Initial, 1);
    ask(&mut questions, Urgency::Initial, 2);
    let joins = ConnId { client: 2, conn: 1 };
    for lid in (1_000..4_000).chain([2]) {
        questions.paths(Time(0), joins, Payer(2), Urgency::Rearm, query(lid));
    }
    let mut order = Vec::new();
    while let Some(asked) = questions.poll_paths() {
        order.extend(asked.dlid.map(|lid| lid.0));
        questions.answered(Time(0), asked.query, Err(QueryError::NoPath), None);
    }
    assert_eq!(order[..3], [1, 2, 1_000], "and each is asked once");
    assert_eq!(order.len(), 3_002);
}

/// New connections of one user ask for paths in a subnet where the SA is silent. Each gives its question up after 30 s and
/// asks again. Those of another user ask in a subnet where the SA answers at once.
#[test]
fn a_silent_subnet_does_not_hold_up_new_connections_in_another_one() {
    const EACH: u16 = 100;
    let mut questions = Questions::default();
    let ask = |questions: &mut Questions, now, port: u8, conn: u16| {
        let port_id = PortId::new(Guid(1), port);
        let query = PathQuery {
            port: port_id,
            ..query(conn)
        };
        let conn = id(u32::from(port) << 16 | u32::from(conn));
        questions
            .paths(now, conn, Payer(port.into()), Urgency::Initial, query)
            .0
    };
    for conn in 1..=EACH {
        ask(&mut questions, Time(0), 1, conn);
        ask(&mut questions, Time(0), 2, conn);
    }
    let mut silent: VecDeque<(Time, PathQuery)> = VecDeque::new();
    let mut answered = 0;
    for ms in 0..30_000 {
        let now = Time(ms * 1_000);
        while let Some(&(asked, query)) = silent.front()
            && now - asked >= Duration::from_secs(30)
        {
            silent.pop_front();
            let conn = query.dlid.map_or(0, |lid| lid.0);
            questions.leave(id(1 << 16 | u32::from(conn)), query.query);
            ask(&mut questions, now, 1, conn);
        }
        while let Some(query) = questions.poll_paths() {
            if query.port.port == 1 {
                silent.push_back((now, query));
            } else {
                find(&mut questions, now, query.query);
                answered += 1;
            }
        }
    }
    assert_eq!(answered, EACH, "in 30 s");
}
