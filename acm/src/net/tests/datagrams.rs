// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams of others: good ones, of ibacm's, and of any bytes.

use super::*;

fn datagram(from: u8, message: &Message) -> Datagram {
    Datagram {
        gid: Some(Gid([from; 16])),
        lid: Lid(from.into()),
        qpn: Qpn(u32::from(from) + 16),
        sl: 5,
        path_bits: 0,
        payload: message.encode().to_vec(),
    }
}

fn question(source: Address, destination: Address, groups: &[Gid]) -> Message {
    Message::Question(Question {
        tid: 9,
        source,
        destination,
        groups: Groups::new(groups.iter().copied()),
        responder_resources: 0,
        initiator_depth: 0,
    })
}

/// A datagram as it was captured between apmd and Debian's ibacm 44 in the VM: the first 24 bytes,
/// both addresses, and the first group; zeros everywhere else.
fn captured(head: [u8; 24], destination: &[u8], source: &[u8]) -> Vec<u8> {
    let group = [0xff, 0x15, 0x40, 0x01, 0xff, 0xff, 0, 3, 4];
    let mut bytes = vec![0; 256];
    bytes[..24].copy_from_slice(&head);
    bytes[24..][..destination.len()].copy_from_slice(destination);
    bytes[88..][..source.len()].copy_from_slice(source);
    bytes[152..][..group.len()].copy_from_slice(&group);
    bytes
}

#[test]
fn answers_go_back_by_the_way_that_the_question_came() {
    let mut world = World::ready(Settings::default(), 1);
    let group = Settings::default().least.mgid(PKEY);
    let asked = datagram(9, &question(ip(9), ip(1), &[Gid([0xff; 16]), group]));
    world.deliver(0, &asked).unwrap();
    let sent = std::iter::from_fn(|| world.hosts[0].net.poll_output()).last();
    let Some(Output::Send { to, qpn, .. }) = sent else {
        panic!("{sent:?}")
    };
    assert_eq!(qpn, Qpn(25));
    assert_eq!(
        to,
        AddressVector {
            sl: 5,
            rate: 3,
            ..address_of(9)
        }
    );
}

#[test]
fn members_of_other_groups_only_get_no_answer() {
    let mut world = World::ready(Settings::default(), 1);
    let asked = datagram(9, &question(ip(9), ip(1), &[Gid([0xff; 16])]));
    world.deliver(0, &asked).unwrap();
    world.settle();
    assert_eq!(world.sent.len(), 0);
    assert_eq!(world.hosts[0].net.counters().no_common_group, 1);
    world.lookup(0, 1, ip(9));
    assert_eq!(world.result(0, 1), Err(LookupError::NoCommonGroup));
}

#[test]
fn nobody_else_speaks_for_us_and_refusals_are_told() {
    let mut world = World::ready(Settings::default(), 1);
    let group = Settings::default().least.mgid(PKEY);
    world
        .deliver(0, &datagram(9, &question(ip(1), ip(5), &[group])))
        .unwrap();
    assert_eq!(world.hosts[0].net.counters().heard, 0, "our own address");
    world.lookup(0, 1, ip(9));
    let Ok(Message::Question(asked)) = Message::decode(&world.sent[0].3) else {
        panic!("no question")
    };
    let refusal = |tid| {
        Message::Answer(Answer {
            tid,
            status: 3,
            groups: Groups::default(),
        })
    };
    world
        .deliver(0, &datagram(9, &refusal(asked.tid ^ 1)))
        .unwrap();
    assert_eq!(world.hosts[0].net.counters().late, 1);
    world.deliver(0, &datagram(9, &refusal(asked.tid))).unwrap();
    world.settle();
    assert_eq!(world.result(0, 1), Err(LookupError::Refused(3)));
}

#[test]
fn any_bytes_are_survived() {
    let mut world = World::ready(Settings::default(), 1);
    let group = Settings::default().least.mgid(PKEY);
    let good = datagram(9, &question(ip(9), ip(1), &[group]));
    let mut malformed = 0;
    let mut random = 1u64;
    for round in 0..20_000usize {
        let mut bad = good.clone();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1442);
        let at = (random >> 40) as usize % 256;
        bad.payload[at] = (random >> 32) as u8;
        match round % 4 {
            0 => bad.payload.truncate(at),
            1 => bad.gid = None,
            2 => bad.payload.fill((random >> 24) as u8),
            _ => {}
        }
        malformed += u64::from(world.deliver(0, &bad).is_err());
        world.settle();
    }
    assert_eq!(world.hosts[0].net.counters().malformed, malformed);
    assert!((10_000..20_000).contains(&malformed), "{malformed}");
    assert_eq!(world.deliver(0, &good), Ok(()));
}

#[test]
fn ibacms_own_question_and_answer() {
    let mut world = World::new(Settings::default(), 1);
    world.hosts[0].addresses = vec![name("apm")];
    world.run(1);
    let head = [
        1, 0x2c, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 64, 1, 64, 1, 0, 0, 0,
    ];
    let mut asked = datagram(9, &question(ip(1), ip(1), &[]));
    asked.payload = captured(head, b"apm", b"beta");
    world.deliver(0, &asked).unwrap();
    world.settle();
    let head = [
        1, 0x2c, 1, 0x81, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0,
    ];
    assert_eq!(
        world.sent[0].3[..],
        captured(head, b"", b""),
        "as ibacm took it"
    );
    world.lookup(0, 1, name("gamma"));
    let mut head = [
        1, 0x2c, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 64, 1, 64, 1, 0, 0, 0,
    ];
    let tid = 8..16;
    head[tid.clone()].copy_from_slice(&world.sent[1].3[tid.clone()]);
    let ours = world.sent[1].3;
    assert_eq!(ours[..], captured(head, b"gamma", b"apm"), "as ibacm asks");
    // Its answer: no addresses, their kinds and lengths 0.
    (head[3], head[16], head[17], head[18], head[19]) = (0x81, 0, 0, 0, 0);
    let mut answer = datagram(9, &question(ip(1), ip(1), &[]));
    answer.payload = captured(head, b"", b"");
    world.deliver(0, &answer).unwrap();
    world.settle();
    assert_eq!(world.result(0, 1).unwrap().gid, Gid([9; 16]));
}
