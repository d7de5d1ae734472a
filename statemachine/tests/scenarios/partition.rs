// SPDX-License-Identifier: MIT OR Apache-2.0
//! Association MADs go in the connection's own partition, and count in no other.

use cm_msgs::PKey;
use cm_msgs::cm::{Drep, Dreq, Message, Rtu};
use statemachine::view::{Protection, Reason};
use statemachine::{Counters, MadSource, QueryError};

use super::pair::{ACTIVE, PASSIVE, Pair, base_lid};

const STORAGE: PKey = PKey(0x8005);
const ELSEWHERE: PKey = PKey(0x8006);

fn counters(pair: &Pair, host: usize) -> Counters {
    let engine = pair.hosts[host].engine.as_ref().expect("runs");
    engine.counters()
}

/// Hosts whose ports hold these keys, and a connection that has the last of each host's.
fn hosts(seed: u64, keys: [&[u16]; 2]) -> Pair {
    let mut pair = Pair::new(seed);
    for (host, keys) in pair.hosts.iter_mut().zip(keys) {
        let keys: Vec<PKey> = keys.iter().copied().map(PKey).collect();
        for qp in &mut host.qps {
            qp.primary.pkey = *keys.last().expect("a key");
        }
        for port in &mut host.ports {
            port.pkeys.clone_from(&keys);
        }
    }
    pair
}

/// Runs until they are armed.
fn start(pair: &mut Pair) {
    for host in [ACTIVE, PASSIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.set_traffic(true);
    pair.run(3_000);
}

#[test]
fn what_is_said_goes_in_the_connections_partition() {
    let mut pair = hosts(1, [&[0xffff, STORAGE.0], &[ELSEWHERE.0, 0xffff, STORAGE.0]]);
    start(&mut pair);
    pair.assert_armed();
    pair.pull(ACTIVE, 1);
    pair.run(3_000);
    pair.assert_armed();
    for host in [ACTIVE, PASSIVE] {
        assert!(pair.all_sent(host) > 0);
        let keys = pair.hosts[host].sent_in.iter().copied();
        assert_eq!(keys.collect::<Vec<_>>(), [STORAGE], "{host}");
    }
}

#[test]
fn a_port_outside_of_the_partition_carries_nothing() {
    let mut pair = hosts(2, [&[0xffff, STORAGE.0]; 2]);
    pair.hosts[ACTIVE].ports[1].pkeys = vec![PKey::DEFAULT_FULL];
    pair.record("REQ");
    start(&mut pair);
    pair.pull(PASSIVE, 1);
    pair.run(1_000);
    let from: Vec<u8> = pair
        .recorded()
        .iter()
        .map(|(_, source, _)| source.lid.0 as u8)
        .collect();
    assert!(!from.is_empty());
    let first = pair.hosts[ACTIVE].ports[0].lid.0 as u8;
    assert!(from.iter().all(|&lid| lid == first), "{from:?}");
}

#[test]
fn no_message_leaves_by_a_port_outside_of_the_partition_though_no_other_is_up() {
    let mut pair = hosts(3, [&[0xffff, STORAGE.0]; 2]);
    pair.hosts[ACTIVE].ports[1].pkeys = vec![PKey::DEFAULT_FULL];
    pair.pull(ACTIVE, 1);
    start(&mut pair);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 0);
}

#[test]
fn a_limited_member_and_a_full_one_are_of_one_partition() {
    for keys in [
        [&[0x7fff][..], &[0xffff]],
        [&[0xffff], &[0x7fff]],
        [&[0xffff], &[0x7fff, 0xffff]],
    ] {
        let mut pair = hosts(3, keys);
        start(&mut pair);
        pair.assert_armed();
        let dropped = [ACTIVE, PASSIVE].map(|host| counters(&pair, host).mads_of_other_partitions);
        assert_eq!(dropped, [0, 0], "{keys:?}");
    }
}

