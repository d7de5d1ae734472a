// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two paths tell of each other.

use super::*;

/// One path is suspect, and another one was answered since it lost its first probe.
fn one_is_lost() -> World {
    let mut world = World::new(2);
    world.run(3_000, |_| true);
    world.run(2_500, |of| of == path(1));
    assert_eq!(world.probes.health(&path(0)), PathHealth::Suspect);
    world
}

/// Neither has answered since the same moment.
fn both_are_lost() -> World {
    let mut world = World::new(2);
    world.run(3_000, |_| true);
    world.run(2_500, |_| false);
    for number in [0, 1] {
        assert_eq!(world.probes.health(&path(number)), PathHealth::Suspect);
    }
    world
}

#[test]
fn a_path_that_was_answered_while_another_was_lost_has_outlasted_it_for_some_seconds() {
    let outlasts = |world: &World, one, other| {
        let [one, other] = [one, other].map(path);
        world.probes.outlasts(world.now, &one, &other)
    };
    let mut world = one_is_lost();
    assert!(outlasts(&world, 1, 0));
    assert!(!outlasts(&world, 0, 1), "that one is not lost");
    world.run(3_500, |_| false);
    assert!(outlasts(&world, 1, 0), "though it is lost by now");
    world.run(2_000, |_| false);
    assert!(!outlasts(&world, 1, 0), "that was long ago");
    let world = both_are_lost();
    assert!(!outlasts(&world, 1, 0) && !outlasts(&world, 0, 1));
}

#[test]
fn paths_that_are_lost_at_the_same_time_fell_together_for_some_seconds() {
    let together = |world: &World| {
        let [one, other] = [0, 1].map(path);
        world.probes.fell_together(world.now, &one, &other)
            && world.probes.fell_together(world.now, &other, &one)
    };
    let mut world = both_are_lost();
    assert!(together(&world));
    world.run(3_000, |_| false);
    assert!(!together(&world), "that was long ago");
    let mut world = World::new(2);
    world.run(3_000, |_| true);
    while world.probes.health(&path(0)) != PathHealth::Suspect {
        world.run(1, |of| of == path(1));
    }
    for numbers in [[0, 1], [1, 0]] {
        let [one, other] = numbers.map(path);
        assert!(!world.probes.fell_together(world.now, &one, &other));
    }
    world.run(2_000, |of| of == path(1));
    while world.probes.health(&path(1)) != PathHealth::Suspect {
        world.run(1, |_| false);
    }
    let since = [0, 1].map(|number| world.probes.paths[&path(number)].began);
    assert!(world.now - since[0] < Duration::from_secs(5) && since[0] < since[1]);
    assert!(!together(&world), "one after the other");
}

/// While it waited for room the other path was answered, which tells nothing of it.
#[test]
fn a_probe_counts_from_when_it_leaves_its_port() {
    let mut world = World::new(0);
    let other = ProbePath {
        port: PortId::new(Guid(1), 2),
        ..path(1)
    };
    for path in [path(0), other] {
        world.probes.watch(Time(0), path, CONN);
    }
    world.run(3_000, |_| true);
    world.probes.hasten(world.now, &path(0));
    for ms in 0..300 {
        if ms == 150 {
            world.probes.hasten(world.now, &other);
        }
        world.now.0 += 1_000;
        world.probes.due(world.now, VERIFY);
        while let Some(probe) = world.probes.poll(|port| port == other.port) {
            assert!(
                world
                    .probes
                    .take(world.now, &probe, Answerer::Daemon, VERIFY)
            );
        }
    }
    while world.probes.health(&path(0)) != PathHealth::Suspect {
        world.run(1, |of| of == other);
    }
    assert!(!world.probes.prefer(world.now, &other, &path(0)));
    world.run(1_500, |of| of == other);
    assert!(world.probes.prefer(world.now, &other, &path(0)));
}

/// Copies of the suspect path are sent faster only while the other path loses some: then they cost nothing that would
/// tell more.
#[test]
fn what_the_other_paths_answers_tell_changes_with_each_of_them() {
    let mut world = one_of_two_is_suspect();
    let mut told = Vec::new();
    for _ in 0..4 {
        world.probes.hasten(world.now, &path(1));
        world.run(2, |of| of == path(1));
        told.push(silence(&world));
    }
    let (chance, open) = (Silence::PerhapsChance, Silence::Unexplained);
    assert_eq!(told, [chance, open, open, Silence::Hole]);
}
