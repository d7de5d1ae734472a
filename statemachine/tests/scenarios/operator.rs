// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators order: migration, another look, and ports left alone.

use std::time::Duration;

use cm_msgs::control::{MigrationState, Mode, PolicyOverride, QpState};
use statemachine::Command;
use statemachine::view::{Grade, Held, MoveCause, Transition};

use super::pair::{ACTIVE, PASSIVE, Pair, Weather, seeds};

const MIGRATE: Command = Command::Migrate {
    within: Duration::from_secs(5),
};

/// Why the host's connection left its paths, the latest first.
fn causes(pair: &Pair, host: usize) -> Vec<MoveCause> {
    let history = pair.view(host).history;
    let causes = history.iter().filter_map(|past| match past.what {
        Transition::Migrated { cause, .. } => Some(cause),
        _ => None,
    });
    causes.collect()
}

fn migrations(pair: &Pair) -> [u32; 2] {
    [ACTIVE, PASSIVE].map(|host| pair.view(host).counters.migrations)
}

/// The local and the remote port of the primary and the alternate of the active side.
fn paths(pair: &Pair) -> [(u8, u8); 2] {
    let qp = pair.qp(ACTIVE);
    [qp.primary, qp.alternate.expect("one is loaded")].map(|path| {
        let (local, (_, remote)) = Pair::rails(&path);
        (local, remote)
    })
}

#[test]
fn a_connection_migrates_when_its_operator_wants_it_and_nobody_suspects_the_path() {
    for (host, traffic) in [
        (ACTIVE, true),
        (PASSIVE, true),
        (ACTIVE, false),
        (PASSIVE, false),
    ] {
        let mut pair = Pair::armed(1);
        pair.set_traffic(traffic);
        pair.run(100);
        pair.command(host, MIGRATE);
        pair.run(100);
        for end in [ACTIVE, PASSIVE] {
            assert_eq!(Pair::rails(&pair.qp(end).primary), (2, (1 - end, 2)));
        }
        assert_eq!(migrations(&pair), [1, 1]);
        assert_eq!(causes(&pair, host), [MoveCause::Operator]);
        assert_eq!(causes(&pair, 1 - host), [MoveCause::PeerOperator]);
        pair.set_traffic(true);
        pair.run(1_000);
        pair.assert_armed();
        // The path that was left is the best alternate again at once, and is not left for.
        assert_eq!(paths(&pair), [(2, 2), (1, 1)]);
        pair.run(6_000);
        assert_eq!(migrations(&pair), [1, 1], "once");
        pair.assert_asleep(ACTIVE);
        pair.assert_asleep(PASSIVE);
    }
}

#[test]
fn an_order_that_cannot_be_carried_out_is_forgotten() {
    let mut pair = Pair::armed(2);
    pair.sa_knows_only(vec![((ACTIVE, 1), (PASSIVE, 1))]);
    pair.pull(ACTIVE, 2);
    pair.run(100);
    pair.command(ACTIVE, MIGRATE);
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::NotArmed));
    pair.run(5_000);
    assert_eq!(pair.view(ACTIVE).held, None);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 2), (PASSIVE, 2)),
    ]);
    pair.plug(ACTIVE, 2);
    pair.run(3_000);
    pair.assert_armed();
    assert_eq!(migrations(&pair), [0, 0]);
}

#[test]
fn nobody_leaves_for_a_path_that_the_peer_would_not_follow_to() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(3);
        pair.set_traffic(false);
        pair.run(100);
        // Its HCA has been reset to what it was before the first packet came.
        pair.hosts[1 - host].qps[0].migration = MigrationState::Rearm;
        pair.report_changed(1 - host);
        pair.run(100);
        pair.command(
            host,
            Command::Migrate {
                within: Duration::from_secs(60),
            },
        );
        pair.run(3_000);
        assert_eq!(pair.view(host).held, Some(Held::PeerNotArmed));
        assert_eq!(migrations(&pair), [0, 0]);
        assert!(pair.all_sent(host) < 60, "{}", pair.all_sent(host));
        pair.set_traffic(true);
        pair.run(6_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        assert_eq!(migrations(&pair), [1, 1]);
        pair.assert_armed();
    }
}

