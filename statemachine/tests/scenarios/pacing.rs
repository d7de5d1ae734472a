// SPDX-License-Identifier: MIT OR Apache-2.0
//! What many new connections, or one program's registering and closing, may cost others.

use cm_msgs::control::MigrationState;
use statemachine::Input;

use super::pair::{ACTIVE, PASSIVE, Pair};

fn started(connections: usize) -> Pair {
    let mut pair = Pair::with(1, 0, connections);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    pair.set_traffic(true);
    pair
}

#[test]
fn registering_and_closing_in_a_loop_is_paced() {
    let mut pair = started(1);
    let before = pair.all_sent(ACTIVE);
    for conn in 0..3_000 {
        pair.register_and_close(ACTIVE, 99, conn);
    }
    // In 3 s: the burst, and one for each 20 ms. Each costs a REQ, and a REJ when it is closed.
    let most = 2 * (256 + 3_000 / 20 + 1);
    let sent = pair.all_sent(ACTIVE) - before;
    assert!((most / 2..=most).contains(&sent), "{sent} MADs");
}

#[test]
fn who_registers_in_a_loop_holds_up_no_other() {
    let mut pair = started(1);
    for conn in 0..1_000 {
        pair.register_and_close(ACTIVE, 99, conn);
    }
    pair.register(PASSIVE);
    pair.register(ACTIVE);
    assert!(pair.run_until_armed(1_000) < 100);
}

#[test]
fn a_new_socket_for_each_registration_does_not_help() {
    let mut pair = started(1);
    let before = pair.all_sent(ACTIVE);
    for client in 0..3_000 {
        pair.register_and_close(ACTIVE, 100 + client, client);
    }
    // All are the same user's.
    let most = 2 * (256 + 3_000 / 20 + 1);
    let sent = pair.all_sent(ACTIVE) - before;
    assert!(sent <= most, "{sent} MADs");
}

#[test]
fn connections_that_stay_are_taken_up_as_fast_as_the_peer_answers() {
    let mut pair = started(300);
    pair.register(PASSIVE);
    pair.register(ACTIVE);
    assert!(pair.run_until_armed(5_000) < 300);
}

/// How long it takes to arm the first connection again after its alternate's port is lost, while
/// so many others ask for their first path, of an SA that takes 20 ms for each.
fn rearm_among(others: usize) -> u64 {
    let mut pair = started(1 + others);
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 0..1);
    }
    pair.run(1_000);
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Armed);
    pair.sa_takes = Some(20_000);
    for host in [PASSIVE, ACTIVE] {
        pair.register_some(host, 1..1 + others);
    }
    // Until no answer to one of them is good for the next who asks.
    pair.run(1_500);
    // Only the first: the others' ports stay as they are.
    pair.sa_knows_only(vec![((ACTIVE, 2), (PASSIVE, 1))]);
    pair.report_broken_alternate(ACTIVE);
    let loads = pair.view(ACTIVE).counters.loads;
    let start = pair.now;
    while pair.view(ACTIVE).counters.loads == loads {
        pair.run(1);
        assert!(pair.now - start < 60_000_000, "{:#?}", pair.view(ACTIVE));
    }
    (pair.now - start) / 1_000
}

#[test]
fn first_paths_of_new_connections_hold_up_no_lost_alternate() {
    let (alone, among) = (rearm_among(0), rearm_among(200));
    // Those that are under way cannot be called back: eight, by 20 ms.
    assert!(among <= 2 * alone + 8 * 20, "{among} ms, alone {alone} ms");
}

/// How long it takes to arm a connection again whose alternate's far port is lost, just after another
/// user has begun so many to where nobody answers.
fn rearm_beside(silent: u32) -> u64 {
    let mut pair = started(1);
    pair.register(PASSIVE);
    pair.register(ACTIVE);
    pair.run(1_000);
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Armed);
    let loads = pair.view(ACTIVE).counters.loads;
    let start = pair.now;
    pair.pull(PASSIVE, 2);
    (0..silent).for_each(|conn| pair.register_to_nobody(ACTIVE, conn));
    while pair.view(ACTIVE).counters.loads == loads {
        pair.run(1);
        assert!(pair.now - start < 60_000_000, "{:#?}", pair.view(ACTIVE));
    }
    (pair.now - start) / 1_000
}

#[test]
fn requests_without_an_answer_hold_up_no_lost_alternate() {
    let (alone, beside) = (rearm_beside(0), rearm_beside(1_000));
    assert!(beside <= alone + 5, "{beside} ms, alone {alone} ms");
}

/// 300 connections whose peer answers live for so many seconds, and their user closes them. In how many milliseconds
/// the user's next one is asked for.
fn asked_after_300_that_lived(seconds: u64) -> u64 {
    let mut pair = Pair::with(2, 0, 301);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..300);
    }
    pair.run(seconds * 1_000);
    let reqs = pair.hosts[ACTIVE].sent("REQ");
    assert!(reqs >= 300, "{reqs}");
    for conn in 0..300 {
        let id = pair.id(ACTIVE, conn);
        pair.hosts[ACTIVE].registered[conn] = false;
        pair.tell(ACTIVE, Input::Close(id));
    }
    pair.run(1);
    let start = pair.now;
    pair.register_some(ACTIVE, 300..301);
    while pair.hosts[ACTIVE].sent("REQ") == reqs {
        pair.run(1);
        assert!(pair.now - start < 60_000_000);
    }
    (pair.now - start) / 1_000
}

/// Else a loop of connecting and closing would take as many MADs and path queries as it likes, since its peer answers.
#[test]
fn connections_that_close_at_once_are_paid_for_though_the_peer_answers() {
    assert!(asked_after_300_that_lived(2) > 10);
    assert!(asked_after_300_that_lived(15) <= 1);
}
