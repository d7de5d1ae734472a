// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of path sources, with sources that do anything, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, PKey};
use paths::source::{Answer, Limits, Origin, Plan, Question, Sources, Urgency};
use proptest::prelude::*;
use statemachine::{PathQuery, PortId, QueryError, Time};

const PATIENCE: Duration = Duration::from_millis(2000);
const TIMEOUT: Duration = Duration::from_millis(6000);
const ALL: [Origin; 4] = [Origin::Acm, Origin::Static, Origin::Ssa, Origin::Sa];

fn plan(order: &[Origin]) -> Plan {
    let limits = Limits {
        in_flight: 4,
        timeout: TIMEOUT,
    };
    Plan {
        order: order.iter().map(|origin| (*origin, limits)).collect(),
        patience: PATIENCE,
    }
}

fn question(number: u32, port: u8) -> Question {
    let query = PathQuery {
        query: number,
        port: PortId {
            node_guid: Guid(9),
            port,
        },
        sgid: Gid([1; 16]),
        dgid: Gid([2; 16]),
        slid: None,
        dlid: None,
        pkey: PKey(0xffff),
    };
    let urgency = match number % 2 {
        0 => Urgency::Failover,
        _ => Urgency::Client,
    };
    Question {
        urgency,
        query,
        only: None,
    }
}

fn at(millis: u64) -> Time {
    Time(millis * 1000)
}

/// What a source does with a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// It answers after so many milliseconds.
    Answer(u64, Result<(), QueryError>),
    /// It never does.
    Silence,
}

use Act::{Answer as Says, Silence};

/// A list of sources in virtual time.
struct World {
    now: Time,
    sources: Sources,
    acts: BTreeMap<Origin, Act>,
    /// Answers under way, by time.
    coming: BTreeMap<(Time, u32), Result<(), QueryError>>,
    asked: Vec<(Time, Origin)>,
    answers: Vec<(Time, Answer)>,
}

