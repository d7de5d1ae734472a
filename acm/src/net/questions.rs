// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions of one endpoint to all others: which are under way, when they are repeated, and which
//! nobody answered lately.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::acm::Address;
use cm_msgs::acm::resolve::Answer;
use statemachine::{Backoff, Random, Time, Timers};

use super::heard::Announced;
use super::{Lookup, LookupError, Settings};

/// Questions that wait for their turn.
const QUEUE_LIMIT: usize = 4096;
/// Addresses of which it is remembered that nobody has them.
const UNANSWERED_LIMIT: usize = 4096;
/// First wait for an answer that is to check a claim: programs wait, and without an answer they connect
/// by IP, which is quicker than ibacm's waits.
const CHECK_WAIT: Duration = Duration::from_millis(250);
/// How long the answer of another port is put off, for the port that had the address to answer.
const OWNER_ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// A wait is spread upwards by up to this part of it.
const SPREAD: u128 = 4;

/// A question to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    /// Its number on the wire.
    pub tid: u64,
    /// Our own address.
    pub source: Address,
    /// The address in question.
    pub destination: Address,
}

/// What an answer is good for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// These lookups are answered by it.
    Lookups(Vec<u32>),
    /// Another port had the address, and may still answer; or it has answered as well.
    PutOff,
}

/// What is due for a question that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Overdue {
    /// It is to be sent once more.
    Again(Due),
    /// Nobody answered these lookups.
    Unanswered(Vec<u32>),
    /// The port that had the address has not answered, and another one has: these lookups are answered.
    Moved(Vec<u32>, Announced),
}

/// A claim that is to be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    /// The port that had the address.
    by: Gid,
    /// Another port's answer.
    other: Option<Announced>,
}

#[derive(Debug)]
struct OpenQuestion {
    source: Address,
    held: Option<Held>,
    /// Lookups that wait for the answer.
    waiting: Vec<u32>,
    /// 0 while it waits for its turn.
    tid: u64,
    sent: u8,
}

/// The questions of an endpoint.
#[derive(Debug)]
pub(super) struct Questions {
    asking: HashMap<Address, OpenQuestion>,
    /// Those that were sent, by their numbers.
    sent: HashMap<u64, Address>,
    /// When each of them is repeated or given up.
    timers: Timers<u64>,
    /// Those not yet sent.
    queue: VecDeque<Address>,
    unanswered: HashMap<Address, Time>,
    /// Numbers and the spread of waits.
    random: Random,
}

impl Questions {
    /// None; `random` makes the numbers hard to guess.
    pub(super) fn new(random: Random) -> Self {
        Self {
            asking: HashMap::new(),
            sent: HashMap::new(),
            timers: Timers::default(),
            queue: VecDeque::new(),
            unanswered: HashMap::new(),
            random,
        }
    }

    /// Asks what a lookup wants to know.
    ///
    /// # Errors
    /// Nobody answered lately, or too much is asked.
    pub(super) fn ask(&mut self, now: Time, lookup: &Lookup) -> Result<(), LookupError> {
        let destination = lookup.destination;
        let held = lookup.held_by.map(|by| Held { by, other: None });
        let unanswered = self.unanswered.get(&destination);
        if held.is_none() && unanswered.is_some_and(|until| *until > now) {
            return Err(LookupError::Unanswered);
        }
        if let Some(asking) = self.asking.get_mut(&destination) {
            asking.held = asking.held.or(held);
            asking.waiting.push(lookup.number);
            return Ok(());
        }
        if self.queue.len() >= QUEUE_LIMIT {
            return Err(LookupError::Busy);
        }
        self.queue.push_back(destination);
        let asking = OpenQuestion {
            source: lookup.source,
            held,
            waiting: vec![lookup.number],
            tid: 0,
            sent: 0,
        };
        self.asking.insert(destination, asking);
        Ok(())
    }

    /// The next question to send for the first time; `first_wait` until it is repeated.
    pub(super) fn next(&mut self, now: Time, depth: usize, first_wait: Duration) -> Option<Due> {
        if self.asking.len() - self.queue.len() >= depth {
            return None;
        }
        let destination = self.queue.pop_front()?;
        let tid = self.new_tid();
        let first_wait = self.first_wait(&destination, first_wait);
        let at = now + self.spread(first_wait);
        let asking = self.asking.get_mut(&destination)?;
        (asking.tid, asking.sent) = (tid, 1);
        self.sent.insert(tid, destination);
        self.timers.set(tid, at);
        Some(Due {
            tid,
            source: asking.source,
            destination,
        })
    }

