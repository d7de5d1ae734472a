// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolvers that talk to each other over a wire that loses what it likes, before an SA that
//! grants joins; and datagrams of any bytes.

use cm_msgs::Guid;
use cm_msgs::acm::Name;
use cm_msgs::acm::resolve::{Answer, Groups, Message, Question};

use super::group::MULTICAST_QPN;
use super::*;

const PKEY: PKey = PKey(0xffff);
/// How long a datagram and an answer of the SA take.
const LATENCY: Duration = Duration::from_millis(1);

fn partition(host: u8) -> PortPartition {
    PortPartition {
        port: PortId {
            node_guid: Guid(host.into()),
            port: 1,
        },
        pkey: PKEY,
    }
}

fn up(host: u8) -> UpPort {
    UpPort {
        gid: Gid([host; 16]),
        lid: Lid(host.into()),
        sm_lid: Lid(99),
        pkeys: vec![PKey(0), PKEY],
        rate: 7,
        mtu: 5,
        subnet_timeout: 18,
    }
}

fn ip(last: u8) -> Address {
    Address::Ip([10, 0, 0, last].into())
}

fn name(text: &str) -> Address {
    Address::Name(Name::new(text).unwrap())
}

fn way_of(host: u8) -> Way {
    Way {
        gid: Gid([host; 16]),
        lid: Lid(host.into()),
        sl: 0,
        path_bits: 0,
        rate: 0,
        flow_label: 0,
        hop_limit: 0,
        traffic_class: 0,
    }
}

struct Host {
    number: u8,
    net: Net,
    addresses: Vec<Address>,
    attached: Option<Lid>,
    found: Vec<(Time, u32, Result<Found, LookupError>)>,
}

enum Event {
    Datagram(usize, Datagram),
    Granted(usize, u32, Option<McMemberRecord>),
}

/// Hosts, the wire between them, and the SA.
struct World {
    now: Time,
    hosts: Vec<Host>,
    events: Vec<(Time, Event)>,
    /// Of a hundred datagrams, so many are lost.
    loss: u64,
    random: u64,
    sa_answers: bool,
    left: Vec<Gid>,
    /// Datagrams that were sent.
    sent: Vec<(Time, u8, Qpn, [u8; 256])>,
    /// Where the SA has moved its groups.
    base: u16,
}

impl World {
    fn new(settings: Settings, hosts: u8) -> Self {
        let host = |number| Host {
            number,
            net: Net::new(settings, number.into()),
            addresses: vec![ip(number), name(&format!("host-{number}"))],
            attached: None,
            found: Vec::new(),
        };
        let mut world = Self {
            now: Time(0),
            hosts: (1..=hosts).map(host).collect(),
            events: Vec::new(),
            loss: 0,
            random: 42,
            sa_answers: true,
            left: Vec::new(),
            sent: Vec::new(),
            base: 0xc000,
        };
        for host in &mut world.hosts {
            let id = partition(host.number);
            host.net
                .handle_port(Time(0), id.port, Some(up(host.number)));
            host.net.set_endpoints(Time(0), &[id]);
        }
        world.settle();
        world
    }

    fn lost(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % 100 < self.loss
    }

    fn lookup(&mut self, host: usize, number: u32, destination: Address) {
        let lookup = Lookup {
            number,
            endpoint: partition(self.hosts[host].number),
            source: self.hosts[host].addresses[0],
            destination,
        };
        self.hosts[host].net.lookup(self.now, &lookup);
        self.settle();
    }

    /// Does what all hosts want done now.
    fn settle(&mut self) {
        for host in 0..self.hosts.len() {
            while let Some(output) = self.hosts[host].net.poll_output() {
                self.output(host, output);
            }
        }
    }

