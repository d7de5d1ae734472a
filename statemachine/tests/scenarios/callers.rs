// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queries of the engine's API: counters, names, deadlines, and whether a probe is expected.

use cm_msgs::control::{Cause, Refusal, Report};
use cm_msgs::{Guid, Lid};
use statemachine::view::Counters;
use statemachine::{
    Answerer, ConnId, Engine, Input, Notice, Order, PortId, Probe, ProbePath, Time,
};

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid, gid};

fn engine(pair: &Pair, host: usize) -> &Engine {
    pair.hosts[host].engine.as_ref().expect("it runs")
}

fn engine_mut(pair: &mut Pair, host: usize) -> &mut Engine {
    pair.hosts[host].engine.as_mut().expect("it runs")
}

fn counters(pair: &Pair, host: usize) -> Counters {
    engine(pair, host).counters()
}

#[test]
fn what_is_sent_and_received_is_counted() {
    let mut pair = Pair::armed(1);
    pair.run(3_000);
    // Until nothing is on its way.
    while [ACTIVE, PASSIVE]
        .iter()
        .any(|&host| counters(&pair, host).probes_sent != counters(&pair, host).probes_answered)
    {
        pair.run_us(100);
    }
    for host in [ACTIVE, PASSIVE] {
        let counters = counters(&pair, host);
        assert_eq!(counters.mads_sent, pair.all_sent(host) as u64);
        assert_eq!(counters.mads_received, pair.all_sent(1 - host) as u64);
        assert_eq!(counters.probes_sent, pair.hosts[host].probes as u64);
        assert!(counters.probes_sent > 0);
        assert_eq!(counters.ports_lost, 0);
        assert_eq!(counters.mads_resent, 0);
    }
    pair.pull(ACTIVE, 2);
    pair.run(1_000);
    pair.plug(ACTIVE, 2);
    pair.run(1_000);
    pair.pull(ACTIVE, 1);
    pair.run(1_000);
    let lost = [ACTIVE, PASSIVE].map(|host| counters(&pair, host).ports_lost);
    assert_eq!(lost, [2, 0]);
}

#[test]
fn queries_without_a_path_in_answer_are_counted() {
    let mut pair = Pair::new(9);
    pair.sa_dead = true;
    pair.begin();
    pair.run(20_000);
    let counters = counters(&pair, ACTIVE);
    assert!(counters.queries_failed > 2);
    assert_eq!(counters.queries_failed, counters.queries);
}

#[test]
fn a_report_for_a_connection_that_does_not_exist_is_counted() {
    let mut pair = Pair::armed(8);
    let report = Report {
        cause: Cause::Changed,
        snapshot: pair.qp(ACTIVE).snapshot(),
    };
    let id = ConnId {
        client: 99,
        conn: 0,
    };
    pair.tell(ACTIVE, Input::Report(id, report));
    assert_eq!(counters(&pair, ACTIVE).reports_out_of_place, 1);
}

#[test]
fn notices_that_are_too_many_are_counted_and_dropped() {
    let mut pair = Pair::armed(2);
    let port = pair.hosts[ACTIVE].port_id(1);
    let engine = engine_mut(&mut pair, ACTIVE);
    for number in 0..300 {
        let far = gid((2 + number, 1));
        engine.handle(Time(0), Input::Notice(port, Notice::OutOfService(far)));
    }
    let counters = engine.counters();
    // The first is looked at at once, and 256 wait.
    assert_eq!((counters.notices, counters.notices_dropped), (300, 43));
}

#[test]
fn connections_are_shown_by_their_names() {
    let mut pair = Pair::with(3, 0, 3);
    assert!(pair.hosts[ACTIVE].engine.is_none());
    pair.start(ACTIVE);
    assert!(engine(&pair, ACTIVE).is_empty());
    pair.register(ACTIVE);
    assert!(!engine(&pair, ACTIVE).is_empty());
    let ids = [0, 1, 2].map(|conn| pair.id(ACTIVE, conn));
    let engine_now = engine(&pair, ACTIVE);
    let all: Vec<(ConnId, _)> = engine_now
        .identities_in(..)
        .map(|identity| (identity.id, identity.qpn))
        .collect();
    let expected = ids.map(|id| (id, pair.hosts[ACTIVE].qpn(id.conn as usize)));
    assert_eq!(all, expected);
    let rest = engine_now.identities_in(ids[1]..);
    assert!(
        rest.map(|identity| identity.id)
            .eq(ids[1..].iter().copied())
    );
    let first = engine_now.connections_in(Time(pair.now), ..ids[1]);
    assert!(first.map(|view| view.id).eq([ids[0]]));
    pair.close(ACTIVE);
    assert!(engine(&pair, ACTIVE).is_empty());
}

