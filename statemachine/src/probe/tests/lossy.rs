// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that lose many of their probes.

use super::*;

/// Of each of these paths, half of the probes are lost.
fn lossy(numbers: core::ops::Range<u16>) -> World {
    let mut world = World::new(0);
    for number in numbers {
        world.probes.watch(Time(0), path(number), CONN);
        let state = world.probes.paths.get_mut(&path(number)).expect("probed");
        (0..30).for_each(|_| state.loss.answered_after(1));
        assert!(world.probes.is_lossy(&path(number)));
    }
    world
}

/// An association is opened again just when many MADs get lost.
#[test]
fn a_path_that_is_not_used_for_a_while_is_remembered_as_lossy() {
    let mut world = lossy(0..1);
    let patience = world.probes.paths[&path(0)].loss.patience();
    world.probes.unwatch(path(0), CONN);
    world.run(60_000, |_| true);
    world.probes.watch(world.now, path(0), CONN);
    assert!(world.probes.is_lossy(&path(0)));
    assert_eq!(world.probes.paths[&path(0)].loss.patience(), patience);
}

/// A peer may name any number of LIDs.
#[test]
fn as_many_lossy_paths_are_remembered_as_fit_and_no_more() {
    let numbers = 0..MAX_LOSSY as u16 + 1;
    let mut world = lossy(numbers.clone());
    let remembered = |world: &Probes| world.lossy.len();
    for number in numbers.clone().take(MAX_LOSSY) {
        world.probes.unwatch(path(number), CONN);
    }
    assert_eq!(remembered(&world.probes), MAX_LOSSY);
    world.probes.unwatch(path(MAX_LOSSY as u16), CONN);
    assert_eq!(remembered(&world.probes), MAX_LOSSY);
}