#[test]
fn two_limited_members_do_not_hear_each_other() {
    let mut pair = hosts(4, [&[0x7fff]; 2]);
    start(&mut pair);
    assert_ne!(pair.view(ACTIVE).protection, Protection::Armed);
    assert_eq!(counters(&pair, PASSIVE).mads_received, 0);
}

/// The last message of each name that the peer sent to `host`, with what it came by.
fn last(pair: &Pair, host: usize) -> (MadSource, Message) {
    let recorded = pair.recorded().iter().rev();
    let last = recorded.into_iter().find(|(to, ..)| *to == host);
    let (_, source, message) = last.expect("one was sent").clone();
    (source, message)
}

/// Hands it in as if it had come in another partition; nothing comes of it.
fn ignored(pair: &mut Pair, host: usize, source: MadSource, message: Message) {
    for pkey in [ELSEWHERE, PKey(0x7ffe), PKey(0x8000), PKey(0)] {
        let before = (counters(pair, host), pair.all_sent(host));
        let name = message.name();
        let source = MadSource { pkey, ..source };
        pair.forge(host, source, message.clone());
        let after = counters(pair, host);
        let dropped = after.mads_of_other_partitions - before.0.mads_of_other_partitions;
        assert_eq!(
            (dropped, pair.all_sent(host)),
            (1, before.1),
            "{name} {pkey}"
        );
        assert_eq!(after.mads_from_strangers, before.0.mads_from_strangers);
    }
}

#[test]
fn a_message_in_another_partition_is_counted_and_not_answered() {
    for (name, host) in [
        ("REQ", PASSIVE),
        ("RTU", PASSIVE),
        ("LAP", PASSIVE),
        ("SPR", PASSIVE),
        ("REP", ACTIVE),
        ("APR", ACTIVE),
        ("SAP", ACTIVE),
    ] {
        let mut pair = Pair::new(5);
        pair.record(name);
        start(&mut pair);
        pair.pull(PASSIVE, 2);
        pair.run(2_000);
        pair.plug(PASSIVE, 2);
        pair.run(3_000);
        pair.assert_armed();
        pair.set_traffic(false);
        pair.run(1_000);
        let (source, message) = last(&pair, host);
        ignored(&mut pair, host, source, message);
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(pair.view(host).protection, Protection::Armed, "{name}");
        }
    }
}

#[test]
fn nobody_closes_an_association_from_another_partition() {
    let mut pair = Pair::new(6);
    pair.record("RTU");
    start(&mut pair);
    pair.assert_armed();
    pair.run(1_000);
    let (source, Message::Rtu(rtu)) = last(&pair, PASSIVE) else {
        panic!("recorded");
    };
    let Rtu {
        local_comm_id,
        remote_comm_id,
        ..
    } = rtu;
    let dreq = Dreq {
        local_comm_id,
        remote_comm_id,
        ..Dreq::default()
    };
    ignored(&mut pair, PASSIVE, source, dreq.clone().into());
    pair.assert_armed();
    // The same in its own partition does.
    pair.forge(PASSIVE, source, dreq.into());
    pair.run(1);
    assert_eq!(counters(&pair, PASSIVE).mads_of_other_partitions, 4);
    assert_eq!(pair.hosts[PASSIVE].sent("DREP"), 1);
}

#[test]
fn nor_ends_the_wait_for_the_answer_to_a_dreq() {
    let mut pair = Pair::armed(7);
    pair.record("DREQ");
    pair.lose.insert("DREP", 100);
    pair.close(ACTIVE);
    pair.run(1);
    let (there, Message::Dreq(dreq)) = last(&pair, PASSIVE) else {
        panic!("recorded");
    };
    let source = MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid: base_lid((PASSIVE, 1)),
        ..there
    };
    let drep = Drep {
        local_comm_id: dreq.remote_comm_id,
        remote_comm_id: dreq.local_comm_id,
        ..Drep::default()
    };
    ignored(&mut pair, ACTIVE, source, drep.clone().into());
    let sent = pair.hosts[ACTIVE].sent("DREQ");
    pair.run(1_000);
    assert!(pair.hosts[ACTIVE].sent("DREQ") > sent, "asked again");
    // The same in its own partition does.
    pair.forge(ACTIVE, source, drep.into());
    let sent = pair.hosts[ACTIVE].sent("DREQ");
    pair.run(10_000);
    assert_eq!(pair.hosts[ACTIVE].sent("DREQ"), sent);
}

