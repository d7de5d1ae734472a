// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paths to one far port may cost those to others.

use super::ports::path_of_pair;
use super::*;

/// Paths to one far port with LMC 3, as many as there are pairs of LIDs and eight service levels.
const MANY: u16 = 512;
const FAR: u16 = 0x8000;

/// One of the paths to that far port, over the first local port.
fn path_of_many(number: u16) -> ProbePath {
    ProbePath {
        port: PortId::new(Guid(1), 1),
        slid: Lid(8 + number % 8),
        dlid: Lid(FAR + number / 8 % 8),
        sl: (number / 64) as u8,
        pkey: PKey::DEFAULT_FULL,
    }
}

fn is_of_many(path: &ProbePath) -> bool {
    path.dlid.0 >= FAR
}

impl World {
    /// These pairs, and `many` paths to one far port.
    fn beside(pairs: u16, many: u16) -> Self {
        let mut world = Self::of_pairs(pairs);
        for port in [1, 2] {
            let port = PortId::new(Guid(1), port);
            world.probes.set_lmc(port, Some(3));
        }
        world.watch_many(many);
        world
    }

    fn watch_many(&mut self, many: u16) {
        for number in 0..many {
            self.probes.watch(self.now, path_of_many(number), CONN);
        }
    }

    /// How long it takes until the second path of the first pair is suspect, which carries nothing from now on.
    fn find_hole(&mut self, answers: impl Fn() -> bool) -> u64 {
        let hole = self.now;
        let path = path_of_pair(0, 2);
        while self.probes.health(&path) != PathHealth::Suspect {
            assert!(self.now - hole < VERIFY * 120, "not within two minutes");
            self.run(5, |of| match is_of_many(&of) {
                true => answers(),
                false => of != path,
            });
        }
        (self.now - hole).as_millis() as u64
    }
}

/// How long it takes at most until a hole of one path is found, in milliseconds, beside paths of other pairs and so
/// many of one far port; `answers` tells which probes of these are answered.
fn hole_beside(pairs: u16, many: u16, answers: impl Fn() -> bool) -> u64 {
    let phases = (0..1_000).step_by(250);
    let times = phases.map(|phase| {
        let mut world = World::beside(pairs, many);
        world.run(20_000, |_| true);
        world.run(20_000 + phase, |path| !is_of_many(&path) || answers());
        world.find_hole(&answers)
    });
    times.max().unwrap_or_default()
}

/// A peer that answers one probe of several has copies of all its probes sent all the time. A path to another far port is
/// found to be a hole as soon as if that peer had none.
#[test]
fn a_peer_that_answers_few_probes_does_not_delay_the_finding_of_anothers_hole() {
    let random = core::cell::RefCell::new(Random::new([5; 32]));
    let answers = || random.borrow_mut().below(6) == 0;
    for pairs in [1, 30] {
        let alone = hole_beside(pairs, 0, || true);
        let calm = hole_beside(pairs, MANY, || true);
        let among = hole_beside(pairs, MANY, answers);
        let silent = hole_beside(pairs, MANY, || false);
        for time in [calm, among, silent] {
            assert!(4 * time <= 5 * alone, "{time} ms, alone {alone} ms");
        }
    }
}

/// A user may open many connections at once.
#[test]
fn many_new_paths_to_one_far_port_do_not_delay_the_probes_of_others() {
    let mut world = World::beside(1, 0);
    world.watch_many(MANY);
    world.run(1_000, |_| true);
    let [first, second] = [1, 2].map(|port| path_of_pair(0, port));
    world.probes.hasten(world.now, &first);
    let new = path_of_pair(1, 2);
    world.probes.watch(world.now, new, CONN);
    let before = world.left.len();
    world.run(1_000, |_| true);
    for path in [first, second, new] {
        let place = world.left[before..].iter().position(|left| left.1 == path);
        assert!(place.is_some(), "{path:?}");
        assert!(path == second || place < Some(4), "{path:?}: {place:?}");
    }
}

/// Copies wait for room, too: a port that has little of it sends those of all far ports by turns.
#[test]
fn what_waits_for_room_leaves_by_turns_over_far_ports() {
    let mut world = World::beside(2, MANY);
    for _ in 0..2_000 {
        world.now.0 += 1_000;
        world.probes.due(world.now, VERIFY);
    }
    let left = core::iter::from_fn(|| world.probes.poll(|port| port.port == 1));
    let left: Vec<ProbePath> = left.map(|probe| probe.path).collect();
    assert!(left.len() > 300, "{}", left.len());
    for pair in 0..2 {
        let place = left.iter().position(|path| *path == path_of_pair(pair, 1));
        assert!(place < Some(4), "{place:?}");
    }
}

/// How long it takes until all paths of the pairs over the first local port are suspect, which carries nothing from now
/// on.
fn silence_found(world: &mut World, pairs: u16) -> u64 {
    let hole = world.now;
    while world.count(1, PathHealth::Suspect) < pairs {
        assert!(world.now - hole < VERIFY * 10, "not within ten seconds");
        world.run(5, |of| of.port.port == 2);
    }
    (world.now - hole).as_millis() as u64
}

/// How long it takes at most until a local port is found to be silent, if one far port is `slow` in some way.
fn silent_port_beside(pairs: u16, many: u16, slow: impl Fn(&mut PathState)) -> u64 {
    let phases = (0..1_000).step_by(250);
    let times = phases.map(|phase| {
        let mut world = World::beside(pairs, many);
        world.run(20_000 + phase, |_| true);
        for number in 0..many {
            let path = path_of_many(number);
            slow(world.probes.paths.get_mut(&path).expect("probed"));
        }
        silence_found(&mut world, pairs)
    });
    times.max().unwrap_or_default()
}

/// A peer may answer late, or few probes. Others judge the local port by their own.
#[test]
fn one_far_port_does_not_delay_the_finding_of_a_silent_local_port() {
    for pairs in [20, 60] {
        let alone = silent_port_beside(pairs, 0, |_| ());
        for many in [1, MANY] {
            let calm = silent_port_beside(pairs, many, |_| ());
            let late = silent_port_beside(pairs, many, |path| path.lateness.answered_after(REPEAT));
            let is_lossy = |path: &mut PathState| (0..30).for_each(|_| path.loss.answered_after(2));
            let lossy = silent_port_beside(pairs, many, is_lossy);
            for time in [calm, late, lossy] {
                assert!(4 * time <= 5 * alone, "{time} ms, alone {alone} ms");
            }
        }
    }
}

#[test]
fn of_a_port_that_is_gone_nothing_is_kept_but_what_waits_to_leave() {
    let mut world = World::new(1);
    let port = path(0).port;
    world.probes.due(world.now, VERIFY);
    world.probes.set_lmc(port, None);
    assert!(world.probes.poll(|_| true).is_some(), "the port came again");
    assert_eq!(world.probes.out.len(), 1);
    world.probes.set_lmc(port, None);
    assert!(world.probes.out.is_empty());
}