#[test]
fn a_probe_is_its_own_until_it_has_come_back() {
    let mut pair = Pair::armed(4);
    pair.run(2_000);
    for port in [1, 2] {
        pair.set_full(ACTIVE, port, true);
    }
    pair.run(3_000);
    let probe = engine_mut(&mut pair, ACTIVE).poll_probe(|_| true);
    let probe = probe.expect("one has waited for its port");
    let other = Probe {
        transaction_id: probe.transaction_id.wrapping_add(1),
        ..probe
    };
    let path = ProbePath {
        dlid: Lid(0x700),
        ..probe.path
    };
    let engine = engine(&pair, ACTIVE);
    assert!(engine.expects_probe(&probe) && !engine.expects_probe(&other));
    assert!(!engine.expects_probe(&Probe { path, ..probe }));
    let before = engine.counters().probes_answered;
    for answer in [other, probe, probe] {
        pair.tell(ACTIVE, Input::Probed(answer, Answerer::Daemon));
    }
    let engine = self::engine(&pair, ACTIVE);
    assert!(!engine.expects_probe(&probe), "it has come back");
    assert_eq!(engine.counters().probes_answered, before + 1);
}

#[test]
fn what_waits_to_be_polled_is_due_at_once() {
    let mut pair = Pair::armed(5);
    pair.run(2_000);
    let (now, port) = (Time(pair.now), pair.hosts[ACTIVE].port_id(1));
    let engine = engine_mut(&mut pair, ACTIVE);
    let later = |at: Option<Time>| at.is_some_and(|at| at > now);
    assert!(later(engine.poll_timeout()) && later(engine.next_alarm()));
    engine.handle(now, Input::Port(port, None));
    assert_eq!(engine.poll_timeout(), Some(now));
    assert_eq!(engine.next_alarm(), Some(now), "connections have to look");
    let order = engine.poll_order().map(|(_, order)| order);
    assert!(matches!(order, Some(Order::Migrate(_))), "{order:?}");
    while engine.poll_order().is_some() {}
    assert!(later(engine.poll_timeout()) && later(engine.next_alarm()));
}

#[test]
fn an_order_that_nobody_has_polled_is_due_at_once() {
    let mut pair = Pair::with(6, 0, 2);
    pair.config.connection_limit = 1;
    pair.start(ACTIVE);
    pair.register_some(ACTIVE, 0..1);
    pair.run(10);
    let now = Time(pair.now);
    let (other, register) = pair.registration(ACTIVE, 1);
    let engine = engine_mut(&mut pair, ACTIVE);
    engine.handle(now, register);
    assert_eq!(engine.poll_timeout(), Some(now));
    let refused = Some((other, Order::Refuse(Refusal::Full)));
    assert_eq!(engine.poll_order(), refused);
    assert_ne!(engine.poll_timeout(), Some(now));
}

#[test]
fn a_peer_is_known_by_every_lid_of_its_port() {
    const LMC: u8 = 2;
    let mut pair = Pair::with(6, LMC, 1);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..1);
    }
    pair.set_traffic(true);
    pair.run(2_000);
    let engine = engine(&pair, ACTIVE);
    for (here, there) in [(1, 1), (2, 2)] {
        let port = pair.hosts[ACTIVE].port_id(here);
        let base = base_lid((PASSIVE, there)).0;
        let known = (base - 1..=base + 4).filter(|&lid| engine.leads_to(port, Lid(lid)));
        assert!(known.eq(base..base + 4), "port {there}");
    }
    let of_nobody = PortId::new(Guid(0xdead), 1);
    assert!(!engine.leads_to(of_nobody, base_lid((PASSIVE, 1))));
}
