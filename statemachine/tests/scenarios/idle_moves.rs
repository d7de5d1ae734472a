// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections without traffic are moved in SQD when their primary is lost.

use core::time::Duration;

use cm_msgs::control::{MigrationState, QpState};
use statemachine::trace::{MigratedBy, What};
use statemachine::view::{Held, MoveCause, Protection};
use statemachine::{Command, Input, PortDown};

use super::pair::{ACTIVE, LibraryFault, PASSIVE, Pair};

/// Two ends that wait for traffic; of `movable` ones the devices and libraries can move them.
pub(super) fn idle(seed: u64, movable: &[usize]) -> Pair {
    let mut pair = Pair::new(seed);
    for &host in movable {
        pair.hosts[host].set_moves_idle();
    }
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.run(3_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.qp(host).migration, MigrationState::Rearm);
    }
    pair
}

pub(super) const BOTH: &[usize] = &[ACTIVE, PASSIVE];

pub(super) fn primary_ports(pair: &Pair) -> [u8; 2] {
    [ACTIVE, PASSIVE].map(|host| pair.qp(host).primary.port)
}

/// The programs speak, and both ends become armed over paths that carry packets.
pub(super) fn assert_survives(pair: &mut Pair) {
    pair.set_traffic(true);
    pair.run(2_000);
    for host in [ACTIVE, PASSIVE] {
        assert!(pair.is_alive(host), "host {host}");
    }
}

fn moves(pair: &Pair, host: usize) -> Vec<(MigratedBy, MoveCause)> {
    let moves = pair.traces(host).filter_map(|trace| match trace.what {
        What::Migrated { by, cause, .. } => Some((by, cause)),
        _ => None,
    });
    moves.collect()
}

#[test]
fn a_pulled_cable_moves_both_ends() {
    for (host, other) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        let mut pair = idle(1, BOTH);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(
                pair.view(host).protection,
                Protection::IdleMovable,
                "host {host}"
            );
        }
        pair.forget_traces();
        pair.pull(host, 1);
        pair.run(20);
        assert_eq!(primary_ports(&pair), [2, 2]);
        assert_eq!(
            moves(&pair, host),
            [(MigratedBy::IdleMove, MoveCause::PortLost)]
        );
        let followed = moves(&pair, other);
        assert_eq!(followed.len(), 1);
        assert_eq!(followed[0].0, MigratedBy::IdleMove);
        assert_eq!(pair.view(host).counters.idle_moves, 1);
        assert_survives(&mut pair);
    }
}

/// The probes' answers are what tells.
#[test]
fn a_black_hole_moves_both_ends() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = idle(2, BOTH);
        pair.black_hole(host, 1);
        pair.run(4_000);
        assert_eq!(primary_ports(&pair), [2, 2], "hole at {host}");
        assert_survives(&mut pair);
    }
}

/// The alternate is probed without its usual pauses until enough of its answers show that MADs are not lost in general:
/// with them it takes 2 s at the median, and up to 3 s.
#[test]
fn a_black_hole_is_left_before_the_alternates_usual_probes_would_tell() {
    for seed in 0..10 {
        let mut pair = idle(100 + seed, BOTH);
        pair.run(seed * 37);
        pair.black_hole(ACTIVE, 1);
        pair.run(1_300);
        assert_eq!(primary_ports(&pair), [2, 2], "seed {seed}");
    }
}

/// It has a new alternate at once, and the old primary again when its port is back.
#[test]
fn what_was_moved_can_be_moved_again() {
    let mut pair = idle(3, BOTH);
    pair.pull(ACTIVE, 1);
    pair.run(50);
    for host in [ACTIVE, PASSIVE] {
        let view = pair.view(host);
        assert_eq!(view.migration, MigrationState::Rearm);
        let up = host == PASSIVE || view.alternate.is_some_and(|path| path.port == 2);
        assert!(up, "host {host}: {:?}", view.alternate);
    }
    pair.plug(ACTIVE, 1);
    pair.run(10_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(
            pair.view(host).protection,
            Protection::IdleMovable,
            "host {host}"
        );
    }
    pair.pull(PASSIVE, 2);
    pair.run(50);
    assert_eq!(primary_ports(&pair), [1, 1], "and back");
    pair.plug(PASSIVE, 2);
    assert_survives(&mut pair);
    pair.run(10_000);
    pair.assert_armed();
}

