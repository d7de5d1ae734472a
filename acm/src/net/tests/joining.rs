// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups and queue pairs, as ports, partitions and SMs come and go.

use super::*;

#[test]
fn without_an_sa_nothing_is_asked_and_joins_go_on() {
    let mut world = World::new(Settings::default(), 0);
    world.sa_answers = false;
    world.hosts = World::new(Settings::default(), 2).hosts;
    for host in &mut world.hosts {
        host.net = Net::new(Settings::default(), Random::new([1; 32]));
        host.attached = None;
        let id = partition(host.number);
        host.net.set_endpoints(Time(0), &[id]);
        host.net
            .handle_port(Time(0), id.port, Some(up(host.number)));
    }
    world.settle();
    world.run(10);
    world.lookup(0, 1, ip(2));
    assert_eq!(world.result(0, 1), Err(LookupError::NotReady));
    world.sa_answers = true;
    world.run(60);
    assert!(world.resolve(0, 2, ip(2)).is_ok());
}

#[test]
fn a_new_sm_moves_the_group() {
    let mut world = World::ready(Settings::default(), 2);
    assert_eq!(world.hosts[0].attached, Some(Lid(0xc003)));
    world.base = 0xc100;
    world.sa_answers = false;
    for host in 0..2 {
        let port = partition(world.hosts[host].number).port;
        world.hosts[host].net.handle_reregister(world.now, port);
    }
    world.settle();
    world.run(3);
    assert!(
        world.resolve(0, 1, ip(2)).is_ok(),
        "the old group works while it does"
    );
    world.sa_answers = true;
    world.run(10);
    assert_eq!(world.hosts[0].attached, Some(Lid(0xc103)));
    world.run(60);
    assert!(world.resolve(0, 2, ip(2)).is_ok());
    assert_eq!(world.left, [], "the new SM never knew");
}

#[test]
fn a_port_that_goes_down_takes_its_questions_along() {
    let mut world = World::ready(Settings::default(), 2);
    world.lookup(0, 1, ip(77));
    let id = partition(1);
    world.hosts[0].net.handle_port(world.now, id.port, None);
    world.settle();
    assert_eq!(world.result(0, 1), Err(LookupError::NotReady));
    assert_eq!(world.hosts[0].attached, None);
    world.hosts[0]
        .net
        .handle_port(world.now, id.port, Some(up(1)));
    world.settle();
    world.run(1);
    assert!(world.resolve(0, 2, ip(2)).is_ok());
}

#[test]
fn endpoints_that_end_leave() {
    let mut world = World::ready(Settings::default(), 2);
    world.lookup(0, 1, ip(77));
    world.hosts[0].net.set_endpoints(world.now, &[]);
    world.settle();
    assert_eq!(world.result(0, 1), Err(LookupError::NotReady));
    assert_eq!(world.hosts[0].attached, None);
    assert_eq!(world.left, [Settings::default().least.mgid(PKEY)]);
    assert_eq!(world.hosts[0].net.counters().questions, 1, "not forgotten");
    world.lookup(0, 2, ip(2));
    assert_eq!(world.result(0, 2), Err(LookupError::NotReady));
}

#[test]
fn a_broken_queue_pair_is_made_anew_ever_more_slowly() {
    let mut net = Net::new(Settings::default(), Random::new([1; 32]));
    let id = partition(1);
    net.handle_port(Time(0), id.port, Some(up(1)));
    net.set_endpoints(Time(0), &[id]);
    let mut now = Time(0);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let open = std::iter::from_fn(|| net.poll_output())
            .any(|output| matches!(output, Output::Open { .. }));
        assert!(open);
        net.handle_broken(now, id);
        let at = net.poll_timeout().unwrap();
        pauses.push((at - now).as_secs());
        now = at;
        net.handle_time(now);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    net.poll_output();
    net.handle_opened(now, id, Qpn(5));
    let join_is_lost = Time(300_000_000);
    assert_eq!(net.poll_timeout(), Some(join_is_lost), "nothing earlier");
}

#[test]
fn a_partition_that_the_port_lacks_is_not_opened() {
    let mut net = Net::new(Settings::default(), Random::new([1; 32]));
    let id = PortPartition {
        pkey: PKey(0x8123),
        ..partition(1)
    };
    net.set_endpoints(Time(0), &[id]);
    net.handle_port(Time(0), id.port, Some(up(1)));
    let opened = std::iter::from_fn(|| net.poll_output())
        .any(|output| matches!(output, Output::Open { .. }));
    assert!(!opened);
    let limited = UpPort {
        pkeys: vec![PKey(0x0123)],
        ..up(1)
    };
    net.handle_port(Time(1), id.port, Some(limited));
    let index = std::iter::from_fn(|| net.poll_output()).find_map(|output| match output {
        Output::Open { pkey_index, .. } => Some(pkey_index),
        _ => None,
    });
    assert_eq!(index, Some(0), "the partition with another membership");
}
