// SPDX-License-Identifier: MIT OR Apache-2.0
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
                    assert!(self.probes.take(self.now, &probe, VERIFY));
                }
            }
            let before = self.probes.out.len();
            self.probes.due(self.now, VERIFY);
            let new = self.probes.out.iter().skip(before);
            self.left.extend(new.map(|path| (self.now, *path)));
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
    assert_eq!(world.probes.out.len(), 1, "one copy waits");
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
        assert!(!world.probes.take(Time(2), &forged, VERIFY));
    }
    assert_eq!(world.probes.health(&path(0)), PathHealth::Unknown);
    assert!(world.probes.take(Time(3), &probe, VERIFY));
    assert!(!world.probes.take(Time(4), &probe, VERIFY), "once");
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
    assert!(world.probes.take(Time(390_000), &first, VERIFY));
    assert_eq!(world.probes.health(&path(0)), PathHealth::Verified);
    let state = &world.probes.paths[&path(0)];
    assert_eq!(state.prompt, [Time(0); 3], "which is no prompt one");
    assert_eq!(state.copies_before(Time(0)), 0, "and nothing lost");
    assert_eq!(state.loss.patience(), LossRate::default().patience());
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
    while let Some(hearer) = world.probes.next_hearer() {
        heard.push((hearer.conn, hearer.finding, hearer.is_first_of));
        if heard.len() == 2 {
            // One that has gone meanwhile hears nothing.
            world.probes.unwatch(path, id(3));
        }
    }
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

/// As many pairs of paths as take seconds to be probed once.
const PAIRS: u16 = 433;

/// Of a pair, the path over one of two local ports.
fn path_of_pair(pair: u16, port: u8) -> ProbePath {
    ProbePath {
        port: PortId::new(Guid(1), port),
        slid: Lid(port.into()),
        dlid: Lid(0x100 + 2 * pair + u16::from(port)),
        ..path(0)
    }
}

impl World {
    fn of_pairs(pairs: u16) -> Self {
        let mut world = Self::new(0);
        for pair in 0..pairs {
            for port in [1, 2] {
                world.probes.watch(Time(0), path_of_pair(pair, port), CONN);
            }
        }
        world.run(20_000, |_| true);
        world
    }

    fn count(&self, port: u8, health: PathHealth) -> u16 {
        let healths = (0..PAIRS).map(|pair| self.probes.health(&path_of_pair(pair, port)));
        healths.filter(|of| *of == health).count() as u16
    }

    /// How many paths over the first port are to be left for the others of their pairs.
    fn left_for_others(&self) -> u16 {
        let is_left = |pair: &u16| {
            let [first, second] = [1, 2].map(|port| path_of_pair(*pair, port));
            self.probes.prefer(self.now, &second, &first)
        };
        (0..PAIRS).filter(is_left).count() as u16
    }
}

#[test]
fn all_paths_over_a_port_that_carries_nothing_are_suspect_within_a_second() {
    for phase in [0, 77, 1_234, 3_456] {
        let mut world = World::of_pairs(PAIRS);
        world.run(phase, |_| true);
        let hole = world.now;
        world.run(1_000, |path| path.port.port == 2);
        assert_eq!(world.count(1, PathHealth::Suspect), PAIRS);
        assert_eq!(world.count(2, PathHealth::Verified), PAIRS);
        assert_eq!(world.left_for_others(), PAIRS);
        assert_eq!(world.suspected(), usize::from(PAIRS), "each is told once");
        let new = path_of_pair(PAIRS, 1);
        assert_eq!(world.probes.health(&new), PathHealth::Suspect);
        world.probes.watch(world.now, new, CONN);
        assert_eq!(world.probes.health(&new), PathHealth::Suspect);
        // So it is while it lasts, and then each is asked again.
        world.run(20_000, |path| path.port.port == 2);
        assert_eq!(world.left_for_others(), PAIRS);
        for pair in 0..=PAIRS {
            let began = world.probes.paths[&path_of_pair(pair, 1)].began;
            assert!(
                hole <= began + REPEAT && began - hole < VERIFY,
                "with the port"
            );
        }
        world.run(9_000, |_| true);
        assert_eq!(world.count(1, PathHealth::Verified), PAIRS);
        assert_eq!(world.left_for_others(), 0);
        let unknown = path_of_pair(PAIRS + 1, 1);
        assert_eq!(world.probes.health(&unknown), PathHealth::Unknown);
    }
}

/// Nothing passes the first port: how long it takes from the first of its paths that is suspect to the last.
fn one_after_the_other(world: &mut World) -> Duration {
    let before = world.findings.len();
    world.run(5_000, |path| path.port.port == 2);
    let found = world.findings[before..].iter();
    let suspect: Vec<Time> = found
        .filter(|it| it.2 == Finding::Suspect)
        .map(|it| it.0)
        .collect();
    *suspect.last().expect("some") - suspect[0]
}

