// SPDX-License-Identifier: MIT OR Apache-2.0
//! What those who use a path may ask of it.

use super::*;

/// A sender may use any LID of its port, and none of its neighbours'.
#[test]
fn where_paths_lead_is_found_by_their_lids_whatever_their_service_levels_and_partitions() {
    for sl in [0, 3] {
        let mut world = World::new(0);
        let pkey = PKey(0x8005);
        let used = ProbePath {
            sl,
            pkey,
            ..path(0)
        };
        world.probes.watch(Time(0), used, CONN);
        let lid = |from: Lid, by: i16| Lid(from.0.wrapping_add_signed(by));
        let leads = |slid, first, last| {
            let far = lid(used.dlid, first)..=lid(used.dlid, last);
            world.probes.leads_to(used.port, slid, &far)
        };
        assert!(leads(used.slid, 0, 0) && leads(used.slid, -3, 0) && leads(used.slid, 0, 3));
        assert!(!leads(used.slid, 1, 3) && !leads(used.slid, -3, -1));
        assert!(!leads(lid(used.slid, 1), 0, 0) && !leads(lid(used.slid, -1), 0, 0));
    }
}

/// 18 copies in a row tell a hole from chance, and they are not to be lost because a queue is too short for them.
#[test]
fn copies_over_a_suspect_path_that_is_pressed_are_34_ms_apart() {
    let mut world = World::new(1);
    world.run(2_000, |_| true);
    while world.probes.health(&path(0)) != PathHealth::Suspect {
        world.run(1, |_| false);
    }
    let before = world.left.len();
    for _ in 0..200 {
        world.probes.press(world.now, &path(0));
        world.run(1, |_| false);
    }
    let times: Vec<Time> = world.left[before..].iter().map(|(at, _)| *at).collect();
    assert!((5..=6).contains(&times.len()), "{times:?}");
    let apart = |pair: &[Time]| pair[1] - pair[0] >= CLOSER;
    assert!(times.windows(2).all(apart), "{times:?}");
}

/// Of the others nobody wants to know: there is one for each path and second.
#[test]
fn users_hear_of_the_first_answer_after_a_loss() {
    let mut world = World::new(1);
    world.run(5_000, |_| true);
    assert_eq!(world.findings.len(), 1, "the first of all");
    while world.probes.paths[&path(0)].unanswered < 3 {
        world.run(1, |_| false);
    }
    world.run(5_000, |_| true);
    let found: Vec<Finding> = world.findings.iter().map(|it| it.2).collect();
    let was_suspect = false;
    assert_eq!(found[1..], [Finding::Loss, Finding::Answer { was_suspect }]);
}

/// A copy that waits for room is not needed any more when an earlier one is answered. Those of other paths are.
#[test]
fn an_answer_takes_back_the_copy_of_its_own_path_that_waits() {
    let mut world = World::new(2);
    world.probes.due(Time(0), VERIFY);
    let sent: Vec<Probe> = core::iter::from_fn(|| world.probes.poll(|_| true)).collect();
    world.probes.due(Time(100_000), VERIFY);
    assert!(
        world
            .probes
            .take(Time(101_000), &sent[0], Answerer::Daemon, VERIFY)
    );
    let left = core::iter::from_fn(|| world.probes.poll(|_| true));
    let left: Vec<ProbePath> = left.map(|probe| probe.path).collect();
    assert_eq!(left, [sent[1].path]);
}