impl World {
    fn new(order: &[Origin]) -> Self {
        Self {
            now: Time(0),
            sources: Sources::new(plan(order)),
            acts: BTreeMap::new(),
            coming: BTreeMap::new(),
            asked: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn act(&mut self, origin: Origin, act: Act) -> &mut Self {
        self.acts.insert(origin, act);
        self
    }

    fn ask(&mut self, number: u32) {
        self.sources.ask(self.now, question(number, 1));
        self.settle();
    }

    fn settle(&mut self) {
        while let Some((origin, query)) = self.sources.poll_ask(self.now) {
            self.asked.push((self.now, origin));
            if let Some(Says(after, what)) = self.acts.get(&origin) {
                let when = self.now + Duration::from_millis(*after);
                self.coming.insert((when, query.query), *what);
            }
        }
        while let Some(answer) = self.sources.poll_answer() {
            self.answers.push((self.now, answer));
        }
    }

    /// Goes on until `end`, one event after the other.
    fn run(&mut self, end: Time) {
        loop {
            let coming = self.coming.keys().next().map(|(when, _)| *when);
            let alarm = self.sources.poll_timeout();
            let next = coming.into_iter().chain(alarm).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if coming == Some(next) {
                let ((_, number), what) = self.coming.pop_first().expect("just seen");
                let result = what.map(|()| vec![PathRecord::default()]);
                self.sources.handle_answer(self.now, number, result);
            } else {
                self.sources.handle_time(self.now);
            }
            self.settle();
        }
    }

    fn asked(&self) -> Vec<(u64, Origin)> {
        let asked = self.asked.iter();
        asked.map(|(time, who)| (time.0 / 1000, *who)).collect()
    }

    /// The only answer: when, from whom, what.
    fn answer(&self) -> (u64, Option<Origin>, Result<(), QueryError>) {
        assert_eq!(self.answers.len(), 1, "{:?}", self.answers);
        let (time, answer) = &self.answers[0];
        let result = answer.result.as_ref().map(|_| ()).map_err(|error| *error);
        (time.0 / 1000, answer.origin, result)
    }
}

#[test]
fn a_silent_source_fails_when_the_next_is_asked_though_it_was_handed_the_question_late() {
    let mut world = World::new(&[Origin::Sa, Origin::Acm]);
    world.act(Origin::Sa, Silence);
    world.act(Origin::Acm, Says(1, Ok(())));
    world.sources.ask(world.now, question(1, 1));
    world.now = at(20);
    world.settle();
    world.run(at(2100));
    assert_eq!(world.asked(), [(20, Origin::Sa), (2000, Origin::Acm)]);
    assert!(world.sources.members()[0].health().failure().is_some());
}

#[test]
fn a_question_for_one_source_goes_to_no_other() {
    let mut world = World::new(&[Origin::Static, Origin::Sa]);
    world.act(Origin::Static, Says(0, Ok(())));
    world.act(Origin::Sa, Says(5, Err(QueryError::NoPath)));
    let only = |origin| Question {
        only: Some(origin),
        ..question(1, 1)
    };
    world.sources.ask(world.now, only(Origin::Sa));
    world.settle();
    world.run(at(1000));
    assert_eq!(world.asked(), [(0, Origin::Sa)]);
    assert_eq!(world.answers[0].1.result, Err(QueryError::NoPath));
    // One that is not on the list cannot be asked.
    world.sources.ask(world.now, only(Origin::Ssa));
    world.settle();
    let Answer { origin, result, .. } = &world.answers[1].1;
    assert_eq!((*origin, result), (None, &Err(QueryError::Unreachable)));
    assert_eq!(world.asked().len(), 1);
}

#[test]
fn the_first_of_the_list_answers() {
    let mut world = World::new(&[Origin::Sa, Origin::Acm]);
    world
        .act(Origin::Sa, Says(3, Ok(())))
        .act(Origin::Acm, Says(1, Ok(())));
    world.ask(3);
    world.run(at(10_000));
    assert_eq!(world.answer(), (3, Some(Origin::Sa), Ok(())));
    assert_eq!(world.answers[0].1.urgency, Urgency::Client);
    assert_eq!(world.answers[0].1.query, 3);
    assert_eq!(world.asked(), [(0, Origin::Sa)]);
    let health = world.sources.members()[0].health();
    assert_eq!((health.counts().asked, health.counts().answered), (1, 1));
    assert_eq!(health.latency(), Some(Duration::from_millis(3)));
    assert!(
        world.sources.poll_timeout() > Some(at(200_000)),
        "only a look is left"
    );
}

#[test]
fn a_failure_or_no_path_goes_on_to_the_next_at_once() {
    for error in [
        QueryError::NoPath,
        QueryError::Unreachable,
        QueryError::Busy,
    ] {
        let mut world = World::new(&[Origin::Sa, Origin::Acm]);
        world
            .act(Origin::Sa, Says(5, Err(error)))
            .act(Origin::Acm, Says(1, Ok(())));
        world.ask(0);
        world.run(at(100));
        assert_eq!(world.answer(), (6, Some(Origin::Acm), Ok(())), "{error}");
    }
}

#[test]
fn who_refuses_one_question_is_asked_the_next() {
    let mut world = World::new(&[Origin::Sa, Origin::Acm]);
    world
        .act(Origin::Sa, Says(5, Err(QueryError::Refused)))
        .act(Origin::Acm, Says(1, Ok(())));
    world.ask(0);
    world.run(at(100));
    assert_eq!(world.answer(), (6, Some(Origin::Acm), Ok(())));
    let health = world.sources.members()[0].health();
    assert_eq!(
        (
            health.failure(),
            health.last_error(),
            health.counts().failed
        ),
        (None, Some(QueryError::Refused), 1)
    );
    world.act(Origin::Sa, Says(5, Ok(())));
    world.answers.clear();
    world.ask(2);
    world.run(at(200));
    assert_eq!(world.answer(), (105, Some(Origin::Sa), Ok(())));
}

#[test]
fn a_silent_source_is_not_waited_for_and_then_skipped() {
    let mut world = World::new(&[Origin::Sa, Origin::Acm]);
    world
        .act(Origin::Sa, Silence)
        .act(Origin::Acm, Says(1, Ok(())));
    world.ask(0);
    world.run(at(2500));
    assert_eq!(world.answer(), (2001, Some(Origin::Acm), Ok(())));
    world.answers.clear();
    world.ask(2);
    world.run(at(2600));
    assert_eq!(world.answer(), (2501, Some(Origin::Acm), Ok(())));
    let health = world.sources.members()[0].health();
    let failure = health.failure().expect("it fails");
    assert_eq!(
        (failure.since, failure.error),
        (at(2000), QueryError::Timeout)
    );
    assert!(!world.sources.all_fail());
}

#[test]
fn where_no_sa_runs_the_next_is_asked_at_once_and_the_sa_may_still_answer() {
    let mut sources = Sources::new(plan(&[Origin::Sa, Origin::Acm]));
    sources.ask(at(0), question(0, 1));
    let (_, sa) = sources.poll_ask(at(0)).expect("the first is asked");
    sources.handle_absent(at(3), sa.query);
    let (next, acm) = sources.poll_ask(at(3)).expect("the next is asked");
    assert_eq!(next, Origin::Acm);
    sources.handle_answer(at(4), acm.query, Err(QueryError::NoPath));
    assert_eq!(sources.poll_answer(), None, "the SA goes on trying");
    sources.handle_answer(at(500), sa.query, Ok(vec![PathRecord::default()]));
    let answer = sources.poll_answer().expect("the SA is back");
    assert_eq!(
        (answer.origin, answer.result.is_ok()),
        (Some(Origin::Sa), true)
    );
}

#[test]
fn what_waits_for_a_source_that_dies_goes_on_at_once() {
    let mut world = World::new(&[Origin::Acm, Origin::Sa]);
    world
        .act(Origin::Acm, Says(50, Err(QueryError::Unreachable)))
        .act(Origin::Sa, Says(1, Ok(())));
    // Four are under way, the others wait for their turn.
    (0..10).for_each(|number| world.ask(number * 2));
    world.run(at(60));
    let times: Vec<_> = world
        .answers
        .iter()
        .map(|(time, _)| time.0 / 1000)
        .collect();
    assert_eq!(times.len(), 10);
    assert!(
        times.iter().all(|time| (51..=53).contains(time)),
        "{times:?}"
    );
}

#[test]
fn a_dead_source_is_tried_with_growing_pauses_and_taken_back() {
    let mut world = World::new(&[Origin::Acm, Origin::Sa]);
    world
        .act(Origin::Acm, Says(0, Err(QueryError::Unreachable)))
        .act(Origin::Sa, Says(1, Ok(())));
    world.ask(0);
    world.run(at(100_000));
    let tried: Vec<_> = world
        .asked()
        .into_iter()
        .filter(|(_, origin)| *origin == Origin::Acm)
        .map(|(time, _)| time)
        .collect();
    assert_eq!(
        tried,
        [0, 500, 1500, 3500, 7500, 15_500, 31_500, 61_500, 91_500]
    );
    assert_eq!(world.answers.len(), 1, "trials are nobody's questions");
    world.act(Origin::Acm, Says(2, Ok(())));
    world.run(at(130_000));
    world.answers.clear();
    world.ask(2);
    world.run(at(130_010));
    assert_eq!(world.answer(), (130_002, Some(Origin::Acm), Ok(())));
    assert_eq!(world.sources.members()[0].health().failure(), None);
}

/// Seconds from a source's last answer until it has been asked again, at most.
const LOOK: u64 = 360;

#[test]
fn a_source_that_nobody_asks_is_looked_at_and_fails_when_it_has_stopped() {
    for origin in [Origin::Sa, Origin::Acm] {
        let mut world = World::new(&[origin]);
        world.act(origin, Says(10, Ok(())));
        world.ask(0);
        world.run(at(LOOK * 1000 + 1000));
        assert_eq!(world.asked.len(), 2, "one look: {:?}", world.asked);
        let health = world.sources.members()[0].health();
        let age = health.answered_at().map(|when| world.now - when);
        assert!(age < Some(Duration::from_secs(LOOK)), "{age:?}");
        assert_eq!(world.answers.len(), 1, "a look has no answer for anybody");
        // It stops. A look finds that within minutes, though no connection wants anything.
        world.act(origin, Silence);
        world.run(at(2 * LOOK * 1000 + 20_000));
        assert!(world.sources.all_fail(), "{origin}");
    }
}

#[test]
fn a_source_in_this_process_and_one_that_was_never_asked_are_not_looked_at() {
    let mut world = World::new(&[Origin::Ssa, Origin::Sa]);
    world.act(Origin::Ssa, Says(0, Ok(()))).ask(0);
    world.run(at(3 * LOOK * 1000));
    assert_eq!(world.asked.len(), 1, "{:?}", world.asked);
}

#[test]
fn a_source_that_is_asked_all_the_time_is_not_looked_at() {
    let mut world = World::new(&[Origin::Sa]);
    world.act(Origin::Sa, Says(10, Ok(())));
    for second in (0..1000).step_by(100) {
        world.run(at(second * 1000));
        world.ask(u32::try_from(2 * second).expect("small"));
    }
    assert_eq!(world.asked.len(), 10, "{:?}", world.asked);
}

#[test]
fn a_port_is_looked_at_though_its_sm_has_changed_unless_it_is_lost() {
    let mut world = World::new(&[Origin::Sa]);
    world.act(Origin::Sa, Says(10, Ok(()))).ask(0);
    world.run(at(100));
    let port = question(0, 1).query.port;
    world.sources.handle_port_changed(port);
    world.run(at((LOOK + 1) * 1000));
    assert_eq!(world.asked.len(), 2, "{:?}", world.asked);
    world.sources.handle_port_lost(port);
    world.run(at(3 * LOOK * 1000));
    assert_eq!(world.asked.len(), 2, "{:?}", world.asked);
}

#[test]
fn a_source_that_chokes_on_one_question_is_tried_with_the_next() {
    let mut sources = Sources::new(plan(&[Origin::Acm, Origin::Sa]));
    let to = |number, last| {
        let mut question = question(number, 1);
        question.query.dgid.0[15] = last;
        question
    };
    let found = || Ok(vec![PathRecord::default()]);
    sources.ask(at(0), to(0, 1));
    let (_, acm) = sources.poll_ask(at(0)).expect("the first is asked");
    sources.handle_answer(at(0), acm.query, Err(QueryError::Timeout));
    let (_, sa) = sources.poll_ask(at(0)).expect("the next is asked");
    sources.handle_answer(at(0), sa.query, found());
    // Another question, and then the same as at first: both go elsewhere.
    for (number, last) in [(2, 3), (4, 1)] {
        sources.ask(at(10), to(number, last));
        let (next, sa) = sources.poll_ask(at(10)).expect("another");
        assert_eq!(next, Origin::Sa);
        sources.handle_answer(at(10), sa.query, found());
    }
    sources.handle_time(at(500));
    let (next, trial) = sources.poll_ask(at(500)).expect("a trial");
    assert_eq!((next, trial.dgid.0[15]), (Origin::Acm, 3));
    sources.handle_answer(at(500), trial.query, Err(QueryError::Timeout));
    // Nobody has asked for anything since.
    sources.handle_time(at(1500));
    let (_, trial) = sources.poll_ask(at(1500)).expect("a trial");
    assert_eq!(trial.dgid.0[15], 3);
    sources.handle_answer(at(1500), trial.query, found());
    sources.ask(at(1600), to(6, 1));
    let (next, _) = sources.poll_ask(at(1600)).expect("a question");
    assert_eq!(next, Origin::Acm);
}

#[test]
fn a_port_of_the_sa_is_tried_though_another_is_busy() {
    let mut sources = Sources::new(plan(&[Origin::Sa]));
    sources.ask(at(0), question(0, 1));
    let (_, lost) = sources.poll_ask(at(0)).expect("a question");
    sources.handle_answer(at(0), lost.query, Err(QueryError::Unreachable));
    sources.ask(at(400), question(2, 2));
    let (_, busy) = sources.poll_ask(at(400)).expect("a question");
    assert_eq!(busy.port.port, 2);
    sources.handle_time(at(500));
    let (_, trial) = sources.poll_ask(at(500)).expect("a trial");
    assert_eq!(trial.port.port, 1);
}

#[test]
fn with_nothing_better_a_dead_source_is_asked_all_the_same() {
    let mut world = World::new(&[Origin::Acm, Origin::Sa]);
    let dead = Says(0, Err(QueryError::Unreachable));
    world.act(Origin::Acm, dead).act(Origin::Sa, dead);
    world.ask(0);
    world.run(at(0));
    assert_eq!(
        world.answer(),
        (0, Some(Origin::Acm), Err(QueryError::Unreachable))
    );
    assert!(world.sources.all_fail());
    world.act(Origin::Sa, Says(1, Ok(())));
    world.answers.clear();
    world.ask(2);
    world.run(at(10));
    assert_eq!(world.answer(), (1, Some(Origin::Sa), Ok(())));
    assert!(!world.sources.all_fail());
}

#[test]
fn a_slow_source_may_still_be_the_one_that_knows() {
    let mut world = World::new(&[Origin::Sa, Origin::Static]);
    world
        .act(Origin::Sa, Says(3000, Ok(())))
        .act(Origin::Static, Says(0, Err(QueryError::NoPath)));
    world.ask(0);
    world.run(at(10_000));
    assert_eq!(world.answer(), (3000, Some(Origin::Sa), Ok(())));
    assert!(world.sources.members()[0].health().failure().is_none());
}

#[test]
fn the_error_is_that_of_the_source_that_knows_most() {
    let no_path = Says(1, Err(QueryError::NoPath));
    let cases = [
        (no_path, no_path, Origin::Sa, QueryError::NoPath),
        (
            Says(1, Err(QueryError::Busy)),
            no_path,
            Origin::Sa,
            QueryError::Busy,
        ),
        (
            no_path,
            Says(1, Err(QueryError::Unreachable)),
            Origin::Sa,
            QueryError::NoPath,
        ),
    ];
    for (sa, file, origin, error) in cases {
        let mut world = World::new(&[Origin::Static, Origin::Sa]);
        world.act(Origin::Sa, sa).act(Origin::Static, file);
        world.ask(0);
        world.run(at(100));
        assert_eq!(world.answer(), (2, Some(origin), Err(error)));
    }
}

#[test]
fn a_lost_port_does_not_make_the_sa_fail() {
    let mut sources = Sources::new(plan(&[Origin::Sa]));
    for port in [1, 2] {
        sources.ask(at(0), question(0, port));
        let (_, query) = sources.poll_ask(at(0)).expect("healthy");
        let result = match port {
            1 => Err(QueryError::Unreachable),
            _ => Ok(vec![PathRecord::default()]),
        };
        sources.handle_answer(at(1), query.query, result);
    }
    let health = sources.members()[0].health();
    assert_eq!(health.failure(), None);
    let failing: Vec<_> = health.failing_ports().map(|port| port.port).collect();
    assert_eq!(failing, [1]);
    sources.handle_port_changed(question(0, 1).query.port);
    assert_eq!(sources.members()[0].health().failing_ports().count(), 0);
}

#[test]
fn a_source_that_leaves_the_list_owes_nothing() {
    let mut world = World::new(&[Origin::Acm, Origin::Sa]);
    world
        .act(Origin::Acm, Silence)
        .act(Origin::Sa, Says(1, Ok(())));
    world.ask(0);
    world.sources.set_plan(world.now, plan(&[Origin::Sa]));
    world.settle();
    world.run(at(10));
    assert_eq!(world.answer(), (1, Some(Origin::Sa), Ok(())));
    let names: Vec<_> = world.sources.members().iter().map(|m| m.origin()).collect();
    assert_eq!(names, [Origin::Sa]);
}

#[test]
fn a_source_with_too_much_to_do_does_not_fail() {
    let mut world = World::new(&[Origin::Sa]);
    world.act(Origin::Sa, Says(1400, Ok(())));
    for number in 0..40 {
        world.ask(number);
    }
    world.run(at(20_000));
    // Four at a time: the last four that are put have waited for 5.6 of 6 s, and the source has all
    // of its time for them. Those after them are not put.
    let answered = |(time, answer): &(Time, Answer)| {
        let result = answer.result.as_ref();
        (time.0 / 1000, result.map(|_| ()).map_err(|error| *error))
    };
    let mut got: Vec<_> = world.answers.iter().map(answered).collect();
    let late = got.split_off(got.len() - 4);
    assert_eq!(late, [(7000, Ok(())); 4]);
    assert_eq!(got.split_off(16), [(6000, Err(QueryError::Busy)); 20]);
    assert!(got.iter().all(|(_, result)| result.is_ok()), "{got:?}");
    let health = world.sources.members()[0].health();
    assert_eq!((health.failure(), health.last_error()), (None, None));
    let counts = health.counts();
    assert_eq!((counts.asked, counts.answered), (20, 20));
    assert_eq!((counts.timed_out, counts.failed), (0, 0));
    assert!(
        world.sources.poll_timeout() > Some(at(200_000)),
        "only a look is left"
    );
}

fn act() -> impl Strategy<Value = Act> {
    let error = prop_oneof![
        Just(QueryError::NoPath),
        Just(QueryError::Busy),
        Just(QueryError::Timeout),
        Just(QueryError::Unreachable),
        Just(QueryError::Refused),
    ];
    prop_oneof![
        1 => Just(Silence),
        4 => (0u64..7000).prop_map(|after| Says(after, Ok(()))),
        4 => (0u64..7000, error).prop_map(|(after, error)| Says(after, Err(error))),
    ]
}

/// When the first path comes if every source is asked as soon as the one before it has failed or
/// been silent for as long as patience goes; otherwise when the last one has failed.
fn expected(order: &[Origin], acts: &BTreeMap<Origin, Act>) -> (u64, Option<Origin>) {
    let (patience, timeout) = (PATIENCE.as_millis() as u64, TIMEOUT.as_millis() as u64);
    let mut best: Option<(u64, Origin)> = None;
    let mut last_failure = 0;
    let mut start = 0;
    for origin in order {
        if best.is_some_and(|(time, _)| time <= start) {
            break;
        }
        let (end, found) = match acts[origin] {
            // An answer in the very last moment counts.
            Says(after, what) if after <= timeout => (start + after, what.is_ok()),
            _ => (start + timeout, false),
        };
        if found {
            best = best
                .filter(|(time, _)| *time <= end)
                .or(Some((end, *origin)));
        }
        last_failure = last_failure.max(end);
        start = match found {
            true => start + patience,
            false => end.min(start + patience),
        };
    }
    match best {
        Some((time, origin)) => (time, Some(origin)),
        None => (last_failure, None),
    }
}

proptest! {
    #[test]
    fn one_question_is_answered_once_and_not_later_than_needed(
        acts in proptest::collection::vec(act(), 4),
        order in Just(ALL.to_vec()).prop_shuffle(),
        len in 1usize..=4,
    ) {
        let order = &order[..len];
        let mut world = World::new(order);
        world.acts = ALL.into_iter().zip(acts).collect();
        world.ask(4);
        world.run(at(60_000));
        let (time, origin, result) = world.answer();
        let (want, from) = expected(order, &world.acts);
        prop_assert_eq!(time, want);
        prop_assert_eq!(result.is_ok(), from.is_some());
        if from.is_some() {
            prop_assert_eq!(origin, from);
        }
        let first_asked: Vec<_> = order
            .iter()
            .filter_map(|origin| world.asked.iter().position(|(_, who)| who == origin))
            .collect();
        prop_assert!(first_asked.is_sorted(), "asked in order: {:?}", world.asked);
    }

    #[test]
    fn every_question_has_one_answer_whatever_sources_do(
        steps in proptest::collection::vec(
            (0u64..1500, prop_oneof![
                4 => Just(None),
                1 => (0usize..4, act()).prop_map(Some),
            ]),
            1..60,
        ),
        order in Just(ALL.to_vec()).prop_shuffle(),
        len in 1usize..=4,
        replan in any::<bool>(),
    ) {
        let mut world = World::new(&order[..len]);
        let mut asked = 0;
        for (pause, step) in steps {
            let next = world.now + Duration::from_millis(pause);
            world.run(next);
            match step {
                Some((who, act)) => {
                    world.act(ALL[who], act);
                    if replan {
                        world.sources.set_plan(world.now, plan(&order[..=who]));
                        world.settle();
                    }
                }
                None => {
                    world.ask(asked);
                    asked += 1;
                }
            }
            for member in world.sources.members() {
                prop_assert!(member.running() <= member.limits().in_flight);
            }
        }
        // At worst each of four sources keeps it waiting, and is then silent.
        world.run(world.now + TIMEOUT * 8);
        let mut numbers: Vec<_> = world.answers.iter().map(|(_, answer)| answer.query).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..asked).collect::<Vec<_>>());
        prop_assert_eq!(world.sources.pending(), 0);
    }