    /// The number of a question.
    pub(super) fn new_tid(&mut self) -> u64 {
        self.random.nonzero_u64()
    }

    /// When [`Questions::overdue`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// What is due for one of the questions that were sent.
    pub(super) fn overdue(
        &mut self,
        now: Time,
        settings: &Settings,
        first_wait: Duration,
    ) -> Option<Overdue> {
        let tid = self.timers.expired(now)?;
        let destination = *self.sent.get(&tid)?;
        let asking = self.asking.get(&destination)?;
        if let Some(other) = asking.held.and_then(|held| held.other) {
            let waiting = self.end(&destination)?.waiting;
            return Some(Overdue::Moved(waiting, other));
        }
        let sent = asking.sent;
        if sent > settings.retries {
            let waiting = self.give_up(now, settings.unanswered_for, destination);
            return Some(Overdue::Unanswered(waiting));
        }
        let first_wait = self.first_wait(&destination, first_wait);
        // Waits are longer from copy to copy; after the last one only its answer is waited for.
        let last = sent == settings.retries;
        let wait = match last {
            true => first_wait,
            false => Backoff::new(first_wait, Duration::MAX).after(sent.into()),
        };
        let at = now + self.spread(wait);
        let asking = self.asking.get_mut(&destination)?;
        asking.sent = sent + 1;
        self.timers.set(tid, at);
        Some(Overdue::Again(Due {
            tid,
            source: asking.source,
            destination,
        }))
    }

    /// A question was answered by the port that `announced` names; `None`: it is not being asked. Of a
    /// question that is to check a claim, another answer than that of the port that had the address
    /// is put off for a while, and one that is an error does not count.
    pub(super) fn answered(
        &mut self,
        now: Time,
        answer: &Answer,
        announced: &Announced,
    ) -> Option<Answered> {
        let destination = *self.sent.get(&answer.tid)?;
        let asking = self.asking.get_mut(&destination)?;
        match &mut asking.held {
            Some(held) if held.by != announced.gid => {
                if answer.status == 0 && held.other.is_none() {
                    held.other = Some(*announced);
                    self.timers.set(answer.tid, now + OWNER_ANSWERS_WITHIN);
                }
                Some(Answered::PutOff)
            }
            _ => Some(Answered::Lookups(self.end(&destination)?.waiting)),
        }
    }

    /// The address spoke by itself: the lookups that asked for it, unless they are to check just that.
    pub(super) fn heard(&mut self, address: &Address) -> Vec<u32> {
        self.unanswered.remove(address);
        let asking = self.asking.get(address);
        if asking.is_some_and(|asking| asking.held.is_some()) {
            return Vec::new();
        }
        let Some(asking) = self.end(address) else {
            return Vec::new();
        };
        if asking.sent == 0 {
            self.queue.retain(|queued| queued != address);
        }
        asking.waiting
    }

