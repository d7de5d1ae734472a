// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that cannot be managed.

use cm_msgs::association;
use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Refusal, Register};
use cm_msgs::path::Path;
use statemachine::view::{AssociationState, Protection, Reason};
use statemachine::{Input, PortStatus};

use super::pair::{ACTIVE, OWNER, PASSIVE, Pair, base_lid, random};

fn with_ports(host: usize, change: impl Fn(&mut PortStatus)) -> Pair {
    let mut pair = Pair::new(1);
    pair.hosts[host].ports.iter_mut().for_each(change);
    pair.begin();
    pair.run(2_000);
    pair
}

fn assert_refused(pair: &Pair, host: usize, refusal: Refusal) {
    assert_eq!(pair.hosts[host].refused[0], Some(refusal));
    let view = pair.view(host);
    assert_eq!(view.protection, Protection::Refused);
    assert_eq!(view.reason, Some(Reason::Refused(refusal)));
}

#[test]
fn a_device_with_one_path_is_refused_and_the_peer_told() {
    let pair = with_ports(PASSIVE, |port| port.device_ports = 1);
    assert_refused(&pair, PASSIVE, Refusal::OnePath);
    let refused = pair.view(PASSIVE).association;
    assert_eq!(refused.state, AssociationState::Refused);
    let view = pair.view(ACTIVE);
    let told = association::Refusal::NoSecondPath;
    assert_eq!(view.reason, Some(Reason::PeerRefused(Some(told))));
    assert_eq!(view.association.state, AssociationState::Refused);
    assert_eq!(view.protection, Protection::Unprotected);
}

#[test]
fn one_port_with_several_lids_is_not_refused() {
    let mut pair = Pair::with(1, 2, 1);
    for host in [PASSIVE, ACTIVE] {
        for port in &mut pair.hosts[host].ports {
            port.device_ports = 1;
        }
        pair.hosts[host].ports[1].active = false;
        pair.start(host);
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(2_000);
    pair.assert_armed();
    let qp = pair.qp(ACTIVE);
    let alternate = qp.alternate.expect("armed");
    assert_eq!(alternate.port, qp.primary.port);
    assert_ne!(alternate.slid, qp.primary.slid);
}

#[test]
fn what_cannot_migrate_is_refused() {
    for host in [ACTIVE, PASSIVE] {
        let pair = with_ports(host, |port| port.infiniband = false);
        assert_refused(&pair, host, Refusal::NotInfiniBand);
        let pair = with_ports(host, |port| port.apm = false);
        assert_refused(&pair, host, Refusal::NoApm);
    }
}

#[test]
fn a_peer_is_told_that_the_device_cannot() {
    let pair = with_ports(PASSIVE, |port| port.apm = false);
    let told = association::Refusal::DeviceCannot;
    assert_eq!(
        pair.view(ACTIVE).reason,
        Some(Reason::PeerRefused(Some(told)))
    );
}

#[test]
fn an_unknown_device_is_refused() {
    let mut pair = Pair::new(1);
    pair.hosts[ACTIVE].engine = Some(statemachine::Engine::new(
        statemachine::Config::default(),
        random(1),
    ));
    pair.register(ACTIVE);
    pair.run(10);
    assert_refused(&pair, ACTIVE, Refusal::NoDevice);
    pair.run(10_000);
    pair.assert_asleep(ACTIVE);
}

#[test]
fn a_refusal_ends_when_the_device_appears() {
    for late in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(1);
        pair.start(PASSIVE + ACTIVE - late);
        pair.register(PASSIVE + ACTIVE - late);
        pair.hosts[late].engine = Some(statemachine::Engine::new(
            statemachine::Config::default(),
            random(7),
        ));
        pair.register(late);
        pair.set_traffic(true);
        pair.run(2_000);
        assert_refused(&pair, late, Refusal::NoDevice);
        pair.port_input(late, 1);
        pair.port_input(late, 2);
        pair.run_until_armed(150_000);
        pair.run(1_000);
        pair.assert_armed();
    }
}

/// The peer was answered with the refusal, and pauses for up to a minute before it asks again.
#[test]
fn a_passive_end_whose_refusal_has_ended_asks_itself() {
    let mut pair = with_ports(PASSIVE, |port| port.device_ports = 1);
    let why = Some(association::Refusal::NoSecondPath);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerRefused(why)));
    pair.set_traffic(true);
    pair.hosts[PASSIVE]
        .ports
        .iter_mut()
        .for_each(|port| port.device_ports = 2);
    pair.port_input(PASSIVE, 1);
    pair.port_input(PASSIVE, 2);
    pair.run_until_armed(4_000);
}

#[test]
fn no_more_connections_than_configured() {
    let mut pair = Pair::with(1, 0, 3);
    pair.config.connection_limit = 2;
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    let refused: Vec<_> = pair.hosts[ACTIVE].refused.clone();
    assert_eq!(refused, [None, None, Some(Refusal::Full)]);
    assert_eq!(pair.views(ACTIVE).len(), 2);
}