/// Just after a start, and with no peer to open an association with, no probe is sent.
#[test]
fn a_working_primary_is_not_left_for_an_unprobed_alternate_unless_probes_are_off() {
    for (verify, held) in [(1, Held::Unverified), (0, Held::PeerSilent)] {
        let mut pair = Pair::new(7);
        pair.config.verify = Duration::from_secs(verify);
        pair.begin();
        pair.run(2_000);
        pair.assert_armed();
        pair.kill(ACTIVE);
        pair.kill(PASSIVE);
        pair.start(PASSIVE);
        pair.command(PASSIVE, MIGRATE);
        pair.run(10);
        assert_eq!(pair.view(PASSIVE).held, Some(held));
        assert_eq!(pair.view(PASSIVE).grade, Some(Grade::Unverified));
    }
}

#[test]
fn another_look_does_not_wait_for_a_pause_to_end() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::running(4);
        pair.sa_dead = true;
        pair.run(25_000);
        pair.sa_dead = false;
        pair.run(200);
        assert!(!pair.is_armed(), "the pause is longer than that");
        pair.command(host, Command::Rearm);
        pair.run(200);
        pair.assert_armed();
    }
}

#[test]
fn a_drained_port_is_left_and_its_cable_can_be_pulled() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(5);
        pair.drain_port(host, 1, true);
        pair.run(1_000);
        pair.assert_armed();
        assert_eq!(migrations(&pair), [1, 1]);
        assert_eq!(causes(&pair, host), [MoveCause::Drained]);
        let [primary, alternate] = paths(&pair);
        assert_eq!(primary, (2, 2));
        let local = |(active, passive)| if host == ACTIVE { active } else { passive };
        assert_eq!(local(alternate), 2, "the alternate leaves it, too");
        pair.pull(host, 1);
        pair.run(1_000);
        assert_eq!(migrations(&pair), [1, 1], "it was not used");
        pair.assert_armed();
        pair.plug(host, 1);
        pair.run(3_000);
        assert_eq!(local(paths(&pair)[1]), 2, "still left alone");
        pair.drain_port(host, 1, false);
        pair.run(2_000);
        pair.assert_best_alternates();
        pair.assert_armed();
        assert_eq!(migrations(&pair), [1, 1], "nothing moves back");
    }
}

#[test]
fn an_alternate_leaves_a_drained_port_without_a_gap() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(6);
        pair.forget_traces();
        pair.drain_port(host, 2, true);
        pair.run(1_000);
        pair.assert_armed();
        let (active, passive) = paths(&pair)[1];
        assert_eq!(if host == ACTIVE { active } else { passive }, 1);
        assert_eq!(migrations(&pair), [0, 0]);
        for end in [ACTIVE, PASSIVE] {
            let lost = pair.traces(end).any(|trace| {
                matches!(
                    trace.what,
                    statemachine::trace::What::Protection {
                        to: statemachine::view::Protection::Unprotected,
                        ..
                    }
                )
            });
            assert!(!lost, "host {end}");
        }
        pair.run(6_000);
        pair.assert_asleep(ACTIVE);
        pair.assert_asleep(PASSIVE);
    }
}

#[test]
fn a_drained_port_is_better_than_none() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(7);
        pair.sa_knows_only(vec![
            ((ACTIVE, 1), (PASSIVE, 1)),
            ((ACTIVE, 2), (PASSIVE, 2)),
        ]);
        for end in [ACTIVE, PASSIVE] {
            pair.start(end);
            pair.register(end);
        }
        pair.set_traffic(true);
        pair.run(1_000);
        pair.drain_port(host, 1, true);
        pair.run(2_000);
        pair.assert_armed();
        assert_eq!(paths(&pair), [(2, 2), (1, 1)]);
        pair.pull(host, 2);
        pair.run(1_000);
        assert_eq!(
            Pair::rails(&pair.qp(ACTIVE).primary).0,
            1,
            "the last resort"
        );
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        pair.plug(host, 2);
        pair.run(5_000);
        pair.assert_armed();
        assert_eq!(paths(&pair), [(2, 2), (1, 1)], "and away from it again");
    }
}