    /// Gives everything up: the endpoint can no longer ask. The lookups concerned.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.queue.clear();
        self.sent.clear();
        self.timers = Timers::default();
        self.unanswered.clear();
        let asking = std::mem::take(&mut self.asking);
        asking
            .into_values()
            .flat_map(|asking| asking.waiting)
            .collect()
    }

    fn give_up(&mut self, now: Time, remember: Duration, destination: Address) -> Vec<u32> {
        if self.unanswered.len() >= UNANSWERED_LIMIT {
            self.unanswered.retain(|_, until| *until > now);
        }
        if self.unanswered.len() < UNANSWERED_LIMIT {
            self.unanswered.insert(destination, now + remember);
        }
        let asking = self.end(&destination);
        asking.map(|asking| asking.waiting).unwrap_or_default()
    }

    fn first_wait(&self, destination: &Address, of_others: Duration) -> Duration {
        let asking = self.asking.get(destination);
        match asking.is_some_and(|asking| asking.held.is_some()) {
            true => CHECK_WAIT,
            false => of_others,
        }
    }

    fn end(&mut self, destination: &Address) -> Option<OpenQuestion> {
        let asking = self.asking.remove(destination)?;
        self.sent.remove(&asking.tid);
        self.timers.cancel(&asking.tid);
        Some(asking)
    }

    /// A wait that is never shorter than `wait`, and different for everybody.
    fn spread(&mut self, wait: Duration) -> Duration {
        let micros = u32::try_from(wait.as_micros() / SPREAD).unwrap_or(u32::MAX - 1);
        wait + Duration::from_micros(self.random.below(micros + 1).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::PortPartition;
    use super::*;
    use cm_msgs::acm::resolve::Groups;
    use cm_msgs::{Guid, Lid, PKey};
    use statemachine::PortId;

    const WAIT: Duration = Duration::from_secs(2);

    fn ip(last: u8) -> Address {
        Address::Ip([10, 0, 0, last].into())
    }

    fn lookup(number: u32, source: u8, destination: u8) -> Lookup {
        Lookup {
            number,
            endpoint: PortPartition {
                port: PortId {
                    node_guid: Guid(1),
                    port: 1,
                },
                pkey: PKey(0xffff),
            },
            source: ip(source),
            destination: ip(destination),
            held_by: None,
        }
    }

    /// The lookup that is to check whether the port `held_by` still has the address 9.
    fn check(number: u32, held_by: u8) -> Lookup {
        Lookup {
            held_by: Some(Gid([held_by; 16])),
            ..lookup(number, 1, 9)
        }
    }

    fn announced(port: u8) -> Announced {
        Announced {
            gid: Gid([port; 16]),
            lid: Lid(port.into()),
            groups: Groups::default(),
        }
    }

    /// What an answer of a port is good for.
    fn answered(questions: &mut Questions, tid: u64, port: u8) -> Option<Answered> {
        let answer = Answer {
            tid,
            status: 0,
            groups: Groups::default(),
        };
        questions.answered(second(0), &answer, &announced(port))
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn the_same_question_is_asked_once() {
        let mut questions = Questions::new(Random::new([1; 32]));
        questions.ask(second(0), &lookup(1, 1, 9)).unwrap();
        questions.ask(second(0), &lookup(2, 1, 9)).unwrap();
        let due = questions.next(second(0), 4, WAIT).unwrap();
        assert_eq!((due.source, due.destination), (ip(1), ip(9)));
        assert_eq!(questions.next(second(0), 4, WAIT), None);
        assert_eq!(answered(&mut questions, due.tid ^ 1, 9), None);
        let both = Some(Answered::Lookups(vec![1, 2]));
        assert_eq!(answered(&mut questions, due.tid, 9), both);
        assert_eq!(answered(&mut questions, due.tid, 9), None, "answered twice");
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn no_more_than_depth_at_a_time_and_in_order() {
        let mut questions = Questions::new(Random::new([1; 32]));
        for last in 1..=3 {
            questions
                .ask(second(0), &lookup(last.into(), 0, last))
                .unwrap();
        }
        let first = questions.next(second(0), 2, WAIT).unwrap();
        let second_one = questions.next(second(0), 2, WAIT).unwrap();
        assert_eq!((first.destination, second_one.destination), (ip(1), ip(2)));
        assert_eq!(questions.next(second(0), 2, WAIT), None);
        answered(&mut questions, first.tid, 9);
        let third = questions.next(second(0), 2, WAIT).unwrap();
        assert_eq!(third.destination, ip(3));
        assert_ne!(third.tid, second_one.tid);
    }

    #[test]
    fn waits_grow_and_are_never_shorter_than_ibacms() {
        let settings = Settings::default();
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), &lookup(1, 1, 9)).unwrap();
        let first = questions.next(second(0), 1, WAIT).unwrap();
        let mut now = second(0);
        let mut waits = Vec::new();
        let given_up = loop {
            let at = questions.poll_timeout().unwrap();
            assert_eq!(questions.overdue(Time(at.0 - 1), &settings, WAIT), None);
            waits.push((at - now).as_secs_f64());
            now = at;
            match questions.overdue(now, &settings, WAIT).unwrap() {
                Overdue::Again(again) => assert_eq!(again, first, "the same number"),
                Overdue::Unanswered(lookups) => break lookups,
                moved @ Overdue::Moved(..) => panic!("{moved:?}"),
            }
        };
        assert_eq!(given_up, [1]);
        assert_eq!(waits.len(), 3, "two retries");
        for (wait, least) in waits.iter().zip([2.0, 4.0, 2.0]) {
            assert!((least..=least * 1.25).contains(wait), "{waits:?}");
        }
        let again = questions.ask(now, &lookup(2, 1, 9));
        assert_eq!(
            again,
            Err(LookupError::Unanswered),
            "and not asked again at once"
        );
        let later = now + settings.unanswered_for;
        assert_eq!(questions.ask(later, &lookup(3, 1, 9)), Ok(()));
    }

    #[test]
    fn who_speaks_is_there() {
        let settings = Settings::default();
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), &lookup(1, 1, 8)).unwrap();
        questions.ask(second(0), &lookup(2, 1, 9)).unwrap();
        questions.next(second(0), 1, WAIT).unwrap();
        assert_eq!(questions.heard(&ip(9)), [2], "while it waits for its turn");
        assert_eq!(questions.heard(&ip(8)), [1]);
        assert_eq!(questions.next(second(0), 1, WAIT), None);
        questions.ask(second(0), &lookup(3, 1, 9)).unwrap();
        questions.next(second(0), 1, WAIT).unwrap();
        let mut now = second(0);
        while questions.poll_timeout().is_some() {
            now = questions.poll_timeout().unwrap();
            questions.overdue(now, &settings, WAIT);
        }
        assert!(questions.heard(&ip(9)).is_empty(), "nobody waits any more");
        assert_eq!(
            questions.ask(now, &lookup(4, 1, 9)),
            Ok(()),
            "but it is known to be there"
        );
    }

    /// The question of a check, which has been sent.
    fn sent_check() -> (Questions, u64) {
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), &check(1, 4)).unwrap();
        let tid = questions.next(second(0), 1, WAIT).unwrap().tid;
        (questions, tid)
    }

    #[test]
    fn a_claimed_address_stays_where_its_port_still_answers() {
        let lookups = Some(Answered::Lookups(vec![1]));
        let (mut questions, tid) = sent_check();
        assert_eq!(answered(&mut questions, tid, 4), lookups);
        let (mut questions, tid) = sent_check();
        assert_eq!(answered(&mut questions, tid, 5), Some(Answered::PutOff));
        assert_eq!(answered(&mut questions, tid, 4), lookups, "the later one");
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn a_claimed_address_moves_if_its_port_is_silent_for_a_tenth_of_a_second() {
        let settings = Settings::default();
        let (mut questions, tid) = sent_check();
        assert_eq!(answered(&mut questions, tid, 5), Some(Answered::PutOff));
        assert_eq!(answered(&mut questions, tid, 6), Some(Answered::PutOff));
        let at = questions.poll_timeout().unwrap();
        assert_eq!(at, second(0) + Duration::from_millis(100));
        let moved = questions.overdue(at, &settings, WAIT);
        assert_eq!(moved, Some(Overdue::Moved(vec![1], announced(5))));
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn a_check_is_not_ended_by_another_claim_nor_by_an_error_of_another_port() {
        let (mut questions, tid) = sent_check();
        assert_eq!(questions.heard(&ip(9)), [0; 0]);
        let error = Answer {
            tid,
            status: 3,
            groups: Groups::default(),
        };
        let put_off = questions.answered(second(0), &error, &announced(5));
        assert_eq!(put_off, Some(Answered::PutOff));
        let again = questions.poll_timeout().unwrap() - second(0);
        assert!(again >= CHECK_WAIT, "still asked");
        let lookups = Some(Answered::Lookups(vec![1]));
        assert_eq!(answered(&mut questions, tid, 4), lookups);
    }

    #[test]
    fn a_check_that_nobody_answers_ends_soon() {
        let settings = Settings::default();
        let (mut questions, _) = sent_check();
        let mut copies = 0;
        let end = loop {
            let at = questions.poll_timeout().unwrap();
            match questions.overdue(at, &settings, WAIT).unwrap() {
                Overdue::Again(_) => copies += 1,
                Overdue::Unanswered(_) => break at,
                moved @ Overdue::Moved(..) => panic!("{moved:?}"),
            }
        };
        assert_eq!(copies, 2);
        assert!(end - second(0) < Duration::from_millis(1500), "{end:?}");
    }

    #[test]
    fn a_check_that_joins_a_question_makes_it_one() {
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), &lookup(1, 1, 9)).unwrap();
        questions.ask(second(0), &check(2, 4)).unwrap();
        let tid = questions.next(second(0), 1, WAIT).unwrap().tid;
        assert_eq!(answered(&mut questions, tid, 5), Some(Answered::PutOff));
        let lookups = Some(Answered::Lookups(vec![1, 2]));
        assert_eq!(answered(&mut questions, tid, 4), lookups);
    }

    #[test]
    fn too_many_questions_are_refused() {
        let mut questions = Questions::new(Random::new([7; 32]));
        let to = |number: u32| Lookup {
            destination: Address::Ip(number.into()),
            ..lookup(number, 1, 0)
        };
        for number in 0..QUEUE_LIMIT as u32 {
            questions.ask(second(0), &to(number)).unwrap();
        }
        let one_more = questions.ask(second(0), &to(u32::MAX));
        assert_eq!(one_more, Err(LookupError::Busy));
        assert_eq!(questions.ask(second(0), &to(5)), Ok(()));
        assert_eq!(questions.clear().len(), QUEUE_LIMIT + 1);
    }
}