#[test]
fn a_req_that_waited_for_its_program_is_taken_in_its_partition_only() {
    for (pkey, taken) in [(PKey::DEFAULT_FULL, true), (ELSEWHERE, false)] {
        let mut pair = Pair::new(8);
        pair.record("REQ");
        for host in [ACTIVE, PASSIVE] {
            pair.start(host);
        }
        pair.register(ACTIVE);
        while pair.recorded().is_empty() {
            pair.run(1);
        }
        let (source, req) = last(&pair, PASSIVE);
        pair.kill(ACTIVE);
        pair.kill(PASSIVE);
        pair.run(2_000);
        pair.start(PASSIVE);
        pair.forge(PASSIVE, MadSource { pkey, ..source }, req);
        pair.run(1);
        pair.register(PASSIVE);
        pair.run(1);
        assert_eq!(pair.hosts[PASSIVE].sent("REP") > 0, taken, "{pkey}");
    }
}

/// Why there is no alternate. The path source says of its failure: there is no path, or nothing.
fn reason_without_paths(mut pair: Pair, answers: bool) -> Option<Reason> {
    pair.sa_dead = !answers;
    pair.sa_knows_only(vec![]);
    start(&mut pair);
    let view = pair.view(ACTIVE);
    assert_eq!(view.protection, Protection::Unprotected, "{view:#?}");
    view.reason
}

#[test]
fn a_partition_is_named_where_it_explains_that_there_is_no_path() {
    let in_storage = || hosts(11, [&[0xffff, STORAGE.0], &[0xffff, STORAGE.0]]);
    let none = Some(Reason::NoPath(QueryError::NoPath));
    let in_partition = Some(Reason::NoPathInPartition(STORAGE));
    assert_eq!(reason_without_paths(in_storage(), true), in_partition);
    let silent = Some(Reason::NoPath(QueryError::Timeout));
    assert_eq!(reason_without_paths(in_storage(), false), silent);
    // In the default one, as full member or as limited one, is everybody.
    for key in [0xffff, 0x7fff] {
        let pair = hosts(12, [&[key], &[0xffff]]);
        assert_eq!(reason_without_paths(pair, true), none, "{key:#x}");
    }
}

#[test]
fn a_port_that_is_not_in_the_partition_is_named_if_it_is_up() {
    let outside = || {
        let mut pair = hosts(13, [&[0xffff, STORAGE.0], &[0xffff, STORAGE.0]]);
        pair.hosts[ACTIVE].ports[1].pkeys = vec![PKey(0xffff)];
        pair
    };
    let named = Some(Reason::NotInPartition(2, STORAGE));
    assert_eq!(reason_without_paths(outside(), true), named);
    let mut down = outside();
    down.hosts[ACTIVE].ports[1].active = false;
    assert_ne!(reason_without_paths(down, true), named);
}

#[test]
fn a_port_that_is_down_and_outside_the_partition_is_reported_as_down() {
    // With several LIDs no second port is missing.
    let mut pair = Pair::with(9, 2, 1);
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.sa_dead = true;
    pair.leave_partition(PASSIVE, 2, PKey::DEFAULT_FULL);
    pair.run(1_000);
    let outside = Reason::NotInPartition(2, PKey::DEFAULT_FULL);
    assert_eq!(pair.view(PASSIVE).reason, Some(outside));
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    assert_eq!(pair.view(PASSIVE).reason, Some(Reason::AlternatePortDown));
}
