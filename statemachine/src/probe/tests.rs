// SPDX-License-Identifier: MIT OR Apache-2.0
//! One path, or a few.

mod lossy;
mod ports;
mod shares;
mod two_paths;
mod users;

use alloc::vec::Vec;

use cm_msgs::Guid;

use super::*;

const VERIFY: Duration = Duration::from_secs(1);
const CONN: ConnId = ConnId { client: 1, conn: 1 };

fn path(number: u16) -> ProbePath {
    ProbePath {
        port: PortId::new(Guid(1), 1),
        slid: Lid(1),
        dlid: Lid(0x100 + number),
        sl: 0,
        pkey: PKey::DEFAULT_FULL,
    }
}

/// A path from one LID of a local port to one of a far one.
pub(super) fn path_to(far: u16, near: u16) -> ProbePath {
    ProbePath {
        slid: Lid(near),
        dlid: Lid(far),
        ..path(0)
    }
}

/// Probes in virtual time: what answers, answers 1 ms later.
struct World {
    probes: Probes,
    now: Time,
    left: Vec<(Time, ProbePath)>,
    findings: Vec<(Time, ProbePath, Finding)>,
}

impl World {
    fn new(paths: u16) -> Self {
        let mut probes = Probes::new(Random::new([7; 32]));
        for number in 0..paths {
            probes.watch(Time(0), path(number), CONN);
        }
        Self {
            probes,
            now: Time(0),
            left: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn run(&mut self, ms: u64, answers: impl Fn(ProbePath) -> bool) {
        let end = self.now.0 + ms * 1_000;
        while self.now.0 < end {
            self.now.0 += 1_000;
            while let Some(probe) = self.probes.poll(|_| true) {
                if answers(probe.path) {
                    assert!(self.probes.expects(&probe));
                    assert!(self.probes.take(self.now, &probe, Answerer::Daemon, VERIFY));
                }
            }
            // None waits from before.
            self.probes.due(self.now, VERIFY);
            let new = self.probes.out.values().flat_map(PathQueue::paths);
            self.left.extend(new.map(|path| (self.now, path)));
            while let Some(hearer) = self.probes.next_hearer() {
                if hearer.is_first_of.is_some() {
                    let Hearer { path, finding, .. } = hearer;
                    self.findings.push((self.now, path, finding));
                }
            }
        }
    }

    fn suspected(&self) -> usize {
        let suspect = |(_, _, finding): &&(Time, ProbePath, Finding)| *finding == Finding::Suspect;
        self.findings.iter().filter(suspect).count()
    }
}

#[test]
fn a_path_is_probed_once_a_second_whoever_shares_it() {
    let mut world = World::new(1);
    for conn in 2..1_000 {
        world
            .probes
            .watch(Time(0), path(0), ConnId { client: 1, conn });
    }
    world.run(60_000, |_| true);
    assert!(
        (60..=90).contains(&world.left.len()),
        "{}",
        world.left.len()
    );
    assert_eq!(world.probes.health(&path(0)), PathHealth::Verified);
    for conn in 1..1_000 {
        world.probes.unwatch(path(0), ConnId { client: 1, conn });
    }
    assert_eq!(world.probes.next(), None, "nobody uses it any more");
}

#[test]
fn a_thousand_paths_cost_no_more_than_two_hundred_probes_in_any_second() {
    let mut world = World::new(1_000);
    // The worst: half of them lose everything.
    world.run(30_000, |path| path.dlid.0 % 2 == 0);
    let times: Vec<u64> = world.left.iter().map(|(at, _)| at.0).collect();
    let in_second = |&from: &u64| {
        let second = from..from + 1_000_000;
        times.iter().filter(|at| second.contains(at)).count()
    };
    let most = times.iter().map(in_second).max();
    assert!(most.is_some_and(|most| most <= 200), "{most:?}");
    assert!(times.len() > 5_000, "the budget is used: {}", times.len());
    let healths = (0..1_000).map(|number| world.probes.health(&path(number)));
    assert!(
        healths
            .enumerate()
            .all(|(number, health)| match number % 2 {
                0 => health == PathHealth::Verified,
                _ => health == PathHealth::Suspect,
            })
    );
}

/// Else a port that fails would be noticed only when they are all due.
#[test]
fn many_paths_that_are_new_together_are_probed_at_different_times_and_none_too_soon() {
    let mut world = World::new(400);
    world.run(12_000, |_| true);
    // Each is due every 2.86 s, or up to a quarter sooner.
    let gaps = (0..400).map(|number| {
        let left = world.left.iter().filter(|left| left.1 == path(number));
        let times: Vec<Time> = left.map(|left| left.0).collect();
        (times[1] - times[0]).as_millis()
    });
    let gaps: Vec<u128> = gaps.collect();
    assert!(gaps.iter().all(|&gap| gap >= 2_100), "{gaps:?}");
    let late = gaps.iter().filter(|&&gap| gap > 3_000).count();
    assert!(late > 200, "{late}");
}

#[test]
fn a_hole_is_suspect_within_1_4_seconds_and_not_before_six_losses() {
    for silent_from in (0..1_000).step_by(37) {
        let mut world = World::new(1);
        world.run(2_000 + silent_from, |_| true);
        let hole = world.now;
        let before = world.left.len();
        world.run(1_405, |_| false);
        assert_eq!(world.probes.health(&path(0)), PathHealth::Suspect);
        let found = world.findings.last().map(|(at, _, _)| *at);
        let sent = world.left[before..].iter();
        let earlier = sent.filter(|(at, _)| Some(*at) < found).count();
        // The first may have been on its way when the hole opened.
        assert!(earlier >= 5, "{earlier} probes after {hole:?}");
        world.run(1_100, |_| true);
        assert_eq!(world.probes.health(&path(0)), PathHealth::Verified);
    }
}

#[test]
fn what_no_port_has_room_for_was_not_lost() {
    let mut world = World::new(1);
    world.run(2_000, |_| true);
    for _ in 0..5_000 {
        world.now.0 += 1_000;
        world.probes.due(world.now, VERIFY);
        assert_eq!(world.probes.poll(|_| false), None);
    }
    let waiting = world.probes.out.values().flat_map(PathQueue::paths);
    assert_eq!(waiting.count(), 1, "one copy waits");
    assert_eq!(world.probes.health(&path(0)), PathHealth::Verified);
    assert_eq!(world.suspected(), 0);
}

#[test]
fn only_the_asked_path_answers() {
    let mut world = World::new(2);
    world.probes.due(Time(1), VERIFY);
    let probe = world.probes.poll(|_| true).expect("due");
    let other = Probe {
        path: path(1),
        ..probe
    };
    let guessed = Probe {
        transaction_id: probe.transaction_id ^ 1,
        ..probe
    };
    for forged in [other, guessed] {
        assert!(!world.probes.expects(&forged));
        assert!(
            !world
                .probes
                .take(Time(2), &forged, Answerer::Daemon, VERIFY)
        );
    }
    assert_eq!(world.probes.health(&path(0)), PathHealth::Unknown);
    assert!(world.probes.take(Time(3), &probe, Answerer::Daemon, VERIFY));
    assert!(
        !world.probes.take(Time(4), &probe, Answerer::Daemon, VERIFY),
        "once"
    );
}

#[test]
fn a_late_answer_counts() {
    let mut world = World::new(1);
    world.probes.due(Time(0), VERIFY);
    let first = world.probes.poll(|_| true).expect("due");
    for ms in [100, 200, 300] {
        world.probes.due(Time(ms * 1_000), VERIFY);
        assert!(world.probes.poll(|_| true).is_some());
    }
    assert!(
        world
            .probes
            .take(Time(390_000), &first, Answerer::Daemon, VERIFY)
    );
    assert_eq!(world.probes.health(&path(0)), PathHealth::Verified);
    let state = &world.probes.paths[&path(0)];
    assert_eq!(state.prompt, [Time(0); 3], "which is no prompt one");
    assert_eq!(state.copies_before(Time(0)), 0, "and nothing lost");
    assert_eq!(state.loss.patience(), loss::LossRate::default().patience());
}

#[test]
fn a_path_that_loses_much_is_given_more_time() {
    let mut world = World::new(1);
    let count = core::cell::Cell::new(0);
    // Two of three.
    world.run(60_000, |_| {
        count.set(count.get() + 1);
        count.get() % 3 == 0
    });
    world.run(800, |_| false);
    assert_eq!(world.suspected(), 0, "six in a row are no news");
    world.run(2_000, |_| false);
    assert_eq!(world.suspected(), 1);
}

#[test]
fn answers_may_be_late_at_a_crowded_port() {
    let mut world = World::new(1);
    world.run(2_000, |_| true);
    let silent = |world: &mut World| {
        while world.findings.last().map(|found| found.2) != Some(Finding::Loss) {
            world.run(1, |_| false);
        }
    };
    silent(&mut world);
    for _ in 0..7 {
        world.probes.crowded(world.now, path(0).port);
        world.run(100, |_| false);
    }
    assert_eq!(world.suspected(), 0);
    for _ in 0..5 {
        world.probes.crowded(world.now, path(0).port);
        world.run(100, |_| false);
    }
    assert_eq!(world.suspected(), 1, "but not for ever");
    world.run(60_000, |_| true);
    silent(&mut world);
    world.run(400, |_| false);
    assert_eq!(world.suspected(), 2, "and no longer than it is crowded");
}

#[test]
fn one_path_is_preferred_only_if_it_answered_while_the_other_did_not() {
    let (primary, alternate) = (path(0), path(1));
    let mut world = World::new(2);
    world.run(2_000, |_| true);
    world.run(4_000, |_| false);
    assert!(
        !world.probes.prefer(world.now, &alternate, &primary),
        "both silent"
    );
    let mut world = World::new(2);
    world.run(2_000, |_| true);
    world.run(3_000, |path| path == alternate);
    assert!(world.probes.prefer(world.now, &alternate, &primary));
    assert!(!world.probes.prefer(world.now, &primary, &alternate));
    world.run(1_100, |_| true);
    assert!(
        !world.probes.prefer(world.now, &alternate, &primary),
        "it is over"
    );
}

#[test]
fn a_port_is_suspect_while_none_of_its_paths_answers() {
    let (here, other) = (PortId::new(Guid(1), 1), PortId::new(Guid(1), 2));
    let mut world = World::new(3);
    assert!(!world.probes.is_suspect_port(here), "nothing is known yet");
    world.run(2_000, |_| true);
    world.run(3_000, |of| of == path(0));
    assert!(!world.probes.is_suspect_port(here), "one path answers");
    world.run(3_000, |_| false);
    assert!(world.probes.is_suspect_port(here));
    assert!(!world.probes.is_suspect_port(other));
    world.run(2_000, |of| of == path(2));
    assert!(!world.probes.is_suspect_port(here));
    world.probes.unwatch(path(2), CONN);
    assert!(
        world.probes.is_suspect_port(here),
        "the others still do not"
    );
    for number in [0, 1] {
        world.probes.unwatch(path(number), CONN);
    }
    assert!(!world.probes.is_suspect_port(here), "none is probed");
}

#[test]
fn a_path_fails_remotely_if_another_over_its_local_port_was_answered_since() {
    let fails = |world: &World| world.probes.fails_remotely(&path(0));
    let mut world = World::new(3);
    world.run(2_000, |_| true);
    assert!(!fails(&world), "it answers");
    world.run(3_000, |_| false);
    assert!(!fails(&world), "none was answered since");
    world.run(2_000, |of| of != path(0));
    assert!(fails(&world));
    world.run(2_000, |_| true);
    assert!(!fails(&world), "it answers again");
}

#[test]
fn each_user_of_a_path_hears_of_it_once_and_of_one_thing_after_the_other() {
    let mut world = World::new(1);
    let path = path(0);
    let id = |conn| ConnId { client: 1, conn };
    for conn in 2..=4 {
        world.probes.watch(world.now, path, id(conn));
    }
    world.probes.findings.push_back((path, Finding::Suspect));
    let answer = Finding::Answer { was_suspect: true };
    world.probes.findings.push_back((path, answer));
    let mut heard = Vec::new();
    assert!(world.probes.has_findings());
    while let Some(hearer) = world.probes.next_hearer() {
        assert!(world.probes.has_findings(), "more may have to hear of it");
        heard.push((hearer.conn, hearer.finding, hearer.is_first_of));
        if heard.len() == 2 {
            // One that has gone meanwhile hears nothing.
            world.probes.unwatch(path, id(3));
        }
    }
    assert!(!world.probes.has_findings());
    let of = |conn, finding, first| (id(conn), finding, first);
    assert_eq!(
        heard,
        [
            of(1, Finding::Suspect, Some(4)),
            of(2, Finding::Suspect, None),
            of(4, Finding::Suspect, None),
            of(1, answer, Some(3)),
            of(2, answer, None),
            of(4, answer, None),
        ]
    );
}

/// A path that is suspect since all of its probes got lost, and one that has answered before that.
fn one_of_two_is_suspect() -> World {
    let mut world = World::new(2);
    world.run(3_000, |_| true);
    while world.probes.health(&path(0)) != PathHealth::Suspect {
        world.run(1, |_| false);
    }
    world
}

fn silence(world: &World) -> Silence {
    world.probes.silence(&path(0), &path(1))
}

#[test]
fn a_path_is_a_hole_after_three_prompt_answers_of_another() {
    let mut world = one_of_two_is_suspect();
    assert_eq!(silence(&world), Silence::Unexplained);
    let mut answers = 0;
    while silence(&world) != Silence::Hole {
        world.probes.hasten(world.now, &path(1));
        world.run(2, |path| path.dlid == self::path(1).dlid);
        answers += 1;
    }
    // Before the first one some were lost.
    assert_eq!(answers, 4);
}

/// Each of the conditions alone is not enough.
#[test]
fn a_path_is_a_hole_beside_one_that_is_verified_and_answers_throughout() {
    let mut world = one_of_two_is_suspect();
    let is_hole = |world: &World| world.probes.is_hole_beside(&path(0), &path(1));
    assert!(!is_hole(&world), "the other has not answered since");
    for _ in 0..8 {
        world.probes.hasten(world.now, &path(1));
        world.run(2, |path| path.dlid == self::path(1).dlid);
    }
    assert!(is_hole(&world));
    let state = |world: &mut World, number, health| {
        let path = world.probes.paths.get_mut(&path(number)).expect("watched");
        core::mem::replace(&mut path.health, health)
    };
    let verified = state(&mut world, 1, PathHealth::Suspect);
    assert!(!is_hole(&world), "the other is suspect as well");
    state(&mut world, 1, verified);
    state(&mut world, 0, verified);
    assert!(!is_hole(&world), "it is not suspect");
}

#[test]
fn where_another_path_loses_probes_a_hole_takes_more_copies() {
    let mut world = one_of_two_is_suspect();
    let began = world.now;
    let mut number = 0;
    while silence(&world) != Silence::Hole {
        world.probes.hasten(world.now, &path(1));
        if silence(&world) == Silence::PerhapsChance {
            world.probes.press(world.now, &path(0));
        }
        number += 1;
        world.run(10, |path| {
            path.dlid == self::path(1).dlid && number % 16 == 0
        });
        assert!(world.now - began < Duration::from_secs(3), "never");
    }
    let [hole, other] = [0, 1].map(|number| &world.probes.paths[&path(number)]);
    assert!(hole.unanswered >= PATIENCE_IF_LATE.max(other.loss.patience()));
}

/// Of two probes that leave at the same time, one may have been on its way when the port failed.
#[test]
fn a_probe_that_was_sent_no_later_does_not_tell_that_a_path_fails_remotely() {
    let fails = |world: &World| world.probes.fails_remotely(&path(0));
    let mut world = World::new(2);
    world.run(2_000, |_| true);
    for number in [0, 1] {
        world.probes.hasten(world.now, &path(number));
    }
    world.run(2, |of| of == path(1));
    world.run(500, |_| false);
    assert_eq!(world.probes.health(&path(0)), PathHealth::Suspect);
    assert!(!fails(&world));
    world.run(1_000, |of| of == path(1));
    assert!(fails(&world));
}
