// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions of one endpoint to all others: which are under way, when they are repeated, and which
//! nobody answered lately.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cm_msgs::acm::Address;
use statemachine::{Backoff, Random, Time, Timers};

use super::{LookupError, Settings};

/// Questions that wait for their turn.
const QUEUE_LIMIT: usize = 4096;
/// Addresses of which it is remembered that nobody has them.
const UNANSWERED_LIMIT: usize = 4096;
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

#[derive(Debug)]
struct OpenQuestion {
    source: Address,
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

    /// Lookup `number` wants to know where `destination` is.
    ///
    /// # Errors
    /// Nobody answered lately, or too much is asked.
    pub(super) fn ask(
        &mut self,
        now: Time,
        number: u32,
        source: Address,
        destination: Address,
    ) -> Result<(), LookupError> {
        if self
            .unanswered
            .get(&destination)
            .is_some_and(|until| *until > now)
        {
            return Err(LookupError::Unanswered);
        }
        if let Some(asking) = self.asking.get_mut(&destination) {
            asking.waiting.push(number);
            return Ok(());
        }
        if self.queue.len() >= QUEUE_LIMIT {
            return Err(LookupError::Busy);
        }
        self.queue.push_back(destination);
        let asking = OpenQuestion {
            source,
            waiting: vec![number],
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
        let tid = self.random.nonzero_u64();
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

    /// When [`Questions::overdue`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A question that is to be sent once more, or the lookups of one that nobody answered.
    pub(super) fn overdue(
        &mut self,
        now: Time,
        settings: &Settings,
        first_wait: Duration,
    ) -> Option<Result<Due, Vec<u32>>> {
        let tid = self.timers.expired(now)?;
        let destination = *self.sent.get(&tid)?;
        let sent = self.asking.get(&destination)?.sent;
        if sent > settings.retries {
            return Some(Err(self.give_up(now, settings.unanswered_for, destination)));
        }
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
        Some(Ok(Due {
            tid,
            source: asking.source,
            destination,
        }))
    }

    /// The question with this number was answered: the address, and the lookups that asked.
    pub(super) fn answered(&mut self, tid: u64) -> Option<(Address, Vec<u32>)> {
        let destination = *self.sent.get(&tid)?;
        let asking = self.end(&destination)?;
        Some((destination, asking.waiting))
    }

    /// The address spoke by itself: the lookups that asked for it.
    pub(super) fn heard(&mut self, address: &Address) -> Vec<u32> {
        self.unanswered.remove(address);
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
    use super::*;

    const WAIT: Duration = Duration::from_secs(2);

    fn ip(last: u8) -> Address {
        Address::Ip([10, 0, 0, last].into())
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn the_same_question_is_asked_once() {
        let mut questions = Questions::new(Random::new([1; 32]));
        questions.ask(second(0), 1, ip(1), ip(9)).unwrap();
        questions.ask(second(0), 2, ip(1), ip(9)).unwrap();
        let due = questions.next(second(0), 4, WAIT).unwrap();
        assert_eq!((due.source, due.destination), (ip(1), ip(9)));
        assert_eq!(questions.next(second(0), 4, WAIT), None);
        assert_eq!(questions.answered(due.tid ^ 1), None);
        assert_eq!(questions.answered(due.tid), Some((ip(9), vec![1, 2])));
        assert_eq!(questions.answered(due.tid), None, "answered twice");
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn no_more_than_depth_at_a_time_and_in_order() {
        let mut questions = Questions::new(Random::new([1; 32]));
        for last in 1..=3 {
            questions
                .ask(second(0), last.into(), ip(0), ip(last))
                .unwrap();
        }
        let first = questions.next(second(0), 2, WAIT).unwrap();
        let second_one = questions.next(second(0), 2, WAIT).unwrap();
        assert_eq!((first.destination, second_one.destination), (ip(1), ip(2)));
        assert_eq!(questions.next(second(0), 2, WAIT), None);
        questions.answered(first.tid);
        let third = questions.next(second(0), 2, WAIT).unwrap();
        assert_eq!(third.destination, ip(3));
        assert_ne!(third.tid, second_one.tid);
    }

    #[test]
    fn waits_grow_and_are_never_shorter_than_ibacms() {
        let settings = Settings::default();
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), 1, ip(1), ip(9)).unwrap();
        let first = questions.next(second(0), 1, WAIT).unwrap();
        let mut now = second(0);
        let mut waits = Vec::new();
        let given_up = loop {
            let at = questions.poll_timeout().unwrap();
            assert_eq!(questions.overdue(Time(at.0 - 1), &settings, WAIT), None);
            waits.push((at - now).as_secs_f64());
            now = at;
            match questions.overdue(now, &settings, WAIT).unwrap() {
                Ok(again) => assert_eq!(again, first, "the same number"),
                Err(lookups) => break lookups,
            }
        };
        assert_eq!(given_up, [1]);
        assert_eq!(waits.len(), 3, "two retries");
        for (wait, least) in waits.iter().zip([2.0, 4.0, 2.0]) {
            assert!((least..=least * 1.25).contains(wait), "{waits:?}");
        }
        let again = questions.ask(now, 2, ip(1), ip(9));
        assert_eq!(
            again,
            Err(LookupError::Unanswered),
            "and not asked again at once"
        );
        let later = now + settings.unanswered_for;
        assert_eq!(questions.ask(later, 3, ip(1), ip(9)), Ok(()));
    }

    #[test]
    fn who_speaks_is_there() {
        let settings = Settings::default();
        let mut questions = Questions::new(Random::new([7; 32]));
        questions.ask(second(0), 1, ip(1), ip(8)).unwrap();
        questions.ask(second(0), 2, ip(1), ip(9)).unwrap();
        questions.next(second(0), 1, WAIT).unwrap();
        assert_eq!(questions.heard(&ip(9)), [2], "while it waits for its turn");
        assert_eq!(questions.heard(&ip(8)), [1]);
        assert_eq!(questions.next(second(0), 1, WAIT), None);
        questions.ask(second(0), 3, ip(1), ip(9)).unwrap();
        questions.next(second(0), 1, WAIT).unwrap();
        let mut now = second(0);
        while questions.poll_timeout().is_some() {
            now = questions.poll_timeout().unwrap();
            questions.overdue(now, &settings, WAIT);
        }
        assert!(questions.heard(&ip(9)).is_empty(), "nobody waits any more");
        assert_eq!(
            questions.ask(now, 4, ip(1), ip(9)),
            Ok(()),
            "but it is known to be there"
        );
    }

    #[test]
    fn too_many_questions_are_refused() {
        let mut questions = Questions::new(Random::new([7; 32]));
        for number in 0..QUEUE_LIMIT as u32 {
            let destination = Address::Ip(number.into());
            questions
                .ask(second(0), number, ip(1), destination)
                .unwrap();
        }
        let one_more = Address::Ip(u32::MAX.into());
        assert_eq!(
            questions.ask(second(0), 1, ip(1), one_more),
            Err(LookupError::Busy)
        );
        let known = Address::Ip(5.into());
        assert_eq!(questions.ask(second(0), 1, ip(1), known), Ok(()));
        assert_eq!(questions.clear().len(), QUEUE_LIMIT + 1);
    }
}
