// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of path sources with subnet administration as its only source, in two subnets of which one has a silent SA, in
//! virtual time. The engine asks as `statemachine/src/questions.rs` does: 32 paths at a time, and each for 30 s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cm_msgs::sa::{PathRecord, SaMad};
use cm_msgs::{Gid, Guid, Lid, PKey};
use paths::sa::{Limits, SaClient, SaRequest, Subnet, User};
use paths::source::sa::{ask, paths};
use paths::source::{Origin, Plan, Question, Sources, Urgency};
use statemachine::{PathQuery, PortId, Random, Time};

/// Its subnet's SA answers nothing.
const SILENT: PortId = PortId {
    node_guid: Guid(9),
    port: 1,
};
/// Its subnet's SA answers within a millisecond.
const SOUND: PortId = PortId { port: 2, ..SILENT };
/// How long the engine waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    now: Time,
    sources: Sources,
    client: SaClient,
    /// Copies that umad gives back, by time.
    unanswered: BTreeMap<(Time, u32), ()>,
    answered: BTreeSet<u32>,
    /// What the engine has asked, and when.
    asked: BTreeMap<u32, Time>,
    last: u32,
    /// Paths in the silent SA's subnet that are wanted at a time.
    wanted: usize,
    /// Who wants them.
    by: Urgency,
    /// It answers again.
    speaks: bool,
    /// Requests to either SA.
    sent: BTreeMap<u8, usize>,
}

impl World {
    fn new() -> Self {
        let mut client = SaClient::new(Limits::default(), Random::new([1; 32]));
        for (port, sm) in [(SILENT, 1), (SOUND, 2)] {
            let subnet = Subnet {
                prefix: (0xfe80 << 48) + u64::from(port.port),
                sm_lid: Lid(sm),
                sm_guid: Guid(sm.into()),
            };
            client.handle_port(port, Some(subnet));
        }
        Self {
            now: Time(0),
            sources: Sources::new(Plan::new([Origin::Sa])),
            client,
            unanswered: BTreeMap::new(),
            answered: BTreeSet::new(),
            asked: BTreeMap::new(),
            last: 0,
            wanted: 31,
            by: Urgency::Failover,
            speaks: false,
            sent: BTreeMap::new(),
        }
    }

    fn ask(&mut self, port: PortId, urgency: Urgency) -> u32 {
        self.last += 1;
        let query = PathQuery {
            query: self.last,
            port,
            sgid: Gid([port.port; 16]),
            dgid: Gid::new(7, Guid(self.last.into())),
            slid: None,
            dlid: None,
            pkey: PKey::DEFAULT_FULL,
        };
        self.asked.insert(self.last, self.now);
        let question = Question {
            urgency,
            ..Question::failover(query)
        };
        self.sources.ask(self.now, question);
        self.last
    }

    fn settle(&mut self) {
        loop {
            if let Some((Origin::Sa, query)) = self.sources.poll_abandoned() {
                self.client.withdraw(User::Paths(query));
            } else if let Some(answer) = self.sources.poll_answer() {
                self.asked.remove(&answer.query);
                if answer.result.is_ok() {
                    self.answered.insert(answer.query);
                }
            } else if let Some((_, query)) = self.sources.poll_ask(self.now) {
                self.client.ask(ask(&query, 0));
            } else if let Some(request) = self.client.poll_send() {
                self.send(&request);
            } else if let Some((user, reply)) = self.client.poll_reply() {
                let User::Paths(query) = user else {
                    unreachable!("nothing else is asked");
                };
                self.sources.handle_answer(self.now, query, paths(reply));
            } else {
                return;
            }
        }
    }

    fn send(&mut self, request: &SaRequest) {
        *self.sent.entry(request.port.port).or_default() += 1;
        if request.port == SILENT && !self.speaks {
            let after = Duration::from_millis(request.timeout_ms.into());
            let back = (self.now + after, request.transaction_id);
            self.unanswered.insert(back, ());
            return;
        }
        let mut mad = SaMad::decode(&request.mad).expect("a MAD of ours");
        mad.header.method = mad.header.response_method();
        let record = PathRecord {
            dlid: Lid(5),
            ..PathRecord::default()
        };
        mad.data[..64].copy_from_slice(&record.encode()[..]);
        let handled = self.client.handle_response(self.now, &mad.encode());
        handled.expect("an answer");
    }

    /// For so long there are paths that are wanted in the silent SA's subnet: when one is given up, another is asked for.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Duration::from_millis(10);
            while let Some((&(back, copy), ())) = self.unanswered.first_key_value()
                && back <= self.now
            {
                self.unanswered.pop_first();
                self.client.handle_timeout(copy);
            }
            self.client.handle_time(self.now);
            self.sources.handle_time(self.now);
            let (now, sources) = (self.now, &mut self.sources);
            self.asked.retain(|&query, at| {
                let waits = now - *at < PATIENCE;
                if !waits {
                    sources.withdraw(query);
                }
                waits
            });
            while self.asked.len() < self.wanted {
                self.ask(SILENT, self.by);
            }
            self.settle();
        }
    }

    /// How long it takes until a path in the other subnet is found, if the engine does not give up before.
    fn time_to_path(&mut self) -> Option<Duration> {
        let (began, number) = (self.now, self.ask(SOUND, Urgency::Failover));
        while self.now - began < PATIENCE {
            self.settle();
            if self.answered.contains(&number) {
                return Some(self.now - began);
            }
            self.run(Duration::from_millis(10));
        }
        None
    }
}

#[test]
fn a_silent_sa_of_one_subnet_does_not_hold_up_the_queries_to_another_one() {
    let mut world = World::new();
    assert!(world.time_to_path().is_some());
    for minute in 1..=5 {
        world.run(Duration::from_secs(60));
        let took = world.time_to_path();
        assert!(
            took.is_some_and(|took| took < Duration::from_secs(1)),
            "after {minute} min: {took:?}"
        );
    }
}

/// A query is given up after 45 s, and what is on its way then comes to nothing.
#[test]
fn an_sa_that_speaks_again_is_not_asked_what_nobody_waits_for() {
    let mut world = World::new();
    world.run(Duration::from_secs(1_800));
    world.wanted = 0;
    // Long enough for all that was asked to be given up, and for the last copies.
    world.run(Duration::from_secs(100));
    world.speaks = true;
    let before = world.sent[&SILENT.port];
    world.run(Duration::from_secs(60));
    let asked = world.sent[&SILENT.port] - before;
    assert!(asked <= 32, "{asked} requests");
}

/// Any user of the host is a client of ACM.
#[test]
fn clients_of_acm_do_not_hold_up_the_engines_queries_by_a_silent_sa() {
    let mut world = World::new();
    (world.wanted, world.by) = (16, Urgency::Client);
    for minute in 1..=5 {
        world.run(Duration::from_secs(60));
        let took = world.time_to_path();
        assert!(
            took.is_some_and(|took| took < Duration::from_secs(1)),
            "after {minute} min: {took:?}"
        );
    }
}