/// A connection as its owner registers it.
fn register(pair: &Pair, host: usize) -> Register {
    let view = pair.view(host);
    Register {
        role: pair.roles[host],
        opted_in: false,
        node_guid: view.node_guid,
        qpn: view.qpn,
        peer_qpn: view.peer_qpn,
        policy: PolicyOverride::default(),
        snapshot: pair.qp(host).snapshot(),
    }
}

/// The same while its queue pair is in RTR.
fn receiver(pair: &Pair, host: usize) -> Register {
    let mut register = register(pair, host);
    register.snapshot.qp_state = QpState::Rtr;
    register
}

/// A connection that `input` makes a refused one stays refused, and the active peer shows why.
fn assert_refused_for_good(
    input: impl Fn(&Pair, usize) -> Input,
    why: Refusal,
    shown_by_peer: association::Refusal,
) {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::running(1);
        let input = input(&pair, host);
        pair.tell(host, input);
        pair.run(120_000);
        assert_refused(&pair, host, why);
        let peer = pair.view(PASSIVE + ACTIVE - host);
        assert_eq!(peer.reason, Some(Reason::PeerRefused(Some(shown_by_peer))));
        assert_eq!(peer.protection, Protection::Unprotected);
        // Ports come and go, and it stays so.
        let laps = |pair: &Pair| pair.view(PASSIVE).counters.laps_received;
        let before = laps(&pair);
        pair.pull(host, 2);
        pair.run(5_000);
        pair.plug(host, 2);
        pair.run(60_000);
        assert_refused(&pair, host, why);
        assert_eq!(laps(&pair), before);
    }
}

#[test]
fn what_its_owner_cannot_load_is_refused_once_and_the_peer_told() {
    let why = Refusal::GlobalRoute;
    let refused = |pair: &Pair, host| {
        let id = pair.id(host, 0);
        Input::Refused(id, OWNER, register(pair, host), why)
    };
    assert_refused_for_good(refused, why, association::Refusal::DeviceCannot);
}

#[test]
fn a_queue_pair_that_only_receives_is_refused_once_and_the_peer_told() {
    let in_rtr = |pair: &Pair, host| Input::Register(pair.id(host, 0), OWNER, receiver(pair, host));
    let shown_by_peer = association::Refusal::ReceivesOnly;
    assert_refused_for_good(in_rtr, Refusal::ReceivesOnly, shown_by_peer);
}

/// It opens the association itself after a minute. Until then it cannot know why the peer does not.
#[test]
fn a_passive_sender_knows_of_the_active_receiver_after_a_minute() {
    let mut pair = Pair::new(1);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    let in_rtr = Input::Register(pair.id(ACTIVE, 0), OWNER, receiver(&pair, ACTIVE));
    pair.tell(ACTIVE, in_rtr);
    pair.register(PASSIVE);
    pair.run(50_000);
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::WaitingForReq));
    pair.run(20_000);
    let why = Some(association::Refusal::ReceivesOnly);
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::PeerRefused(why)));
}

/// In RTR for ten seconds, and then in RTS.
#[test]
fn a_queue_pair_that_sends_after_all_is_armed_no_later_than_it_had_waited() {
    let mut pair = Pair::new(1);
    pair.set_traffic(true);
    pair.start(PASSIVE);
    pair.start(ACTIVE);
    pair.register(PASSIVE);
    let in_rtr = Input::Register(pair.id(PASSIVE, 0), OWNER, receiver(&pair, PASSIVE));
    pair.tell(PASSIVE, in_rtr);
    pair.register(ACTIVE);
    pair.run(10_000);
    let why = Some(association::Refusal::ReceivesOnly);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerRefused(why)));
    pair.hosts[PASSIVE].refused[0] = None;
    pair.register(PASSIVE);
    pair.run_until_armed(10_000);
}

/// Its application has loaded an alternate by itself.
#[test]
fn a_library_is_ordered_nothing_for_a_connection_that_is_refused() {
    let mut pair = Pair::new(1);
    for port in &mut pair.hosts[ACTIVE].ports {
        port.apm = false;
    }
    let qp = &mut pair.hosts[ACTIVE].qps[0];
    qp.alternate = Some(Path {
        port: 2,
        slid: base_lid((ACTIVE, 2)),
        dlid: base_lid((PASSIVE, 2)),
        ..qp.primary
    });
    qp.migration = MigrationState::Rearm;
    pair.begin();
    pair.run(1_000);
    assert_refused(&pair, ACTIVE, Refusal::NoApm);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    assert_eq!(pair.hosts[ACTIVE].stands_told, []);
    assert_eq!(pair.qp(ACTIVE).primary.port, 1);
}