/// Whoever has the QP, or its device, cannot: nothing is ordered, and nothing else is shown.
#[test]
fn one_end_that_cannot_be_moved_keeps_both_where_they_are() {
    for (able, unable) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        for lost in [ACTIVE, PASSIVE] {
            let mut pair = idle(4, &[able]);
            for host in [ACTIVE, PASSIVE] {
                let shown = pair.view(host).protection;
                assert_eq!(shown, Protection::RearmingIdle, "host {host}, {able} able");
            }
            pair.forget_traces();
            pair.pull(lost, 1);
            pair.run(200);
            assert_eq!(moves(&pair, able), [], "{unable} cannot follow");
            assert_eq!(moves(&pair, unable), []);
            // It was only a short loss.
            pair.plug(lost, 1);
            assert_survives(&mut pair);
        }
    }
}

/// Of one end the library knows the order, and its device refuses it; of the other it is the other way round.
#[test]
fn device_and_library_must_both_be_able() {
    for device in [true, false] {
        let mut pair = Pair::new(5);
        for host in [ACTIVE, PASSIVE] {
            pair.hosts[host].set_moves_idle();
        }
        match device {
            true => pair.hosts[PASSIVE].moves_idle = false,
            false => {
                for port in &mut pair.hosts[PASSIVE].ports {
                    port.moves_idle = false;
                }
            }
        }
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.run(3_000);
        pair.pull(PASSIVE, 1);
        pair.run(200);
        assert_eq!(primary_ports(&pair), [1, 1]);
    }
}

/// A library's word may come after its connections. What it repeats is no news.
#[test]
fn a_library_may_say_late_that_it_takes_the_order() {
    for late in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(23);
        for host in [ACTIVE, PASSIVE] {
            pair.hosts[host].set_moves_idle();
        }
        pair.hosts[late].moves_idle = false;
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.run(3_000);
        assert_ne!(pair.view(late).protection, Protection::IdleMovable);
        let client = pair.id(late, 0).client;
        pair.tell(late, Input::MovesIdle(client));
        // The active end says then that it has the alternate.
        pair.run(2_000);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(pair.view(host).protection, Protection::IdleMovable);
        }
    }
}

/// Nothing shows that anybody would move the other end.
#[test]
fn a_peer_whose_daemon_is_gone_is_not_left_behind() {
    for (host, other) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        let mut pair = idle(6, BOTH);
        pair.kill(other);
        pair.run(10_000);
        assert_ne!(pair.view(host).protection, Protection::IdleMovable);
        pair.pull(host, 1);
        pair.run(300);
        assert_eq!(primary_ports(&pair), [1, 1]);
        pair.plug(host, 1);
        assert_survives(&mut pair);
    }
}

/// One end has become armed by a packet that the other had sent before it loaded its own. That end need not be movable.
#[test]
fn an_end_that_waits_follows_one_that_is_armed_and_the_reverse() {
    for (armed, waits) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        for lost in [ACTIVE, PASSIVE] {
            let mut pair = idle(7, &[waits]);
            pair.hosts[armed].qps[0].migration = MigrationState::Armed;
            pair.report_changed(armed);
            pair.run(100);
            pair.forget_traces();
            pair.pull(lost, 1);
            pair.run(100);
            assert_eq!(primary_ports(&pair), [2, 2], "{armed} armed, {lost} lost");
            let by = |host| moves(&pair, host).first().map(|&(by, _)| by);
            assert_eq!(by(waits), Some(MigratedBy::IdleMove));
            assert_eq!(by(armed), Some(MigratedBy::Order));
            assert_survives(&mut pair);
        }
    }
}

/// Traffic came between the decision and the library's look.
#[test]
fn one_that_has_become_armed_meanwhile_is_migrated() {
    let mut pair = idle(8, BOTH);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stopped);
    pair.pull(ACTIVE, 1);
    pair.run(5);
    assert_eq!(pair.hosts[ACTIVE].unread(), ["move"]);
    pair.hosts[ACTIVE].qps[0].migration = MigrationState::Armed;
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Armed;
    pair.forget_traces();
    pair.resume_library(ACTIVE);
    pair.run(50);
    assert_eq!(
        moves(&pair, ACTIVE),
        [(MigratedBy::Order, MoveCause::PortLost)]
    );
    assert_eq!(pair.view(ACTIVE).counters.idle_moves, 0);
    assert_survives(&mut pair);
}

#[test]
fn a_move_that_fails_is_tried_again_after_a_pause() {
    let mut pair = idle(9, BOTH);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(110));
    pair.pull(ACTIVE, 1);
    pair.run(100);
    assert_eq!(primary_ports(&pair), [1, 1]);
    assert_eq!(pair.view(ACTIVE).counters.failed_orders, 1);
    pair.hosts[ACTIVE].fault = None;
    pair.run(3_000);
    assert_eq!(primary_ports(&pair), [2, 2]);
    assert_survives(&mut pair);
}

