// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local ports with many paths, judged as a whole.

use super::*;

/// As many pairs of paths as take seconds to be probed once.
const PAIRS: u16 = 433;

/// Of a pair, the path over one of two local ports.
pub(super) fn path_of_pair(pair: u16, port: u8) -> ProbePath {
    ProbePath {
        port: PortId::new(Guid(1), port),
        slid: Lid(port.into()),
        dlid: Lid(0x100 + 2 * pair + u16::from(port)),
        ..path(0)
    }
}

impl World {
    pub(super) fn of_pairs(pairs: u16) -> Self {
        let mut world = Self::new(0);
        for pair in 0..pairs {
            for port in [1, 2] {
                world.probes.watch(Time(0), path_of_pair(pair, port), CONN);
            }
        }
        world.run(20_000, |_| true);
        world
    }

    pub(super) fn count(&self, port: u8, health: PathHealth) -> u16 {
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
    // It counts, too, what is usual for most.
    for (lossy, is_late) in [(3, false), (8, false), (12, true)] {
        let mut world = World::of_pairs(20);
        for pair in 0..lossy {
            let path = world.probes.paths.get_mut(&path_of_pair(pair, 1));
            let loss = &mut path.expect("probed").loss;
            (0..30).for_each(|_| loss.answered_after(2));
        }
        assert_eq!(one_after_the_other(&mut world) > apart, is_late, "{lossy}");
    }
    for phase in (0..500).step_by(37) {
        let mut world = World::of_pairs(PAIRS);
        world.run(phase, |_| true);
        world.run(360, |path| path.port.port == 2);
        assert_eq!(world.suspected(), 0, "0.4 s are no hole");
        world.run(10_000, |_| true);
        assert_eq!(world.suspected(), 0);
    }
}

/// The time that its paths have is longer where probes get lost, and many paths lose one before it is over.
#[test]
fn a_port_has_the_time_of_its_paths_however_many_have_lost_a_probe() {
    let mut world = World::of_pairs(PAIRS);
    for pair in 0..PAIRS {
        let path = world.probes.paths.get_mut(&path_of_pair(pair, 1));
        let loss = &mut path.expect("probed").loss;
        (0..30).for_each(|_| loss.answered_after(1));
    }
    world.run(1_000, |path| path.port.port == 2);
    assert_eq!(world.suspected(), 0);
    world.run(2_000, |path| path.port.port == 2);
    assert_eq!(world.count(1, PathHealth::Suspect), PAIRS);
}

#[test]
fn sixteen_other_far_ports_are_asked_before_a_port_is_silent() {
    let mut world = World::of_pairs(PAIRS);
    let port = path_of_pair(0, 1).port;
    while world.probes.tally.witnesses(port).is_none() {
        assert_eq!(world.suspected(), 0);
        world.run(1, |path| path.port.port == 2);
    }
    let witnesses = world.probes.tally.witnesses(port);
    assert_eq!(witnesses.map(<[ProbePath]>::len), Some(16));
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
        world
            .probes
            .take(world.now, probe, Answerer::Daemon, VERIFY);
    }
    world.run(1_000, |_| true);
    assert_eq!(world.suspected(), 0);
}

/// As connections see it that have their alternates over the silent port.
#[test]
fn a_port_is_preferred_to_a_silent_one_while_it_is_answered() {
    let [first, second] = [1, 2].map(|port| PortId::new(Guid(1), port));
    let prefers = |world: &World| {
        let prefer = |one, other| world.probes.prefer_port(world.now, one, other);
        [prefer(second, first), prefer(first, second)]
    };
    let mut world = World::of_pairs(40);
    assert_eq!(prefers(&world), [false, false]);
    world.run(2_500, |path| path.port == second);
    assert_eq!(prefers(&world), [true, false]);
    world.run(5_000, |_| true);
    assert_eq!(prefers(&world), [false, false]);
}