#[test]
fn a_port_is_not_judged_by_few_paths_nor_before_one_path_would_be() {
    let apart = Duration::from_millis(500);
    assert!(one_after_the_other(&mut World::of_pairs(15)) > apart);
    assert!(one_after_the_other(&mut World::of_pairs(20)) < apart);
    // It counts, too, what is usual.
    let mut world = World::of_pairs(20);
    let lossy = world
        .probes
        .paths
        .get_mut(&path_of_pair(3, 1))
        .expect("probed");
    (0..30).for_each(|_| lossy.loss.answered_after(2));
    assert!(one_after_the_other(&mut world) > apart);
    for phase in (0..500).step_by(37) {
        let mut world = World::of_pairs(PAIRS);
        world.run(phase, |_| true);
        world.run(360, |path| path.port.port == 2);
        assert_eq!(world.suspected(), 0, "0.4 s are no hole");
        world.run(10_000, |_| true);
        assert_eq!(world.suspected(), 0);
    }
}

#[test]
fn where_a_third_of_all_probes_is_lost_no_port_is_silent() {
    let mut world = World::of_pairs(100);
    let random = core::cell::RefCell::new(Random::new([3; 32]));
    let is_lucky = |_| random.borrow_mut().below(100) < 50;
    world.run(60_000, is_lucky);
    let before = world.suspected();
    world.run(300_000, is_lucky);
    for port in [1, 2] {
        assert!(world.count(port, PathHealth::Suspect) < 100);
    }
    assert!(world.suspected() - before < 50, "{}", world.suspected());
}

#[test]
fn silent_peers_do_not_make_the_paths_to_others_suspect() {
    for silent in [20, 300] {
        let mut world = World::of_pairs(PAIRS);
        let is_silent = |path: ProbePath| path.dlid.0 - 0x100 <= 2 * silent;
        world.run(20_000, |path| !is_silent(path));
        let is_other =
            |found: &(Time, ProbePath, Finding)| found.2 == Finding::Suspect && !is_silent(found.1);
        assert!(!world.findings.iter().any(is_other), "{silent} silent");
    }
}

/// Whether the path of a pair over the first port was suspect at any time.
fn was_suspect(world: &World, pair: u16) -> bool {
    let mut found = world.findings.iter();
    found.any(|it| (it.1, it.2) == (path_of_pair(pair, 1), Finding::Suspect))
}

/// Any user can have queue pairs that lead to LIDs without a port.
#[test]
fn paths_that_never_answered_make_no_port_silent() {
    for phase in (0..1_000).step_by(90) {
        let mut world = World::of_pairs(1);
        world.run(phase, |_| true);
        for pair in 1..=60 {
            world.probes.watch(world.now, path_of_pair(pair, 1), CONN);
        }
        world.run(5_000, |path| path == path_of_pair(0, path.port.port));
        assert!(!was_suspect(&world, 0), "{phase}");
    }
}

/// A switch with many hosts dies: the port carries packets to all others.
#[test]
fn peers_that_fall_silent_together_make_no_port_silent() {
    for (peers, others) in [(20, 1), (20, 5), (30, 1), (60, 30), (200, 200)] {
        for phase in (0..1_000).step_by(90) {
            let mut world = World::of_pairs(peers + others);
            world.run(phase, |_| true);
            world.run(5_000, |path| path.dlid.0 >= path_of_pair(peers, 0).dlid.0);
            for other in peers..peers + others {
                assert!(!was_suspect(&world, other), "{peers} {others} {phase}");
            }
        }
    }
}

#[test]
fn paths_that_peers_have_looked_at_all_the_time_leave_room_for_others() {
    let mut world = World::of_pairs(PAIRS);
    let before = world.left.len();
    for _ in 0..20_000 {
        for pair in 0..50 {
            world.probes.soon(world.now, &path_of_pair(pair, 1));
        }
        world.run(1, |_| true);
    }
    let left = &world.left[before..];
    for pair in 50..PAIRS {
        let path = path_of_pair(pair, 2);
        let count = left.iter().filter(|(_, left)| *left == path).count();
        assert!((2..=5).contains(&count), "pair {pair}: {count}");
    }
}

#[test]
fn a_host_that_nobody_answers_leaves_no_port() {
    let mut world = World::of_pairs(PAIRS);
    world.run(5_000, |_| false);
    assert_eq!(world.count(1, PathHealth::Suspect), PAIRS);
    assert_eq!(world.left_for_others(), 0);
    // Answers came back over both at once: which one is first tells nothing.
    world.run(50, |path| path.port.port == 2);
    assert_eq!(world.left_for_others(), 0);
}

#[test]
fn what_waited_for_room_makes_no_port_silent_when_it_leaves() {
    let mut world = World::of_pairs(100);
    for _ in 0..700 {
        world.now.0 += 1_000;
        world.probes.due(world.now, VERIFY);
    }
    let late: Vec<Probe> = core::iter::from_fn(|| world.probes.poll(|_| true)).collect();
    assert!(late.len() > 40, "{}", late.len());
    for _ in 0..50 {
        world.now.0 += 1_000;
        world.probes.due(world.now, VERIFY);
    }
    for probe in &late {
        world.probes.take(world.now, probe, VERIFY);
    }
    world.run(1_000, |_| true);
    assert_eq!(world.suspected(), 0);
}
