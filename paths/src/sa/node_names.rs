// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names (node descriptions) of the nodes that connections lead to, as subnet administration knows them: people look for
//! a host, and not for a LID. Each is asked for once, a few in a second, and kept. No I/O here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::Lid;
use cm_msgs::sa::{NodeRecord, Record, SaMad};
use statemachine::{Backoff, PortId, Random, Time, Timers};

use super::{Ask, Failure, Response, User};

/// Names that are kept. A host has fewer peers, and nobody is worse off without a name.
const KNOWN_MAX: usize = 4096;
/// From one question to the next: when a fabric starts, all hosts ask, and paths matter more.
const PACE: Duration = Duration::from_millis(50);
/// Copies of a question before it is left alone for a while.
const TRIES: u8 = 3;
/// First pause before what failed is asked again; doubles with every failure.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest such pause: some SAs tell nobody of other nodes.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// A node may have been given another name: many are named only after their ports have come up.
const STALE: Duration = Duration::from_secs(600);
/// Not all hosts at the same time.
const JITTER_PERCENT: u8 = 20;

/// A port, by its base LID and by a local port of its subnet.
type Key = (PortId, Lid);

#[derive(Debug)]
struct Entry {
    name: Option<String>,
    backoff: Backoff,
    /// When a connection led there last.
    wanted: Time,
    /// When it is to be asked for again if it is still wanted; `None` while a question is to be sent, or is under way.
    again: Option<Time>,
}

impl Entry {
    fn new(wanted: Time) -> Self {
        Self {
            name: None,
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            wanted,
            again: None,
        }
    }
}

/// How a local port asks.
#[derive(Clone, Copy, Default, Debug)]
struct Asker {
    /// LMC of its subnet, as it was last known.
    lmc: u8,
    reaches_sm: bool,
}

/// Names of nodes, by their ports' LIDs.
#[derive(Debug)]
pub struct NodeNames {
    ports: BTreeMap<PortId, Asker>,
    known: BTreeMap<Key, Entry>,
    /// To be asked for.
    waiting: VecDeque<Key>,
    /// The question that is under way.
    asked: Option<(u32, Key)>,
    retries: Timers<Key>,
    next_number: u32,
    next_at: Time,
    random: Random,
}

impl NodeNames {
    /// Nothing is known yet. Times are spread by `random`.
    pub fn new(random: Random) -> Self {
        Self {
            ports: BTreeMap::new(),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            asked: None,
            retries: Timers::default(),
            next_number: 0,
            next_at: Time(0),
            random,
        }
    }

    /// The LMC of a local port's subnet, or `None` while the port does not reach its subnet manager. Names are shown
    /// meanwhile, since people look for them when a port is down, and are asked for again after that.
    pub fn handle_port(&mut self, port: PortId, lmc: Option<u8>) {
        let asker = self.ports.entry(port).or_default();
        let before = *asker;
        asker.reaches_sm = lmc.is_some();
        asker.lmc = lmc.unwrap_or(before.lmc);
        if asker.lmc != before.lmc {
            self.rebase(port);
        }
        if lmc.is_some() && !before.reaches_sm {
            self.ask_again(port);
        }
    }

    /// A local port is gone.
    pub fn handle_port_gone(&mut self, port: PortId) {
        self.ports.remove(&port);
        self.take(port);
    }

    /// Another subnet manager on this port, or the same that has started again: LIDs may have moved. A name is shown until
    /// the new one is known.
    pub fn handle_sm_changed(&mut self, port: PortId) {
        self.ask_again(port);
    }

    /// A connection leads from a local port to this LID.
    pub fn want(&mut self, now: Time, port: PortId, lid: Lid) {
        let key = self.key(port, lid);
        if let Some(entry) = self.known.get_mut(&key) {
            entry.wanted = now;
            let is_stale = entry.name.is_some() && entry.again.is_some_and(|at| at <= now);
            if is_stale {
                entry.again = None;
                self.waiting.push_back(key);
            }
            return;
        }
        if self.known.len() >= KNOWN_MAX {
            self.forget_oldest();
        }
        self.known.insert(key, Entry::new(now));
        self.waiting.push_back(key);
    }

    /// The name of the node whose port has this LID in the subnet of a local port, if it is known.
    pub fn name(&self, port: PortId, lid: Lid) -> Option<&str> {
        self.known.get(&self.key(port, lid))?.name.as_deref()
    }

    /// The next question to the SA, for [`User::Node`].
    pub fn poll_ask(&mut self, now: Time) -> Option<Ask> {
        if self.asked.is_some() || now < self.next_at {
            return None;
        }
        let key = loop {
            let key = self.waiting.pop_front()?;
            // It may have been forgotten, and be wanted again at another place of the queue.
            let waits = self.known.get(&key).is_some_and(|it| it.again.is_none());
            // A port that does not reach its subnet manager asks as soon as it does.
            if waits && self.ports.get(&key.0).is_some_and(|it| it.reaches_sm) {
                break key;
            }
        };
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.asked = Some((number, key));
        self.next_at = now + PACE;
        let mad = SaMad::get(0, &NodeRecord::any().lid(key.1));
        Some(Ask {
            tries: TRIES,
            ..Ask::new(User::Node(number), key.0, mad)
        })
    }