/// Both have lost a port of the primary at once, or one both of its ports.
#[test]
fn both_ends_may_lead() {
    let mut pair = idle(10, BOTH);
    pair.pull(ACTIVE, 1);
    pair.pull(PASSIVE, 1);
    pair.run(50);
    assert_eq!(primary_ports(&pair), [2, 2]);
    assert_survives(&mut pair);
}

/// The peer says that it lacks the port at the far end of the alternate, so there is another.
#[test]
fn it_does_not_go_where_nothing_arrives() {
    let mut pair = idle(11, BOTH);
    pair.pull(PASSIVE, 2);
    pair.run(5_000);
    pair.pull(ACTIVE, 1);
    pair.run(100);
    assert_eq!(primary_ports(&pair), [2, 1]);
    assert_survives(&mut pair);
}

/// An operator's order moves it as well, at either end, and so does a drained port; of one that cannot follow neither end
/// is moved.
#[test]
fn an_operator_moves_idle_connections() {
    let within = Duration::from_secs(10);
    for host in [ACTIVE, PASSIVE] {
        let mut pair = idle(13, BOTH);
        assert_eq!(pair.view(host).obstacle, None);
        pair.command(host, Command::Migrate { within });
        pair.run(200);
        assert_eq!(primary_ports(&pair), [2, 2], "by order at {host}");
        let causes = [host, 1 - host].map(|host| moves(&pair, host)[0]);
        assert_eq!(causes[0], (MigratedBy::IdleMove, MoveCause::Operator));
        assert_eq!(causes[1], (MigratedBy::IdleMove, MoveCause::PeerOperator));
        pair.run(5_000);
        pair.drain_port(host, 2, true);
        pair.run(2_000);
        assert_eq!(primary_ports(&pair), [1, 1], "drained at {host}");
        assert_survives(&mut pair);
    }
    for able in [ACTIVE, PASSIVE] {
        let mut pair = idle(14, &[able]);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(pair.view(host).obstacle, Some(Held::NotArmed));
            pair.command(host, Command::Migrate { within });
            pair.run(1_000);
            assert_eq!(primary_ports(&pair), [1, 1]);
        }
    }
}

/// The owner's own SQD and its end come first: the library finds the QP elsewhere.
#[test]
fn a_queue_pair_that_its_owner_has_put_into_sqd_is_not_moved() {
    let mut pair = idle(15, BOTH);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Stopped);
    pair.pull(ACTIVE, 1);
    pair.run(5);
    assert_eq!(pair.hosts[ACTIVE].unread(), ["move"]);
    pair.hosts[ACTIVE].qps[0].state = QpState::Sqd;
    pair.resume_library(ACTIVE);
    pair.run(100);
    assert_eq!(primary_ports(&pair), [1, 1]);
    pair.hosts[ACTIVE].qps[0].state = QpState::Rts;
    pair.report_changed(ACTIVE);
    pair.run(3_000);
    assert_eq!(primary_ports(&pair), [2, 2], "afterwards");
    assert_survives(&mut pair);
}

#[test]
fn nor_is_one_that_has_been_there_for_long() {
    let mut pair = idle(16, BOTH);
    pair.hosts[ACTIVE].qps[0].state = QpState::Sqd;
    pair.report_changed(ACTIVE);
    pair.run(100);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    assert_eq!(pair.view(ACTIVE).counters.failed_orders, 0);
    assert_eq!(
        pair.view(ACTIVE).counters.stale_loads,
        0,
        "nothing was ordered"
    );
    assert_eq!(primary_ports(&pair), [1, 1]);
}

#[test]
fn a_host_that_leaves_dead_ports_to_hardware_moves_nothing() {
    let mut pair = Pair::new(17);
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].set_moves_idle();
    }
    pair.config.port_down = PortDown::Wait;
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.run(3_000);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!(pair.view(host).protection, Protection::RearmingIdle);
        pair.pull(host, 1);
        pair.run(100);
        assert_eq!(primary_ports(&pair), [1, 1]);
    }
}

#[test]
fn it_is_not_moved_to_a_port_that_is_down_itself() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = idle(18, BOTH);
        pair.pull(host, 2);
        pair.pull(host, 1);
        pair.run(100);
        assert_eq!(pair.qp(host).primary.port, 1, "host {host}");
    }
}