    fn output(&mut self, host: usize, output: Output) {
        let (now, number) = (self.now, self.hosts[host].number);
        match output {
            Output::Open {
                endpoint,
                pkey_index,
            } => {
                assert_eq!(pkey_index, 1);
                let qpn = Qpn(u32::from(number) + 16);
                self.hosts[host].net.handle_opened(now, endpoint, qpn);
            }
            Output::Close(_) => self.hosts[host].attached = None,
            Output::Attach { lid, .. } => {
                assert_eq!(self.hosts[host].attached.replace(lid), None);
            }
            Output::Detach { lid, .. } => {
                assert_eq!(self.hosts[host].attached.take(), Some(lid));
            }
            Output::Join {
                user, membership, ..
            } => {
                let granted = self.sa_answers.then(|| self.grant(membership.record));
                self.events
                    .push((now + LATENCY, Event::Granted(host, user, granted)));
            }
            Output::Leave { membership, .. } => self.left.push(membership.record.mgid),
            Output::Send {
                way, qpn, bytes, ..
            } => {
                self.sent.push((now, number, qpn, *bytes));
                self.carry(host, &way, qpn, &*bytes);
            }
            Output::Found(number, result) => {
                self.hosts[host].found.push((now, number, result));
            }
        }
    }

    fn grant(&self, asked: McMemberRecord) -> McMemberRecord {
        let mlid = self.base + u16::from(asked.rate);
        McMemberRecord {
            mlid,
            sl: 2,
            packet_life_time: 18,
            ..asked
        }
    }

    fn carry(&mut self, from: usize, way: &Way, qpn: Qpn, bytes: &[u8]) {
        let number = self.hosts[from].number;
        for to in 0..self.hosts.len() {
            let there = match qpn {
                MULTICAST_QPN => self.hosts[to].attached == Some(way.lid),
                _ => way.gid == up(self.hosts[to].number).gid,
            };
            if !there || self.lost() {
                continue;
            }
            let datagram = Datagram {
                gid: Some(Gid([number; 16])),
                lid: Lid(number.into()),
                qpn: Qpn(u32::from(number) + 16),
                sl: way.sl,
                path_bits: 0,
                payload: bytes.to_vec(),
            };
            self.events
                .push((self.now + LATENCY, Event::Datagram(to, datagram)));
        }
    }

    /// Lets time pass until nothing is due before `end`.
    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            let event = self.events.iter().map(|(at, _)| *at).min();
            let timeouts = self.hosts.iter().filter_map(|host| host.net.poll_timeout());
            let Some(next) = timeouts.chain(event).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.events = later;
        for (_, event) in due {
            match event {
                Event::Datagram(host, datagram) => self.deliver(host, &datagram).unwrap(),
                Event::Granted(host, user, record) => {
                    self.hosts[host].net.handle_joined(now, user, record);
                }
            }
            self.settle();
        }
        for host in &mut self.hosts {
            host.net.handle_time(now);
        }
        self.settle();
    }

    fn deliver(&mut self, host: usize, datagram: &Datagram) -> Result<(), Malformed> {
        let Host {
            number,
            net,
            addresses,
            ..
        } = &mut self.hosts[host];
        let mine = |address: &Address| addresses.contains(address);
        net.handle_datagram(self.now, partition(*number), datagram, mine)
    }

    fn result(&self, host: usize, number: u32) -> Result<Found, LookupError> {
        let found = &self.hosts[host].found;
        let mut results = found.iter().filter(|(_, other, _)| *other == number);
        let (_, _, result) = results.next().expect("answered");
        assert!(results.next().is_none(), "answered once");
        *result
    }

    fn questions(&self) -> usize {
        let multicast = |(_, _, qpn, _): &&(Time, u8, Qpn, [u8; 256])| *qpn == MULTICAST_QPN;
        self.sent.iter().filter(multicast).count()
    }
}