    #[test]
    fn sources_that_answer_in_time_never_fail_however_many_ask(
        // A question that had to wait for its turn leaves a source an eighth less.
        times in proptest::collection::vec(0..PATIENCE.as_millis() as u64 / 8 * 7, 4),
        bursts in proptest::collection::vec((0u64..3000, 0u32..40), 1..8),
        len in 1usize..=4,
    ) {
        let mut world = World::new(&ALL[..len]);
        let says = |time| Says(time, Ok(()));
        world.acts = ALL.into_iter().zip(times.into_iter().map(says)).collect();
        let mut asked = 0;
        for (pause, burst) in bursts {
            let next = world.now + Duration::from_millis(pause);
            world.run(next);
            for _ in 0..burst {
                world.ask(asked);
                asked += 1;
            }
        }
        world.run(world.now + TIMEOUT * 8);
        prop_assert_eq!(world.answers.len(), asked as usize);
        for member in world.sources.members() {
            prop_assert_eq!(member.health().last_error(), None);
            prop_assert_eq!(member.health().counts().timed_out, 0);
        }
    }
}

/// 16 programs that flood ACM's socket once put 65,504 questions before the engine's.
#[test]
fn a_flood_of_clients_does_not_delay_the_engine_and_is_bounded() {
    let mut sources = Sources::new(plan(&[Origin::Sa]));
    for number in 0..65_504 {
        let urgency = Urgency::Client;
        sources.ask(
            at(0),
            Question {
                urgency,
                ..question(number, 1)
            },
        );
    }
    let busy = std::iter::from_fn(|| sources.poll_answer());
    let busy = busy.filter(|answer| answer.result == Err(QueryError::Busy));
    assert_eq!(busy.count(), 65_504 - 1024);
    let asked: Vec<_> = std::iter::from_fn(|| sources.poll_ask(at(0))).collect();
    assert_eq!(asked.len(), 2, "half of the 4 that are let under way");
    let urgency = Urgency::Failover;
    let mut of_engine = question(70_000, 1);
    of_engine.query.dgid = Gid([7; 16]);
    sources.ask(
        at(1),
        Question {
            urgency,
            ..of_engine
        },
    );
    let (_, next) = sources.poll_ask(at(1)).expect("the reserve");
    assert_eq!(next.dgid, Gid([7; 16]));
}

#[test]
fn what_the_engine_withdraws_is_withdrawn_from_its_source_and_has_no_answer() {
    let mut sources = Sources::new(Plan::new([Origin::Sa]));
    sources.ask(at(0), question(2, 1));
    let (_, asked) = sources.poll_ask(at(0)).expect("asked");
    sources.ask(at(0), question(4, 1));
    // One that a source was asked, and one that waits.
    sources.withdraw(2);
    sources.withdraw(4);
    assert_eq!(sources.poll_abandoned(), Some((Origin::Sa, asked.query)));
    assert_eq!(sources.poll_abandoned(), None);
    assert!(sources.poll_ask(at(0)).is_none());
    assert_eq!(
        (sources.pending(), sources.poll_answer().is_none()),
        (0, true)
    );
    assert_eq!(
        (
            sources.members()[0].running(),
            sources.members()[0].waiting()
        ),
        (0, 0)
    );
    assert_eq!(sources.poll_timeout(), None);
    // A client of ACM numbers its questions itself.
    sources.ask(at(0), question(5, 1));
    sources.withdraw(5);
    assert_eq!(sources.pending(), 1);
}
