// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths may be alternates: by default, and of a connection in particular.

use cm_msgs::cm::ApStatus;
use cm_msgs::control::{Mode, Policy, PolicyOverride};
use cm_msgs::path::Path;
use statemachine::Input;
use statemachine::view::{Protection, Reason};

use super::pair::{ACTIVE, PASSIVE, Pair};

fn mode(mode: Mode) -> PolicyOverride {
    PolicyOverride {
        mode: Some(mode),
        ..PolicyOverride::default()
    }
}

/// Both ends run, with these policies of their libraries.
fn running(lmc: u8, policies: [PolicyOverride; 2]) -> Pair {
    let mut pair = Pair::with(1, lmc, 1);
    pair.policies = policies;
    start(pair)
}

fn start(mut pair: Pair) -> Pair {
    pair.begin();
    pair.run(2_000);
    pair
}

/// Whether the loaded alternate has the primary's two ports.
fn same_ports(pair: &Pair) -> bool {
    let qp = pair.qp(ACTIVE);
    let ports = |path: &Path| (path.slid.0 & !7, path.dlid.0 & !7);
    ports(&qp.primary) == ports(&qp.alternate.expect("armed"))
}

fn reason(pair: &Pair, host: usize) -> Option<Reason> {
    let view = pair.view(host);
    assert_eq!(view.protection, Protection::Unprotected, "{view:#?}");
    view.reason
}

#[test]
fn by_default_another_port_comes_before_another_lid() {
    let mut pair = running(2, Default::default());
    pair.assert_armed();
    assert!(!same_ports(&pair));
    assert_eq!(pair.view(ACTIVE).policy, Policy::DEFAULT);
    pair.pull(PASSIVE, 2);
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    pair.assert_armed();
    assert!(same_ports(&pair), "better than nothing");
}

#[test]
fn mode_lid_takes_another_lid_of_the_same_ports() {
    let pair = running(2, [mode(Mode::Lid); 2]);
    pair.assert_armed();
    assert!(same_ports(&pair));
}

#[test]
fn mode_port_takes_no_other_lid() {
    let mut pair = running(2, [mode(Mode::Port); 2]);
    pair.assert_armed();
    assert!(!same_ports(&pair));
    pair.pull(PASSIVE, 2);
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    assert_ne!(pair.view(ACTIVE).protection, Protection::Armed);
    assert!(!same_ports(&pair), "rather none");
    pair.plug(PASSIVE, 2);
    pair.run(3_000);
    pair.assert_armed();
    assert!(!same_ports(&pair));
}

#[test]
fn mode_lid_without_lids_says_why_there_is_no_alternate() {
    let pair = running(0, [mode(Mode::Lid), PolicyOverride::default()]);
    assert_eq!(reason(&pair, ACTIVE), Some(Reason::Policy(Mode::Lid)));
    let pair = running(0, [PolicyOverride::default(), mode(Mode::Lid)]);
    assert_eq!(
        reason(&pair, PASSIVE),
        Some(Reason::AprSent(ApStatus::Unsupported))
    );
    assert_eq!(reason(&pair, ACTIVE), Some(Reason::PeerPolicy(Mode::Lid)));
}

#[test]
fn the_peers_policy_counts_as_well() {
    for (policy, lids) in [(Mode::Lid, true), (Mode::Port, false)] {
        for policies in [
            [mode(policy), mode(Mode::Any)],
            [mode(Mode::Any), mode(policy)],
        ] {
            let pair = running(2, policies);
            pair.assert_armed();
            assert_eq!(same_ports(&pair), lids, "{policies:?}");
        }
    }
}

#[test]
fn ends_that_want_contrary_things_say_so_and_are_quiet() {
    let mut pair = running(2, [mode(Mode::Lid), mode(Mode::Port)]);
    assert_eq!(reason(&pair, ACTIVE), Some(Reason::PeerPolicy(Mode::Port)));
    let before = pair.all_sent(ACTIVE) + pair.all_sent(PASSIVE);
    pair.run(60_000);
    let sent = pair.all_sent(ACTIVE) + pair.all_sent(PASSIVE) - before;
    assert!(sent < 60, "{sent} messages in a minute");
    assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
}

#[test]
fn a_policy_that_forbids_what_is_armed_replaces_it() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = running(2, Default::default());
        pair.assert_armed();
        pair.set_policy(host, mode(Mode::Lid));
        assert_ne!(pair.view(host).protection, Protection::Armed);
        pair.run(500);
        pair.assert_armed();
        assert!(same_ports(&pair), "host {host}");
        pair.set_policy(host, mode(Mode::Port));
        pair.run(500);
        pair.assert_armed();
        assert!(!same_ports(&pair), "host {host}");
        pair.set_policy(host, mode(Mode::Lid));
        pair.run(500);
        pair.set_policy(host, mode(Mode::Any));
        pair.run(500);
        pair.assert_armed();
        assert!(!same_ports(&pair), "any prefers another port: host {host}");
    }
}

#[test]
fn what_the_policy_forbids_still_saves_the_connection() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.set_policy(host, mode(Mode::Lid));
        pair.run(500);
        assert_eq!(reason(&pair, host), Some(Reason::Policy(Mode::Lid)));
        pair.pull(ACTIVE, 1);
        pair.run(2_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        assert_eq!(pair.qp(ACTIVE).primary.port, 2);
    }
}

#[test]
fn a_default_that_changes_is_for_those_of_which_nothing_is_said() {
    let mut pair = Pair::with(1, 2, 2);
    pair = start(pair);
    pair.assert_armed();
    let second = pair.id(ACTIVE, 1);
    pair.tell(ACTIVE, Input::Policy(second, mode(Mode::Port)));
    let mut config = pair.config.clone();
    config.policy.mode = Mode::Lid;
    pair.configure(ACTIVE, config);
    pair.run(500);
    let ports = |qp: &super::pair::Qp| qp.alternate.map(|path| path.port);
    let alternates: Vec<_> = pair.hosts[ACTIVE].qps.iter().map(ports).collect();
    assert_eq!(alternates, [Some(1), Some(2)]);
}

#[test]
fn where_there_are_other_lids_that_there_are_none_is_not_the_reason() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::with(1, 2, 1);
        pair.policies[host] = mode(Mode::Lid);
        pair.sa_dead = true;
        let pair = start(pair);
        assert_ne!(reason(&pair, host), Some(Reason::Policy(Mode::Lid)));
    }
}

#[test]
fn of_two_policies_the_one_that_leaves_nothing_is_named() {
    let pair = running(0, [mode(Mode::Port), mode(Mode::Lid)]);
    assert_eq!(reason(&pair, ACTIVE), Some(Reason::PeerPolicy(Mode::Lid)));
}

#[test]
fn a_policy_that_changes_ends_a_pause() {
    let mut pair = Pair::with(2, 2, 1);
    pair.sa_dead = true;
    pair.begin();
    pair.run(60_000);
    pair.sa_dead = false;
    pair.set_policy(ACTIVE, mode(Mode::Lid));
    assert!(pair.run_until_armed(2_000) < 500);
    assert!(same_ports(&pair));
}