#[test]
fn one_asks_and_the_one_concerned_answers() {
    let mut world = World::new(Settings::default(), 3);
    world.run(1);
    world.lookup(0, 7, name("HOST-2"));
    world.run(1);
    let found = world.result(0, 7).unwrap();
    assert_eq!((found.gid, found.lid), (Gid([2; 16]), Lid(2)));
    assert_eq!(found.path, None, "the SA is asked for it");
    assert_eq!(world.sent.len(), 2, "one question, one answer");
    let (_, from, qpn, answer) = world.sent[1];
    assert_eq!((from, qpn), (2, Qpn(17)), "back to where it came from");
    let Ok(Message::Answer(answer)) = Message::decode(&answer) else {
        panic!("no answer")
    };
    let least = Settings::default().least;
    assert_eq!(answer.groups.as_slice(), [least.mgid(PKEY)]);
    // Who heard the question knows the asker, and so does the one who answered.
    for host in [1, 2] {
        world.lookup(host, 8, ip(1));
        assert_eq!(world.result(host, 8).unwrap().lid, Lid(1));
    }
    assert_eq!(world.questions(), 1);
}

#[test]
fn what_was_heard_is_not_believed_for_ever() {
    let mut world = World::new(Settings::default(), 2);
    world.run(1);
    world.lookup(0, 1, ip(2));
    world.run(59);
    world.lookup(1, 2, ip(1));
    assert_eq!(world.questions(), 1);
    let believed = world.result(1, 2).unwrap().until.unwrap();
    assert!(believed > world.now && believed <= world.now + Duration::from_secs(2));
    world.run(2);
    world.lookup(1, 3, ip(1));
    assert_eq!(world.questions(), 2);
    world.run(1);
    let asked = world.result(1, 3).unwrap();
    assert_eq!((asked.lid, asked.until), (Lid(1), None));
}

#[test]
fn with_route_prot_acm_the_path_is_the_best_common_groups() {
    let settings = Settings {
        route_prot: RouteProt::Acm,
        ..Settings::default()
    };
    let mut world = World::new(settings, 2);
    world.run(1);
    world.lookup(0, 1, ip(2));
    world.run(1);
    let path = world.result(0, 1).unwrap().path.unwrap();
    assert_eq!((path.sgid, path.dgid), (Gid([1; 16]), Gid([2; 16])));
    assert_eq!((path.slid, path.dlid), (Lid(1), Lid(2)));
    assert_eq!((path.rate, path.mtu), (7, 5), "that of the ports");
    assert_eq!((path.sl, path.packet_life_time), (2, 18));
    assert!(path.reversible);
    // A slower peer is in the first group only.
    let slow = UpPort {
        rate: 3,
        mtu: 4,
        ..up(2)
    };
    world.hosts[1]
        .net
        .handle_port(world.now, partition(2).port, Some(slow));
    world.settle();
    world.run(11);
    world.lookup(1, 2, ip(1));
    world.run(1);
    let path = world.result(1, 2).unwrap().path.unwrap();
    assert_eq!((path.rate, path.mtu), (3, 4));
    assert_eq!(world.left.len(), 1, "the group that is no longer wanted");
}

#[test]
fn a_lossy_wire_is_asked_again() {
    let mut answered = 0;
    for round in 0..200 {
        let mut world = World::new(Settings::default(), 2);
        world.run(1);
        (world.loss, world.random) = (30, round);
        world.lookup(0, 1, ip(2));
        world.lookup(1, 2, ip(1));
        world.run(60);
        for (host, number) in [(0, 1), (1, 2)] {
            match world.result(host, number) {
                Ok(found) => {
                    assert_eq!(found.lid, Lid(2 - host as u16));
                    answered += 1;
                }
                Err(error) => assert_eq!(error, LookupError::Unanswered),
            }
        }
        assert!(world.questions() <= 6);
    }
    // Each of three tries gets through with 0.49, or the peer's own question does with 0.7.
    assert!(answered > 380, "{answered} of 400");
}