/// The peer has migrated: this end would have to be moved after it, and its library cannot.
#[test]
fn an_end_that_cannot_be_moved_is_not_ordered_to_follow() {
    for (armed, waits) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        let mut pair = idle(19, &[armed]);
        pair.hosts[armed].qps[0].migration = MigrationState::Armed;
        pair.report_changed(armed);
        pair.run(100);
        pair.pull(armed, 1);
        pair.run(500);
        assert_eq!(pair.qp(armed).primary.port, 2, "by hardware, as ever");
        assert_eq!(pair.qp(waits).primary.port, 1);
    }
}

/// Nothing shows that the peer has the alternate that this end has: it would not follow.
#[test]
fn what_is_not_agreed_is_not_gone_to_first() {
    for restarted in [ACTIVE, PASSIVE] {
        let mut pair = idle(20, BOTH);
        pair.lose.insert("LAP", usize::MAX);
        pair.kill(restarted);
        pair.start(restarted);
        pair.run(3_000);
        assert_eq!(pair.view(restarted).protection, Protection::RearmingIdle);
        pair.pull(restarted, 1);
        pair.run(300);
        assert_eq!(primary_ports(&pair), [1, 1], "{restarted} restarted");
    }
}

/// The wait begins when the alternate is loaded, and not again with each report.
#[test]
fn one_is_shown_as_idle_after_it_has_waited_for_a_second() {
    let mut pair = Pair::new(25);
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].set_moves_idle();
        pair.start(host);
    }
    let shown = |pair: &Pair| [ACTIVE, PASSIVE].map(|host| pair.view(host).protection);
    pair.register(PASSIVE);
    pair.run(3_000);
    pair.register(ACTIVE);
    pair.run(500);
    assert_eq!(shown(&pair), [Protection::Rearming; 2], "loaded");
    pair.run(1_000);
    let active_only = [Protection::IdleMovable, Protection::RearmingIdle];
    assert_eq!(
        shown(&pair),
        active_only,
        "it has not said that it has loaded"
    );
    pair.run(500);
    assert_eq!(shown(&pair), [Protection::IdleMovable; 2]);
    pair.report_changed(ACTIVE);
    pair.report_changed(PASSIVE);
    pair.run(10);
    assert_eq!(shown(&pair), [Protection::IdleMovable; 2], "no news");
}

/// Its library has lost what it had loaded. It says so, and an order to leave waits.
#[test]
fn an_operators_order_waits_for_a_peer_without_an_alternate() {
    let mut pair = idle(21, BOTH);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Migrated;
    pair.hosts[PASSIVE].qps[0].alternate = None;
    pair.report_changed(PASSIVE);
    pair.lose.insert("LAP", usize::MAX);
    pair.run(100);
    pair.lose.remove("LAP");
    let within = Duration::from_secs(10);
    pair.command(ACTIVE, Command::Migrate { within });
    pair.hosts[PASSIVE].fault = Some(LibraryFault::Stopped);
    pair.run(1_000);
    assert_eq!(pair.qp(ACTIVE).primary.port, 1);
    pair.resume_library(PASSIVE);
    pair.run(5_000);
    assert_eq!(primary_ports(&pair), [2, 2], "once it has it again");
}

/// Probes get lost like all MADs, and no path is dead. Hardware would be there for the peer of a QP that migrates for
/// nothing; of one that is moved nobody tells the peer.
#[test]
fn lost_mads_are_no_reason_to_move() {
    for seed in 0..40 {
        let mut pair = idle(seed, BOTH);
        pair.net.weather.loss = 640;
        pair.run(20_000);
        assert_eq!(primary_ports(&pair), [1, 1], "seed {seed}");
    }
}

/// Daemons that were restarted ask each other first whether they have the same alternate.
#[test]
fn restarted_daemons_move_it_once_they_have_spoken() {
    for restarted in [ACTIVE, PASSIVE] {
        let mut pair = idle(12, BOTH);
        pair.kill(restarted);
        pair.run(100);
        pair.start(restarted);
        pair.run(20_000);
        for host in [ACTIVE, PASSIVE] {
            let shown = pair.view(host).protection;
            assert_eq!(
                shown,
                Protection::IdleMovable,
                "host {host}, {restarted} restarted"
            );
        }
        pair.pull(restarted, 1);
        pair.run(50);
        assert_eq!(primary_ports(&pair), [2, 2]);
        assert_survives(&mut pair);
    }
}

