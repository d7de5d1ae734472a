// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that look fine and carry nothing.

use std::time::Duration;

use cm_msgs::Lid;
use cm_msgs::path::Path;
use statemachine::trace::What;
use statemachine::view::{Grade, Protection, Reason};
use statemachine::{Answerer, Command, Config, Input, PathHealth, Probe};

use super::pair::{ACTIVE, Cable, Fabric, PASSIVE, Pair, PortOf, Weather, seeds, shared};

/// A probe of each path, and four lost 100 ms apart, in milliseconds.
const NOTICED: u64 = 1_400;

/// Hardware's retries take for ever, or nearly: the applications send nothing.
fn idle(seed: u64) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.run(2_000);
    pair.set_traffic(false);
    pair
}

fn ordered(pair: &Pair, host: usize) -> (u32, u32) {
    let counters = pair.view(host).counters;
    (counters.migrations, counters.ordered_migrations)
}

fn alternate(pair: &Pair, host: usize) -> Path {
    pair.qp(host).alternate.expect("loaded")
}

fn grade(pair: &Pair, host: usize) -> Option<Grade> {
    pair.view(host).grade
}

#[test]
fn a_black_holed_alternate_is_noticed_and_replaced() {
    for port in [(ACTIVE, 2), (PASSIVE, 2)] {
        let mut pair = Pair::armed(1);
        pair.run(2_000);
        assert_eq!(grade(&pair, ACTIVE), Some(Grade::Full));
        assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (2, (PASSIVE, 2)));
        pair.black_hole(port.0, port.1);
        pair.run(NOTICED + 600);
        pair.assert_armed();
        let (local, remote) = Pair::rails(&alternate(&pair, ACTIVE));
        assert!((ACTIVE, local) != port && remote != port, "{port:?}");
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(ordered(&pair, host), (0, 0), "the primary is fine");
            assert_eq!(grade(&pair, host), Some(Grade::SamePort));
        }
        pair.plug(port.0, port.1);
        pair.run(3_000);
        assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (2, (PASSIVE, 2)));
        assert_eq!(grade(&pair, ACTIVE), Some(Grade::Full));
        pair.assert_armed();
    }
}

/// Makes the primary of an idle connection carry nothing: only probes can tell.
fn hole(port: PortOf, cable: Cable) -> Pair {
    let mut pair = idle(2);
    *pair.net.cable(port) = cable;
    pair.run(NOTICED + 20);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.qp(host).primary.port, 2, "{port:?} {cable:?}");
        assert_eq!(ordered(&pair, host), (1, 1), "by order, on both ends");
    }
    pair
}

#[test]
fn a_black_holed_primary_is_left_by_order_at_both_ends() {
    for port in [(ACTIVE, 1), (PASSIVE, 1)] {
        let mut pair = hole(port, Cable::BlackHole);
        pair.set_traffic(true);
        pair.run(1_500);
        pair.assert_armed();
        let (local, remote) = Pair::rails(&alternate(&pair, ACTIVE));
        assert!((ACTIVE, local) != port && remote != port);
    }
}

/// An active end with very many paths probes each of them seldom. The peer, which has fewer, has it look.
#[test]
fn what_a_passive_end_finds_is_looked_at_by_the_active_one() {
    let seldom = || Config {
        verify: Duration::from_secs(300),
        ..Config::default()
    };
    let mut pair = Pair::armed(6);
    pair.configure(ACTIVE, seldom());
    // Until the probes of the interval before are over.
    pair.run(2_000);
    pair.black_hole(PASSIVE, 2);
    pair.run(2 * NOTICED);
    pair.assert_armed();
    assert_ne!(Pair::rails(&alternate(&pair, ACTIVE)).1, (PASSIVE, 2));
    let mut pair = idle(6);
    pair.configure(ACTIVE, seldom());
    pair.run(2_000);
    pair.black_hole(PASSIVE, 1);
    pair.run(2 * NOTICED);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(ordered(&pair, host), (1, 1), "by order, on both ends");
    }
}

