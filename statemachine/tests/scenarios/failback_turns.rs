// SPDX-License-Identifier: MIT OR Apache-2.0
//! When connections get their turn to go to the port where their policy wants them, and what they do with it.

use std::num::NonZeroU32;

use cm_msgs::Qpn;
use cm_msgs::control::{Cause, MigrationState, Placement, PolicyOverride, Report};
use statemachine::trace::What;
use statemachine::{Command, Input};

use super::failback::{place, prefer};
use super::pair::{ACTIVE, PASSIVE, Pair, PortOf, gid};

fn after(hold_down_ms: u32) -> PolicyOverride {
    PolicyOverride {
        hold_down: NonZeroU32::new(hold_down_ms),
        ..prefer(2)
    }
}

/// All paths from the first port of this host, and none from its second.
fn from_first(host: usize) -> Vec<(PortOf, PortOf)> {
    let paths = [1, 2].map(|far| match host {
        ACTIVE => ((ACTIVE, 1), (PASSIVE, far)),
        _ => ((ACTIVE, far), (PASSIVE, 1)),
    });
    paths.to_vec()
}

fn all_paths() -> Vec<(PortOf, PortOf)> {
    let to = |near| [1, 2].map(|far| ((ACTIVE, near), (PASSIVE, far)));
    [to(1), to(2)].concat()
}

/// Armed connections of a host that wants them on its second port. No source has a path to it.
fn without_a_way(seed: u64, host: usize, connections: usize, policy: PolicyOverride) -> Pair {
    let mut pair = Pair::with(seed, 0, connections);
    pair.policies[host] = policy;
    pair.sa_knows_only(from_first(host));
    pair.begin();
    pair.run(1_000);
    pair.assert_armed();
    pair
}

/// A host's connections that have set out for a port, in this order.
fn departures(pair: &Pair, host: usize) -> Vec<u32> {
    let goes = pair.traces(host).filter_map(|trace| match trace.what {
        What::GoesTo(_) => trace.conn,
        _ => None,
    });
    goes.map(|id| id.conn).collect()
}

/// Eight set out, and do not get there. The other two have to wait until these give up.
fn eight_of_ten_on_their_way() -> Pair {
    let mut pair = without_a_way(1, ACTIVE, 10, prefer(2));
    pair.run(5_500);
    assert_eq!(departures(&pair, ACTIVE).len(), 8);
    pair
}

/// The active side's library says that a queue pair is not armed any more.
fn report_rearming(pair: &mut Pair, conn: usize) {
    let qp = &mut pair.hosts[ACTIVE].qps[conn];
    qp.migration = MigrationState::Rearm;
    let (snapshot, cause) = (qp.snapshot(), Cause::Changed);
    let id = pair.id(ACTIVE, conn);
    pair.tell(ACTIVE, Input::Report(id, Report { cause, snapshot }));
}

#[test]
fn a_connection_that_waits_keeps_its_place_whatever_happens_to_it_meanwhile() {
    let mut pair = eight_of_ten_on_their_way();
    let mut waiting: Vec<u32> = (0..10).collect();
    waiting.retain(|conn| !departures(&pair, ACTIVE).contains(conn));
    for _ in 0..16 {
        let id = pair.id(ACTIVE, waiting[0] as usize);
        pair.tell(ACTIVE, Input::Command(id, Command::Rearm));
        pair.run(500);
    }
    pair.run(3_000);
    assert_eq!(departures(&pair, ACTIVE)[8..10], waiting);
}

/// It has to get an alternate first, and would only keep others from going.
#[test]
fn a_connection_that_loses_its_alternate_while_it_waits_does_not_set_out() {
    let mut pair = eight_of_ten_on_their_way();
    pair.set_traffic(false);
    pair.run(50);
    let mut waiting = 0..10;
    let first = waiting.find(|conn| !departures(&pair, ACTIVE).contains(conn));
    let first = first.expect("two wait");
    report_rearming(&mut pair, first as usize);
    pair.run(12_000);
    let departures = departures(&pair, ACTIVE);
    assert!(departures.len() > 8 && !departures.contains(&first));
}

/// Hosts that have just started give their queue pairs the same numbers.
#[test]
fn connections_to_queue_pairs_of_one_number_divide_as_well() {
    const CONNECTIONS: usize = 8;
    let mut pair = Pair::with(1, 0, CONNECTIONS);
    pair.policies[ACTIVE] = place(Placement::Spread);
    pair.start(ACTIVE);
    for conn in 0..CONNECTIONS {
        let (id, input) = pair.registration(ACTIVE, conn);
        let Input::Register(_, payer, mut register) = input else {
            panic!("a registration");
        };
        let mut alternate = register.snapshot.primary;
        (alternate.port, alternate.sgid) = (2, gid((ACTIVE, 2)));
        alternate.slid = pair.hosts[ACTIVE].ports[1].lid;
        register.snapshot.alternate = Some(alternate);
        register.snapshot.migration = MigrationState::Armed;
        register.peer_qpn = Qpn(0x70_0000);
        pair.tell(ACTIVE, Input::Register(id, payer, register));
    }
    pair.run(6_000);
    let go = departures(&pair, ACTIVE).len();
    assert!((1..CONNECTIONS).contains(&go), "{go} of {CONNECTIONS}");
}