/// Two ends that wait for traffic, at which something keeps the active one from loading the alternate.
fn only_passive_has_loaded(hinder: impl Fn(&mut Pair)) -> Pair {
    let mut pair = Pair::new(1);
    hinder(&mut pair);
    for host in BOTH {
        pair.hosts[*host].set_moves_idle();
    }
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.run(30_000);
    assert!(pair.qp(PASSIVE).alternate.is_some());
    assert!(pair.qp(ACTIVE).alternate.is_none());
    pair
}

/// That the peer has proposed an alternate does not mean that it has it: its device may refuse it, or the answer be lost.
#[test]
fn no_end_goes_to_an_alternate_that_the_peer_has_not_loaded() {
    let hindrances: [fn(&mut Pair); 2] = [
        |pair| pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(22)),
        |pair| {
            pair.lose.insert("APR", usize::MAX);
        },
    ];
    for hinder in hindrances {
        let mut pair = only_passive_has_loaded(hinder);
        assert_eq!(pair.view(PASSIVE).protection, Protection::RearmingIdle);
        // A short loss, which a connection that is left alone survives.
        pair.pull(PASSIVE, 1);
        pair.run(100);
        pair.plug(PASSIVE, 1);
        assert_survives(&mut pair);
    }
}

/// Each order is one that the peer has to follow.
#[test]
fn an_operators_orders_within_a_minute_leave_both_ends_on_one_path() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = idle(8, BOTH);
        for _ in 0..20 {
            let within = Duration::from_secs(2);
            pair.command(host, Command::Migrate { within });
            pair.run(2_500);
            let [a, b] = primary_ports(&pair);
            assert_eq!(a, b, "ordered at {host}");
        }
        // The rest had to wait.
        assert_eq!(pair.view(host).counters.idle_moves, 6);
        assert_survives(&mut pair);
    }
}

#[test]
fn a_cable_that_comes_and_goes_leaves_both_ends_on_one_path() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = idle(9, BOTH);
        for round in 0..15 {
            let port = pair.qp(host).primary.port;
            pair.pull(host, port);
            pair.run(2_000);
            pair.plug(host, port);
            pair.run(2_500);
            let [a, b] = primary_ports(&pair);
            assert_eq!(a, b, "loss {round} at {host}");
        }
        assert!(pair.view(host).counters.idle_moves >= 6);
        assert_survives(&mut pair);
    }
}

/// Why there are no standing orders for it: with nobody to take the other end along, a port that comes back does not help.
#[test]
fn an_end_that_is_moved_alone_is_worse_off_than_one_that_stays() {
    for moved in [false, true] {
        let mut pair = idle(10, BOTH);
        pair.kill(ACTIVE);
        pair.kill(PASSIVE);
        pair.pull(ACTIVE, 1);
        pair.run(2_000);
        let qp = &mut pair.hosts[ACTIVE].qps[0];
        if let Some(alternate) = qp.alternate.filter(|_| moved) {
            qp.primary = alternate;
        }
        pair.plug(ACTIVE, 1);
        pair.run(2_000);
        pair.set_traffic(true);
        pair.run(2_000);
        let alive = [ACTIVE, PASSIVE].map(|host| pair.is_alive(host));
        assert_eq!(alive, [!moved; 2]);
    }
}

/// The kernel module refuses it where the primary has a GRH and the alternate has none, and a library where its owner does.
#[test]
fn an_end_that_will_refuse_is_not_waited_for_by_its_peer() {
    for refuses in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(15);
        for &host in BOTH {
            pair.hosts[host].set_moves_idle();
        }
        pair.hosts[refuses].qps[0].primary.global = true;
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.run(5_000);
        let other = PASSIVE + ACTIVE - refuses;
        assert_eq!(pair.view(other).protection, Protection::RearmingIdle);
        pair.pull(other, 1);
        pair.run(100);
        assert_eq!(primary_ports(&pair), [1, 1]);
        pair.plug(other, 1);
        assert_survives(&mut pair);
    }
}

#[test]
fn an_end_that_has_refused_once_is_not_asked_again_and_says_so() {
    let mut pair = idle(16, BOTH);
    pair.hosts[ACTIVE].fault = Some(LibraryFault::Fails(1));
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    pair.hosts[ACTIVE].fault = None;
    pair.plug(ACTIVE, 1);
    pair.run(20_000);
    assert_eq!(pair.view(ACTIVE).counters.failed_orders, 1);
    for &host in BOTH {
        assert_eq!(pair.view(host).protection, Protection::RearmingIdle);
    }
    assert_eq!(primary_ports(&pair), [1, 1]);
    assert_survives(&mut pair);
}