#[test]
fn the_local_port_that_nothing_passes_is_known() {
    for (port, number) in [((ACTIVE, 1), 1), ((ACTIVE, 2), 2)] {
        let mut pair = idle(2);
        let suspect = |pair: &Pair| {
            let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
            [1, 2].map(|number| engine.is_suspect_port(pair.hosts[ACTIVE].port_id(number)))
        };
        assert_eq!(suspect(&pair), [false; 2]);
        pair.black_hole(port.0, port.1);
        pair.run(NOTICED + 20);
        assert_eq!(suspect(&pair), [number == 1, number == 2]);
        let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
        assert_ne!(engine.counters().paths_suspected, 0);
    }
}

#[test]
fn so_is_one_that_carries_one_direction_only() {
    for port in [(ACTIVE, 1), (PASSIVE, 1)] {
        hole(port, Cable::Mute);
    }
}

#[test]
fn a_primary_is_not_left_for_an_alternate_that_carries_nothing_either() {
    let mut pair = idle(3);
    for port in [1, 2] {
        pair.black_hole(PASSIVE, port);
    }
    pair.run(20_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(ordered(&pair, host), (0, 0));
        let view = pair.view(host);
        assert_eq!(view.alternate_probe.health, PathHealth::Suspect, "{host}");
        assert_ne!(view.protection, Protection::Armed, "{view:#?}");
    }
}

#[test]
fn a_daemon_that_stands_still_is_no_hole() {
    for stopped_ms in [50, 250, 450, 900, 1_500, 4_000] {
        let mut pair = idle(4);
        pair.hosts[PASSIVE].stopped = true;
        pair.run(stopped_ms);
        pair.hosts[PASSIVE].stopped = false;
        pair.run(5_000);
        assert_eq!(ordered(&pair, ACTIVE), (0, 0), "{stopped_ms} ms");
        pair.set_traffic(true);
        pair.run(2_000);
        pair.assert_armed();
    }
}

#[test]
fn a_peer_without_apmd_is_never_suspect() {
    let mut pair = Pair::new(5);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.run(20_000);
    pair.black_hole(PASSIVE, 1);
    pair.run(60_000);
    assert_eq!(pair.hosts[ACTIVE].probes, 0, "nobody would speak");
    let view = pair.view(ACTIVE);
    assert_eq!(view.primary_probe.health, PathHealth::Unknown);
    let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
    assert_eq!(engine.counters().paths_suspected, 0);
}

#[test]
fn a_peer_whose_apmd_is_killed_still_has_a_kernel_that_answers() {
    let mut pair = Pair::armed(6);
    pair.kill(PASSIVE);
    pair.run(60_000);
    let view = pair.view(ACTIVE);
    assert_eq!(view.primary_probe.health, PathHealth::Verified);
    assert_eq!(ordered(&pair, ACTIVE), (0, 0));
    let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
    assert_eq!(engine.counters().paths_suspected, 0);
}

#[test]
fn mads_that_get_lost_at_random_move_nothing() {
    seeds(20, |seed| {
        let mut pair = Pair::armed(seed);
        pair.net.weather = Weather {
            loss: 100,
            ..Weather::FAIR
        };
        pair.run(120_000);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(ordered(&pair, host), (0, 0), "host {host}");
        }
        pair.assert_armed();
    });
}

#[test]
fn connections_that_share_their_paths_share_their_probes() {
    let probes = |connections: usize| {
        let mut pair = Pair::with(7, 0, connections);
        pair.begin();
        pair.run(3_000);
        pair.assert_armed();
        let before = pair.hosts[ACTIVE].probes;
        pair.run(10_000);
        let sent = pair.hosts[ACTIVE].probes - before;
        pair.close(ACTIVE);
        pair.run(1_000);
        let before = pair.hosts[ACTIVE].probes;
        pair.run(10_000);
        assert_eq!(
            pair.hosts[ACTIVE].probes, before,
            "none without connections"
        );
        sent
    };
    let (one, many) = (probes(1), probes(50));
    assert!((20..=32).contains(&one), "{one} for two paths in 10 s");
    assert!((20..=32).contains(&many), "{many} for fifty connections");
}