#[test]
fn ports_drained_at_both_ends_do_not_send_a_connection_to_and_fro() {
    let mut pair = Pair::new(8);
    pair.sa_knows_only(vec![
        ((ACTIVE, 1), (PASSIVE, 1)),
        ((ACTIVE, 2), (PASSIVE, 2)),
    ]);
    for end in [ACTIVE, PASSIVE] {
        pair.start(end);
        pair.register(end);
    }
    pair.set_traffic(true);
    pair.run(1_000);
    pair.drain_port(PASSIVE, 2, true);
    pair.run(1_000);
    pair.drain_port(ACTIVE, 1, true);
    pair.run(20_000);
    pair.assert_armed();
    assert_eq!(migrations(&pair), [0, 0]);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::AlternateDrained));
    assert_eq!(pair.view(PASSIVE).held, None);
    pair.drain_port(PASSIVE, 2, false);
    pair.run(1_000);
    assert_eq!(migrations(&pair), [1, 1]);
    pair.assert_armed();
}

#[test]
fn a_view_says_when_the_peer_was_heard_and_what_it_drains() {
    let mut pair = Pair::armed(9);
    let association = |pair: &Pair| pair.view(ACTIVE).association;
    let before = association(&pair);
    let heard = before.heard.expect("the association is open");
    assert_eq!(before.drained_peer_ports, []);
    let far = pair.qp(ACTIVE).alternate.expect("it is armed").dgid;
    let (_, (_, port)) = Pair::rails(&pair.qp(ACTIVE).alternate.expect("it is armed"));
    pair.run(1_000);
    pair.drain_port(PASSIVE, port, true);
    pair.run(1_000);
    let after = association(&pair);
    assert_eq!(after.drained_peer_ports, [far]);
    assert!(after.heard > Some(heard), "its daemon has said so");
    pair.drain_port(PASSIVE, port, false);
    pair.run(1_000);
    assert_eq!(association(&pair).drained_peer_ports, []);
}

#[test]
fn a_drain_goes_through_whatever_is_lost_on_the_way() {
    seeds(100, |seed| {
        let host = (seed % 2) as usize;
        let mut pair = Pair::armed(seed);
        pair.net.weather = Weather {
            loss: 200,
            duplication: 100,
            delay: 5_000,
        };
        pair.drain_port(host, 1, true);
        pair.run(20_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        pair.net.weather = Weather {
            loss: 0,
            duplication: 0,
            delay: 100,
        };
        pair.run(70_000);
        pair.assert_armed();
        let (local, (_, remote)) = Pair::rails(&pair.qp(ACTIVE).primary);
        assert_eq!(if host == ACTIVE { local } else { remote }, 2);
        pair.pull(host, 1);
        let before = migrations(&pair);
        pair.run(1_000);
        assert_eq!(migrations(&pair), before);
        pair.assert_armed();
    });
}

#[test]
fn a_connection_that_comes_to_a_drained_port_leaves_it() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(9);
        pair.start(ACTIVE);
        pair.start(PASSIVE);
        pair.drain_port(host, 1, true);
        pair.register(PASSIVE);
        pair.register(ACTIVE);
        pair.set_traffic(true);
        pair.run(2_000);
        pair.assert_armed();
        let (local, (_, remote)) = Pair::rails(&pair.qp(ACTIVE).primary);
        assert_eq!(if host == ACTIVE { local } else { remote }, 2);
    }
}