    /// What came of the question with this number.
    pub fn handle_reply(&mut self, now: Time, number: u32, reply: Result<Response, Failure>) {
        let Some((_, key)) = self.asked.take_if(|(asked, _)| *asked == number) else {
            return;
        };
        let Some(entry) = self.known.get_mut(&key) else {
            return;
        };
        match reply.and_then(|response| name_in(&response, key.1)) {
            Ok(name) => {
                entry.name = Some(name);
                entry.backoff.reset();
                entry.again = Some(now + self.random.jitter(STALE, JITTER_PERCENT));
            }
            Err(error) => {
                if entry.backoff.failures() == 0 {
                    let (port, lid) = (key.0.port, key.1.0);
                    tracing::debug!(port, lid, %error, "name of a peer's node not found");
                }
                // Whoever has that LID now is not known.
                entry.name = None;
                let pause = entry.backoff.next_delay();
                let again = now + self.random.jitter(pause, JITTER_PERCENT);
                entry.again = Some(again);
                self.retries.set(key, again);
            }
        }
    }

    /// When something is to be done.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.asked.is_none() && !self.waiting.is_empty();
        let next = waits.then_some(self.next_at);
        next.into_iter().chain(self.retries.next()).min()
    }

    /// Asks again for what has come due.
    pub fn handle_time(&mut self, now: Time) {
        while let Some(key) = self.retries.expired(now) {
            let Some(entry) = self.known.get_mut(&key) else {
                continue;
            };
            // Nobody may lead there any more.
            if now - entry.wanted > STALE {
                self.known.remove(&key);
            } else {
                entry.again = None;
                self.waiting.push_back(key);
            }
        }
    }

    fn key(&self, port: PortId, lid: Lid) -> Key {
        let lmc = self.ports.get(&port).map_or(0, |asker| asker.lmc);
        (port, lid.base(lmc))
    }

    /// All that a port leads to is to be asked for.
    fn ask_again(&mut self, port: PortId) {
        self.waiting.retain(|key| key.0 != port);
        let of_port = self.known.range_mut(all_of(port));
        for (&key, entry) in of_port {
            self.retries.cancel(&key);
            entry.again = None;
            entry.backoff.reset();
            self.waiting.push_back(key);
        }
        self.asked.take_if(|(_, key)| key.0 == port);
    }

    /// Ports have more or fewer LIDs than before.
    fn rebase(&mut self, port: PortId) {
        for ((_, lid), entry) in self.take(port) {
            let key = self.key(port, lid);
            self.waiting.push_back(key);
            let entry = Entry::new(entry.wanted);
            self.known.insert(key, entry);
        }
    }

    /// Forgets all that a port leads to.
    fn take(&mut self, port: PortId) -> Vec<(Key, Entry)> {
        let taken: Vec<_> = self.known.extract_if(all_of(port), |_, _| true).collect();
        for (key, _) in &taken {
            self.retries.cancel(key);
        }
        self.waiting.retain(|key| key.0 != port);
        self.asked.take_if(|(_, key)| key.0 == port);
        taken
    }

    fn forget_oldest(&mut self) {
        let oldest = self.known.iter().min_by_key(|(_, entry)| entry.wanted);
        if let Some((&key, _)) = oldest {
            self.known.remove(&key);
            self.retries.cancel(&key);
            self.waiting.retain(|waiting| *waiting != key);
        }
    }
}

/// The keys with this local port.
fn all_of(port: PortId) -> std::ops::RangeInclusive<Key> {
    (port, Lid(0))..=(port, Lid(u16::MAX))
}