#[test]
fn a_full_send_queue_makes_no_path_suspect() {
    let mut pair = Pair::armed(8);
    pair.run(2_000);
    pair.set_full(ACTIVE, 1, true);
    pair.set_full(ACTIVE, 2, true);
    pair.run(10_000);
    assert_eq!(ordered(&pair, ACTIVE), (0, 0));
    pair.set_full(ACTIVE, 1, false);
    pair.set_full(ACTIVE, 2, false);
    pair.run(2_000);
    pair.assert_armed();
    let engine = pair.hosts[ACTIVE].engine.as_ref().expect("runs");
    assert_eq!(engine.counters().paths_suspected, 0);
}

#[test]
fn a_path_that_carries_nothing_is_not_proposed() {
    let mut pair = Pair::new(9);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.black_hole(PASSIVE, 2);
    pair.set_traffic(true);
    pair.run(3_000);
    pair.assert_armed();
    let proposed = pair.traces(ACTIVE).filter_map(|trace| match trace.what {
        What::LapSent(path) => Some(path.dlid),
        _ => None,
    });
    let hole = super::pair::base_lid((PASSIVE, 2));
    let proposed: Vec<Lid> = proposed.collect();
    assert!(!proposed.contains(&hole), "{proposed:?}");
    assert_eq!(grade(&pair, ACTIVE), Some(Grade::SamePort));
}

#[test]
fn what_no_probe_asked_for_verifies_nothing() {
    let mut pair = idle(10);
    pair.black_hole(PASSIVE, 2);
    // From the first loss on, somebody answers for the path with every number but the right one.
    for round in 0..3_000 {
        pair.run(1);
        let path = alternate(&pair, ACTIVE);
        let forged = Probe {
            path: statemachine::ProbePath {
                port: pair.hosts[ACTIVE].port_id(path.port),
                slid: path.slid,
                dlid: path.dlid,
                sl: path.sl,
                pkey: path.pkey,
            },
            transaction_id: round,
        };
        pair.hear(ACTIVE, Input::Probed(forged, Answerer::Daemon));
    }
    let (local, remote) = Pair::rails(&alternate(&pair, ACTIVE));
    assert_ne!(
        (local, remote),
        (2, (PASSIVE, 2)),
        "it was noticed all the same"
    );
}

#[test]
fn it_is_told_why_a_connection_with_a_dead_alternate_is_not_armed() {
    let mut pair = Pair::armed(11);
    pair.run(2_000);
    pair.sa_dead = true;
    pair.black_hole(PASSIVE, 2);
    pair.run(NOTICED + 1_000);
    let view = pair.view(PASSIVE);
    assert_eq!(view.protection, Protection::Unprotected);
    assert_eq!(view.reason, Some(Reason::AlternateSuspect));
    assert_eq!(view.grade, None);
    let suspected = |trace: &&statemachine::Trace| matches!(trace.what, What::PathSuspect { .. });
    assert!(pair.traces(PASSIVE).any(|trace| suspected(&trace)));
}

/// The primary is a hole. The alternate was one until just now, so that probes suspect it and not the primary yet, of
/// which the last one came back; hardware, which leaves the primary for it, knows better.
#[test]
fn probes_that_are_late_do_not_send_a_connection_back_to_where_hardware_has_left() {
    seeds(20, |seed| {
        let mut pair = Pair::armed(seed);
        pair.run(2_000);
        for host in [ACTIVE, PASSIVE] {
            pair.black_hole(host, 2);
        }
        pair.run(5_000 + seed * 37);
        for host in [ACTIVE, PASSIVE] {
            *pair.net.cable((host, 2)) = Cable::Plugged;
            pair.black_hole(host, 1);
        }
        pair.run(4_000);
        for host in [ACTIVE, PASSIVE] {
            assert!(pair.is_alive(host), "host {host}");
            assert_eq!(pair.view(host).counters.migrations, 1, "host {host}");
        }
    });
}

/// A port whose send queue stays full sends no probe. The path is then proposed untested.
#[test]
fn without_an_alternate_a_path_that_cannot_be_probed_is_proposed_all_the_same() {
    let mut pair = Pair::new(12);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.set_full(host, 2, true);
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(400);
    assert_eq!(pair.hosts[ACTIVE].sent("LAP"), 0, "a probe would tell");
    pair.run(2_000);
    assert!(pair.is_armed());
    assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (2, (PASSIVE, 2)));
}