/// IBA 17.2.8.1: only a queue pair in RTS migrates by order.
#[test]
fn nobody_leaves_while_the_queue_pair_is_drained() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(20);
        pair.set_traffic(false);
        pair.run(100);
        pair.hosts[host].qps[0].state = QpState::Sqd;
        pair.report_changed(host);
        pair.run(10);
        pair.command(host, MIGRATE);
        pair.run(1_000);
        assert_eq!(pair.view(host).held, Some(Held::NotArmed));
        assert_eq!(migrations(&pair), [0, 0]);
        pair.hosts[host].qps[0].state = QpState::Rts;
        pair.report_changed(host);
        pair.run(1_000);
        assert_eq!(migrations(&pair), [1, 1], "host {host}");
    }
}

#[test]
fn a_port_that_is_drained_no_longer_leaves_nobody_asking() {
    let mut pair = Pair::armed(21);
    pair.set_traffic(false);
    pair.run(100);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Rearm;
    pair.report_changed(PASSIVE);
    pair.run(100);
    pair.drain_port(ACTIVE, 1, true);
    pair.run(3_000);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::PeerNotArmed));
    pair.drain_port(ACTIVE, 1, false);
    pair.run(100);
    pair.assert_asleep(ACTIVE);
}

/// A peer that migrates later is not to think that this end wanted it.
#[test]
fn an_order_that_has_expired_is_not_told_to_the_peer() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(22);
        pair.run(5_000);
        pair.lose.extend([("LAP", usize::MAX), ("SAP", usize::MAX)]);
        let within = Duration::from_secs(1);
        pair.command(host, Command::Migrate { within });
        pair.run(20);
        assert_eq!(pair.view(host).held, Some(Held::PeerSilent));
        pair.run(1_480);
        assert_eq!(pair.view(host).held, None);
        pair.lose.clear();
        pair.run(60_000);
        pair.assert_armed();
        pair.black_hole(1 - host, 1);
        pair.run(5_000);
        let causes = causes(&pair, 1 - host);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_ne!(causes[0], MoveCause::PeerOperator);
    }
}

/// Until the peer has answered a LAP it may have loaded another alternate: it could not follow.
#[test]
fn nobody_leaves_while_a_lap_has_no_answer() {
    let mut pair = Pair::armed(23);
    pair.set_traffic(false);
    pair.run(100);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Rearm;
    pair.report_changed(PASSIVE);
    pair.run(100);
    pair.drain_port(ACTIVE, 1, true);
    pair.run(3_000);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::PeerNotArmed));
    pair.lose.insert("APR", usize::MAX);
    pair.command(ACTIVE, Command::Rearm);
    pair.run(20);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Armed;
    pair.report_changed(PASSIVE);
    pair.run(2);
    // A SAP, which says that the peer is armed.
    let policy = PolicyOverride {
        mode: Some(Mode::Any),
        ..PolicyOverride::default()
    };
    pair.set_policy(PASSIVE, policy);
    pair.run(20);
    assert_eq!(pair.view(ACTIVE).held, Some(Held::Negotiating));
    assert_eq!(migrations(&pair), [0, 0]);
    pair.lose.clear();
    pair.run(10_000);
    assert_eq!(migrations(&pair), [1, 1]);
}

/// What `apmctl port drain --dry-run` shows is what an order finds.
#[test]
fn what_would_keep_it_from_leaving_is_told_before_it_is_ordered() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(21);
        pair.sa_knows_only(vec![
            ((ACTIVE, 1), (PASSIVE, 1)),
            ((ACTIVE, 2), (PASSIVE, 2)),
        ]);
        pair.begin();
        pair.run(2_000);
        assert_eq!(pair.view(host).obstacle, None);
        pair.drain_port(1 - host, 2, true);
        pair.run(1_000);
        assert_eq!(pair.view(host).obstacle, Some(Held::AlternateDrained));
        pair.drain_port(1 - host, 2, false);
        pair.run(1_000);
        assert_eq!(pair.view(host).obstacle, None);
        let within = Duration::from_secs(60);
        pair.command(host, Command::Migrate { within });
        pair.run(1_000);
        assert_eq!(pair.view(host).counters.migrations, 1);
        pair.pull(host, 1);
        pair.run(1_000);
        assert_eq!(pair.view(host).obstacle, Some(Held::NotArmed));
    }
}
