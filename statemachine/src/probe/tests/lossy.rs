// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that lose many of their probes.

use super::*;

const MAX: u16 = crate::probe::lossy::MAX_PATHS as u16;

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
    let numbers = 0..MAX + 1;
    let mut world = lossy(numbers.clone());
    let remembered = |world: &Probes| world.lossy.len();
    for number in numbers.clone().take(usize::from(MAX)) {
        world.probes.unwatch(path(number), CONN);
    }
    assert_eq!(remembered(&world.probes), usize::from(MAX));
    world.probes.unwatch(path(MAX), CONN);
    assert_eq!(remembered(&world.probes), usize::from(MAX));
}

/// One far port has as many paths as there are pairs of LIDs, service levels and partitions.
#[test]
fn a_peer_with_many_lossy_paths_does_not_make_those_of_others_forgotten() {
    // LIDs from 0x180 on are of one port, 0x100 to 0x17f of another one. It is not their order that counts.
    for (few, many) in [(0..100, 0x80..0x100), (0x80..0xe4, 0..0x80)] {
        let mut world = lossy(0..MAX + 256);
        let port = path(0).port;
        world.probes.set_lmc(port, Some(7));
        let mut number = 0;
        for path in few.clone().map(path) {
            world.probes.unwatch(path, CONN);
        }
        for dlid in many.cycle().take(20 * 0x80) {
            let of = ProbePath {
                sl: (number / 0x80) as u8,
                ..path(dlid)
            };
            number += 1;
            world.probes.watch(Time(0), of, CONN);
            let state = world.probes.paths.get_mut(&of).expect("probed");
            (0..30).for_each(|_| state.loss.answered_after(1));
            world.probes.unwatch(of, CONN);
        }
        assert_eq!(world.probes.lossy.len(), usize::from(MAX));
        let is_known = |path| world.probes.lossy.contains(&path);
        assert!(few.map(path).all(is_known));
    }
}