#[test]
fn nobody_there_is_remembered_for_a_while() {
    let mut world = World::new(Settings::default(), 2);
    world.run(1);
    world.lookup(0, 1, ip(77));
    world.run(30);
    assert_eq!(world.result(0, 1), Err(LookupError::Unanswered));
    let times: Vec<_> = world.sent.iter().map(|(at, ..)| at.0 / 1_000_000).collect();
    assert_eq!(times.len(), 3);
    assert!(times[1] - times[0] >= 3, "2 s and SubnetTimeOut");
    assert!(times[2] - times[1] >= 6, "twice that");
    let (given_up, ..) = world.hosts[0].found[0];
    world.now = given_up;
    world.lookup(0, 2, ip(77));
    assert_eq!(world.result(0, 2), Err(LookupError::Unanswered), "at once");
    assert_eq!(world.questions(), 3);
    // It comes up and speaks.
    world.hosts[1].addresses = vec![ip(77)];
    world.lookup(1, 3, ip(55));
    world.run(1);
    world.lookup(0, 4, ip(77));
    assert_eq!(world.result(0, 4).unwrap().lid, Lid(2));
}

#[test]
fn without_an_sa_nothing_is_asked_and_joins_go_on() {
    let mut world = World::new(Settings::default(), 0);
    world.sa_answers = false;
    world.hosts = World::new(Settings::default(), 2).hosts;
    for host in &mut world.hosts {
        host.net = Net::new(Settings::default(), 1);
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
    world.lookup(0, 2, ip(2));
    world.run(1);
    assert!(world.result(0, 2).is_ok());
}

#[test]
fn a_new_sm_moves_the_group() {
    let mut world = World::new(Settings::default(), 2);
    world.run(1);
    assert_eq!(world.hosts[0].attached, Some(Lid(0xc003)));
    world.base = 0xc100;
    world.sa_answers = false;
    for host in 0..2 {
        let port = partition(world.hosts[host].number).port;
        world.hosts[host].net.handle_reregister(world.now, port);
    }
    world.settle();
    world.run(3);
    world.lookup(0, 1, ip(2));
    world.run(1);
    assert!(
        world.result(0, 1).is_ok(),
        "the old group works while it does"
    );
    world.sa_answers = true;
    world.run(10);
    assert_eq!(world.hosts[0].attached, Some(Lid(0xc103)));
    world.run(60);
    world.lookup(0, 2, ip(2));
    world.run(1);
    assert!(world.result(0, 2).is_ok());
    assert_eq!(world.left, [], "the new SM never knew");
}

#[test]
fn a_port_that_goes_down_takes_its_questions_along() {
    let mut world = World::new(Settings::default(), 2);
    world.run(1);
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
    world.lookup(0, 2, ip(2));
    world.run(1);
    assert!(world.result(0, 2).is_ok());
}

#[test]
fn endpoints_that_end_leave() {
    let mut world = World::new(Settings::default(), 2);
    world.run(1);
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
    let mut net = Net::new(Settings::default(), 1);
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
    assert_eq!(net.poll_timeout(), None);
}

#[test]
fn a_partition_that_the_port_lacks_is_not_opened() {
    let mut net = Net::new(Settings::default(), 1);
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

#[test]
fn answers_go_back_by_the_way_that_the_question_came() {
    let mut world = World::new(Settings::default(), 1);
    world.run(1);
    let group = Settings::default().least.mgid(PKEY);
    let asked = datagram(9, &question(ip(9), ip(1), &[Gid([0xff; 16]), group]));
    world.deliver(0, &asked).unwrap();
    let sent = std::iter::from_fn(|| world.hosts[0].net.poll_output()).last();
    let Some(Output::Send { way, qpn, .. }) = sent else {
        panic!("{sent:?}")
    };
    assert_eq!(qpn, Qpn(25));
    assert_eq!(
        way,
        Way {
            sl: 5,
            rate: 3,
            ..way_of(9)
        }
    );
}

#[test]
fn members_of_other_groups_only_get_no_answer() {
    let mut world = World::new(Settings::default(), 1);
    world.run(1);
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
    let mut world = World::new(Settings::default(), 1);
    world.run(1);
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
    let mut world = World::new(Settings::default(), 1);
    world.run(1);
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