#[test]
fn when_a_silent_peer_answers_over_the_alternate_the_primary_is_asked_at_once() {
    for host in [ACTIVE, PASSIVE] {
        let first = std::cell::Cell::new(0);
        seeds(20, |seed| {
            let mut pair = idle(seed);
            pair.hosts[1 - host].stopped = true;
            pair.run(5_000 + 37 * seed);
            pair.hosts[1 - host].stopped = false;
            let verified = |pair: &Pair| {
                let view = pair.view(host);
                [view.primary_probe, view.alternate_probe]
                    .map(|probe| probe.health == PathHealth::Verified)
            };
            assert_eq!(verified(&pair), [false; 2]);
            while verified(&pair) == [false; 2] {
                pair.run_us(20);
            }
            if verified(&pair) == [false, true] {
                first.set(first.get() + 1);
                pair.run(1);
                assert_eq!(verified(&pair), [true; 2], "host {host}, seed {seed}");
            }
        });
        let first = first.get();
        assert!(first > 3, "the alternate was first {first} times");
    }
}

/// Its far port is down, so that nothing is lost by the try.
#[test]
fn in_place_of_a_dead_alternate_a_path_that_cannot_be_probed_is_proposed() {
    let mut pair = Pair::armed(14);
    pair.run(2_000);
    pair.set_full(ACTIVE, 2, true);
    pair.pull(PASSIVE, 2);
    pair.run(5_000);
    assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (2, (PASSIVE, 1)));
    assert!(pair.is_armed());
}

#[test]
fn a_better_path_that_cannot_be_probed_does_not_replace_what_works() {
    let mut pair = Pair::with(15, 2, 1);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    let loaded = alternate(&pair, ACTIVE);
    let best = Lid(loaded.slid.0 ^ 1);
    pair.set_full(ACTIVE, 2, true);
    pair.reroute(Fabric::new(move |_, (slid, _)| {
        Some(if slid == best {
            shared(0, 0)
        } else {
            shared(1, 2)
        })
    }));
    pair.run(10_000);
    assert_eq!(alternate(&pair, ACTIVE), loaded);
    pair.set_full(ACTIVE, 2, false);
    pair.run(70_000);
    assert_eq!(alternate(&pair, ACTIVE).slid, best);
}

#[test]
fn a_long_black_holed_alternate_is_replaced_when_the_primary_fails_too() {
    let mut pair = idle(16);
    pair.sa_dead = true;
    pair.black_hole(PASSIVE, 2);
    pair.run(10_000);
    pair.black_hole(ACTIVE, 1);
    pair.run(NOTICED + 1_000);
    pair.sa_dead = false;
    pair.command(ACTIVE, Command::Rearm);
    pair.run(5_000);
    let (local, remote) = Pair::rails(&pair.qp(ACTIVE).primary);
    assert_eq!((local, remote), (2, (PASSIVE, 1)));
}

/// More of them than hear of a path before the first one's order is taken.
#[test]
fn all_connections_over_a_black_holed_path_leave_it_by_order() {
    let mut pair = Pair::with(13, 0, 40);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.run(100);
    pair.black_hole(PASSIVE, 1);
    pair.run(NOTICED + 1_000);
    for host in [ACTIVE, PASSIVE] {
        let left = pair.hosts[host]
            .qps
            .iter()
            .filter(|qp| qp.primary.port == 2);
        assert_eq!(left.count(), 40, "host {host}");
    }
}

/// Where no probe would tell that a path carries packets again, time does.
#[test]
fn without_probes_a_path_that_failed_is_an_alternate_again_after_its_hold_off() {
    let mut pair = Pair::new(17);
    pair.config.verify = Duration::ZERO;
    let hold_off = pair.config.suspect_hold_off.as_millis() as u64;
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair.black_hole(PASSIVE, 1);
    pair.run(3_000);
    assert_eq!(pair.qp(ACTIVE).primary.port, 2, "hardware has left it");
    *pair.net.cable((PASSIVE, 1)) = Cable::Plugged;
    assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (1, (PASSIVE, 2)));
    pair.run(hold_off);
    assert_eq!(Pair::rails(&alternate(&pair, ACTIVE)), (1, (PASSIVE, 1)));
}