/// Paths are suspect with their port. Of each its users hear of a loss only when it has lost a probe of its own.
#[test]
fn no_path_over_a_silent_port_has_lost_a_probe_before_one_was_sent() {
    let mut world = World::of_pairs(100);
    let hole = world.now;
    world.run(4_000, |path| path.port.port == 2);
    let still = world
        .findings
        .iter()
        .filter(|it| it.2 == Finding::StillSuspect);
    let mut count = 0;
    for &(at, path, _) in still {
        let sent = |&&(left, of): &&(Time, ProbePath)| of == path && hole < left && left < at;
        assert!(world.left.iter().any(|left| sent(&left)), "{path:?} {at:?}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// Until a port's probe that was sent later is lost, too, its silence and the other's answer may have one cause.
#[test]
fn the_first_answer_by_another_port_is_no_reason_to_prefer_it() {
    let [first, second] = [1, 2].map(|port| PortId::new(Guid(1), port));
    let prefers = |world: &World| world.probes.prefer_port(world.now, second, first);
    for phase in [0, 30, 60, 90] {
        let mut world = World::of_pairs(40);
        world.run(phase, |_| true);
        world.run(3_000, |_| false);
        let mut answered = None;
        while answered.is_none_or(|at| world.now - at < Duration::from_millis(95)) {
            world.run(1, |path| path.port == second);
            if answered.is_none() && world.count(2, PathHealth::Verified) > 0 {
                answered = Some(world.now);
            }
            assert!(!prefers(&world), "{answered:?} {:?}", world.now);
        }
        // In a second each path is probed once.
        world.run(1_000, |path| path.port == second);
        assert!(prefers(&world));
    }
}

/// What was lost before the port carried its last probe tells nothing of it.
#[test]
fn a_port_is_silent_since_its_own_first_loss_whatever_peers_were_silent_before() {
    let mut world = World::of_pairs(80);
    let dead = path_of_pair(30, 0).dlid;
    world.run(10_000, |path| path.dlid > dead);
    let hole = world.now;
    world.run(2_500, |path| path.port.port == 2 && path.dlid > dead);
    let silent = world.probes.tally.silent_since(PortId::new(Guid(1), 1));
    assert!(silent.is_some_and(|since| hole <= since + Duration::from_millis(5)));
}

/// A switch with nearly all hosts dies. Answers of the only other one take some time.
#[test]
fn a_port_is_not_silent_while_answers_of_its_witnesses_may_be_under_way() {
    const LATENCY: Duration = Duration::from_millis(60);
    for phase in (0..1_000).step_by(90) {
        let mut world = World::of_pairs(31);
        world.run(phase, |_| true);
        let mut under_way = VecDeque::new();
        for _ in 0..3_000 {
            world.now.0 += 1_000;
            world.probes.due(world.now, VERIFY);
            while let Some(probe) = world.probes.poll(|_| true) {
                under_way.push_back((world.now + LATENCY, probe));
            }
            while let Some((_, probe)) = under_way.pop_front_if(|it| it.0 <= world.now) {
                if probe.path.dlid >= path_of_pair(30, 1).dlid {
                    world
                        .probes
                        .take(world.now, &probe, Answerer::Daemon, VERIFY);
                }
            }
            let other = world.probes.health(&path_of_pair(30, 1));
            assert_ne!(other, PathHealth::Suspect, "{phase}");
        }
        assert_eq!(world.count(1, PathHealth::Suspect), 30);
    }
}

/// One far port has as many paths as there are pairs of LIDs, service levels and partitions, for a user with some hundred
/// connections to a host of his own.
#[test]
fn one_far_port_with_many_paths_makes_no_local_port_silent() {
    const HONEST: u16 = 30;
    const FAR: u16 = 0x8000;
    for lmc in [0, 3] {
        let mut judged = 0;
        for phase in (0..3_000).step_by(300) {
            let mut world = World::of_pairs(HONEST);
            let port = PortId::new(Guid(1), 1);
            world.probes.set_lmc(port, Some(lmc));
            for number in 0..512_u16 {
                let path = ProbePath {
                    port,
                    slid: Lid(8 + number % 8),
                    dlid: Lid(FAR + number / 8 % 8 % (1 << lmc)),
                    sl: (number / 64 % 8) as u8,
                    pkey: PKey(0x8001 + number / 8 % 8),
                };
                world.probes.watch(world.now, path, CONN);
            }
            world.run(20_000 + phase, |_| true);
            world.run(5_000, |path| path.dlid.0 < FAR);
            let suspect = (0..HONEST).filter(|pair| was_suspect(&world, *pair));
            judged += usize::from(suspect.count() > 0);
        }
        assert_eq!(judged, 0, "LMC {lmc}: times of 10");
    }
}