#[test]
fn a_passive_side_that_does_not_get_there_tries_again_after_its_pause() {
    let mut pair = without_a_way(2, PASSIVE, 1, prefer(2));
    pair.run(50_000);
    // After 5 s, and 15 to 17 s later, and 18 to 22 s after that.
    assert_eq!(departures(&pair, PASSIVE).len(), 3);
    pair.assert_armed();
}

/// The peer's queue pair is not armed, without which it does not go. Nothing else happens meanwhile.
#[test]
fn an_active_side_that_does_not_get_there_tries_again_after_its_pause() {
    let mut pair = Pair::new(2);
    pair.policies[ACTIVE] = prefer(2);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.run(50);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Rearm;
    pair.report_changed(PASSIVE);
    pair.run(10);
    // The answer to another LAP tells how the peer's queue pair is.
    pair.command(ACTIVE, Command::Rearm);
    pair.run(24_000);
    assert_eq!(departures(&pair, ACTIVE).len(), 2);
    assert_eq!(pair.view(ACTIVE).counters.migrations, 0);
}

/// Eight of ten have gone where they belong. Without traffic the alternates that they have there arm at neither end.
fn eight_of_ten_there(ms: u64) -> Pair {
    let mut pair = Pair::with(6, 0, 10);
    pair.policies[ACTIVE] = prefer(2);
    pair.begin();
    pair.run(4_500);
    pair.assert_armed();
    pair.set_traffic(false);
    pair.run(ms);
    pair
}

/// So few of a host's connections are without an alternate for it at a time.
#[test]
fn one_that_has_arrived_makes_room_when_it_is_armed_or_after_ten_seconds() {
    let pair = eight_of_ten_there(9_000);
    let there = pair.hosts[ACTIVE].qps.iter();
    assert_eq!(there.filter(|qp| qp.primary.port == 2).count(), 8);
    assert_eq!(departures(&pair, ACTIVE).len(), 8);
    let pair = eight_of_ten_there(12_000);
    assert_eq!(departures(&pair, ACTIVE).len(), 10);
    let mut pair = eight_of_ten_there(4_000);
    pair.set_traffic(true);
    pair.run(500);
    assert_eq!(departures(&pair, ACTIVE).len(), 10);
}

#[test]
fn one_that_is_not_to_go_any_more_makes_room_at_once() {
    let mut pair = eight_of_ten_on_their_way();
    pair.set_traffic(false);
    pair.run(50);
    let first = departures(&pair, ACTIVE)[0] as usize;
    report_rearming(&mut pair, first);
    let id = pair.id(ACTIVE, first);
    pair.tell(ACTIVE, Input::Policy(id, PolicyOverride::default()));
    pair.run(1_000);
    assert_eq!(departures(&pair, ACTIVE).len(), 9);
}

/// A source that has known no path for long is asked once a minute. There are ten seconds for the way.
#[test]
fn an_active_side_whose_turn_it_is_asks_for_a_path_at_once() {
    let mut pair = without_a_way(3, ACTIVE, 1, after(40_000));
    let queries = |pair: &Pair| pair.view(ACTIVE).counters.queries;
    pair.run(36_000);
    let asked = queries(&pair);
    pair.run(2_000);
    pair.sa_knows_only(all_paths());
    pair.run(900);
    assert_eq!(queries(&pair), asked);
    pair.run(3_000);
    assert_eq!(pair.qp(ACTIVE).primary.port, 2);
    pair.assert_armed();
}

/// Its last SAPs were lost, so that the next one would be long in coming.
#[test]
fn a_passive_side_whose_turn_it_is_asks_its_peer_at_once() {
    let mut pair = Pair::new(4);
    pair.policies[PASSIVE] = after(60_000);
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    pair.lose.insert("SAP", usize::MAX);
    pair.command(PASSIVE, Command::Rearm);
    pair.run(50_000);
    let sent = pair.hosts[PASSIVE].sent("SAP");
    pair.run(4_000);
    assert_eq!(pair.hosts[PASSIVE].sent("SAP"), sent);
    pair.lose.clear();
    pair.run(5_000);
    assert_eq!(pair.qp(PASSIVE).primary.port, 2);
    pair.assert_armed();
}

/// Where the peer wants the alternate to end counts no more when the connection itself ends there.
#[test]
fn a_wish_that_is_fulfilled_leaves_the_choice_of_the_next_alternate_free() {
    let mut pair = without_a_way(5, PASSIVE, 1, prefer(2));
    pair.run(3_500);
    pair.sa_knows_only(all_paths());
    while pair.qp(PASSIVE).primary.port != 2 {
        pair.run(1);
        assert!(pair.now < 10_000_000, "it does not go");
    }
    for _ in 0..30 {
        pair.run(100);
        pair.assert_armed();
        pair.assert_best_alternates();
    }
}