/// The name in the record of the node whose port has this LID.
fn name_in(response: &Response, lid: Lid) -> Result<String, Failure> {
    let mut records = response.decode::<NodeRecord>()?;
    let record = records.find(|record| record.lid == lid);
    let name = record.map(|record| record.node_description.to_string());
    name.filter(|name| !name.is_empty()).ok_or(Failure::Absent)
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;
    use cm_msgs::sa::NodeDescription;

    use super::*;

    const PORT: PortId = PortId {
        node_guid: Guid(9),
        port: 1,
    };
    const SECOND: u64 = 1_000_000;

    fn names(lmc: u8) -> NodeNames {
        let mut names = NodeNames::new(Random::new([1; 32]));
        names.handle_port(PORT, Some(lmc));
        names
    }

    fn number(ask: &Ask) -> u32 {
        match ask.user {
            User::Node(number) => number,
            other => panic!("{other:?}"),
        }
    }

    fn answer(lid: u16, name: &str) -> Response {
        let mut description = NodeDescription::default();
        description.0[..name.len()].copy_from_slice(name.as_bytes());
        let record = NodeRecord::any();
        let record = record.lid(Lid(lid)).node_description(description);
        let SaMad { data, .. } = SaMad::get(0, &record);
        Response {
            attribute: NodeRecord::ATTRIBUTE,
            record_len: 112,
            data: data.to_vec(),
        }
    }

    /// Answers what is asked until nothing more is, with the node's LID in its name. The LIDs that were asked for.
    fn serve(names: &mut NodeNames, now: &mut Time, suffix: &str) -> Vec<u16> {
        let mut asked = Vec::new();
        loop {
            names.handle_time(*now);
            let Some(ask) = names.poll_ask(*now) else {
                match names.poll_timeout() {
                    Some(at) if at > *now => *now = at,
                    _ => return asked,
                }
                continue;
            };
            let (_, (_, lid)) = names.asked.expect("asked");
            asked.push(lid.0);
            let reply = answer(lid.0, &format!("node{}{suffix}", lid.0));
            names.handle_reply(*now, number(&ask), Ok(reply));
        }
    }

    #[test]
    fn a_node_is_asked_for_once_and_known_by_all_lids_of_its_port() {
        let mut names = names(2);
        let mut now = Time(SECOND);
        names.want(now, PORT, Lid(9));
        names.want(now, PORT, Lid(10));
        names.want(now, PORT, Lid(12));
        assert_eq!(serve(&mut names, &mut now, ""), [8, 12]);
        for lid in 8..12 {
            assert_eq!(names.name(PORT, Lid(lid)), Some("node8"));
        }
        let other = PortId::new(Guid(9), 2);
        assert_eq!(names.name(other, Lid(8)), None, "may be another subnet");
        names.want(now, PORT, Lid(8));
        assert_eq!(names.poll_timeout(), None);
        names.want(now + 2 * STALE, PORT, Lid(8));
        assert!(
            names.poll_ask(now + 2 * STALE).is_some(),
            "it may be another"
        );
    }

    #[test]
    fn questions_have_a_pace() {
        let mut names = names(0);
        let start = Time(SECOND);
        for lid in 1..=41 {
            names.want(start, PORT, Lid(lid));
        }
        let mut now = start;
        assert_eq!(serve(&mut names, &mut now, "").len(), 41);
        assert_eq!(now - start, 40 * PACE);
    }

    #[test]
    fn what_fails_is_asked_for_ever_more_rarely_while_a_connection_leads_there() {
        let mut names = names(0);
        let mut now = Time(SECOND);
        names.want(now, PORT, Lid(5));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let ask = names.poll_ask(now).expect("due");
            // A record of somebody else's is no answer.
            names.handle_reply(now, number(&ask), Ok(answer(6, "node6")));
            let at = names.poll_timeout().expect("again");
            pauses.push(at - now);
            names.handle_time(at);
            now = at;
        }
        assert!(
            pauses.is_sorted() && pauses[0] >= Duration::from_millis(1600),
            "{pauses:?}"
        );
        let ask = names.poll_ask(now).expect("due");
        names.handle_reply(now, number(&ask), Err(Failure::Timeout));
        now = now + 2 * STALE;
        names.handle_time(now);
        assert!(names.known.is_empty(), "no connection has led there since");
    }

    #[test]
    fn a_name_is_shown_while_its_port_is_down_and_asked_for_when_it_is_back() {
        let mut names = names(0);
        let mut now = Time(SECOND);
        names.want(now, PORT, Lid(5));
        serve(&mut names, &mut now, "");
        names.handle_port(PORT, None);
        assert_eq!(names.name(PORT, Lid(5)), Some("node5"));
        names.want(now, PORT, Lid(6));
        assert!(names.poll_ask(now).is_none(), "nobody can be asked");
        names.handle_port(PORT, Some(0));
        assert_eq!(serve(&mut names, &mut now, "b"), [5, 6]);
        assert_eq!(names.name(PORT, Lid(5)), Some("node5b"));
        names.handle_sm_changed(PORT);
        assert_eq!(serve(&mut names, &mut now, "c"), [5, 6]);
        names.handle_port(PORT, Some(1));
        assert_eq!(names.name(PORT, Lid(5)), None, "LID 4 may be another's");
        assert_eq!(serve(&mut names, &mut now, ""), [4, 6]);
        names.handle_port_gone(PORT);
        assert_eq!(names.name(PORT, Lid(5)), None);
    }

    #[test]
    fn those_that_were_wanted_last_are_kept() {
        let mut names = names(0);
        let most = u16::try_from(KNOWN_MAX).expect("fits");
        for lid in 1..=most + 10 {
            names.want(Time(u64::from(lid)), PORT, Lid(lid));
        }
        assert_eq!(
            (names.known.len(), names.waiting.len()),
            (KNOWN_MAX, KNOWN_MAX)
        );
        assert!(!names.known.contains_key(&(PORT, Lid(10))));
    }
}
