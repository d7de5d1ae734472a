// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolvers that talk to each other over a wire that loses what it likes, before an SA that
//! grants joins; and datagrams of any bytes.

mod announcing;
mod datagrams;
mod joining;
mod resolving;

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

fn address_of(host: u8) -> AddressVector {
    AddressVector {
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
    found: Vec<(Time, u32, Result<Location, LookupError>)>,
    claims: Vec<(Time, Address, Gid)>,
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
            net: Net::new(settings, Random::new([number; 32])),
            addresses: vec![ip(number), name(&format!("host-{number}"))],
            attached: None,
            found: Vec::new(),
            claims: Vec::new(),
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

    /// Hosts that have had time to join.
    fn ready(settings: Settings, hosts: u8) -> Self {
        let mut world = Self::new(settings, hosts);
        world.run(1);
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
            held_by: None,
        };
        self.hosts[host].net.lookup(self.now, &lookup);
        self.settle();
    }

    /// What a host is answered within a second.
    fn resolve(
        &mut self,
        host: usize,
        number: u32,
        destination: Address,
    ) -> Result<Location, LookupError> {
        self.lookup(host, number, destination);
        self.run(1);
        self.result(host, number)
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
            Output::Send { to, qpn, bytes, .. } => {
                self.sent.push((now, number, qpn, *bytes));
                self.carry(host, &to, qpn, &*bytes);
            }
            Output::Resolved(number, result) => {
                self.hosts[host].found.push((now, number, result));
            }
            Output::Claimed { address, gid, .. } => {
                self.hosts[host].claims.push((now, address, gid));
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

    fn carry(&mut self, from: usize, to: &AddressVector, qpn: Qpn, bytes: &[u8]) {
        let number = self.hosts[from].number;
        for other in 0..self.hosts.len() {
            let there = match qpn {
                MULTICAST_QPN => self.hosts[other].attached == Some(to.lid),
                _ => to.gid == up(self.hosts[other].number).gid,
            };
            if !there || self.lost() {
                continue;
            }
            let datagram = Datagram {
                gid: Some(Gid([number; 16])),
                lid: Lid(number.into()),
                qpn: Qpn(u32::from(number) + 16),
                sl: to.sl,
                path_bits: 0,
                payload: bytes.to_vec(),
            };
            self.events
                .push((self.now + LATENCY, Event::Datagram(other, datagram)));
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

    fn result(&self, host: usize, number: u32) -> Result<Location, LookupError> {
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
